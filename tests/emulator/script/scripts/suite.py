"""A suite of tests as people write them for kernels: run by ``pytest --cutesync-check``."""

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, total: cute.Tensor, atomic: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    if cutlass.const_expr(atomic):
        cute.arch.atomic_add(total.iterator, x[i])
    else:
        total[0] = total[0] + x[i]


@cute.jit
def add_all(x: cute.Tensor, total: cute.Tensor, atomic: cutlass.Constexpr):
    kernel(x, total, atomic).launch(grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("atomic", [True, False])
def test_sum(atomic):
    x, total = torch.arange(64, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    add_all(from_dlpack(x), from_dlpack(total), atomic)
    assert not atomic or int(total[0]) == 2016


def test_without_a_kernel():
    assert torch.cuda.device_count() == 1
