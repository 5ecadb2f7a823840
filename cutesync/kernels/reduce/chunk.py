"""A warp reduces runs of consecutive elements in order: the inner loop of every reduction of long rows.

A chunk is ``32 * unroll`` 16-byte vectors: each lane reduces its vectors, then shuffles reduce the lanes
(``warp.reduce_rows``). Parts of a row that are no whole chunk, or lie before the first 16-byte boundary, go through
``ragged`` and ``narrow``, which never show the operator a lane without data.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ...monoid import tree
from ...warp import LANES, Maybe, broadcast, combine_valid, reduce_rows, reduce_states, reduce_valid

VECTOR_BYTES = 16
WORDS = VECTOR_BYTES // 4


def aligned_words(start):
    """A 16-byte aligned pointer as one to 32-bit words: in registers, elements of a byte would take a register each."""
    return cute.make_ptr(Int32, start.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)


class ChunkReduce:
    """Reductions of one warp, up to ``unroll`` vectors a lane in flight. All 32 lanes call, and all get the state."""

    def __init__(self, monoid, unroll: int) -> None:
        self.monoid, self.unroll = monoid, unroll
        self.vector = VECTOR_BYTES // monoid.source.size
        self.elements = LANES * unroll * self.vector

    def misaligned(self, x):
        """How many elements come before the first 16-byte boundary."""
        skew = Int32(x.toint() & (VECTOR_BYTES - 1)) // self.monoid.source.size
        return (self.vector - skew) % self.vector

    @cute.jit
    def row(self, x: cute.Pointer, count: Int64, lane: Int32):
        """The aggregate of a whole row of ``count`` > 0 elements."""
        head = cutlass.min(Int64(self.misaligned(x)), count)
        vectors = (count - head) // self.vector
        tail = Int32(count - head - vectors * self.vector)
        body = x + head
        partial = Maybe.none(self.monoid.types)
        if head > 0:
            partial = Maybe.of(self.narrow(x, Int32(head), Int64(0), lane))
        done = Int64(0)
        while done + LANES * self.unroll <= vectors:
            at = done * self.vector
            partial = partial.append(self.fold(self.load(body + at, lane), head + at, lane), self.monoid.combine)
            done += LANES * self.unroll
        if done < vectors:
            at = done * self.vector
            chunk = self.ragged(body + at, Int32(vectors - done), head + at, lane)
            partial = partial.append(chunk, self.monoid.combine)
        if tail > 0:
            at = vectors * self.vector
            partial = partial.append(self.narrow(body + at, tail, head + at, lane), self.monoid.combine)
        return partial.state

    def load(self, start, lane):
        """The chunk at ``start``: registers (WORDS, unroll) of 32 bits; a lane's vectors lie LANES vectors apart."""
        chunk = cute.make_rmem_tensor((WORDS, self.unroll), Int32)
        layout = cute.make_layout((WORDS, self.unroll), stride=(1, LANES * WORDS))
        cute.autovec_copy(cute.make_tensor(aligned_words(start) + lane * WORDS, layout), chunk)
        return chunk

    def fold(self, chunk, index, lane):
        """The aggregate of a loaded chunk whose first element is at ``index`` of its row."""
        rows = [self.monoid.fold(chunk[(None, u)], (lane + u * LANES) * self.vector) for u in range(self.unroll)]
        if self.monoid.commutative:  # a lane may reduce its own vectors first, which saves three shuffles
            total = reduce_states(tree(rows, self.monoid.combine), self.monoid.combine, lane)
        else:
            total = reduce_rows(rows, self.monoid.combine, lane)
        return self.monoid.place(total, index)

    @cute.jit
    def ragged(self, start: cute.Pointer, left: Int32, index: Int64, lane: Int32):
        """The aggregate of ``left`` vectors, 0 < left < LANES * unroll. All loads come first.

        States carry a flag, so the operator sees no lane without data."""
        words = cute.make_rmem_tensor((WORDS, self.unroll), Int32)
        for u in cutlass.range_constexpr(self.unroll):
            at = lane + u * LANES
            if at < left:
                source = cute.make_tensor(aligned_words(start) + at * WORDS, cute.make_layout((WORDS,)))
                cute.autovec_copy(source, words[(None, u)])
        rows = []
        for u in cutlass.range_constexpr(self.unroll):
            rows.append(self.vector_state(words[(None, u)], lane + u * LANES, left))
        total = reduce_rows(rows, lambda a, b: combine_valid(a, b, self.monoid.combine), lane)
        return self.monoid.place(total[:-1], index)

    @cute.jit
    def vector_state(self, words, at, left):
        """The packed state of a lane's vector ``at``; missing from ``left`` on."""
        state = self.monoid.nothing()
        if at < left:
            state = self.monoid.fold(words, at * self.vector)
        return (*state, cutlass.select_(at < left, Int32(1), Int32(0)))

    @cute.jit
    def narrow(self, start: cute.Pointer, count: Int32, index: Int64, lane: Int32):
        """The aggregate of ``count`` < 16 elements, one a lane."""
        state = self.monoid.nothing()
        if lane < count:
            state = self.monoid.lift(cute.make_tensor(start, cute.make_layout((VECTOR_BYTES,)))[lane], lane)
        return self.monoid.place(broadcast(reduce_valid(state, count, self.monoid.combine, lane)), index)
