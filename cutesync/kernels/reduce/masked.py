"""Reduction of rows of small elements that begin anywhere: a few neighbouring lanes read the aligned vectors that hold
a row, and what these hold of other rows, or of gaps, is replaced by what changes no state.

A position is a lane of a row: the last of the reduced axes are the lanes, the others the rows of a result. Their steps
are those of the input, then the number of the lane, then the index of a row's first element; if indexes are not in the
order of memory, that of the lanes is the distance of the indexes of neighbours. A lane has ``vectors`` of its row, as
far apart as there are lanes. The row has ``extent`` elements.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint8, Uint16, Uint32, cute

from ...monoid import ArgMonoid, tree
from ...warp import Maybe, select
from ..hardware import VECTOR_BYTES
from ..words import four_words, load_at, moved_in, word_of_range
from .chunk import WORDS
from .packed import ONES, of_vector, of_vectors, without_effect
from .strided_base import Arguments, Member, StridedKernel

# What a lane has of a row: the address of its first vector, which lies ``first`` bytes behind the begin of the row, and
# how far apart are its vectors; the bytes of the row, and the index of its first element.
Row = namedtuple("Row", "address first far count index")


def bits_below(count):
    """A word whose first ``count`` bits, none if it is negative, are ones."""
    return Int32(moved_in(Uint32(0xFFFFFFFF), Uint32(0), Uint32(cutlass.max(32 - count, Int32(0)))))


class MaskedReduce(StridedKernel):
    """The kernel: a thread has one position in flight."""

    counts_elements = True

    def results_of_unit(self, monoid, policy) -> int:
        return 1

    def combine_own(self, states, storage, me: Member, count):
        """Combine the states of the block's groups, which share ``count`` positions."""
        return self.reduce_groups(states, storage, me, self.used(count))

    @cute.jit
    def own_states(self, a: cutlass.Constexpr, me: Member, begin, end):
        """The state of this thread's share of the positions from ``begin`` to ``end``."""
        x = a.x[0] + a.kept.offsets(me.unit)[0]
        stop = self.end_of(a)
        partial = Maybe.none(self.monoid.types)
        at = begin + me.group
        while at < end:
            row = self.row(a, x, at)
            words = cute.make_rmem_tensor((WORDS, self.policy.vectors), Int32)
            self.load_row(words, row, stop)
            partial = partial.append(self.of_row(words, row, a), self.monoid.combine)
            at += self.groups
        state = partial.state
        if cutlass.const_expr(self.is_indexes):  # none that counts is before the first
            state = (state[0], cutlass.max(state[1], self.monoid.types[1](0)))
        return (state,)

    @property
    def is_indexes(self) -> bool:
        return isinstance(self.monoid, ArgMonoid)

    @property
    def is_mapped(self) -> bool:
        return not self.is_indexes and self.monoid.transform is not None

    def end_of(self, a: Arguments):
        """The address behind the last element in memory."""
        end = a.x[0].toint() + Int64(a.extent) * self.monoid.source.size
        for extent, _, _, step, *_ in (*a.kept.axes, *a.reduced.axes):
            end += cutlass.max(Int64(extent - 1) * Int64(step), Int64(0)) * self.monoid.source.size
        return end

    def row(self, a: Arguments, x, position) -> Row:
        """What a lane has of its row at a position."""
        offset, member, index = a.reduced.offsets(position)
        count, member = Int32(a.extent) * self.monoid.source.size, Int32(member)
        start: Any = (x + offset).toint()
        skew = Int32(start & (VECTOR_BYTES - 1))
        far = Int32(self.policy.row_lanes or a.reduced.axes[-1][0]) * VECTOR_BYTES
        first = member * VECTOR_BYTES - skew
        if self.policy.indexed:
            index = index - Int64(member) * a.reduced.steps[-1]
        return Row(start + first, first, far, count, index)

    @cute.jit
    def load_row(self, words: cute.Tensor, row: cutlass.Constexpr, stop: Int64):
        """Load a lane's vectors of a row."""
        room = Int32(cutlass.min(stop - row.address, Int64(1 << 30)))
        for k in cutlass.range_constexpr(self.policy.vectors):
            if row.first + row.far * k < row.count:
                at = row.address + row.far * k
                if room - row.far * k >= VECTOR_BYTES:
                    cute.autovec_copy(four_words(at, cute.AddressSpace.gmem), words[(None, k)])
                else:  # the last vector of the array
                    for w in cutlass.range_constexpr(WORDS):
                        left = room - row.far * k - 4 * w
                        words[w, k] = Int32(word_of_range(at + 4 * w, Int32(0), left))

    def of_row(self, words, row: Row, a: Arguments):
        """The state of a lane's vectors of a row."""
        begins = [row.first + row.far * k for k in range(self.policy.vectors)]
        other = self.first_of(row) if self.is_mapped else without_effect(self.monoid)
        vectors = [self.own(words[(None, k)], at, row.count, k == 0, other) for k, at in enumerate(begins)]
        if self.is_mapped:
            found = [self.mapped(held, at, row.count) for held, at in zip(vectors, begins)]
            return tree(found, self.monoid.combine)
        if not self.is_indexes:
            return of_vectors(self.monoid, vectors)
        shift, number = self.monoid.source.size - 1, self.monoid.types[1]
        found = [of_vector(self.monoid, held, at >> shift) for held, at in zip(vectors, begins)]
        value, place = tree(found, self.monoid.combine)
        if self.policy.indexed:
            return value, number(row.index) + Int64(place) * a.reduced.steps[-1]
        return value, number(row.index) + number(place)

    def first_of(self, row: Row):
        """A word of copies of a row's first element, which a callable may map."""
        size = self.monoid.source.size
        kind = Uint8 if size == 1 else Uint16
        return Int32(Uint32(load_at(kind, row.address - row.first)) * Uint32(ONES[size]))

    def mapped(self, words, begin, count):
        """The sum of the mapped elements of a vector that begins at byte ``begin`` of a row of ``count`` bytes: those
        of others are 0."""
        elements, size = cute.recast_tensor(words, self.monoid.source.cutlass), self.monoid.source.size
        nothing = (self.monoid.types[0](-0.0 if self.monoid.accumulate.kind == "f" else 0),)
        states = []
        for i in range(cute.size(elements)):
            inside = Uint32(begin + i * size) < Uint32(count)
            states.append(select(inside, self.monoid.lift(elements[i], Int32(i)), nothing))
        return tree(states, self.monoid.combine)

    def own(self, words, begin, count, heads: bool, other):
        """The words of a vector that begins at byte ``begin`` of a row of ``count`` bytes, before it only if ``heads``:
        what is not of the row is that of the word ``other``, which has no effect."""
        found = cute.make_rmem_tensor((WORDS,), Int32)
        left = (count - begin) * 8
        for w in range(WORDS):
            mask = bits_below(left - 32 * w)
            if heads:
                mask = mask & (bits_below(begin * -8 - 32 * w) ^ -1)
            found[w] = (words[w] & mask) | ((mask ^ -1) & other)
        return found
