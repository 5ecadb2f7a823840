"""Flags and differences along any axis of strided arrays: each thread has a small tile of elements in registers.

The columns of a tile lie along the axis on which neighbouring threads lie, which is that of the smallest stride of the
input. So a warp reads whole lines. The rows of a tile lie along another axis: the flagged one, of which a thread then
loads only one more row than it flags, or that of the smallest stride of the output, along which it stores vectors. The
flagged axis is that of the columns, that of the rows, or a third one. In the last case a tile is loaded twice, the
second time one element further along that axis; the caches have most of it.

Loads beyond the end of an axis read its last element instead; stores are left out. With packed bits, a tile has 32 rows
along the flagged axis, and each column gives a word. No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import choose, tree
from . import words
from .strided import Arguments, StridedKernel

ROWS_OF_BITS = 32  # flags in a word
COLUMNS, ROWS, THIRD = range(3)  # digits of the axes; THIRD: of the flagged axis, if it is neither


def least(a, b):
    return choose(a < b, a, b)


class TileFlags(StridedKernel):
    """The kernel: tiles of ``columns`` x ``rows`` elements. ``along`` is the digit of the flagged axis. Results are
    stored in vectors ``across`` the columns, or ``down`` the rows, or one by one."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.size, self.along = (policy.columns, policy.rows), policy.along
        self.across, self.down = policy.across, policy.down
        self.by_words = policy.by_words

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a tile."""
        digits = self.split(a, number)
        first = [digits[COLUMNS] * self.size[COLUMNS], digits[ROWS] * self.size[ROWS], *digits[THIRD:]]
        if first[self.along] < a.n:
            self.mark_tile(a, digits, first)

    def mark_tile(self, a: Arguments, digits, first) -> None:
        """Flag the tile whose first element is at the coordinates ``first``."""
        extents = [a.n if i == self.along else a.extents[i] for i in (COLUMNS, ROWS)]
        beyond = [extents[i] - first[i] for i in (COLUMNS, ROWS)]  # elements from here to the end of the axis
        left = [Int32(least(beyond[i], Int64(self.size[i]))) for i in (COLUMNS, ROWS)]
        x = a.x + self.offset(first, a.steps[0])
        tile = self.load(a, x, left)
        found = []
        for side in self.sides:
            others = self.neighbours(a, side, x, tile, beyond, left, first)
            found.append(self.results(a, side, tile, others, first[self.along], left))
        for target, steps, values in zip(a.outs, a.steps[1:], found):
            place = [first[COLUMNS], digits[ROWS], *first[THIRD:]] if self.marking.bits else first
            at = target + self.offset(place, steps)
            self.store(at, values, steps, left)

    def row(self, a: Arguments, j, left):
        """The offset of a tile's row, or of the last one that there is."""
        return Int64(least(Int32(j), left[ROWS] - 1)) * a.steps[0][ROWS] if j else Int64(0)

    def load(self, a: Arguments, x, left) -> list:
        """The elements of the tile at ``x``: a list for each row."""
        return [self.load_row(x + self.row(a, j, left)) for j in range(self.size[ROWS])]

    def load_row(self, at) -> list:
        """The elements of a row of the tile, or its words of four keys."""
        columns = self.size[COLUMNS]
        if self.by_words:
            found = cute.recast_tensor(self.loaded(at, columns, columns), Uint32)
            return [words.keys(Uint32(found[i]), self.marking.source) for i in range(columns // words.KEYS)]
        return [self.get(at, 0)] if columns == 1 else self.lifted(self.loaded(at, columns, columns), columns)

    def neighbours(self, a: Arguments, side: int, x, tile, beyond, left, first) -> list:
        """The neighbour on a side of every element of the tile; anything where there is none."""
        step = a.steps[0][self.along]
        if side:  # as many elements further on as there are, up to the next tile
            size = self.size[self.along] if self.along < THIRD else 1
            there = beyond[self.along] if self.along < THIRD else a.n - first[THIRD]
            shift = least(Int64(size), there - 1) * step
        else:
            shift = choose(first[self.along] > 0, -step, Int64(0))
        if self.along == THIRD:
            return self.load(a, x + shift, left)
        if self.along == ROWS:
            line = self.load_row(x + shift)
            return [*tile[1:], line] if side else [line, *tile[:-1]]
        ends = [self.get(x + self.row(a, j, left) + shift, 0) for j in range(self.size[ROWS])]
        return [[*row[1:], end] if side else [end, *row[:-1]] for row, end in zip(tile, ends)]

    def results(self, a: Arguments, side: int, tile, others, place, left) -> list:
        """The results on a side, a list for each row. ``place``: the tile's first position on the flagged axis."""
        count = self.size[self.along] if self.along < THIRD else 1
        rests = self.rests(a, place, count)
        edges, indexes = [], []
        for k in range(count):
            if side:
                edge = place + (k + 1) >= a.n
            else:
                edge = place == 0 if k == 0 else None
            if self.periodic:
                ends = rests[k + side] == 0
                edge = ends | edge if side else ends
            edges.append(edge)
            indexes.append((Int64(rests[k]) if self.periodic else place + k) + side)
        found: list[list] = []
        for j, (row, beside) in enumerate(zip(tile, others)):
            found.append([])
            for i, (item, neighbour) in enumerate(zip(row, beside)):
                k = (i, j, 0)[self.along]
                if self.by_words:
                    found[-1].append(self.flags(side, item, neighbour, edges[k], a.ends[side]))
                    continue
                pair = (item, neighbour) if side else (neighbour, item)
                outside = self.outside(i, j, left)
                found[-1].append(self.guarded(outside, side, pair, (edges[k], indexes[k], a.ends[side])))
        return found

    def flags(self, side: int, keys, others, edge, given):
        """The flags of four keys."""
        flags = words.flags(self.marking.op.name, keys, others)
        if edge is None:
            return flags
        forced = words.flags(self.marking.op.name, keys, words.repeated(given)) if self.given[side] else words.ONES
        return choose(edge, Uint32(forced), flags)

    def outside(self, i: int, j: int, left):
        """Whether a callable must not be called for an element of the tile, as it lies outside of the array; None if it
        may be."""
        if not self.called or i == j == 0:
            return None
        return (left[COLUMNS] <= i) | (left[ROWS] <= j)

    def rests(self, a: Arguments, place, count: int) -> list:
        """The places in the period of ``count`` positions from ``place`` on and of the one behind; with periods."""
        if not self.periodic:
            return []
        rests = [Int32(place % a.period)]
        for _ in range(count):
            rests.append(choose(rests[-1] + 1 == Int32(a.period), Int32(0), rests[-1] + 1))
        return rests

    def store(self, target, values, steps, left) -> None:
        """Store the results of the tile."""
        if self.by_words and not self.marking.bits:
            self.store_words(target, values, steps, left)
            return
        if self.by_words:
            values = [[each & self.mask(left[ROWS]) for each in words.columns(values)]]
        elif self.marking.bits:
            values = [[self.word([row[i] for row in values], left[ROWS]) for i in range(self.size[COLUMNS])]]
        else:
            values = [[self.lowered(value) for value in row] for row in values]
        if self.down:
            for i in range(self.size[COLUMNS]):
                count = choose(left[COLUMNS] > i, left[ROWS], Int32(0)) if i else left[ROWS]
                self.store_run(target + steps[COLUMNS] * i, steps[ROWS], [row[i] for row in values], count, True)
        else:
            for j, row in enumerate(values):
                count = choose(left[ROWS] > j, left[COLUMNS], Int32(0)) if j else left[COLUMNS]
                self.store_run(target + steps[ROWS] * j, steps[COLUMNS], row, count, self.across)

    def word(self, flags, left):
        """The flags of a column as the bits of a word; those that there are not are 0."""
        bits = tree([(flag << j,) for j, flag in enumerate(flags)], lambda a, b: (a[0] | b[0],))[0]
        return Uint32(bits) & self.mask(left)

    @staticmethod
    def mask(left):
        """A word with its lowest ``left`` bits set."""
        return Uint32(0xFFFFFFFF) >> Uint32(ROWS_OF_BITS - left)

    @cute.jit
    def store_words(self, target, values, steps, left):
        """Store the flags of the tile, four to a word."""
        for j in cutlass.range_constexpr(len(values)):
            if left[ROWS] > j:
                self.store_vector(target + steps[ROWS] * j, values[j], Uint32)
