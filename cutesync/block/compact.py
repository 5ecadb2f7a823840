"""Compaction of a block's items: those that flags select, in order, side by side."""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, cute

from ..arguments import whole
from ..errors import ArgumentValueError, explain
from .edges import Fixed, block_threads, given_or_allocated, rank, stored
from .operators import block_shape
from .scan import Scan


class Compact(Fixed):
    """``select`` and ``partition`` of ``items_per_thread`` items a thread.

    ``dtype`` is the DSL class of the items, ``block_dim`` the block's shape (a multiple of 32 threads). Items and flags
    are blocked: the thread of rank t holds items ``t * n .. t * n + n - 1``, in register tensors of n; a flag selects
    where it is not 0. Both return ``(items, count)``: a fresh register tensor in striped arrangement (the thread has
    items ``t, t + threads, ...`` of the result, so that a block stores whole lines), and in every thread the number of
    selected items (Int32). Make one at the top of the kernel: it allocates its shared memory then, an item for each
    item of the block unless ``storage`` gives it, and a ``Scan``. Two block barriers a call: calls may follow each
    other, but another use of the ``storage`` requires a barrier (``cute.arch.sync_threads()``) before it.
    """

    def __init__(self, dtype, block_dim, items_per_thread: int, storage=None) -> None:
        if whole(items_per_thread, "items_per_thread") < 1:
            raise ArgumentValueError(explain("items_per_thread", items_per_thread, "1 or more"))
        self.dtype, self.block_dim, self.items_per_thread = dtype, block_shape(block_dim), items_per_thread
        self._threads = block_threads(block_dim)
        self._storage = given_or_allocated(storage, dtype, self._threads * items_per_thread)
        self._scan = Scan(Int32, block_dim)

    def select(self, items, flags):
        """The selected items. What lies from ``count`` on is unspecified."""
        return self._compact(items, flags, False)

    def partition(self, items, flags):
        """The selected items, and behind them the others, both in order."""
        return self._compact(items, flags, True)

    def _compact(self, items, flags, all_of_them: bool):
        for name, given in (("items", items), ("flags", flags)):
            if cute.size(given) != self.items_per_thread:
                came, allowed = f"{cute.size(given)} a thread", f"{self.items_per_thread}, as items_per_thread says"
                raise ArgumentValueError(explain(name, came, allowed))
        chosen = [flags[i] != flags.element_type(0) for i in range(self.items_per_thread)]
        mine = cute.make_rmem_tensor((1,), Int32)
        mine[0] = sum((Int32(flag) for flag in chosen), start=Int32(0))
        before, count = self._scan.exclusive(mine)
        place, first = before[0], rank(self.block_dim) * self.items_per_thread
        for i, flag in enumerate(chosen):
            _put(self._storage, flag, place, stored(self.dtype)(self.dtype(items[i])))
            if all_of_them:
                _put(
                    self._storage,
                    cutlass.not_(flag),
                    count + (first + i - place),
                    stored(self.dtype)(self.dtype(items[i])),
                )
            place = place + Int32(flag)
        cute.arch.sync_threads()
        moved = cute.make_rmem_tensor((self.items_per_thread,), stored(self.dtype))
        stop = Int32(self._threads * self.items_per_thread) if all_of_them else count
        for i in range(self.items_per_thread):
            moved[i] = _get(self._storage, rank(self.block_dim) + i * self._threads, stop)
        return moved, count


@cute.jit
def _put(storage: cute.Tensor, chosen: Boolean, place, item):
    if chosen:
        storage[place] = item


@cute.jit
def _get(storage: cute.Tensor, place, stop):
    """The item at a place before ``stop``, else 0."""
    item = storage.element_type(0)
    if place < stop:
        item = storage.element_type(storage[place])  # type: ignore[arg-type]
    return item
