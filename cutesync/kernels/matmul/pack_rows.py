"""Copies rows that begin anywhere to rows that begin on cache lines: packs an operand whose K is contiguous (see
``pack``).

A warp copies a run of a row, ``VECTORS`` vectors of 16 bytes a lane. A vector of the copy lies in two aligned vectors
of the source. A lane reads both (the second is the next lane's first, which the L1 has) and shifts them into place,
first by words, then by bits. So elements of 8 and 16 bits cost as much as those of 32, and no lane waits for another.
The first and the last run of a row may have aligned vectors that lie outside the array in part: those runs are read by
elements.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...warp import LANES
from ..plain import PlainKernel
from ..words import funnel_shift
from .pack import THREADS, three_terms
from .policy import PACK_RUN

VECTOR, WORDS = 16, 4  # bytes, and words of 4
STRIDE = LANES * VECTOR  # bytes from one vector of a lane to its next
VECTORS = PACK_RUN // STRIDE  # of a lane


class PackRows(PlainKernel):
    """``out[line, :inner] = x[line, :inner]``, zeros up to ``span``, for the lines (items, rows) of ``x``, whose
    elements have 8, 16 or 32 bits and are moved as bits. With ``side`` "left" or "right" a line of ``out`` is three
    spans long, one for each of ``three_terms``."""

    name, threads, blocks_per_sm = "matmul_pack", THREADS, 8

    def __init__(self, element, side: str = "") -> None:
        self.element, self.side = element, side
        self.size = element.width // 8

    @cute.jit
    def main(self, x: cute.Pointer, out: cute.Pointer, numbers: tuple):
        """All in bytes: ``inner``, ``span``, the strides of ``x``, and ``low`` and ``high``, where its memory begins
        and ends, from ``x`` on. ``across`` counts the runs of a line."""
        lines, rows, inner, item_stride, row_stride, low, high, span, across = numbers
        warp = Uint32(cute.arch.block_idx()[0]) * (THREADS // LANES) + cute.arch.thread_idx()[0] // LANES
        line = warp // across
        if line < lines:
            item, run = line // rows, Int64(warp - line * across) * PACK_RUN
            at = cute.arch.lane_idx() * VECTOR  # of the lane's first vector in the run
            start = x.toint() + (Int64(item) * item_stride + Int64(line - item * rows) * row_stride) + run
            target = out.toint() + (Int64(line) * (span * (3 if self.side else 1)) + run + at)
            # bytes from there to the ends of the two lines
            left, room = (Int32(cutlass.min(length - run, Int64(PACK_RUN))) - at for length in (inner, span))
            first = start & -VECTOR
            if (first >= x.toint() + low) & (first + (PACK_RUN + VECTOR) <= x.toint() + high):
                self.copy_vectors(first + at, Int32(start) & (VECTOR - 1), left, target, room, span)
            else:
                self.copy_elements(start + at, left, target, room, span)

    @cute.jit
    def copy_vectors(self, source, skew, left, target, room, span):
        """Copy the lane's vectors, which begin ``skew`` bytes behind the aligned ``source``. All loads are in flight
        before the first is used."""
        loaded = cute.make_rmem_tensor((2 * WORDS, VECTORS), Uint32)
        for j in cutlass.range_constexpr(VECTORS):
            if left > j * STRIDE:
                cute.autovec_copy(memory(Uint32, source + j * STRIDE, 2 * WORDS, VECTOR), loaded[(None, j)])
        for j in cutlass.range_constexpr(VECTORS):
            if room > j * STRIDE:
                words = [loaded[i, j] for i in range(2 * WORDS)]
                for hop in (2, 1):
                    words = [
                        Uint32(cutlass.select_((skew & (4 * hop)) != 0, *pair)) for pair in zip(words[hop:], words)
                    ]
                words = [funnel_shift(*pair, (skew & 3) * 8) for pair in zip(words, words[1:])]
                if left < j * STRIDE + VECTOR:
                    for i in cutlass.range_constexpr(WORDS):
                        words[i] = words[i] & mask(left - (j * STRIDE + 4 * i))
                self.write(target + j * STRIDE, words, span)

    @cute.jit
    def copy_elements(self, source, left, target, room, span):
        """Copy the lane's vectors at ``source``. Only the elements that the line has are read."""
        for j in cutlass.range_constexpr(VECTORS):
            if room > j * STRIDE:
                words = [Uint32(0) for _ in range(WORDS)]
                for i in cutlass.range_constexpr(VECTOR // self.size):
                    at = j * STRIDE + i * self.size
                    if left > at:
                        element = memory(self.element, source + at, 1, self.size)[0]
                        words[i * self.size // 4] = words[i * self.size // 4] | (Uint32(element) << at % 4 * 8)
                self.write(target + j * STRIDE, words, span)

    def write(self, target, words, span) -> None:
        terms = zip(*(three_terms(Int32(word), self.side) for word in words)) if self.side else (words,)
        for i, term in enumerate(terms):
            vector = cute.make_rmem_tensor((WORDS,), Uint32)
            for j, word in enumerate(term):
                vector[j] = Uint32(word)
            cute.autovec_copy(vector, memory(Uint32, target + span * i, WORDS, VECTOR))


def memory(kind, address, count: int, align: int):
    """The ``count`` elements at an address that is a multiple of ``align`` bytes."""
    return cute.make_tensor(
        cute.make_ptr(kind, address, cute.AddressSpace.gmem, assumed_align=align), cute.make_layout((count,))
    )


def mask(count):
    """The bits of the first ``count`` bytes of a word: none if it is negative, all if it is large."""
    bits = "bmsk.clamp.b32 {$w0}, 0, {$r0};"
    return Uint32(
        cute.arch.inline_ptx(bits, write_only_types=[Uint32], read_only_args=[cutlass.max(count, Int32(0)) * 8])
    )
