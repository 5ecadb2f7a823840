"""Items between global memory and the registers of a block, with the end of the array minded."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute

from ..arguments import choice, whole
from ..errors import ArgumentValueError, explain
from .edges import Fixed, block_threads, rank
from .operators import block_shape

ARRANGEMENTS = ("blocked", "striped")


class _Tile(Fixed):
    """What Load and Store share: which item of a tile is whose."""

    def __init__(self, block_dim, items_per_thread: int, arrangement: str = "blocked") -> None:
        choice(arrangement, "arrangement", ARRANGEMENTS)
        if whole(items_per_thread, "items_per_thread") < 1:
            raise ArgumentValueError(explain("items_per_thread", items_per_thread, "1 or more"))
        self.block_dim, self.items_per_thread, self.arrangement = block_shape(block_dim), items_per_thread, arrangement
        self.threads = block_threads(block_dim)

    def place(self, i: int):
        """The place in the tile of this thread's item ``i``."""
        thread = rank(self.block_dim)
        return thread * self.items_per_thread + i if self.arrangement == "blocked" else thread + i * self.threads


class Load(_Tile):
    """``Load(block_dim, items_per_thread, arrangement)(source, first, fill)``: a fresh register tensor of this thread's
    items of the tile that begins at item ``first`` of the 1-D tensor ``source``, ``fill`` (default 0) where the tensor
    has ended.

    "blocked" (thread t holds items t * n and on) is what the collectives take; "striped" reads whole lines of memory,
    and ``block.Exchange`` makes it blocked.
    """

    @cute.jit
    def __call__(self, source: cute.Tensor, first, fill: cutlass.Constexpr = 0):
        items = cute.make_rmem_tensor((self.items_per_thread,), source.element_type)
        for i in cutlass.range_constexpr(self.items_per_thread):
            place = first + self.place(i)
            items[i] = source.element_type(fill)
            if place < source.shape[0]:  # type: ignore[index]
                items[i] = source[place]
        return items


class Store(_Tile):
    """``Store(block_dim, items_per_thread, arrangement)(target, first, items)``: the inverse of Load; what lies beyond
    the end of the 1-D tensor ``target`` is left out."""

    @cute.jit
    def __call__(self, target: cute.Tensor, first, items: cute.Tensor):
        for i in cutlass.range_constexpr(self.items_per_thread):
            place = first + self.place(i)
            if place < target.shape[0]:  # type: ignore[index]
                target[place] = target.element_type(items[i])  # type: ignore[arg-type]
