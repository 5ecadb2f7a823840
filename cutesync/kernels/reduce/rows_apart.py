"""Reduction of many short rows that lie apart and begin anywhere, in order: a block copies several to shared memory.

As ``slices``, but of what lies between rows only the rest of a row's first and last vector of 16 bytes is copied. In
shared memory each row begins as far behind a boundary as in global memory; rows lie an odd number of vectors apart, so
that they begin on different banks. ``LANES_OF_ROW`` neighbouring threads copy a row: they read whole lines.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ..words import four_words, word_of_range
from .chunk import VECTOR_BYTES, WORDS
from .slice_policy import LANES_OF_ROW, vectors_apart
from .slices import LOADS, SliceReduce
from .strided_problem import THREADS


class RowsApartReduce(SliceReduce):
    """The kernel."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, has_init, policy)
        self.blocks_per_sm = policy.blocks_per_sm

    def pace(self, step):
        return Int64(step)

    def held(self, span):
        """The vectors of shared memory that a row of ``span`` elements has."""
        return vectors_apart(span * self.monoid.source.size)

    def place_of(self, x, which, pitch, span):
        vector = VECTOR_BYTES // self.monoid.source.size
        return which * self.held(span) * vector + self.skew(x + which * pitch)

    @cute.jit
    def fill(self, a: cutlass.Constexpr, x, stage, count, pitch, span):
        thread = cute.arch.thread_idx()[0]
        lane, row = thread % LANES_OF_ROW, thread // LANES_OF_ROW
        groups_of_slices, slices, _ = a.kept.split()
        rows = groups_of_slices.offsets(groups_of_slices.size - 1)[0] + slices.offsets(slices.size - 1)[0]
        end = (a.x[0] + rows + span).toint()  # of the array: the last row's
        words = cute.make_rmem_tensor((WORDS, LOADS), Int32)
        while row < count:
            start = (x + row * pitch).toint()
            first, stop = start & -VECTOR_BYTES, start + Int64(span) * self.monoid.source.size
            at = lane
            while first + at * VECTOR_BYTES < stop:
                for u in cutlass.range_constexpr(LOADS):
                    vector = first + (at + u * LANES_OF_ROW) * VECTOR_BYTES
                    if vector < stop:
                        self.load(vector, end, words[(None, u)])
                for u in cutlass.range_constexpr(LOADS):
                    number = at + u * LANES_OF_ROW
                    if first + number * VECTOR_BYTES < stop:
                        place = stage + (row * self.held(span) + number) * WORDS
                        target = cute.make_ptr(Int32, place.toint(), cute.AddressSpace.smem, assumed_align=VECTOR_BYTES)
                        cute.autovec_copy(words[(None, u)], cute.make_tensor(target, cute.make_layout((WORDS,))))
                at += LOADS * LANES_OF_ROW
            row += THREADS // LANES_OF_ROW

    @cute.jit
    def load(self, vector: Int64, end: Int64, words):
        """Load a vector at an address; of the last one of the array, what lies in it."""
        if vector + VECTOR_BYTES <= end:
            cute.autovec_copy(four_words(vector, cute.AddressSpace.gmem), words)
        else:
            for w in cutlass.range_constexpr(WORDS):
                words[w] = Int32(word_of_range(vector + 4 * w, Int32(0), Int32(end - vector) - 4 * w))
