"""Rearranging a block's items through shared memory, in the manner of ``cub::BlockExchange``.

Blocked: the thread of rank t holds items ``t * n .. t * n + n - 1``, the order of collectives. Striped: it holds items
``t, t + threads, t + 2 * threads, ...``, the order in which a block reads memory in whole lines.
"""

from __future__ import annotations

import cutlass.cute as cute

from ..arguments import whole
from ..errors import ArgumentValueError, explain
from .edges import Fixed, allocate, block_threads, given_or_allocated, rank, stored
from .operators import block_shape

BANKS = 32


class Exchange(Fixed):
    """``blocked_to_striped`` and ``striped_to_blocked`` of ``items_per_thread`` items a thread.

    ``dtype`` is the DSL class of the items, ``block_dim`` the block's shape (a multiple of 32 threads). Make one at the
    top of the kernel: it allocates its shared memory then, ``Exchange.count(...)`` items, unless ``storage`` gives it a
    tensor of as many. One block barrier a call; the next use of the storage requires another
    (``cute.arch.sync_threads()``). Fresh register tensors are returned. After every 32 items one place is left free, so
    that a power of two of items a thread causes no bank conflicts.
    """

    def __init__(self, dtype, block_dim, items_per_thread: int, storage=None) -> None:
        if whole(items_per_thread, "items_per_thread") < 1:
            raise ArgumentValueError(explain("items_per_thread", items_per_thread, "1 or more"))
        self.dtype, self.block_dim, self.items_per_thread = dtype, block_shape(block_dim), items_per_thread
        self._threads = block_threads(block_dim)
        self._storage = given_or_allocated(storage, dtype, self.count(block_dim, items_per_thread))

    @staticmethod
    def count(block_dim, items_per_thread: int) -> int:
        """How many items of shared memory an Exchange takes."""
        items = block_threads(block_dim) * items_per_thread
        return items + items // BANKS

    @staticmethod
    def storage(dtype, block_dim, items_per_thread: int):
        """Shared memory for one Exchange, to be shared by several collectives that use it in turn."""
        return allocate(dtype, Exchange.count(block_dim, items_per_thread))

    def blocked_to_striped(self, items):
        return self._through(items, self._blocked(), self._striped())

    def striped_to_blocked(self, items):
        return self._through(items, self._striped(), self._blocked())

    def _blocked(self) -> list:
        first = rank(self.block_dim) * self.items_per_thread
        return [first + i for i in range(self.items_per_thread)]

    def _striped(self) -> list:
        return [rank(self.block_dim) + i * self._threads for i in range(self.items_per_thread)]

    def _through(self, items, puts: list, gets: list):
        if cute.size(items) != self.items_per_thread:
            raise ArgumentValueError(
                explain(
                    "items", f"{cute.size(items)} a thread", f"{self.items_per_thread}, the Exchange's items_per_thread"
                )
            )
        for i, place in enumerate(puts):
            self._storage[place + place // BANKS] = stored(self.dtype)(self.dtype(items[i]))
        cute.arch.sync_threads()
        moved = cute.make_rmem_tensor((self.items_per_thread,), stored(self.dtype))
        for i, place in enumerate(gets):
            moved[i] = self._storage[place + place // BANKS]
        return moved
