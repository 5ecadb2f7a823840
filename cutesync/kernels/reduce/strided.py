"""Reduction of arrays of any strides: every load finds its offset from the coordinates of its position.

Groups take positions in turn if the operator commutes, else each takes a contiguous run.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, cute

from ...block.split import share
from ...monoid import ArgMonoid, tree
from ...warp import Maybe, select
from ..coordinates import element, moved
from ..hardware import VECTOR_BYTES
from ..words import four_words, funnel_shift, shifted
from .packed import columns, first_of_columns, has_keys, kind_of, of_vector, of_vectors
from .strided_base import Arguments, Member, StridedKernel

FEW_IN_FLIGHT = 4  # vectors of rows that few threads share


class StridedReduce(StridedKernel):
    """The kernel: ``unroll`` positions of a thread are in flight."""

    counts_elements = True

    @property
    def each(self) -> int:
        """Elements of a position."""
        return self.policy.bytes // self.monoid.source.size // self.policy.pace

    def combine_own(self, states, storage, me: Member, count):
        """Combine the states of the block's groups, which share ``count`` positions."""
        return self.reduce_groups(states, storage, me, self.used(count))

    def share_of(self, me: Member, begin, end):
        """The first position of a thread of those from ``begin`` to ``end``, their step and number."""
        if self.policy.in_turn:
            at = begin + me.group
            return at, self.groups, (end - at + (self.groups - 1)) // self.groups
        number = type(end)
        first, stop = share(end - begin, number(me.group), number(self.groups))
        return begin + first, 1, stop - first

    @cute.jit
    def own_states(self, a: cutlass.Constexpr, me: Member, begin, end):
        """The states of this thread's columns over its share of the positions from ``begin`` to ``end``."""
        offsets = a.kept.offsets(me.unit)
        x = moved(a.x, offsets)
        number = type(a.length)
        at, step, count = self.share_of(me, begin, end)
        valid = Int32(self.width)
        last = Boolean(False)
        if cutlass.const_expr(self.policy.load == "words"):
            valid = Int32(cutlass.min(a.extent - offsets[-1], Int64(self.width)))
            last = (me.unit >= a.units - 2) & (count > 0) & (at + (count - 1) * step == a.length - 1)
            if last:
                count -= 1  # its words may reach beyond the array
        elif cutlass.const_expr(self.policy.ragged):
            lead, valid = self.first_and_last(a, me)
            last = (valid < self.width) & (count > 0) & (at + (count - 1) * step == a.length - 1)
            begins = (lead > 0) & (at == 0)
            if last:
                count -= 1  # a thread has others
            if begins:
                at += step
                count -= 1
        elif cutlass.const_expr(self.policy.pace > 1):
            ends = (count > 0) & (at + count == a.length)
            last = (me.unit == a.units - 1) & (count > 0) & (at + (count - 1) * step == a.length - 1)
            if last:
                count -= 1  # the last vector may reach beyond the array
        nothing = self.nothings(number)
        partial = Maybe(nothing, Boolean(False))
        words = self.registers()
        if cutlass.const_expr(self.is_rolled):
            for _ in cutlass.range(count // self.unroll, unroll=1):
                partial = partial.append(self.load_all(a, x, words, at, step, valid), self.append)
                at += self.unroll * step
            count = count % self.unroll
        else:
            while count >= self.unroll:
                partial = partial.append(self.load_all(a, x, words, at, step, valid), self.append)
                at += self.unroll * step
                count -= self.unroll
        if count > 0:
            partial = self.append_rest(a, x, words, partial, (at, step, count), valid)
        if cutlass.const_expr(self.policy.load == "words" or self.policy.pace > 1):
            if last:
                partial = partial.append(self.singly(self.position(a, x, a.length - 1), valid), self.append)
        elif cutlass.const_expr(self.policy.ragged):
            if last & (valid > 0):
                partial = self.append_some(partial, self.position(a, x, a.length - 1), Int32(0), valid)
            if begins & (lead < self.width):
                partial = self.append_some(partial, self.position(a, x, number(0)), lead, Int32(self.width))
        if cutlass.const_expr(self.policy.load == "row" and self.policy.pace > 1):
            if ends:
                (state,) = partial.state
                found = self.append_tail(a, x, Maybe(state, partial.valid), number)
                partial = Maybe((found.state,), found.valid)
        return tuple(self.monoid.place(state, Int64(0)) for state in partial.state)

    def first_and_last(self, a: Arguments, me: Member):
        """The first column of a thread that the first position has, and how many the last one has."""
        first = Int64(me.unit) * self.width
        places = a.extent % VECTOR_BYTES - first, a.extent // VECTOR_BYTES - first
        return [Int32(cutlass.min(cutlass.max(place, Int64(0)), Int64(self.width))) for place in places]

    def append_some(self, partial: Maybe, position, begin, end) -> Maybe:
        """Append the columns from ``begin`` to ``end`` of a position, to those of others."""
        found = self.append(partial.state, self.singly(position, end, begin))
        both = enumerate(zip(found, partial.state))
        return Maybe.of(tuple(select((begin <= c) & (end > c), new, old) for c, (new, old) in both))

    def store(self, a: Arguments, unit, states) -> None:
        """Store the results of a unit; those that are before the first element of a ragged array also behind all."""
        super().store(a, unit, states)
        if self.policy.ragged:
            self.store_behind(a, unit, states)

    @cute.jit
    def store_behind(self, a: cutlass.Constexpr, unit, states):
        if Int64(unit) * self.width < a.extent % VECTOR_BYTES:
            super().store(a, unit + a.units, states)

    def position(self, a: Arguments, x, at):
        """The pointers of a position, and its index; of a vector of rows whose indexes lie apart, with their pace."""
        offsets = a.reduced.offsets(at)
        index = offsets[-1] if self.policy.indexed else at
        spaced = self.policy.indexed and self.policy.load == "row"
        return moved(x, offsets), (index, a.reduced.steps[-1] // self.each) if spaced else index

    def load_all(self, a: Arguments, x, words, at, step, valid):
        """The aggregate of each column over ``unroll`` positions."""
        found = [self.position(a, x, at + u * step) for u in range(self.unroll)]
        for u, (pointers, _) in enumerate(found):
            self.load(pointers, words, u, valid)
        return self.aggregate(words, [index for _, index in found], step)

    @cute.jit
    def append_rest(self, a: cutlass.Constexpr, x, words, partial, rest: cutlass.Constexpr, valid):
        """Append the ``rest``: the first position, their step and number, at least one and less than ``unroll``. If
        columns are combined as words, those of positions that there are not are copies of the first or 0."""
        at, step, count = rest
        packed = self.is_packed
        for u in cutlass.range_constexpr(self.unroll - 1):
            if u < count:
                self.load(self.position(a, x, at + u * step)[0], words, u, valid)
            elif cutlass.const_expr(packed):
                for i in cutlass.range_constexpr(cute.size(words[0], mode=[0])):
                    words[0][i, u] = Int32(0) if kind_of(self.monoid) == "add" else words[0][i, 0]
        if cutlass.const_expr(packed):
            partial = partial.append(self.packed(words, self.unroll - 1, at, step), self.append)
        else:
            for u in cutlass.range_constexpr(self.unroll - 1):
                if u < count:
                    found = self.lifted(words, u, self.position(a, x, at + u * step)[1])
                    if cutlass.const_expr(u == 0):
                        partial = partial.append(found, self.append)
                    else:
                        partial = Maybe.of(self.append(partial.state, found))
        return partial

    @property
    def is_packed(self) -> bool:
        """Whether the columns of loaded words are combined without being unpacked."""
        keys = has_keys(self.monoid) and not self.policy.indexed
        whole = self.policy.load in ("vector", "words") and self.policy.pace == 1
        return whole and (keys or kind_of(self.monoid) != "")

    @property
    def is_rolled(self) -> bool:
        """Whether the compiler is not to unroll the loop: twice as many keys would take registers for a block less
        (H200, argmax int16 (16, 219066) along axis 0: 12.0 us, so 6.8 us), as would rows that few threads share, in
        which it has few turns (any int64: 168 registers)."""
        short = self.policy.load == "row" and self.groups > 1 and self.unroll <= FEW_IN_FLIGHT
        return short or (has_keys(self.monoid) and self.policy.load == "vector")

    def packed(self, words, count: int, index, step: int) -> tuple:
        """The states of columns over ``count`` loaded positions, of which the first has ``index``, without unpacking
        their elements."""
        rows = [words[0][(None, u)] for u in range(count)]
        if not has_keys(self.monoid):
            return columns(self.monoid, rows)
        return tuple((value, index + type(index)(u * step)) for value, u in first_of_columns(self.monoid, rows))

    def singly(self, position, valid, begin=0):
        """The states of the columns of one position, of which those before ``valid`` exist, from ``begin`` on, loaded
        one by one."""
        (start,), index = position
        if self.policy.load == "row":
            elements = [element(start + i * self.policy.pace) for i in range(self.each)]
            return (self.monoid.run(elements, index * self.each),)
        columns = [cutlass.max(cutlass.min(Int32(c), valid - 1), Int32(begin)) for c in range(self.width)]
        return tuple(self.monoid.lift(element(start + column * self.policy.pace), index) for column in columns)

    def nothings(self, number) -> tuple:
        """Registers of the shape of the states of columns, whose indexes, if they have any, are of type ``number``, or
        of 64 bits."""
        index = Int64(0) if self.policy.indexed else number(0)
        one = (self.monoid.types[0](0), index) if isinstance(self.monoid, ArgMonoid) else self.monoid.nothing()
        return (one,) * self.width

    def registers(self) -> tuple:
        """Registers of ``unroll`` loads, a tensor for each input."""
        if self.policy.load == "element":
            return tuple(cute.make_rmem_tensor((1, self.unroll), dtype.cutlass) for dtype in self.monoid.sources)
        count = self.policy.bytes // 4  # the stride is stated: a mode of one element would get stride 0
        return (cute.make_rmem_tensor(cute.make_layout((count, self.unroll), stride=(1, count)), Int32),)

    def load(self, pointers, words, u: int, valid) -> None:
        """Load what a thread has of one position: a vector as words, or one element of each input."""
        if self.policy.load == "words" and not self.policy.boundary:
            read = {4: word_from, 8: pair_from, VECTOR_BYTES: vector_from}[self.policy.bytes]
            found = read(pointers[0], valid * self.monoid.source.size)
            for i, word in enumerate(found):
                words[0][i, u] = word
            return
        for pointer, target in zip(pointers, words):
            count = 1
            if self.policy.load != "element":
                count = self.policy.bytes // 4
                pointer = cute.make_ptr(Int32, pointer.toint(), cute.AddressSpace.gmem, assumed_align=self.policy.bytes)
            cute.autovec_copy(cute.make_tensor(pointer, cute.make_layout((count,))), target[(None, u)])

    def aggregate(self, words, indexes: list, step: int):
        """The aggregate of each column over ``unroll`` loaded positions."""
        index = indexes[0]
        if self.policy.indexed:
            return tree([self.lifted(words, u, index) for u, index in enumerate(indexes)], self.append)
        if self.policy.load == "row":
            return self.of_rows(words, index, step)
        if self.is_packed:
            return self.packed(words, self.unroll, index, step)
        if isinstance(self.monoid, ArgMonoid):  # inside these positions, indexes are known to the compiler
            states = tree([self.lifted(words, u, Int32(u * step)) for u in range(self.unroll)], self.append)
            return tuple((value, index + type(index)(place)) for value, place in states)
        if len(words) > 1 or (self.policy.in_turn and self.monoid.takes_index):
            return tree([self.lifted(words, u, index + u * step) for u in range(self.unroll)], self.append)
        rows = [self.elements(words, u)[0] for u in range(self.unroll)]
        return tuple(self.monoid.run([row[c] for row in rows], index) for c in range(self.width))

    def append(self, a, b):
        """The states of columns, where all positions of ``b`` come behind those of ``a``."""
        return tuple(self.ordered.combine(x, y) for x, y in zip(a, b))

    def elements(self, words, u: int):
        """What a thread has of load ``u``, a tensor for each input."""
        rows = [row[(None, u)] for row in words]
        if self.policy.load == "element":
            return rows
        elements = cute.recast_tensor(rows[0], self.monoid.source.cutlass)
        if self.policy.pace > 1:
            return [[elements[i] for i in range(0, cute.size(elements), self.policy.pace)]]
        return [elements]

    def lifted(self, words, u: int, index):
        rows = self.elements(words, u)
        if self.policy.load == "row" and self.policy.indexed:
            first, pace = index
            value, place = of_vector(self.monoid, words[0][(None, u)], Int32(0))
            return ((value, first + Int64(place) * pace),)
        if self.policy.load == "row" and self.policy.pace == 1:
            return (of_vector(self.monoid, words[0][(None, u)], index * self.each),)
        if self.policy.load == "row":
            return (self.monoid.run([rows[0][i] for i in range(self.each)], index * self.each),)
        return tuple(self.monoid.lift(*(row[c] for row in rows), index) for c in range(self.width))

    def of_rows(self, words, index, step: int) -> tuple:
        """The state of ``unroll`` loaded vectors of rows, the first of which has position ``index``."""
        if self.policy.pace == 1 and kind_of(self.monoid):
            return (of_vectors(self.monoid, [words[0][(None, u)] for u in range(self.unroll)]),)
        if step > 1 or isinstance(self.monoid, ArgMonoid):
            return tree([self.lifted(words, u, index + u * step) for u in range(self.unroll)], self.append)
        elements = [row[i] for u in range(self.unroll) for row in self.elements(words, u) for i in range(self.each)]
        return (self.monoid.run(elements, index * self.each),)


def word_from(pointer, count) -> list:
    """The word that begins at a pointer, of which ``count`` bytes are read: the words that hold them are."""
    low, high = both_ends(pointer.toint(), count, 4)
    words = [
        cute.make_tensor(cute.make_ptr(Int32, at, cute.AddressSpace.gmem, assumed_align=4), cute.make_layout((1,)))[0]
        for at in (low, high)
    ]
    return [funnel_shift(words[0], words[1], Int32(pointer.toint() & 3) * 8)]


def pair_from(pointer, count) -> list:
    """The two words that begin at a pointer, of which ``count`` bytes are read: the pairs that hold them are."""
    words = []
    for at in both_ends(pointer.toint(), count, 8):
        held = cute.make_rmem_tensor((2,), Int32)
        start = cute.make_ptr(Int32, at, cute.AddressSpace.gmem, assumed_align=8)
        cute.autovec_copy(cute.make_tensor(start, cute.make_layout((2,))), held)
        words += [Uint32(held[i]) for i in range(2)]
    skew = Int32(pointer.toint() & 7)
    moved = (skew & 4) != 0
    words = [Uint32(cutlass.select_(moved, *pair)) for pair in zip(words[1:], words)]
    return [Int32(funnel_shift(*pair, (skew & 3) * 8)) for pair in zip(words, words[1:])]


def vector_from(pointer, count) -> list:
    """The four words that begin at a pointer, of which ``count`` bytes are read: the vectors that hold them are."""
    words = []
    for at in both_ends(pointer.toint(), count, VECTOR_BYTES):
        held = cute.make_rmem_tensor((4,), Int32)
        cute.autovec_copy(four_words(at, cute.AddressSpace.gmem), held)
        words += [Uint32(held[i]) for i in range(4)]
    return [Int32(word) for word in shifted(words, Int32(pointer.toint() & (VECTOR_BYTES - 1)))]


def both_ends(address, count, unit: int) -> tuple:
    """The units of memory that hold the first of ``count`` bytes, and the last of those that fit two units."""
    low = address & -unit
    return low, cutlass.min(low + unit, (address + (count - 1)) & -unit)
