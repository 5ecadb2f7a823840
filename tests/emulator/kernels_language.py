"""One kernel for expressions of the DSL: y = op(x) for every element."""

import cutlass
import cutlass.cute as cute

from .hosts import host


@host(block=32)
@cute.kernel
def apply(x: cute.Pointer, y: cute.Pointer, op: cutlass.Constexpr):
    i = cute.arch.thread_idx()[0]
    cute.make_tensor(y, cute.make_layout(32))[i] = op(cute.make_tensor(x, cute.make_layout(32))[i])


@host(block=32)
@cute.kernel
def print_and_assert(x: cute.Pointer):
    i = cute.arch.thread_idx()[0]
    value = cute.make_tensor(x, cute.make_layout(32))[i]
    if i < 2:
        cute.printf("lane %d has %f", i, value)
    cute.testing.assert_(value < 31.0, "too large")
