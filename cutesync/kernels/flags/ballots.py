"""Flags as bits along the axis on which neighbours lie nearest, at any distance: reversed, stepped and short rows.

A lane flags one item, so a warp reads items side by side, and a vote gives the word of 32 of them. A warp has
``unroll`` words, which it stores side by side. Where a few ``columns`` lie inside the flagged axis, a lane has the
items of all of them, and a warp as many words of each. No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, cute

from ...monoid import choose
from ...warp import LANES
from .strided import Arguments, StridedKernel


class BallotFlags(StridedKernel):
    """The kernel. Digit 0 of the number of a warp is that of its words in the row; the others are those of the row."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.unroll, self.columns, self.piece = policy.unroll, policy.columns, policy.piece
        self.place = Int64 if policy.wide else Int32

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a run; its warp's threads have 32 numbers."""
        digits, lane = self.split(a, number // LANES), Int32(number % LANES)
        begin = self.place(digits[0]) * (LANES * self.unroll)
        if begin < self.place(a.n):
            x = a.x + self.offset(digits[1:], a.steps[0][1:])
            rows = [out + self.offset(digits[1:], steps[1:]) for out, steps in zip(a.outs, a.steps[1:])]
            if self.is_inner(a, begin):
                self.store_votes(a, rows, begin, lane, self.inner_flags(a, x, begin + lane))
            else:
                places = [begin + (u * LANES + lane) for u in range(self.unroll)]
                items = [self.items(a, x, place) for place in places]
                flags = [self.flags(a, side, places, items) for side in self.sides]
                self.store_votes(a, rows, begin, lane, flags)

    def is_inner(self, a: Arguments, begin):
        """Whether all items of a run have both neighbours in their row."""
        return Boolean(False) if self.periodic else (begin > 0) & (begin + LANES * self.unroll < self.place(a.n))

    def inner_flags(self, a: Arguments, x, place) -> list:
        """The flags of such a run on each side; those of a lane are 32 items apart, with all columns of each."""
        step = self.step(a)
        starts = [x + Int64(place) * step + step * shift for shift in (-1, 0, 1)]
        wanted = self.looks[0], True, self.looks[1]
        before, items, behind = (
            [item for u in range(self.unroll) for item in self.item(start + step * (u * LANES))] if needed else []
            for start, needed in zip(starts, wanted)
        )
        found = []
        for side in self.sides:
            pairs = zip(items, behind) if side else zip(before, items)
            indexes = [Int64(place + (u * LANES + side)) for u in range(self.unroll) for _ in range(self.columns)]
            given = a.ends[side]
            found.append([self.compared(side, *pair, None, i, given) for pair, i in zip(pairs, indexes)])
        return found

    @cute.jit
    def store_votes(self, a: cutlass.Constexpr, rows: cutlass.Constexpr, begin, lane, flags: cutlass.Constexpr):
        """Store the words of a run for each output, those of an item's columns side by side. Each lane stores another
        word."""
        item = lane // self.columns
        for k, each in enumerate(flags):
            votes = [Uint32(cute.arch.vote_ballot_sync(flag != 0)) for flag in each]
            mine = votes[0]
            for i in cutlass.range_constexpr(1, len(votes)):
                mine = choose(lane == i, votes[i], mine)
            if (lane < len(votes)) & (begin + item * LANES < self.place(a.n)):
                at = Int64(begin // LANES + item) * a.steps[1 + k][0] + (lane - item * self.columns)
                self.put(rows[k], at, mine)

    def item(self, x) -> list:
        """The items of all columns at a pointer."""
        if self.columns == 1:
            return [self.get(x, 0)]
        return self.lifted(self.loaded(x, self.columns, self.piece), self.columns)

    def items(self, a: Arguments, x, place) -> list:
        """The items at a place, between their neighbours; the last ones in place of what is not there."""
        last, step = self.place(a.n) - 1, self.step(a)
        wanted = self.looks[0], True, self.looks[1]
        found = []
        for at, needed in zip((place - 1, place, place + 1), wanted):
            inside = cutlass.max(cutlass.min(at, last), self.place(0))
            found.append(self.item(x + Int64(inside) * step) if needed else None)
        return found

    def flags(self, a: Arguments, side: int, places, items) -> list:
        """The flags of the items at places, between their neighbours."""
        found = []
        for place, (before, here, behind) in zip(places, items):
            pairs = zip(here, behind) if side else zip(before, here)
            found += [self.flag(a, side, place, pair) for pair in pairs]
        return found

    def step(self, a: Arguments):
        """The distance of neighbours, which is less than a line: of 32 bits, unless numbers need more."""
        return Int64(self.place(a.steps[0][0]))

    def flag(self, a: Arguments, side: int, place, pair):
        """The flag of the item at a place, of a pair of neighbours; 0 where there is none."""
        n, period = self.place(a.n), self.place(a.period)
        rest = place % period if self.periodic else place
        edge = rest == 0
        if side:
            edge = place + 1 >= n
            edge = edge | (rest + 1 == period) if self.periodic else edge
        outside = place >= n
        flag = self.guarded(outside if self.called else None, side, pair, (edge, Int64(rest + side), a.ends[side]))
        return choose(outside, Int32(0), Int32(flag))
