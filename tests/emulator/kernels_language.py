"""One kernel for expressions of the DSL: y = op(x) for every element."""

import cuda.bindings.driver as driver
import cutlass
import cutlass.cute as cute


@cute.kernel
def map_kernel(x: cute.Pointer, y: cute.Pointer, op: cutlass.Constexpr):
    i = cute.arch.thread_idx()[0]
    cute.make_tensor(y, cute.make_layout(32))[i] = op(cute.make_tensor(x, cute.make_layout(32))[i])


@cute.jit
def apply(x: cute.Pointer, y: cute.Pointer, op: cutlass.Constexpr, stream: driver.CUstream):
    map_kernel(x, y, op).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


@cute.kernel
def print_kernel(x: cute.Pointer):
    i = cute.arch.thread_idx()[0]
    value = cute.make_tensor(x, cute.make_layout(32))[i]
    if i < 2:
        cute.printf("lane %d has %f", i, value)
    cute.testing.assert_(value < 31.0, "too large")


@cute.jit
def print_and_assert(x: cute.Pointer, stream: driver.CUstream):
    print_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)
