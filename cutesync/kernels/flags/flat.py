"""Flags and differences along any axis where the results lie in memory without gaps, in the order of their places.

A slice is a row of the flagged axis, or where a short axis lies behind it (``inner`` elements), all rows of a slice. So
neighbours are ``distance`` places apart: 1, or ``inner``. Each thread has ``vector`` results that lie side by side and
are stored at once, also where a slice ends among them. The input of a slice lies evenly spaced, one slice may lie
anywhere. If the input has no gaps either (``whole``), or none inside slices that are whole vectors, its elements are
loaded in pieces as large as their alignment allows, and so are their neighbours, which come from the cache; small
pieces are joined from aligned words or vectors. Elements that lie ``pace`` apart are loaded with what lies between. The
last elements of the array, less than a vector, are flagged one by one. No thread waits for another.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, cute

from ...monoid import choose
from . import words
from .flat_words import FlatWords
from .strided import Arguments
from .vector import Vector

# Threads of long slices of arrays without gaps that fit on a multiprocessor at once, which limits their registers
# (H200, both bfloat16 (12352, 9443) along its first axis: 169 us, of 1280 threads 151 us, of 1536 142 us, although
# some registers are kept in memory; tails uint8 (801, 2441, 87): 106, 98 and 92 us; short slices: no gain).
RESIDENT = 1536


class FlatFlags(FlatWords):
    """The kernel. Digit 0 is the place in a slice; instead of the extent of its axis it has ``distance``. The others
    are those of the slice. ``work`` counts results."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.by_words, self.unit, self.long, self.far = policy.by_words, policy.unit, policy.long, policy.far
        self.equal, self.back, self.row, self.pace = policy.equal, policy.back, policy.row, policy.pace
        self.place = Int64 if policy.wide else Int32
        self.even = policy.even
        if self.whole and self.long:
            self.limit_registers(RESIDENT)

    def block(self, a: Arguments):
        """The number of a block. If neighbours are ``far``, consecutive blocks have the same places of all rows."""
        block = cute.arch.block_idx()[0]
        if self.far:
            rows = Int32(a.work // a.extents[0])
            block = block % rows * (cute.arch.grid_dim()[0] // rows) + block // rows
        return Int64(block)

    @cute.jit
    def body(self, a: Arguments):
        """What a thread does."""
        number = self.block(a) * self.threads + cute.arch.thread_idx()[0]
        if number * self.vector < a.work:
            self.mark(a, number)

    @cute.jit
    def mark(self, a: Arguments, number):
        """Flag the results of a thread. In long slices most vectors have no end of a row."""
        first = number * self.vector
        limit = self.place(a.n * a.extents[0])  # places of a slice that count
        if first + self.vector > a.work:
            self.mark_each(a, first, limit)
        elif cutlass.const_expr(self.row > 0):
            self.mark_rows(a, first)
        else:
            digits = self.split(a, first)
            places = self.places(a, digits[0], self.vector)
            if self.may_read(a, digits, limit):
                self.mark_vector(a, Vector(first, digits, places, limit))
            elif (places[0] < limit) | (places[-1] < places[0]):
                self.mark_each(a, first, limit)

    def mark_rows(self, a: Arguments, first) -> None:
        """Flag whole rows, which run backwards, or have equal elements."""
        row = self.row
        if self.equal:
            start, step = a.x + first // row * a.steps[0][1], a.steps[0][1] if self.piece == 1 else 1
            items = self.pieces([start + i * step for i in range(self.vector // row)], self.piece)
            items = [item for item in items for _ in range(row)]
        else:
            start = a.x + (first - (row - 1))
            items = self.pieces([start + i for i in range(self.vector)], self.piece)
            items = [items[i - i % row + (row - 1 - i % row)] for i in range(self.vector)]
        for target, side in zip(a.outs, self.sides):
            values = []
            for i, item in enumerate(items):
                place = i % row
                outside = place == (row - 1 if side else 0)
                other = item if outside else items[i + 1 if side else i - 1]
                edge = Boolean(True) if outside else None
                pair = (item, other) if side else (other, item)
                values.append(self.compared(side, *pair, edge, Int64(place + side), a.ends[side]))
            self.store(target + first, values, False)

    @cute.jit
    def mark_vector(self, a: cutlass.Constexpr, v: cutlass.Constexpr):
        """Flag the results of a thread, which all count."""
        if cutlass.const_expr(self.long):
            last = v.places[0] + (self.vector - 1)
            if cutlass.not_(self.has_edges(a, v, last)):
                self.flag(a, v._replace(limit=None), False)
            elif (last < self.place(a.counts[0])) & self.all_or_none(a, v.places[0], last, v.limit):
                self.flag(a, v, True)
            else:
                self.flag(a, v, False)
        else:
            self.flag(a, v, self.uniform)

    def has_edges(self, a: Arguments, v: Vector, last):
        """Whether rows may begin (end) at places of a vector, if that matters; or it lies in two slices."""
        distance = self.place(a.extents[0])
        found = last >= (v.limit - distance if self.looks[1] else self.place(a.counts[0]))
        return found | (v.places[0] < distance) if self.looks[0] else found

    def all_or_none(self, a: Arguments, first, last, limit):
        """Whether at all places of a slice from the first to the last, or at none, a row begins; and ends. Of a vector
        that has edges on the only side that is looked at: whether all places are."""
        distance = self.place(a.extents[0])
        ends = limit - distance
        found = Boolean(True)
        if self.looks[0]:
            found = found & ((last < distance) | (first >= distance))
        if self.looks[1]:
            found = found & ((last < ends) | (first >= ends))
        return found

    @cute.jit
    def mark_each(self, a: Arguments, first, limit):
        """Flag the results of a thread that count, one by one."""
        for i in cutlass.range(self.vector, unroll=1):
            if first + i < a.work:
                digits = self.split(a, first + i)
                places = self.places(a, digits[0], 1)
                if places[0] < limit:
                    self.flag(a, Vector(first + i, digits, places, limit), False)

    def may_read(self, a: Arguments, digits, limit):
        """Whether all that is read for the vector from a place on counts, as elements that do not may have no value;
        and nothing is read that lies behind the array."""
        if self.pace > 1:
            return cutlass.not_(self.has_last(a, digits))
        if not self.counted:
            return Boolean(True)
        place = self.place(digits[0])
        before = behind = self.place(0)
        if self.whole and not self.adjacent:
            distance = self.place(a.extents[0])
            before, behind = (distance if looks else self.place(0) for looks in self.marking.looks)
        if self.whole and self.joins(self.vector, self.near):  # words are read that hold them
            before, behind = before + words.MARGIN, behind + words.MARGIN
        return (a.n == a.length) | ((place >= before) & (place + (self.vector - 1) < limit - behind))

    def has_last(self, a: Arguments, digits):
        """Whether the last element of a vector, or of its neighbours, is the last one of the array in memory."""
        step, steps = a.steps[0][0], a.steps[0][1:]
        ends = [cutlass.max((extent - 1) * each, Int64(0)) for extent, each in zip(a.extents[1:], steps)]
        top, last = sum(ends, (a.counts[0] - 1) * step), digits[0] + (self.vector - 1)
        behind = top - self.offset([last, *digits[1:]], [step, *steps])
        found = behind == 0
        return found | (behind == a.extents[0] * step) if self.looks[1] and not self.adjacent else found

    def flag(self, a: Arguments, v: Vector, alike: bool) -> None:
        """Flag results."""
        packed, count = self.by_words and len(v.places) == self.vector, len(v.places)
        if alike and self.single and self.marking.is_flag and not self.given[self.sides[0]]:  # no element decides
            found = [[Uint32(words.ONES)] * (count // words.KEYS) if packed else [Int32(1)] * count]
        else:
            found = self.packed_results(a, v, alike) if packed else self.results(a, v, alike)
        for target, values in zip(a.outs, found):
            self.store(target + v.first, values, packed)

    def places(self, a: Arguments, first, count: int) -> list:
        """The places in their slices of ``count`` results; a slice has as many at least."""
        first, length = self.place(first), self.place(a.counts[0])
        places = [first]
        for i in range(1, count):
            places.append(choose(first + i < length, first + i, first + i - length))
        return places

    def edges(self, a: Arguments, side: int, v: Vector, alike: bool) -> list:
        """Whether a row begins (ends) at each place; None if it does not."""
        if v.limit is None:
            return [None] * len(v.places)
        if alike and self.single:
            return [Boolean(True)] * len(v.places)
        distance, asked = self.place(a.extents[0]), v.places[:1] if alike else v.places
        found = [place >= v.limit - distance if side else place < distance for place in asked]
        return found * len(v.places) if alike else found

    def shift(self, a: Arguments, side: int, edges, alike: bool):
        """How far away the neighbours of elements on a side are; 0 if none of them has one."""
        step = a.extents[0] if side else -a.extents[0]
        return choose(edges[0], Int64(0), step) if alike else Int64(step)

    def elements(self, a: Arguments, v: Vector, alike: bool) -> tuple[list, list]:
        """The pointers to the elements if there are any, and the elements."""
        if len(v.places) == 1 or not (self.whole or self.equal):
            starts = self.starts(a, v, alike)
            return starts, self.pieces(starts, self.piece if len(v.places) > 1 else 1)
        return [], self.repeated(a, v, alike) if self.equal else self.sequence(a, v.first, self.vector, self.piece)

    def results(self, a: Arguments, v: Vector, alike: bool) -> list:
        """The results, a list for each output."""
        starts, items = self.elements(a, v, alike)
        found, rests = [], self.rests(a, v)
        for side in self.sides:
            edges = self.edges(a, side, v, alike)
            if self.periodic:
                ends = [self.ends_period(a, side, rest) for rest in rests]
                edges = ends if self.even else [edge | end for edge, end in zip(edges, ends)]
            others = self.neighbours(a, side, v, (starts, items, edges), alike)
            results = []
            for item, other, edge, place in zip(items, others, edges, rests if self.periodic else v.places):
                index = self.index(a, place) + side if self.is_indexed else Int64(0)
                pair = (item, other) if side else (other, item)
                results.append(self.compared(side, *pair, edge, index, a.ends[side]))
            found.append(results)
        return found

    @property
    def is_indexed(self) -> bool:
        return self.marking.is_flag and self.rule.indexed

    def index(self, a: Arguments, place):
        """The index on the flagged axis of a place in a slice."""
        return Int64(place) if self.adjacent else Int64(place // self.place(a.extents[0]))

    def period(self, a: Arguments):
        """Places from the begin of a period to that of the next one."""
        return self.place(a.period) * self.place(a.extents[0])

    def rests(self, a: Arguments, v: Vector) -> list:
        """The places of a vector's results in their periods; with periods."""
        if not self.periodic:
            return []
        period = self.period(a)
        found = [v.places[0] % period]
        for place in v.places[1:]:
            following = found[-1] + 1
            begins = following == period
            found.append(choose(begins if self.even else begins | (place == 0), self.place(0), following))
        return found

    def ends_period(self, a: Arguments, side: int, rest):
        """Whether a row of a period begins (ends) at a place in it."""
        distance = self.place(a.extents[0])
        return rest >= self.period(a) - distance if side else rest < distance

    def starts(self, a: Arguments, v: Vector, alike: bool) -> list:
        """The pointers to the elements. All are in the slice of the first or in that of the last one."""
        count = len(v.places)
        if self.whole:
            return [a.x + v.first + i for i in range(count)]
        step, steps = 1 if self.unit else a.steps[0][0], [1, *a.steps[0][1:]]
        head = a.x + self.offset([v.digits[0] * step, *v.digits[1:]], steps)
        if count == 1 or alike or v.limit is None or self.piece > 1:
            return [head + step * i for i in range(count)]
        last = self.split(a, v.first + (count - 1))
        tail = a.x + self.offset([last[0] * step, *last[1:]], steps) - step * (count - 1)
        found = []
        for i, place in enumerate(v.places):
            move = choose(place >= v.places[0], head.toint(), tail.toint())
            start = cute.make_ptr(head.dtype, move, cute.AddressSpace.gmem, assumed_align=self.size)
            found.append(start + step * i)
        return found

    def repeated(self, a: Arguments, v: Vector, alike: bool) -> list:
        """The elements of a vector, if those of a slice are equal."""
        if alike or v.limit is None:
            return [self.get(a.x + self.offset(v.digits[1:], a.steps[0][1:]), 0)] * len(v.places)
        last = self.split(a, v.first + (len(v.places) - 1))
        ends = [self.get(a.x + self.offset(digits[1:], a.steps[0][1:]), 0) for digits in (v.digits, last)]
        return [choose(place >= v.places[0], *ends) for place in v.places]

    def neighbours(self, a: Arguments, side: int, v: Vector, known, alike: bool) -> list:
        """The neighbour of each element on a side; anything at an edge. ``known``: pointers to the elements if there
        are any, the elements, and which are at edges."""
        starts, items, edges = known
        if (self.equal and len(items) > 1) or (alike and self.single):
            return items
        if not (starts or self.adjacent):
            return self.sequence(a, v.first + self.shift(a, side, edges, alike), len(items), self.near)
        step = a.steps[0][0] * a.extents[0]
        step = step if side else -step
        shifts = [step if edge is None else choose(edge, Int64(0), step) for edge in edges]
        if self.adjacent:
            outermost = -1 if side else 0
            start = starts[outermost] if starts else a.x + v.first + (len(items) - 1) * side
            end = self.get(start + shifts[outermost], 0)
            return [*items[1:], end] if side else [end, *items[:-1]]
        near = self.near if len(items) > 1 else 1
        return self.pieces([start + shift for start, shift in zip(starts, shifts)], near)

    def pieces(self, starts, piece: int) -> list:
        """The elements at ``starts``, loaded ``piece`` at once, as many as are neighbours."""
        if piece == 1:
            return [self.get(start, 0) for start in starts]
        if self.back:
            loaded = [self.loaded(starts[i + piece - 1], piece, piece) for i in range(0, len(starts), piece)]
            return [item for part in loaded for item in self.lifted(part, piece)[::-1]]
        count = piece * self.pace  # elements of memory
        loaded = [self.loaded(starts[i], count, count) for i in range(0, len(starts), piece)]
        return [item for part in loaded for item in self.lifted(part, count)[:: self.pace]]

    def sequence(self, a: Arguments, first, count: int, piece: int) -> list:
        """The elements from number ``first`` on of an array without gaps, loaded ``piece`` at once, or joined;
        anything for those outside of the array."""
        if self.joins(count, piece):
            vector = cute.make_rmem_tensor((max(2, count * self.size // words.BYTES),), Uint32)
            for i, word in enumerate(self.sequence_words(a, first, count)):
                vector[i] = word
            return self.lifted(vector, count)
        found = []
        for i in range(0, count, piece):
            part = self.loaded(a.x + self.clamped(a, first + i, piece), piece, piece)
            found += self.lifted(part, piece)
        return found

    def store(self, target, values, packed: bool) -> None:
        """Store the results. ``packed``: they are words of four."""
        if packed:
            self.store_vector(target, values, Uint32)
        elif len(values) == 1:
            self.put(target, 0, self.lowered(values[0]))
        else:
            self.store_vector(target, [self.lowered(value) for value in values])
