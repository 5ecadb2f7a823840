"""The kernel of ``searchsorted``: a binary search for each element. Device code."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass.cute as cute
from cutlass import Boolean, Int64

from ..coordinates import element, store
from ..gather import At, Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .search import Searching

# A launch's arguments: ``count`` elements ``v`` are searched for among the first ``length`` of ``a``.
Arguments = namedtuple("Arguments", "a v sorter out length count")


class Search(PlainKernel):
    """The kernel, in blocks of ``threads``."""

    name = "searchsorted"

    def __init__(self, searching: Searching, threads: int) -> None:
        super().__init__(threads)
        self.searching = searching
        self.gather: Any = None if searching.layout is None else Gather(searching.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        a, v, sorter, n, out = arrays
        length, count, step, sorter_step, *rest = numbers
        if self.gather is not None:
            self.gather.bind(rest)
            v, out = At(self.gather, 0, v), At(self.gather, 1, out)
        length = positions(length, n) if self.searching.counted else length
        return Arguments(Stepped(a, step), v, Stepped(sorter, sorter_step), out, length, count)

    @cute.jit
    def body(self, a: Arguments):
        place = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if place < a.count:
            wanted = self.value(element(a.v + place))
            low, high = Int64(0), Int64(a.length)
            while low < high:
                middle = (low + high) // 2
                index = Int64(element(a.sorter + middle)) if self.searching.sorter else middle
                if self.before(self.value(element(a.a + index)), wanted):
                    low = middle + 1
                else:
                    high = middle
            store(a.out + place, low)

    def value(self, loaded):
        return self.searching.dtype.cutlass(loaded)

    def before(self, found, wanted) -> Boolean:
        """Whether the result lies behind an element of the array; NaN comes last."""
        if self.searching.dtype.kind != "f":
            return found <= wanted if self.searching.right else found < wanted
        if self.searching.right:
            return (found <= wanted) | (wanted != wanted)
        return (found < wanted) | ((wanted != wanted) & (found == found))
