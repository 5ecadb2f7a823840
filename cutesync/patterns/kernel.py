"""What the pattern kernels share: one argument list, and how their parts of an array are addressed."""

from __future__ import annotations

import math

from cutlass import Int64, cute
from cutlass.memory import SmemAllocator

from cutesync.dtypes import DType
from cutesync.kernels.plain import PlainKernel
from cutesync.monoid import traced

WARP = 32
MOST_SHARED = 227 * 1024  # bytes a block may have


class PatternKernel(PlainKernel):
    """A compiled pattern: a subclass sets ``name``, ``threads`` and ``smem`` (bytes), and defines ``body``.

    ``body(x, out, state, n, m)`` gets two arrays, a word or more of state, an extent and a small number; each pattern
    says what they mean.
    """

    threads, blocks_per_sm = 256, 1

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def main(self, x: cute.Pointer, out: cute.Pointer, state: cute.Pointer, n: Int64, m: Int64) -> None:
        self.body(x, out, state, n, m)


def part(pointer, start, count):
    """``count`` (below 2**31) elements from element ``start`` (Int64) on: CuTe layouts index in 32 bits."""
    return cute.make_tensor(pointer + start, cute.make_layout(count))


def shared(kind, *shape: int, align: int = 1):
    """A tensor in the block's shared memory; ``align`` is in bytes. Call it at the top of a kernel."""
    layout = cute.make_layout(shape if len(shape) > 1 else shape[0])
    return cute.make_tensor(SmemAllocator().allocate_array(kind, math.prod(shape), byte_alignment=align), layout)


def mapped(fn, dtype):
    """The element that a user's ``fn`` makes of an element; a bool is 0 or 1."""
    kind = dtype.cutlass
    return lambda value: kind(traced("fn", fn, (kind(value),), kind, dtype))
