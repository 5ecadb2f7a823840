"""Host functions as users write them: their parameters are what ``cs.launch`` must serve."""

from __future__ import annotations

from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

SCALE = 1


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, by, threads: cutlass.Constexpr):
    i = cute.arch.block_idx()[0] * threads + cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        y[i] = (x[i] * by * SCALE).to(y.element_type)


@cute.jit
def scale(
    x: cute.Tensor,
    y: cute.Tensor,
    by: cutlass.Float32,
    threads: cutlass.Constexpr = 32,
    stream: cuda.CUstream = None,
):
    """y = by * x."""
    blocks = cute.ceil_div(x.shape[0], threads)
    scale_kernel(x, y, by, threads).launch(grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream)


@cute.kernel
def fill_kernel(y: cute.Tensor, value: cutlass.Constexpr, _: cutlass.Constexpr):
    y[cute.arch.thread_idx()[0]] = cutlass.Float32(value)


@cute.jit
def fill(y: cute.Tensor, value: cutlass.Constexpr, text: cutlass.Constexpr):
    """y = value, for 32 elements."""
    fill_kernel(y, value, text).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def twice(x: cute.Tensor, y: cute.Tensor, stream):
    """y = 4 * x, by two kernels."""
    scale(x, y, 2.0, 32, stream)
    scale(y, y, 2.0, 64, stream)


@cute.jit
def without_stream(x: cute.Tensor, y: cute.Tensor):
    scale_kernel(x, y, cutlass.Float32(2), 32).launch(grid=(cute.ceil_div(x.shape[0], 32), 1, 1), block=(32, 1, 1))


@cute.kernel
def copy_kernel(x: cute.Tensor, y: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        y[i] = x[i]


@cute.jit
def copy(x, y: cute.Tensor):
    """Parameters without an annotation are tensors, too."""
    copy_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def transpose_kernel(x: cute.Tensor, y: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    row, column = i // x.shape[1], i % x.shape[1]
    if row < x.shape[0]:
        y[row, column] = x[row, column]


@cute.jit
def copy_matrix(x: cute.Tensor, y: cute.Tensor):
    transpose_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.kernel
def vector_kernel(x: cute.Tensor, y: cute.Tensor):
    """One 16-byte copy a thread: the compiler must know that addresses and strides allow it."""
    i = cute.arch.thread_idx()[0]
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), x.element_type, num_bits_per_copy=128)
    cute.copy(atom, cute.zipped_divide(x, (1, 4))[None, i], cute.zipped_divide(y, (1, 4))[None, i])


@cute.jit
def copy_vectors(x: cute.Tensor, y: cute.Tensor):
    vector_kernel(x, y).launch(grid=(1, 1, 1), block=(8, 1, 1))


@cute.kernel
def numbers_kernel(out: cute.Tensor, values):
    out[0] = cutlass.Float64(values[0]) + 0.0
    for k in cutlass.range_constexpr(1, len(values)):
        out[k] = values[k].to(cutlass.Float64)


@cute.jit
def numbers(
    out: cute.Tensor,
    a: cutlass.Int8,
    b: cutlass.Uint16,
    c: cutlass.Int64,
    d: cutlass.Uint64,
    e: cutlass.Float16,
    f: cutlass.BFloat16,
    g: cutlass.Float64,
    h: int,
    i: float,
    j,
):
    values = (a, b, c, d, e, f, g, h, i, j)
    numbers_kernel(out, values).launch(grid=(1, 1, 1), block=(1, 1, 1))


@cute.kernel
def choose_kernel(out: cute.Tensor, x: cute.Tensor | None, flag, kind: cutlass.Constexpr):
    value = cutlass.Int32(7)
    if cutlass.const_expr(x is not None):
        value = x[0]
    if flag:
        value += 100
    out[0] = kind(value)


@cute.jit
def choose(out: cute.Tensor, x: cute.Tensor | None, flag: cutlass.Boolean, kind: cutlass.Constexpr):
    choose_kernel(out, x, flag, kind).launch(grid=(1, 1, 1), block=(1, 1, 1))


class Pair(NamedTuple):
    x: cute.Tensor
    by: cutlass.Int32


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, by):
    i = cute.arch.thread_idx()[0]
    y[i] = y[i] + x[i] * by


@cute.jit
def add_all(xs: list, pair: Pair, y: cute.Tensor):
    """y += the sum of the list + pair.by * pair.x, by a kernel each."""
    for x in xs:
        add_kernel(x, y, 1).launch(grid=(1, 1, 1), block=(32, 1, 1))
    add_kernel(pair.x, y, pair.by).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def add_rest(y: cute.Tensor, *xs):
    for x in xs:
        add_kernel(x, y, 1).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Adder:
    """A kernel as an object."""

    def __init__(self, by: int) -> None:
        self.by = by

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, stream: cuda.CUstream):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Pointer, y: cute.Pointer):
        i = cute.arch.thread_idx()[0]
        cute.make_tensor(y, cute.make_layout(32))[i] = cute.make_tensor(x, cute.make_layout(32))[i] + self.by


@cute.kernel
def atomic_kernel(x: cute.Tensor, total: cute.Tensor):
    i = cute.arch.block_idx()[0] * 32 + cute.arch.thread_idx()[0]
    cute.arch.atomic_add(total.iterator, x[i], sem="relaxed", scope="gpu")


@cute.jit
def atomic_sum(x: cute.Tensor, total: cute.Tensor):
    atomic_kernel(x, total).launch(grid=(cute.size(x) // 32, 1, 1), block=(32, 1, 1))


@cute.kernel
def last_kernel(x: cute.Tensor):
    """Every block swaps in its number: which one stays follows from the schedule."""
    if cute.arch.thread_idx()[0] == 0:
        cute.arch.atomic_exch(x.iterator, x.element_type(cute.arch.block_idx()[0] + 1), sem="relaxed", scope="gpu")


@cute.jit
def last_block(x: cute.Tensor):
    last_kernel(x).launch(grid=(8, 1, 1), block=(32, 1, 1))


@cute.jit
def keyword(x: cute.Tensor, *, y: cute.Tensor):
    copy_kernel(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))
