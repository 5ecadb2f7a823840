"""Reduction of elements in order, along axes of any strides: the lanes of a warp take neighbouring positions.

A warp, or a few of its lanes where rows are short, has a contiguous run of positions. Its lanes take neighbours at a
time, so that these are read together. Shuffles combine the lanes' elements in order (``warp.reduce_rows``), and the
lanes append the result to their state.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ...block.split import share
from ...warp import LANES, Maybe, combine_valid, reduce_rows
from ..coordinates import element, moved
from .strided_base import Member, StridedKernel


class OrderedReduce(StridedKernel):
    """The kernel: ``unroll`` elements of a lane are in flight, which with those of the other lanes are a chunk."""

    @property
    def chunk(self) -> int:
        """How many positions the lanes take at once."""
        return self.warp_groups * self.unroll

    def combine_own(self, states, storage, me: Member, count):
        """Combine the states of the block's warps, which share ``count`` positions."""
        chunks = (count + (self.chunk - 1)) // self.chunk
        return self.reduce_ranks(states, storage, me, Int32(cutlass.min(chunks, type(count)(self.ranks))))

    @cute.jit
    def own_states(self, a: cutlass.Constexpr, me: Member, begin, end):
        """The state of the lanes' share of the positions from ``begin`` to ``end``, in all of them."""
        number = type(a.length)
        x = moved(a.x, a.kept.offsets(me.unit))
        chunks = (end - begin + (self.chunk - 1)) // self.chunk
        first, stop = share(chunks, number(me.group // self.warp_groups), number(self.ranks))
        lane = me.group % self.warp_groups
        at = begin + first * self.chunk
        left = cutlass.min(begin + stop * self.chunk, end) - at
        partial = Maybe.none(self.monoid.types)
        apart = type(left)(0)
        ends = (left > 0) & (at + left == a.length)
        if cutlass.const_expr(self.policy.pace > 1):
            if ends:
                apart = type(left)(1)  # the last vector may reach beyond the array
        if cutlass.const_expr(self.warp_groups < LANES):  # rows have few chunks: unrolled, they would take registers
            count = (left - apart) // self.chunk
            for _ in cutlass.range(count, unroll=1):
                partial = partial.append(self.whole(a, x, at, lane), self.monoid.combine)
                at += self.chunk
            left -= count * self.chunk
        else:
            while left >= self.chunk + apart:
                partial = partial.append(self.whole(a, x, at, lane), self.monoid.combine)
                at += self.chunk
                left -= self.chunk
        if left > 0:
            partial = self.append_rest(a, x, partial, at, Int32(left), lane)
        if cutlass.const_expr(self.policy.pace > 1):
            if ends:
                partial = self.append_tail(a, x, partial, Int64)
        return (partial.state,)

    def elements(self, a, x, at) -> tuple:
        """The element of each input at a position."""
        pointers = moved(x, a.reduced.offsets(at))
        if self.policy.load != "row":
            return tuple(element(pointer) for pointer in pointers)
        count, size = self.policy.bytes // 4, self.policy.bytes
        words = cute.make_rmem_tensor((count,), Int32)
        start = cute.make_ptr(Int32, pointers[0].toint(), cute.AddressSpace.gmem, assumed_align=size)
        cute.autovec_copy(cute.make_tensor(start, cute.make_layout((count,))), words)
        elements = cute.recast_tensor(words, self.monoid.source.cutlass)
        return tuple(elements[i] for i in range(0, cute.size(elements), self.policy.pace))

    def singly(self, a, x, at) -> tuple:
        """The same, without what lies between."""
        if self.policy.pace == 1:
            return self.elements(a, x, at)
        (start,) = moved(x, a.reduced.offsets(at))
        count = self.policy.bytes // self.monoid.source.size // self.policy.pace
        return tuple(element(start + i * self.policy.pace) for i in range(count))

    def lifted(self, values, at):
        """The state of a position's elements, with an index of 64 bits."""
        if self.policy.load == "row":
            return self.monoid.place(self.monoid.run(values, at * len(values)), Int64(0))
        return self.monoid.place(self.monoid.lift(*values, at), Int64(0))

    def whole(self, a, x, at, lane):
        """The aggregate of a chunk from position ``at`` on."""
        places = [at + (u * self.warp_groups + lane) for u in range(self.unroll)]
        loaded = [self.elements(a, x, place) for place in places]
        rows = [self.lifted(values, place) for values, place in zip(loaded, places)]
        return reduce_rows(rows, self.monoid.combine, lane, self.warp_groups)

    def append_rest(self, a, x, partial: Maybe, at, left: Int32, lane) -> Maybe:
        """Append the ``left`` positions from ``at`` on, less than a chunk. Lanes without one read the last one."""
        places = [u * self.warp_groups + lane for u in range(self.unroll)]
        loaded = [self.singly(a, x, at + cutlass.min(place, left - 1)) for place in places]
        rows = [self.packed(values, at + place, place < left) for values, place in zip(loaded, places)]
        total = reduce_rows(rows, lambda a, b: combine_valid(a, b, self.monoid.combine), lane, self.warp_groups)
        return partial.then(Maybe.unpack(total), self.monoid.combine)

    @cute.jit
    def packed(self, values: cutlass.Constexpr, at, exists):
        """The packed state of a position, which may be missing."""
        state = self.monoid.place(self.monoid.nothing(), Int64(0))
        if exists:
            state = self.lifted(values, at)
        return (*state, Int32(exists))
