"""Runs that a block's threads hold, decoded in windows, in the manner of ``cub::BlockRunLengthDecode``."""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute

from ..arguments import whole
from ..errors import ArgumentValueError, explain
from .edges import Fixed, allocate, block_threads, rank, stored
from .operators import block_shape
from .scan import Scan


class RunLengthDecode(Fixed):
    """Decodes ``runs_per_thread`` runs a thread into ``items_per_thread`` items a thread, window after window.

    ``dtype`` is the DSL class of the values, ``block_dim`` the block's shape (a multiple of 32 threads). Runs are
    blocked, in register tensors of values and of lengths (0 or more, fewer than 2**31 in all). Make one at the top of
    the kernel: it allocates its shared memory then, a value and an Int32 for each run and a ``Scan``.

    ``start(values, lengths)`` returns in every thread how many items there are (Int32); two block barriers.
    ``decode(first)`` returns ``(items, places)``: fresh register tensors of the items ``first + t * n`` and on of the
    thread of rank t (blocked), and of their places within their runs (Int32). Items from the end of the runs on are 0.
    It has no barrier, so it may be called for any windows, also by some of the threads; the next ``start`` may follow.
    """

    def __init__(self, dtype, block_dim, runs_per_thread: int, items_per_thread: int) -> None:
        for name, count in (("runs_per_thread", runs_per_thread), ("items_per_thread", items_per_thread)):
            if whole(count, name) < 1:
                raise ArgumentValueError(explain(name, count, "1 or more"))
        self.dtype, self.block_dim = dtype, block_shape(block_dim)
        self.runs_per_thread, self.items_per_thread = runs_per_thread, items_per_thread
        self._runs = block_threads(block_dim) * runs_per_thread
        self._values, self._ends = allocate(dtype, self._runs), allocate(Int32, self._runs)
        self._scan = Scan(Int32, block_dim)

    def start(self, values, lengths):
        for name, given in (("values", values), ("lengths", lengths)):
            if cute.size(given) != self.runs_per_thread:
                came, allowed = f"{cute.size(given)} a thread", f"{self.runs_per_thread}, as runs_per_thread says"
                raise ArgumentValueError(explain(name, came, allowed))
        mine = cute.make_rmem_tensor((self.runs_per_thread,), Int32)
        for i in range(self.runs_per_thread):
            mine[i] = Int32(lengths[i])
        ends, total = self._scan.inclusive(mine)
        first = rank(self.block_dim) * self.runs_per_thread
        for i in range(self.runs_per_thread):
            self._ends[first + i] = ends[i]
            self._values[first + i] = stored(self.dtype)(self.dtype(values[i]))
        cute.arch.sync_threads()
        return total

    def decode(self, first=0):
        kind = stored(self.dtype)
        items = cute.make_rmem_tensor((self.items_per_thread,), kind)
        places = cute.make_rmem_tensor((self.items_per_thread,), Int32)
        at = Int32(first) + rank(self.block_dim) * self.items_per_thread
        run = _search(self._ends, at)
        for i in range(self.items_per_thread):
            run = _skip(self._ends, at + i, run)
            items[i], places[i] = _item(self._values, self._ends, at + i, run)
        return items, places


@cute.jit
def _search(ends: cute.Tensor, position):
    """How many runs end at a position or before it."""
    low, high = Int32(0), Int32(cute.size(ends))
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= position:
            low = middle + 1
        else:
            high = middle
    return low


@cute.jit
def _skip(ends: cute.Tensor, position, run):
    """The run of a position, which is ``run`` or a later one; the last one if the position lies behind all runs."""
    last = Int32(cute.size(ends) - 1)
    run = cutlass.min(run, last)
    while (run < last) & (ends[run] <= position):
        run += 1
    return run


@cute.jit
def _item(values: cute.Tensor, ends: cute.Tensor, position, run):
    """The item of a position, and its place in its run; 0 behind all runs."""
    item, place = values.element_type(0), Int32(0)
    if position < ends[run]:
        item = values.element_type(values[run])  # type: ignore[arg-type]
        place = position
        if run > 0:
            place = position - Int32(ends[run - 1])
    return item, place
