"""Flags and differences of rows of a few columns, all rows of a slice being equal."""

from __future__ import annotations

from cutlass import Int64, cute

from ...monoid import choose
from .flat import FlatFlags
from .strided import Arguments
from .vector import Vector


class ColumnFlags(FlatFlags):
    """As FlatFlags, in which the columns are the inner axis: a thread has results side by side, whichever columns they
    are of, and an element is its own neighbour."""

    def elements(self, a: Arguments, v: Vector, alike: bool) -> tuple[list, list]:
        distance, starts = self.place(a.extents[0]), [a.x + self.offset(v.digits[1:], a.steps[0][1:])]
        if v.limit is not None and len(v.places) > 1:  # may lie in two slices
            last = self.split(a, v.first + (len(v.places) - 1))
            starts.append(a.x + self.offset(last[1:], a.steps[0][1:]))
        column, items = v.places[0] % distance, []
        for place in v.places:
            start = starts[0]
            if len(starts) > 1:
                address = choose(place >= v.places[0], *(each.toint() for each in starts))
                start = cute.make_ptr(start.dtype, address, cute.AddressSpace.gmem, assumed_align=self.size)
            items.append(self.get(start + Int64(column) * a.steps[0][0], 0))
            column = choose(column + 1 == distance, self.place(0), column + 1)
        return starts, items

    def neighbours(self, a: Arguments, side: int, v: Vector, known, alike: bool) -> list:
        return known[1]
