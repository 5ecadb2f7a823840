"""The kernel of ``searchsorted``: a binary search for each element. Device code."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...sync.overlap import await_launches
from ..coordinates import element
from .search import SearchSpec


class Search:
    """The kernel, in blocks of ``threads``."""

    def __init__(self, spec: SearchSpec, threads: int) -> None:
        self.spec, self.threads, self.smem = spec, threads, 0

    @cute.jit
    def __call__(
        self,
        a: cute.Pointer,
        v: cute.Pointer,
        sorter: cute.Pointer,
        out: cute.Pointer,
        length: Int64,
        count: Int64,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_searchsorted", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(a, v, sorter, out, length, count).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self, a: cute.Pointer, v: cute.Pointer, sorter: cute.Pointer, out: cute.Pointer, length: Int64, count: Int64
    ):
        await_launches()
        place = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if place < count:
            wanted = self.value(element(v + place))
            low, high = Int64(0), Int64(length)
            while low < high:
                middle = (low + high) // 2
                index = Int64(element(sorter + middle)) if self.spec.sorter else middle
                if self.before(self.value(element(a + index)), wanted):
                    low = middle + 1
                else:
                    high = middle
            cute.make_tensor(out + place, cute.make_layout((1,)))[0] = low

    def value(self, loaded):
        return self.spec.dtype.cutlass(loaded)

    def before(self, found, wanted) -> Boolean:
        """Whether the result lies behind an element of the array; NaN comes last."""
        if self.spec.dtype.kind != "f":
            return found <= wanted if self.spec.right else found < wanted
        if self.spec.right:
            return (found <= wanted) | (wanted != wanted)
        return (found < wanted) | ((wanted != wanted) & (found == found))
