"""A host function of one's own, y = a x + y, for the host costs of launch.py."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

import cutesync as cs

THREADS = 256


@cute.kernel
def axpy_kernel(x: cute.Tensor, y: cute.Tensor, a: cutlass.Float32):
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        y[i] = a * x[i] + y[i]


@cute.jit
def axpy(x: cute.Tensor, y: cute.Tensor, a: cutlass.Float32, stream: cuda.CUstream):
    grid = (cute.ceil_div(x.shape[0], THREADS), 1, 1)
    axpy_kernel(x, y, a).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)


def calls(data) -> dict:
    """The same launch by ``cs.launch``, by what ``cs.compile`` returns, and by what the DSL's compiler returns, which
    is given its own tensors, made once."""
    x = torch.from_numpy(data).cuda()
    y, default = x.clone(), cuda.CUstream(0)
    compiled, tensors = cs.compile(axpy, x, y, 0.5), (from_dlpack(x), from_dlpack(y))
    theirs = cute.compile(axpy, *tensors, 0.5, default)
    return {
        "cs.launch(axpy, x, y, a) on torch tensors": lambda: cs.launch(axpy, x, y, 0.5),
        "cs.compile(axpy, ...)(x, y, a) on torch tensors": lambda: compiled(x, y, 0.5),
        "cute.compile(axpy, ...)(x, y, a, stream)": lambda: theirs(*tensors, 0.5, default),
    }
