"""What kernels share whose blocks take tiles by tickets: the warp that takes tickets. Device code.

A ticket is asked for when there is an empty stage for its tile: all blocks wait for a tile that waits.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ..sync.gather import Entry, enter
from ..sync.overlap import LINE_BYTES, ask_for_line, await_launches
from ..sync.ring import Cursor
from .coordinates import element


def positions(length, count: cute.Pointer) -> Any:
    """How many of ``length`` positions count where the number is in memory."""
    return cutlass.min(cutlass.max(Int64(element(count)), Int64(0)), length)


class AsksEarly:
    """What a ``PlainKernel`` adds that asks the L2 for tiles while the launch before still runs: those with the ranks
    of its blocks, of which some blocks get the numbers (``asked`` a block).

    A subclass says whether its parameters are read from memory (``reads_at_once``): then it cannot ask. It has the
    ``buffers`` of its arrays' tiles of ``tile`` elements, and says which arrays are asked for (``asked_arrays``)."""

    waits = False
    asked = 4
    reads_at_once: bool
    tile: int
    threads: int
    buffers: tuple
    asked_arrays: Any
    arguments: Any
    body: Any

    def main(self, *given: Any) -> None:
        a = self.early(*given)
        await_launches()
        self.body(self.arguments(*given) if a is None else a)

    def early(self, *given: Any) -> Any:
        """Ask for tiles: the parameters of the launch, or None if they are read from memory."""
        if self.reads_at_once:
            return None
        a = self.arguments(*given)
        self.ask(a)
        return a

    @cute.jit
    def ask(self, a: Any):
        rank, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        for k in cutlass.range_constexpr(self.asked):
            first = Int64(rank + k * blocks) * self.tile
            count = Int32(cutlass.max(cutlass.min(a.count - first, Int64(self.tile)), Int64(0)))
            for array, buffer in zip(self.asked_arrays(a), self.buffers):
                ask_for_elements(array, buffer.dtype.size, first, count, self.threads)


@cute.jit
def ask_for_elements(array: cute.Pointer, size: cutlass.Constexpr, first, count, threads: cutlass.Constexpr):
    """Ask the L2 for the lines of ``count`` elements of ``size`` bytes from element ``first`` of an array on. All
    ``threads`` of a block call, before ``await_launches``."""
    each = LINE_BYTES // size
    thread, _, _ = cute.arch.thread_idx()
    for place in cutlass.range(thread * each, count, threads * each, unroll=1):
        ask_for_line(array + (first + place))


@cute.jit
def take_tiles(
    ring: cutlass.Constexpr,
    tags: cute.Tensor,
    counters: cute.Pointer,
    everything,
    turn: tuple,
    bring: cutlass.Constexpr,
    lane,
    ahead: cutlass.Constexpr = None,
):
    """A warp takes tiles until there are no more of ``everything``: ``bring(cursor, number)`` fills a stage with each.
    Its turn is ``(first, step)``: its stages are ``first``, ``first + step``, ... of the ring. Lane 0 stores the
    launch's tag at ``first``. Return the cursor of the next stage, which is empty, and the last entry.

    ``ahead(cursor)``, if given, waits until it depends on this block alone that the stage becomes empty: a tile is then
    asked for while its stage is being emptied."""
    first, step = turn
    word, number = Int64(0), Int32(0)
    if lane == 0:
        entry = enter(counters)
        tags[first] = entry.tag
        word, number = entry.word, entry.arrived
    at = Cursor(first, Int32(1))  # the stages are empty at first
    number = Int32(cute.arch.shuffle_sync(number, 0))
    while number < everything:
        bring(at, number)
        at = ring.next(at, step)
        if cutlass.const_expr(ahead is not None):
            ahead(at)
        else:
            ring.acquire_alone(at)  # every lane waits, and they meet in the shuffle
        if lane == 0:
            entry = enter(counters)
            word, number = entry.word, entry.arrived
        number = Int32(cute.arch.shuffle_sync(number, 0))
        if cutlass.const_expr(ahead is not None):
            ring.acquire_alone(at)
    return at, Entry(word, number)


@cute.jit
def take_tile(tags: cute.Tensor, counters: cute.Pointer, known, bring: cutlass.Constexpr, lane):
    """One warp of a block that has one tile, in the first stage: ``bring(cursor, number)`` fills it with the tile of
    the number that the block is ``known`` to have, or with that of a ticket if it is None; lane 0 then stores the
    launch's tag in ``tags``. Return the entry."""
    word, number = Int64(0), Int32(0)
    if cutlass.const_expr(known is not None):
        number = known
    else:
        if lane == 0:
            entry = enter(counters)
            word, number, tags[0] = entry.word, entry.arrived, entry.tag
        number = Int32(cute.arch.shuffle_sync(number, 0))
    bring(Cursor(Int32(0), Int32(1)), number)
    return Entry(word, number)
