"""What comes before a tile of runs, and which tiles several blocks store. Device code.

A tile publishes how many results it has. One that has more than a limit is long: several blocks store it, a part of
``unit`` results each. Long tiles are numbered, and so are all their parts; each has an entry in a list, by its number:
the tile, where its results begin, and the number of its first part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...sync.gather import Slots
from ...warp import LANES, broadcast, reduce_commutative, scan_states
from .warp_search import search_by_warp

AHEAD = 8  # tiles that a lane reads at once
# What is published of a tile: how many results it has, or LONG; of a long one, how many; and its entry
RESULTS, MORE, ENTRY, FIRST = (Int32,), (Int64,), (Int32, Int64), (Int32,)
LONG = -1


class Before(NamedTuple):
    """What comes before a tile: results, long tiles, and parts of these."""

    results: Any
    long: Any
    parts: Any


class Board(NamedTuple):
    """Where tiles and long tiles are published; ``places`` of each."""

    start: Any
    places: Any
    tag: Any

    @property
    def results(self) -> Slots:
        return Slots(self.start, self.places, self.tag, RESULTS)

    @property
    def more(self) -> Slots:
        return Slots(self.start + self.places, self.places, self.tag, MORE)

    @property
    def entries(self) -> Slots:
        return Slots(self.start + 3 * self.places, self.places, self.tag, ENTRY)

    @property
    def firsts(self) -> Slots:
        return Slots(self.start + 6 * self.places, self.places, self.tag, FIRST)


class Cut(NamedTuple):
    """How long tiles are cut: those of more than ``limit`` results into parts of ``unit``; there are ``size`` results
    at most."""

    limit: Any
    unit: Any
    size: Any


@cute.jit
def add_tiles(board: cutlass.Constexpr, before: Before, first, stop, cut: cutlass.Constexpr, lane):
    """``before``, which comes before tile ``first``, and the next ``AHEAD * LANES`` tiles, as far as they come before
    tile ``stop``; waits for them. All lanes call."""
    slots, more = board.results, board.more
    numbers = [first + k * LANES + lane for k in range(AHEAD)]
    places = [cutlass.min(number, stop - 1) for number in numbers]
    reads = [word for place in places for word in slots.read(place)]
    counts, long = [], Boolean(False)
    for number, word in zip(numbers, slots.wait_together(places, reads, [Boolean(True)] * AHEAD)):
        (results,) = slots.join((word,))
        counts.append(choose(number < stop, results, Int32(0)))
        long = long | (counts[-1] == LONG)
    if cute.arch.vote_any_sync(long):
        for place, count in zip(places, counts):
            before = add_long(more, before, place, count, cut, lane)
    else:
        total = Int32(cute.arch.warp_redux_sync(sum(counts, Int32(0)), "add"))
        before = Before(before.results + total, before.long, before.parts)
    return before


@cute.jit
def publish(board: cutlass.Constexpr, tile, count, limit):
    """One thread: publish how many results a tile has."""
    if count > limit:
        board.results.publish(tile, (Int32(LONG),))
        board.more.publish(tile, (count,))
    else:
        board.results.publish(tile, (Int32(count),))


@cute.jit
def add_long(more: cutlass.Constexpr, before: Before, place, known, cut: cutlass.Constexpr, lane):
    """``before`` and the tiles of all lanes, of which some may be long."""
    count = Int64(known)
    if known == LONG:
        (count,) = more.wait(place, more.read(place))
    (through,) = scan_states((count,), lambda p, q: (p[0] + q[0],), lane)
    begin = before.results + through - count
    parts = choose(count > cut.limit, parts_of(count, begin, cut), Int32(0))
    long, parts = reduce_commutative((Int32(count > cut.limit), parts), lambda p, q: (p[0] + q[0], p[1] + q[1]))
    (total,) = broadcast((through,), LANES - 1)
    return Before(before.results + total, before.long + long, before.parts + parts)


def parts_of(count, begin, cut: Cut) -> Any:
    """How many parts a long tile of ``count`` results from ``begin`` on has: none behind the last result."""
    return Int32((exist(count, begin, cut.size) + (cut.unit - 1)) // cut.unit)


def exist(count, begin, size) -> Any:
    """How many of ``count`` results from ``begin`` on there are if there are ``size`` in all."""
    known = cutlass.max(cutlass.min(count, size - begin), Int64(0))
    return choose(begin >= 0, known, Int64(0))  # sums of wrong lengths may be anything


@cute.jit
def find_part(board: cutlass.Constexpr, part, long, lane):
    """``(tile, begin, first)`` of the long tile that a part belongs to, one of ``long``. All lanes call."""
    firsts, entries = board.firsts, board.entries

    def first_of(place) -> Any:
        place = Int32(place)
        (found,) = firsts.join(firsts.wait_together([place], firsts.read(place), [Boolean(True)]))
        return Int64(found)

    place = Int32(search_by_warp(first_of, part, Int32(0), Int32(long), lane)) - 1
    tile, begin = entries.wait(place, entries.read(place))
    return tile, begin, Int32(first_of(place))
