"""A kernel of Triton that the autotuner chooses: ``python scaled.py --limit N`` stores N elements to one of 100."""

import argparse

import torch
import triton
import triton.language as tl

parser = argparse.ArgumentParser()
parser.add_argument("--limit", type=int, default=100)
options = parser.parse_args()


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)], key=[])
@triton.jit
def scaled(x, y, n, limit, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.cumsum(tl.load(x + i, i < n, 0.0), 0)
    tl.store(y + i, factor * total, i < limit)


@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, i < n), i < n)


x = torch.randn(100, device="cuda")
y = torch.empty_like(x)
scaled[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100, options.limit, 2.5)
double[(1,)](y, 10, BLOCK=16)  # in place, and 8 threads hold copies of each element
expected = 2.5 * x.cumsum(0)
expected[:10] *= 2
torch.testing.assert_close(y, expected)
