"""Reduction along axes of which the last is contiguous in memory: runs of elements, which begin anywhere.

A position is a piece of a run. The last of the reduced axes are the pieces of a run; its steps are those of the inputs,
then by how many elements the pieces lie behind the begin of the run, then the index of their first elements. A warp (or
with shorter runs a few lanes) reduces a piece by 16-byte vectors, and its misaligned ends element by element; all loads
of a short piece are in flight at once. If the operator commutes, lanes keep states of their own, and shuffles combine
them when all pieces are done; else ``chunk`` keeps the order.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from ...block.split import share
from ...warp import Maybe, combine_valid, exchange
from ..arrays import pointers_of, together
from ..coordinates import Axes, element, moved
from ..hardware import VECTOR_BYTES
from .chunk import ChunkReduce
from .strided_base import Member, StridedKernel


class RunReduce(StridedKernel):
    """The kernel: ``unroll`` vectors of a lane are in flight."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, has_init, policy)
        self.chunk = ChunkReduce(monoid, policy.unroll, len(monoid.sources) == 1)

    def results_of_unit(self, monoid, policy) -> int:
        return 1

    def elements_of(self, positions: Axes, reduced: tuple):
        return reduced[-1]

    def positions_of(self, positions: Axes, elements):
        if self.policy.count == "":
            return positions.size
        piece = positions.steps[-2]
        return type(positions.size)((elements + (piece - 1)) // piece)

    def combine_own(self, states, storage, me: Member, count):
        """Combine the states of the block's warps, which share ``count`` pieces."""
        valid = Int32(cutlass.min(count, type(count)(self.ranks)))
        return self.reduce_ranks(states, storage, me, valid)

    @cute.jit
    def own_states(self, a: cutlass.Constexpr, me: Member, begin, end):
        """The state of the pieces of this thread's warp, in the first lane of those that share a result."""
        number = type(a.length)
        x = moved(a.x, a.kept.offsets(me.unit))
        first, stop = share(end - begin, number(me.group // self.warp_groups), number(self.ranks))
        lane = me.group % self.warp_groups
        partial = Maybe.none(self.monoid.types)
        at = begin + first
        while at < begin + stop:
            *offsets, within, index = a.reduced.offsets(at)
            count = Int32(cutlass.min(a.elements - within, a.reduced.steps[-2]))
            start = together(tuple(moved(x, offsets)))
            if cutlass.const_expr(self.policy.in_turn):
                found = self.piece(start, count, index, lane)
                if cutlass.const_expr(self.policy.indexed):
                    pace = a.reduced.steps[-1] // a.reduced.steps[-2]  # of indexes, from element to element
                    found = self.spaced(found, index, pace)
                partial = partial.then(found, self.ordered.combine)
            else:
                partial = partial.append(self.chunk.row(start, Int64(count), lane, index), self.monoid.combine)
            at += 1
        if cutlass.const_expr(self.policy.in_turn):
            packed = partial.pack()
            for log in cutlass.range_constexpr(self.warp_groups.bit_length() - 1):
                packed = combine_valid(packed, exchange(packed, 1 << log), self.monoid.combine)
            partial = Maybe.unpack(packed)
        return (partial.state,)

    def spaced(self, found: Maybe, first: Int64, pace: Int64) -> Maybe:
        """The partial of a piece whose indexes are ``pace`` apart, from that of its elements counted one by one."""
        value, index = found.state
        return Maybe((value, first + (index - first) * pace), found.valid)

    @cute.jit
    def piece(self, start, count: Int32, index: Int64, lane: Int32):
        """The partial of a lane: its vectors, ``warp_groups`` apart, and of both ends what it has."""
        lanes, unroll = self.warp_groups, self.policy.unroll
        head = cutlass.min(Int32(self.chunk.misaligned(start)), count)
        vectors = (count - head) // self.chunk.vector
        tail = count - head - vectors * self.chunk.vector
        sides = [(start, Int32(0), head), (start + (count - tail), count - tail, tail)]
        most = (VECTOR_BYTES // min(dtype.size for dtype in self.monoid.sources) - 1 + lanes - 1) // lanes
        places = [(side, lane + k * lanes) for side in sides for k in range(most)]
        ends = [(side, place, self.end_values(side[0], side[2], place)) for side, place in places]
        partial = Maybe(self.monoid.nothing(), Boolean(False))
        at = lane
        base = self.chunk.base(index)
        words = self.chunk.registers()
        while at + (unroll - 1) * lanes < vectors:
            for u in cutlass.range_constexpr(unroll):
                self.load_vector(start, words, u, head + (at + u * lanes) * self.chunk.vector)
            found = self.full(words, head + at * self.chunk.vector, base)
            partial = partial.append(found, self.ordered.combine)
            at += unroll * lanes
        for u in cutlass.range_constexpr(unroll - 1):
            if at + u * lanes < vectors:
                self.load_vector(start, words, u, head + (at + u * lanes) * self.chunk.vector)
        for u in cutlass.range_constexpr(unroll - 1):
            if at + u * lanes < vectors:
                first = head + (at + u * lanes) * self.chunk.vector
                found = self.chunk.vector_state(words, u, base + first)
                partial = partial.append(found, self.ordered.combine)
        front = Maybe(self.monoid.nothing(), Boolean(False))
        for (_, before, few), place, values in ends[:most]:
            if place < few:
                found = self.monoid.lift(*values, base + (before + place))
                front = front.append(found, self.ordered.combine)
        partial = front.then(partial, self.ordered.combine)
        for (_, before, few), place, values in ends[most:]:
            if place < few:
                found = self.monoid.lift(*values, base + (before + place))
                partial = partial.append(found, self.ordered.combine)
        return Maybe(self.monoid.place(partial.state, index), partial.valid)

    @cute.jit
    def end_values(self, first, few, place):
        """The elements of number ``place`` from a pointer on; anything if there are no more than ``few``."""
        values = tuple(dtype.cutlass(0) for dtype in self.monoid.sources)
        if place < few:
            values = tuple(element(pointer) for pointer in pointers_of(first + place))
        return values

    def load_vector(self, start, words, u: int, at) -> None:
        """Load vector ``u`` of a lane, from element ``at`` of the piece on."""
        for source, target in zip(self.chunk.vectors_at(start + at, Int32(0)), words):
            cute.autovec_copy(source[(None, 0)], target[(None, u)])

    def full(self, words, at, base):
        """The state of ``unroll`` loaded vectors, of which the first in memory begins with number ``at``."""
        chunk, lanes, each = self.chunk, self.warp_groups, self.monoid.lane_vectors
        if each > 1:
            vectors = [words[0][(None, u)] for u in range(self.policy.unroll)]
            runs = [self.monoid.fold_vectors(vectors[u : u + each], base) for u in range(0, self.policy.unroll, each)]
        else:
            places = [base + (at + u * lanes * chunk.vector) for u in range(self.policy.unroll)]
            runs = [chunk.vector_state(words, u, place) for u, place in enumerate(places)]
        total = runs[0]
        for run in runs[1:]:
            total = self.ordered.combine(total, run)
        return total
