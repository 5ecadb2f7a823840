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

from collections import namedtuple

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, cute

from ...monoid import choose, tree
from ...warp import LANES
from . import words
from .strided import Arguments, StridedKernel

ROWS_OF_BITS = 32  # flags in a word
# Threads on a multiprocessor at once, at least, of those that join words: of bits, and of others, of which there are
# more (H200, tails int8 (50738, 11, 128): of 128 registers 45.3 us, of 84 39.5 us)
RESIDENT, RESIDENT_OF_FLAGS = 512, 768

# How many columns and rows of a tile lie in the array.
Left = namedtuple("Left", "columns rows")


def least(a, b):
    return choose(a < b, a, b)


class TileFlags(StridedKernel):
    """The kernel: tiles of ``columns`` x ``rows`` elements. Digit 0 counts tiles along the columns' axis; ``row`` is
    the digit of the rows' axis, ``along`` that of the flagged one. Results are stored in vectors ``across`` the
    columns, or ``down`` the rows, or one by one."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.columns, self.rows, self.digit_of_rows, self.along = policy.columns, policy.rows, policy.row, policy.along
        self.sizes = [1] * policy.digits  # of a tile along each digit's axis
        self.sizes[0], self.sizes[policy.row] = policy.columns, policy.rows
        self.across, self.down = policy.across, policy.down
        self.words, self.full = policy.words, policy.full
        self.by_words, self.loads, self.equal, self.piece = policy.by_words, policy.loads, policy.equal, policy.piece
        self.space = LANES if policy.loads == "spaced" else 1  # between a tile's columns
        if self.loads == "joined":
            self.limit_registers(RESIDENT if marking.bits else RESIDENT_OF_FLAGS)

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag a tile."""
        digits = self.split(a, number)
        first = [digit * size for digit, size in zip(digits, self.sizes)]
        if cutlass.const_expr(self.full):
            first[self.along] = Int64(0)
        if cutlass.const_expr(self.space > 1):
            lane = digits[0] % self.space
            first[0] = (digits[0] - lane) * self.columns + lane
            if (first[0] < a.extents[0]) & (first[self.along] < a.n):
                self.mark_tile(a, digits, first)
        elif cutlass.const_expr(self.words > 1):
            digits[self.along], first[self.along] = (at[self.along] * self.words for at in (digits, first))
            if first[self.along] + (self.words - 1) * ROWS_OF_BITS < a.n:
                self.mark_words(a, digits, first)
            else:
                for w in cutlass.range(self.words, unroll=1):
                    place = first[self.along] + w * ROWS_OF_BITS
                    if place < a.n:
                        self.mark_tile(a, self.moved(digits, digits[self.along] + w), self.moved(first, place))
        elif first[self.along] < a.n:
            self.mark_tile(a, digits, first)

    def moved(self, coordinates, place) -> list:
        """Coordinates with another place on the flagged axis."""
        return [place if k == self.along else at for k, at in enumerate(coordinates)]

    @cute.jit
    def mark_words(self, a: cutlass.Constexpr, digits: cutlass.Constexpr, first: cutlass.Constexpr):
        """Flag as bits ``words`` tiles of which each is behind the one before on the flagged axis."""
        held = [cute.make_rmem_tensor((self.columns * self.words,), Uint32) for _ in a.outs]
        for each in held:
            each.fill(0)
        for w in cutlass.range(self.words, unroll=1):
            left, found = self.tile_results(a, self.moved(first, first[self.along] + w * ROWS_OF_BITS))
            for each, values in zip(held, found):
                self.append(each, [word & self.mask(left.rows) for word in self.column_bits(values)])
        place, there = self.moved(first, digits[self.along]), a.extents[0] - first[0]
        for target, steps, each in zip(a.outs, a.steps[1:], held):
            at = target + self.offset(place, steps)
            for i in cutlass.range_constexpr(self.columns):
                if there > i:
                    self.store_vector(at + steps[0] * i, [each[i * self.words + w] for w in range(self.words)])

    def append(self, held, column_words) -> None:
        """Put a word behind those that are held of each column; the first one leaves."""
        for i, word in enumerate(column_words):
            first, last = i * self.words, (i + 1) * self.words - 1
            for k in range(first, last):
                held[k] = held[k + 1]
            held[last] = word

    def mark_tile(self, a: Arguments, digits, first) -> None:
        """Flag the tile whose first element is at the coordinates ``first``."""
        left, found = self.tile_results(a, first)
        for target, steps, values in zip(a.outs, a.steps[1:], found):
            place = list(first)
            if self.marking.bits:
                place[self.along] = digits[self.along]  # of the word
            self.store(target + self.offset(place, steps), values, steps, left)

    def tile_results(self, a: Arguments, first) -> tuple[Left, list]:
        """What of the tile whose first element is at the coordinates ``first`` lies in the array, and its results: for
        each output, a list for each row."""
        there = [(a.n if k == self.along else extent) - at for k, (extent, at) in enumerate(zip(a.extents, first))]
        left = Left(*(Int32(least(there[k], Int64(self.sizes[k]))) for k in (0, self.digit_of_rows)))
        if self.full:
            left = left._replace(rows=Int32(self.rows))
        if self.space > 1:
            columns = (there[0] + (self.space - 1)) // self.space
            left = left._replace(columns=Int32(least(columns, Int64(self.columns))))
        x = a.x + self.offset(first, a.steps[0])
        tile = self.load(a, x, left)
        found = []
        for side in self.sides:
            others = self.neighbours(a, side, x, tile, there[self.along], left, first[self.along])
            found.append(self.results(a, side, tile, others, first[self.along], left))
        return left, found

    def row(self, a: Arguments, j, left):
        """The offset of a tile's row, or of the last one that there is."""
        return Int64(least(Int32(j), left.rows - 1)) * a.steps[0][self.digit_of_rows] if j else Int64(0)

    def load(self, a: Arguments, x, left) -> list:
        """The elements of the tile at ``x``: a list for each row."""
        if self.equal and self.along == self.digit_of_rows:
            return [self.load_row(a, x, left)] * self.rows
        if self.loads == "run":
            return self.load_run(x, left)
        if self.loads == "joined":
            return self.load_joined(a, x, left, self.rows)
        return [self.load_row(a, x + self.row(a, j, left), left) for j in range(self.rows)]

    def load_run(self, x, left) -> list:
        """The elements of a tile that is a run of memory: a list for each row."""
        count = self.rows * self.columns
        valid = left.rows * (self.columns * self.marking.source.size)
        size = count * self.marking.source.size
        run = words.run_anywhere(x, size, valid) if self.piece == 1 else words.run_of_pieces(x, size, self.piece, valid)
        if self.by_words:
            values = [words.keys(Uint32(run[i]), self.marking.source) for i in range(size // words.BYTES)]
        else:
            elements = cute.recast_tensor(run, self.marking.source.cutlass)
            values = [self.rule.lift(elements[i]) for i in range(count)]
        each = len(values) // self.rows
        return [values[j * each : (j + 1) * each] for j in range(self.rows)]

    def load_joined(self, a: Arguments, x, left, count: int) -> list:
        """The words of so many rows, from an address on that may be any."""
        each = self.columns // words.KEYS
        found = cute.make_rmem_tensor((max(2, count * each),), Uint32)
        self.fill_joined(a, x, left, count, found)
        keys = [words.keys(Uint32(found[i]), self.marking.source) for i in range(count * each)]
        return [keys[j * each : (j + 1) * each] for j in range(count)]

    @cute.jit
    def fill_joined(self, a: cutlass.Constexpr, x, left, count: cutlass.Constexpr, found):
        """The same, joined from the aligned words that hold them if all of these lie in the array."""
        each = self.columns // words.KEYS
        last = self.offset([extent - 1 for extent in a.extents], a.steps[0])
        first, step = x.toint() - a.x.toint(), a.steps[0][self.digit_of_rows]
        rows = [self.row(a, j, left) for j in range(count)]
        if (first >= words.BYTES) & (first + rows[-1] + self.columns + words.BYTES <= last):
            loads = [words.aligned_of(x + row, each) for row in rows]
            for j, (held, bits) in enumerate(loads):
                for w, pair in enumerate(zip(held, held[1:])):
                    found[j * each + w] = words.funnel_shift(*pair, bits)
        else:
            for i in cutlass.range(count * each, unroll=8):
                place, word = first + Int64(least(Int32(i // each), left.rows - 1)) * step, Uint32(0)
                place = place + i % each * words.KEYS
                for k in cutlass.range_constexpr(words.KEYS):
                    word = word | (words.element(a.x + least(place + k, last), 1) << (8 * k))
                for k in cutlass.range_constexpr(count * each - 1):
                    found[k] = found[k + 1]
                found[count * each - 1] = word

    def load_row(self, a: Arguments, at, left) -> list:
        """The elements of a row of the tile, or its words of four keys."""
        columns = self.columns
        if self.loads == "joined":
            return self.load_joined(a, at, Left(Int32(columns), Int32(1)), 1)[0]
        if self.loads == "run" and not self.by_words:
            return [self.get(at, i) for i in range(columns)]
        if self.by_words:
            size = self.marking.source.size
            piece = min(columns, self.piece // size) if self.loads == "run" else columns
            found = cute.recast_tensor(self.loaded(at, columns, piece), Uint32)
            count = columns * size // words.BYTES
            return [words.keys(Uint32(found[i]), self.marking.source) for i in range(count)]
        if columns == 1 or self.loads == "repeated":
            return [self.get(at, 0)] * columns
        if self.loads == "each":
            return [self.get(at, a.steps[0][0] * i) for i in range(columns)]
        if self.loads == "spaced":  # columns that do not exist are the last one again
            places = [least(Int32(i), left.columns - 1) if i else Int32(0) for i in range(columns)]
            return [self.get(at, a.steps[0][0] * (self.space * Int64(place))) for place in places]
        if self.loads == "back":
            return self.lifted(self.loaded(at - (columns - 1), columns, columns), columns)[::-1]
        return self.lifted(self.loaded(at, columns, columns), columns)

    def neighbours(self, a: Arguments, side: int, x, tile, there, left, place) -> list:
        """The neighbour on a side of every element of the tile; anything where there is none. ``place`` is the tile's
        first position on the flagged axis, from which on it has ``there`` elements."""
        if self.equal:
            return tile
        if self.full:  # no element is at the ends
            return [*tile[1:], tile[-1]] if side else [tile[0], *tile[:-1]]
        step = a.steps[0][self.along]
        if side:  # the next tile's first element, or the last one that there is
            shift = least(Int64(self.sizes[self.along]), there - 1) * step
        else:
            shift = choose(place > 0, -step, Int64(0))
        if self.along == self.digit_of_rows:
            line = self.load_row(a, x + shift, left)
            return [*tile[1:], line] if side else [line, *tile[:-1]]
        if self.along > 0:
            return self.load(a, x + shift, left)
        ends = [self.get(x + self.row(a, j, left) + shift, 0) for j in range(self.rows)]
        return [[*row[1:], end] if side else [end, *row[:-1]] for row, end in zip(tile, ends)]

    def results(self, a: Arguments, side: int, tile, others, place, left) -> list:
        """The results on a side, a list for each row. ``place``: the tile's first position on the flagged axis."""
        count = self.sizes[self.along]
        rests = self.rests(a, place, count)
        edges, indexes = [], []
        for k in range(count):
            if self.full:
                edge = Boolean(True) if k == (count - 1 if side else 0) else None
            elif side:
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
            if self.by_words:
                edge = edges[j if self.along == self.digit_of_rows else 0]
                found.append(self.flags(side, row, beside, edge, a.ends[side]))
                continue
            found.append([])
            for i, (item, neighbour) in enumerate(zip(row, beside)):
                k = i if self.along == 0 else j if self.along == self.digit_of_rows else 0
                pair = (item, neighbour) if side else (neighbour, item)
                outside = self.outside(i, j, left)
                found[-1].append(self.guarded(outside, side, pair, (edges[k], indexes[k], a.ends[side])))
        return found

    def flags(self, side: int, keys, others, edge, given) -> list:
        """The words of flags or differences of a row's words of keys."""
        found = self.paired_words(keys, others)
        if edge is None:
            return found
        if not self.marking.is_flag:
            return [choose(edge, *pair) for pair in zip(keys, found)]
        if not self.given[side]:
            return [choose(edge, Uint32(words.ONES), flags) for flags in found]
        ends = [words.flags(self.marking.op.name, key, words.repeated(given)) for key in keys]
        return [choose(edge, *pair) for pair in zip(ends, found)]

    def outside(self, i: int, j: int, left):
        """Whether a callable must not be called for an element of the tile, as it lies outside of the array; None if it
        may be."""
        if not self.called or i == j == 0:
            return None
        return (left.columns <= i) | (left.rows <= j)

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
        if self.marking.bits:
            columns = [each & self.mask(left.rows) for each in self.column_bits(values)]
            self.store_run(target, steps[0] * self.space, columns, left.columns, self.across)
        elif self.by_words and self.down:
            for i, column in enumerate(words.transposed(values)):
                self.store_column(target + steps[0] * i, column, left.rows)
        elif self.by_words:
            self.store_words(target, values, steps, left)
        else:
            self.store_elements(target, [[self.lowered(value) for value in row] for row in values], steps, left)

    def store_elements(self, target, values, steps, left) -> None:
        if self.down:
            for i in range(self.columns):
                count = choose(left.columns > i, left.rows, Int32(0)) if i else left.rows
                self.store_run(
                    target + steps[0] * i, steps[self.digit_of_rows], [row[i] for row in values], count, True
                )
        else:
            for j, row in enumerate(values):
                count = choose(left.rows > j, left.columns, Int32(0)) if j else left.columns
                place = target + steps[self.digit_of_rows] * j
                self.store_run(place, steps[0] * self.space, row, count, self.across)

    def column_bits(self, values) -> list:
        """The word of each column's flags."""
        return words.columns(values) if self.by_words else self.bits(values)

    def bits(self, values) -> list:
        """The flags of each column as the bits of a word."""
        found = []
        for i in range(self.columns):
            terms = [(row[i] << j,) for j, row in enumerate(values)]
            found.append(Uint32(tree(terms, lambda a, b: (a[0] | b[0],))[0]))
        return found

    @cute.jit
    def store_column(self, target, column, left):
        """Store the flags of a column, which are words of four; the first ``left``."""
        if left >= self.rows:
            self.store_vector(target, column, Uint32)
        else:
            for j in cutlass.range_constexpr(self.rows):
                if j < left:
                    self.put(target, j, self.marking.result.cutlass((column[j // 4] >> (8 * (j % 4))) & 0xFF))

    @staticmethod
    def mask(left):
        """A word with its lowest ``left`` bits set."""
        return Uint32(0xFFFFFFFF) >> Uint32(ROWS_OF_BITS - left)

    @cute.jit
    def store_words(self, target, values, steps, left):
        """Store the flags of the tile, four to a word."""
        for j in cutlass.range_constexpr(len(values)):
            if left.rows > j:
                self.store_vector(target + steps[self.digit_of_rows] * j, values[j], Uint32)
