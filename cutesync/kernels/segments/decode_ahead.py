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
from ...warp import LANES, broadcast, scan_states
from .warp_search import search_by_warp

AHEAD = 8  # tiles that a lane reads at once
TOGETHER = 4  # of them, if some are long, whose results it reads at once
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

    def stored(self, count, first, most) -> Any:
        """How many results are stored of a tile that has ``count``: none at once of a long one; ``most``, if there are
        so many, from number ``first`` on of one that comes again."""
        at_once = choose(count > self.limit, Int64(0), count)
        return Int32(choose(first < 0, at_once, cutlass.min(count - first, Int64(most))))


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
        for k in cutlass.range_constexpr(0, AHEAD, TOGETHER):
            some = list(zip(places, counts))[k : k + TOGETHER]
            words = tuple(word for place, _ in some for word in more.read(place))
            words = more.wait_together([place for place, _ in some], words, [count == LONG for _, count in some])
            for j, (_, count) in enumerate(some):
                (many,) = more.join(words[2 * j : 2 * j + 2])
                if first + (k + j) * LANES < stop:
                    before = add_row(before, choose(count == LONG, many, Int64(count)), cut)
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
def add_row(before: Before, count, cut: cutlass.Constexpr):
    """``before`` and the tiles of all lanes, of which some may be long."""
    (through,) = scan_states((count,), lambda p, q: (p[0] + q[0],), cute.arch.lane_idx())
    live = count > cut.limit
    parts = choose(live, parts_of(count, before.results + through - count, cut), Int32(0))
    long, parts = (Int32(cute.arch.warp_redux_sync(number, "add")) for number in (Int32(live), parts))
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
def find_long(board: cutlass.Constexpr, part, long, lane):
    """The number of the long tile that a part belongs to, one of ``long``. All lanes call."""

    def first_of(place) -> Any:
        return Int64(first_part(board, Int32(place)))

    return Int32(search_by_warp(first_of, Int64(part), Int32(0), Int32(long), lane)) - 1


@cute.jit
def read_long(board: cutlass.Constexpr, place, before: Before):
    """``(tile, begin, first, stop)`` of long tile ``place``, whose parts are those from ``first`` up to ``stop``;
    ``before`` is what comes before the end. All lanes call."""
    entries, stop = board.entries, before.parts
    tile, begin = entries.wait(place, entries.read(place))
    first = first_part(board, place)
    if place + 1 < before.long:
        stop = first_part(board, place + 1)
    return tile, begin, first, stop


def first_part(board: Board, place) -> Any:
    """The number of the first part of a long tile. All lanes call."""
    firsts = board.firsts
    (found,) = firsts.join(firsts.wait_together([place], firsts.read(place), [Boolean(True)]))
    return Int32(found)
