"""A script as people write them: torch tensors on a GPU, a compiled function, a direct call, a benchmark."""

import argparse

import cutlass
import cutlass.cute as cute
import cutlass.testing
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64))
    tile[i] = x[i]
    if cutlass.const_expr(sync):
        cute.arch.sync_threads()
    y[i] = tile[63 - i]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    kernel(x, y, sync).launch(grid=(1, 1, 1), block=(64, 1, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    fault = parser.parse_args().fault
    torch.manual_seed(1)
    x = torch.randn(64, device="cuda")
    y = torch.empty_like(x)
    a, b = from_dlpack(x), from_dlpack(y[:32] if fault == "short" else y)
    reverse(a, b, fault != "race")
    if fault == "short":
        b = from_dlpack(torch.zeros(32, device="cuda"))
    compiled = cute.compile(reverse, a, b, fault != "race")
    cutlass.testing.benchmark(compiled, kernel_arguments=cutlass.testing.JitArguments(a, b), iterations=1000)
    torch.cuda.synchronize()
    if fault == "none":
        torch.testing.assert_close(y, torch.tensor(x.cpu().numpy()[::-1].copy(), device="cuda"))
    print("done with", torch.cuda.get_device_properties(0).multi_processor_count, "multiprocessors")


if __name__ == "__main__":
    main()
