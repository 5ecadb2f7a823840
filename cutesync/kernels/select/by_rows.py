"""Selections by rows: tiles have positions of one row each. Device code.

apart     what is selected of a row goes to the start of a row of the results, which may be filled
packed    it goes behind that of the row before; ``starts`` has where each row's begins, and where the last one's ends
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int64

from ...warp import LANES
from ..gather import Gather
from .base import Arguments
from .fill import fill_rest
from .spec import Selection
from .store import put_last_length, put_long
from .tally import Before


def of_row(a: Arguments, selection: Selection, outer: Gather | None, row) -> Arguments:
    """The arguments of a row: arrays that are not gathered, and results that lie apart, begin at it. ``outer`` knows
    where the rows of results begin, unless they lie side by side."""
    first = row * a.pitch
    if selection.layout is None:
        a = a._replace(x=tuple(array + first for array in a.x))
    if selection.kind == "bits":
        word = row * ((a.pitch + LANES - 1) // LANES)
        a = a._replace(where=a.where + word if selection.layout is None else a.where.begin(word))
    elif selection.kind == "mask" and selection.layout is None:
        a = a._replace(where=a.where + first)
    if selection.rows == "packed":
        return a._replace(ranks=a.ranks + first if outer is None else a.ranks.moved(outer.offsets(row)[0]))
    results = [*a.out, *a.places.arrays, *([a.ranks] if selection.inverse else [])]
    results += [] if selection.lengths is None else [a.lengths]
    if outer is None:
        offsets = [row * (a.pitch if array is a.ranks else a.capacity) for array in results] + [row]
        moved = [array + offset for array, offset in zip(results, offsets)]
    else:
        offsets = list(outer.offsets(row).values())
        moved = [array.moved(offset) for array, offset in zip(results, offsets)]
    lengths = a.lengths if selection.lengths is None else moved.pop()
    ranks = moved.pop() if selection.inverse else a.ranks
    out, places = tuple(moved[: len(a.out)]), a.places._replace(arrays=tuple(moved[len(a.out) :]))
    return a._replace(out=out, places=places, ranks=ranks, lengths=lengths, found=a.found + offsets[-1])


def begin_row(selection: Selection, before: Before, summed, base) -> tuple:
    """What comes before the first tile of a row, number ``base``, as far as it is known; and how many tiles are part of
    that: ``before`` is what comes before tile ``summed`` of an earlier row."""
    if selection.rows == "packed":
        return Before(before.count, Int64(0)), summed
    return Before.nothing(), base


@cute.jit
def report_row(a: Arguments, own: Arguments, selection: cutlass.Constexpr, total: Before, last, worker, workers, lane):
    """The warps that have the last tile of a row: store what is known of it. ``own`` are the arguments of the row;
    ``last``: there is no row behind it."""
    if (worker == 0) & (lane == 0):
        if cutlass.const_expr(selection.rows == "packed"):
            if last:
                put_long(a.starts, a.rows, total.count)
                put_long(a.found, 0, total.count)
        else:
            put_long(own.found, 0, total.count)
        if cutlass.const_expr(selection.lengths is not None):
            if (total.last > 0) & (total.count <= own.capacity):
                put_last_length(own, total)
    if cutlass.const_expr(selection.filled and selection.rows == "apart"):
        fill_rest(own, selection, total.count, worker, workers, lane)
