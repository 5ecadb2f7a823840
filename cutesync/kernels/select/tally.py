"""What is known of a run of positions: how many are selected, and where the last of these is. Device code.

A tally is a word of 32 bits: the number of selected positions, and in the upper half the place of the last one, counted
from 1 within its chunk or tile (0: there is none). Runs of up to 32768 positions have one. Only selections that write
the lengths of runs need the upper half (``places``); the others leave it 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...sync.gather import Slots
from ...warp import LANES, scan_states, select, shift_up, zeros

TYPES = (Int32,)  # of what a tile publishes: its tally
AHEAD = 8  # tiles that a lane reads at once


def pack(count, last=0) -> Any:
    return Int32(count) | (Int32(last) << 16)


def count_of(tally) -> Any:
    return Int32(tally) & 0xFFFF


def last_of(tally) -> Any:
    return (Int32(tally) >> 16) & 0xFFFF


class Before(NamedTuple):
    """What comes before a tile in the array: how many positions are selected, and the place of the last one, counted
    from 1 (0: there is none)."""

    count: Any
    last: Any

    @classmethod
    def nothing(cls) -> Before:
        return cls(Int64(0), Int64(0))


def scan_chunks(tally, lane, chunk: int, places: bool) -> Any:
    """Lane k has the tally of chunk k of a tile, of ``chunk`` positions each: ``(before, through)`` it, of the tile."""
    last = choose(last_of(tally) > 0, last_of(tally) + lane * chunk, Int32(0))
    state = (count_of(tally), last) if places else (count_of(tally),)
    through = scan_states(state, later, lane)
    before = select(lane > 0, shift_up(through), zeros((Int32,) * len(state)))
    return pack(*before), pack(*through)


def later(a, b):
    """Two runs of chunks: their counts, and the place of the last selected position, if known."""
    return (a[0] + b[0], *(cutlass.max(x, y) for x, y in zip(a[1:], b[1:])))


@cute.jit
def add_tile(before: Before, tally, position, places: cutlass.Constexpr):
    """What comes before the next tile, after a tile at ``position``."""
    count = before.count + count_of(tally)
    last = before.last
    if cutlass.const_expr(places):
        last = choose(last_of(tally) > 0, position + last_of(tally), before.last)
    return Before(count, last)


@cute.jit
def add_tiles(
    slots: Slots, before: Before, first, stop, base, tile: cutlass.Constexpr, places: cutlass.Constexpr, lane
):
    """``before``, which comes before tile ``first``, and the tallies of the next ``AHEAD * LANES`` tiles, as far as
    they come before tile ``stop``: a lane reads up to ``AHEAD`` of them at once, and waits for all together: in turns,
    each that is not published at first would cost a trip to memory (H200, run lengths of 2**18 int32 in a graph: 5.8
    us, together 4.4). All lanes call. Places are counted from tile ``base`` on, if there is one: those of tiles before
    it do not count."""
    numbers = [first + k * LANES + lane for k in range(AHEAD)]
    places_of = [cutlass.min(number, stop - 1) for number in numbers]
    reads = [word for place in places_of for word in slots.read(place)]
    here = []
    for number, word in zip(numbers, slots.wait_together(places_of, reads, [Boolean(True)] * AHEAD)):
        (tally,) = slots.join((word,))
        tally = choose(number < stop, tally, Int32(0))
        if cutlass.const_expr(base is not None):
            tally = choose(number < base, count_of(tally), tally)
        here.append((number - first, tally))
    count, last = add_lanes(here, tile, places)
    if cutlass.const_expr(places):
        start = Int64(first if base is None else first - base) * tile
        last = choose(last > 0, start + last, before.last)
    return Before(before.count + count, last if places else before.last)


def add_lanes(tallies: list, tile: int, places: bool) -> tuple:
    """``(count, last)`` of all lanes' ``(number, tally)`` of tiles of ``tile`` positions, whose numbers rise: how many
    positions are selected, and the place of the last one, counted from 1 in tile 0 (0: there is none)."""
    count, last = Int32(0), Int32(0)
    for number, tally in tallies:
        count = count + count_of(tally)
        if places:
            last = choose(last_of(tally) > 0, number * tile + last_of(tally), last)
    count = Int32(cute.arch.warp_redux_sync(count, "add"))
    return count, Int32(cute.arch.warp_redux_sync(last, "max")) if places else last
