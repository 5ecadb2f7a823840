"""The vectors of threads that flag arrays without gaps, and their order where neighbours lie in other rows. Device
code."""

from __future__ import annotations

from typing import Any, NamedTuple

from cutlass import Int64, Uint32

from ...monoid import choose
from .policy import LANES
from .strided import Arguments
from .strided_choice import ALL_ROWS, runs_of_row


class Vector(NamedTuple):
    """Results side by side, which all count: the number of the first, its digits, and the places of all in their
    slices, of which there are two at most. ``limit``: the places of a slice that count; None if no row begins or ends
    at these, on a side that matters. What is said of a vector to be ``alike``: it lies in one slice, and rows begin or
    end at all of its places or at none; at all if one side alone matters."""

    first: Any
    digits: list
    places: list
    limit: Any = None


def in_turn(a: Arguments, number, vector: int, turn: int) -> tuple[Any, Any]:
    """The vector of thread ``number``, and the first one behind those of its row. Consecutive warps have the same
    places of ``turn`` rows, so that neighbours are in the cache of the multiprocessor."""
    row, last = a.extents[0], vector - 1
    rows, runs = Uint32(a.work // row), Uint32(runs_of_row(row, vector))
    rest, group, each = Uint32(number // LANES), Uint32(0), rows
    if turn < ALL_ROWS:
        each = Uint32(turn)
        group = rest // (each * runs)
        rest = rest - group * each * runs
    run = rest // each
    at = Int64(group * each + (rest - run * each))
    first, end = (at * row + last) // vector, ((at + 1) * row + last) // vector
    return first + Int64(run * LANES) + number % LANES, choose(at < Int64(rows), end, Int64(0))
