"""A warp reduces runs of consecutive elements in order: the inner loop of every reduction of long rows.

A chunk is ``32 * unroll`` 16-byte vectors: each lane reduces its vectors, then shuffles reduce the lanes
(``warp.reduce_rows``). Parts of a row that are no whole chunk, or lie before the first 16-byte boundary, go through
``ragged`` and ``narrow``, which never show the operator a lane without data.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ...monoid import ArgMonoid, tree
from ...warp import LANES, Maybe, broadcast, combine_valid, reduce_commutative, reduce_rows, reduce_states, reduce_valid
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES
from .packed import of_vector

WORDS = VECTOR_BYTES // 4


def aligned_words(start):
    """A 16-byte aligned pointer as one to 32-bit words: in registers, elements of a byte would take a register each."""
    return cute.make_ptr(Int32, start.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)


class ChunkReduce:
    """Reductions of one warp, up to ``unroll`` vectors a lane in flight. All 32 lanes call; lane 0 gets the state.

    A vector has 16 bytes of the widest input. All inputs lie on 16-byte boundaries where the one of the smallest
    elements does, unless ``aligned`` is false: then they are loaded element by element."""

    def __init__(self, monoid, unroll: int, aligned: bool = True) -> None:
        self.monoid, self.unroll, self.aligned = monoid, unroll, aligned
        sizes = [dtype.size for dtype in monoid.sources]
        self.vector = VECTOR_BYTES // max(sizes)
        self.elements = LANES * unroll * self.vector
        self.lead = sizes.index(min(sizes))

    def misaligned(self, x):
        """How many elements come before the first 16-byte boundary."""
        if not self.aligned:
            return Int32(0)
        size = self.monoid.sources[self.lead].size
        skew = Int32(pointers_of(x)[self.lead].toint() & (VECTOR_BYTES - 1)) // size
        return (VECTOR_BYTES // size - skew) % (VECTOR_BYTES // size)

    @cute.jit
    def row(self, x, count: Int64, lane: Int32, index=0):
        """The aggregate of a whole row of ``count`` > 0 elements, the first of which has ``index``."""
        head = cutlass.min(Int64(self.misaligned(x)), count)
        vectors = (count - head) // self.vector
        tail = Int32(count - head - vectors * self.vector)
        body = x + head
        partial = Maybe.none(self.monoid.types)
        if head > 0:
            partial = Maybe.of(self.narrow(x, Int32(head), Int64(index), lane))
        done = Int64(0)
        while done + LANES * self.unroll <= vectors:
            at = done * self.vector
            partial = partial.append(
                self.fold(self.load(body + at, lane), index + head + at, lane), self.monoid.combine
            )
            done += LANES * self.unroll
        if done < vectors:
            at = done * self.vector
            chunk = self.ragged(body + at, Int32(vectors - done), index + head + at, lane)
            partial = partial.append(chunk, self.monoid.combine)
        if tail > 0:
            at = vectors * self.vector
            partial = partial.append(self.narrow(body + at, tail, index + head + at, lane), self.monoid.combine)
        return partial.state

    def packed(self, dtype) -> bool:
        """Whether vectors of an input are held as 32-bit words: not float64, as the compiler then keeps a copy in local
        memory of what is loaded under a condition."""
        return self.aligned and self.vector * dtype.size % 4 == 0 and dtype.size * (dtype.kind == "f") < 8

    def registers(self):
        """Registers of a chunk, a tensor (words, unroll) for each input."""
        tensors = []
        for dtype in self.monoid.sources:
            words = self.vector * dtype.size // 4 if self.packed(dtype) else self.vector
            # the stride is stated: a mode of one element would get stride 0
            layout = cute.make_layout((words, self.unroll), stride=(1, words))
            tensors.append(cute.make_rmem_tensor(layout, Int32 if self.packed(dtype) else dtype.cutlass))
        return tuple(tensors)

    def vectors_at(self, start, lane):
        """A lane's vectors of the chunk at ``start`` in memory, LANES vectors apart, as tensors like ``registers``."""
        tensors = []
        for dtype, pointer in zip(self.monoid.sources, pointers_of(start)):
            size = self.vector * dtype.size
            words = size // 4 if self.packed(dtype) else self.vector
            word = Int32 if self.packed(dtype) else dtype.cutlass
            align = size if self.aligned else dtype.size
            first = cute.make_ptr(word, pointer.toint(), cute.AddressSpace.gmem, assumed_align=align)
            layout = cute.make_layout((words, self.unroll), stride=(1, LANES * words))
            tensors.append(cute.make_tensor(first + lane * words, layout))
        return tensors

    def load(self, start, lane):
        """The chunk at ``start``, in registers."""
        chunk = self.registers()
        for source, target in zip(self.vectors_at(start, lane), chunk):
            cute.autovec_copy(source, target)
        return chunk

    def vector_state(self, chunk, u: int, index):
        """The aggregate of vector ``u`` of a lane, whose first element is at ``index``."""
        if len(chunk) == 1 and self.aligned:
            return of_vector(self.monoid, chunk[0][(None, u)], index)
        rows = [words[(None, u)] for words in chunk]
        rows = [
            cute.recast_tensor(row, dtype.cutlass) if self.packed(dtype) else row
            for row, dtype in zip(rows, self.monoid.sources)
        ]
        lifted = [self.monoid.lift(*(row[i] for row in rows), index + i) for i in range(self.vector)]
        return tree(lifted, self.monoid.combine)

    def base(self, index):
        """What indexes inside a chunk at ``index`` are counted from."""
        return index if self.monoid.takes_index else 0

    def fold(self, chunk, index, lane):
        """The aggregate of a loaded chunk whose first element is at ``index`` of its row."""
        base = self.base(index)
        each = self.monoid.lane_vectors
        if each > 1:
            vectors = [chunk[0][(None, u)] for u in range(self.unroll)]
            rows = [self.monoid.fold_vectors(vectors[u : u + each], base) for u in range(0, self.unroll, each)]
        else:
            rows = [self.vector_state(chunk, u, base + (lane + u * LANES) * self.vector) for u in range(self.unroll)]
        if self.monoid.commutative:  # a lane may reduce its own vectors first, which saves three shuffles
            total = reduce_commutative(tree(rows, self.monoid.combine), self.monoid.combine)
        else:
            total = reduce_rows(rows, self.monoid.combine, lane)
        return self.monoid.place(total, index)

    @cute.jit
    def ragged(self, start, left: Int32, index: Int64, lane: Int32):
        """The aggregate of ``left`` vectors, 0 < left < LANES * unroll. All loads come first.

        States carry a flag, so the operator sees no lane without data. Of argmin and argmax, lanes without a vector
        have the last one, too: of equal elements the first counts."""
        chunk = self.registers()
        if cutlass.const_expr(isinstance(self.monoid, ArgMonoid)):
            places = [cutlass.min(lane + u * LANES, left - 1) for u in range(self.unroll)]
            for u, place in enumerate(places):
                self.copy_vector(start + place * self.vector, chunk, u, 0, Int32(0))
            rows = [self.vector_state(chunk, u, place * self.vector) for u, place in enumerate(places)]
            total = reduce_rows(rows, self.monoid.combine, lane)
        else:
            for u in cutlass.range_constexpr(self.unroll):
                if lane + u * LANES < left:
                    self.copy_vector(start, chunk, u, u, lane)
            rows = []
            for u in cutlass.range_constexpr(self.unroll):
                rows.append(self.maybe_vector(chunk, u, lane + u * LANES, left, self.base(index)))
            total = reduce_rows(rows, lambda a, b: combine_valid(a, b, self.monoid.combine), lane)[:-1]
        return self.monoid.place(total, index)

    def copy_vector(self, start, chunk, u: int, row: int, lane) -> None:
        """Load vector ``u`` of a lane from a row of vectors behind ``start``."""
        for source, target in zip(self.vectors_at(start, lane), chunk):
            cute.autovec_copy(source[(None, row)], target[(None, u)])

    @cute.jit
    def maybe_vector(self, chunk, u: cutlass.Constexpr, at, left, base):
        """The packed state of a lane's vector ``at``, number ``u`` in the chunk; missing from ``left`` on."""
        state = self.monoid.nothing()
        if at < left:
            state = self.vector_state(chunk, u, base + at * self.vector)
        return (*state, cutlass.select_(at < left, Int32(1), Int32(0)))

    def first_lanes(self, state, count: Int32, lane: Int32):
        """The aggregate of the states of the first ``count`` > 0 lanes, in lane 0 at least."""
        if isinstance(self.monoid, ArgMonoid):  # the other lanes have the last state, too
            return reduce_states(broadcast(state, cutlass.min(lane, count - 1)), self.monoid.combine, lane)
        return reduce_valid(state, count, self.monoid.combine, lane)

    @cute.jit
    def narrow(self, start, count: Int32, index: Int64, lane: Int32):
        """The aggregate of ``count`` < 16 elements, one a lane."""
        state = self.monoid.nothing()
        if lane < count:
            layout = cute.make_layout((VECTOR_BYTES,))
            elements = [cute.make_tensor(pointer, layout)[lane] for pointer in pointers_of(start)]
            state = self.monoid.lift(*elements, self.base(index) + lane)
        return self.monoid.place(broadcast(self.first_lanes(state, count, lane)), index)
