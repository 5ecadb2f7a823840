"""Own loads of short lines that lie side by side, as they begin anywhere: "dense" (see ``own``).

All lines of a tile are one run of memory, no longer than the stage. One bulk copy brings the aligned vectors that hold
it to the beginning of the stage; several stages are in flight. When it has landed, each thread takes its part of a line
to registers, and shifts it into place. When all have, they write the swizzled stage over it. Aligned vectors that lie
outside the operand's memory in part are not copied: lanes bring the bytes that exist, and zeros.

- landed, one a stage: 1 arrival of the first warp and the bytes of the copies, first phase 0. All four warps wait for
  it; the named barrier LOADED follows when each has read what it needs. A word a stage and an operand says what lies
  there. The proxy fence before the ring's full barrier also lets the next copy overwrite what was read.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32
from cutlass.experimental import primitives

from ..words import funnel_shift
from .own import OwnLoad, Spot, nearest_tfloat32
from .pack_rows import VECTOR, WORDS, mask, memory
from .parameters import Source
from .policy import K_TILE_BYTES, WARPGROUP

VECTORS = K_TILE_BYTES // VECTOR  # of a line


class DenseLoad(OwnLoad):
    """The loads of an operand of ``rows`` a tile. A thread has one of ``parts`` of a line, or whole lines in several
    ``rounds``."""

    def __init__(self, element, rows: int) -> None:
        super().__init__("dense", element, rows, True, 0)
        most = max(1, min(VECTORS, WARPGROUP // rows))
        self.parts = 1 << most.bit_length() - 1
        self.rounds = -(-rows // WARPGROUP)
        self.of_thread = VECTORS // self.parts  # vectors, in a round

    @cute.jit
    def bring(self, source: Source, spot: Spot, stage, barrier: cute.Pointer, lane: Int32):
        """One warp: start the copy of the lines to the stage at address ``stage``. Returns a word for ``take``: where
        the first line begins, its bytes, and how many lines there are."""
        lines = cutlass.min(spot.outer, Int32(self.rows))
        found = Int32(0)
        if (lines > 0) & (spot.inner > 0):
            first, end = spot.address & -VECTOR, spot.address + Int64(lines - 1) * source.outer_step + spot.inner
            last = (end + (VECTOR - 1)) & -VECTOR
            found = (Int32(spot.address) & (VECTOR - 1)) + (spot.inner << 4) + (lines << 12)
            early, late = first < spot.low, last > spot.high
            skipped = Int32(cutlass.select_(early, Int32(VECTOR), Int32(0)))
            size = Int32(last - first) - skipped - Int32(cutlass.select_(late, Int32(VECTOR), Int32(0)))
            if (lane == 0) & (size > 0):
                primitives.mbarrier_expect_tx(barrier, size)
                target = cute.make_ptr(Uint8, stage + skipped, cute.AddressSpace.smem, assumed_align=VECTOR)
                begin = cute.make_ptr(Uint8, first + skipped, cute.AddressSpace.gmem, assumed_align=VECTOR)
                primitives.cp_async_bulk_shared_cluster_global(target, begin, barrier, size)
            # the bytes of the first vector, and of the last if it is another
            at = Int32(cutlass.select_(lane < VECTOR, lane, Int32(last - first) - 2 * VECTOR + lane))
            wanted = Boolean(cutlass.select_(lane < VECTOR, early, late & ((at >= VECTOR) | ~early)))
            if wanted:
                byte = Uint8(0)
                if (first + at >= spot.address) & (first + at < end):
                    byte = Uint8(memory(Uint8, first + at, 1, 1)[0])
                there = cute.make_ptr(Uint8, stage + at, cute.AddressSpace.smem, assumed_align=1)
                cute.make_tensor(there, cute.make_layout((1,)))[0] = byte
        return found

    def place_of(self, number: int, thread):
        """The (line, first vector of it) of a thread in a round, and whether there is one."""
        if self.rows >= WARPGROUP:
            line = thread + number * WARPGROUP
            return line, Int32(0), line < self.rows
        part = thread // self.rows
        return thread % self.rows, part * self.of_thread, part < self.parts

    @cute.jit
    def take(self, source: Source, found: Int32, stage, thread: Int32):
        """Read what a thread has of the lines that ``bring`` brought, as it is written to the stage."""
        skew, inner, lines = found & (VECTOR - 1), found >> 4 & 0xFF, found >> 12
        words = cute.make_rmem_tensor((WORDS * self.of_thread, self.rounds), Uint32)
        for number in cutlass.range_constexpr(self.rounds):
            line, vector, exists = self.place_of(number, thread)
            count = inner - vector * VECTOR
            count = Int32(cutlass.select_(exists & (line < lines) & (count > 0), count, Int32(0)))
            start = skew + line * Int32(source.outer_step) + vector * VECTOR
            shift = start & 3
            start += stage - shift
            held = Int32(cutlass.select_(count > 0, count + shift, Int32(0)))
            raw = cute.make_rmem_tensor((WORDS * self.of_thread + 1,), Uint32)
            for i in cutlass.range_constexpr(WORDS * self.of_thread + 1):
                raw[i] = Uint32(0)
                if held > 4 * i:
                    raw[i] = word_at(start + 4 * i)
            for i in cutlass.range_constexpr(WORDS * self.of_thread):
                words[i, number] = funnel_shift(raw[i], raw[i + 1], shift * 8)
            for i in cutlass.range_constexpr(self.of_thread):
                if (count < (i + 1) * VECTOR) & (held > i * VECTOR):  # it ends here
                    for j in cutlass.range_constexpr(i * WORDS, (i + 1) * WORDS):
                        words[j, number] = words[j, number] & mask(count - 4 * j)
        return words

    @cute.jit
    def put(self, words, stage, thread: Int32):
        """Write what ``take`` returned to its swizzled place."""
        for number in cutlass.range_constexpr(self.rounds):
            line, vector, exists = self.place_of(number, thread)
            if exists:
                for i in cutlass.range_constexpr(self.of_thread):
                    place = stage + line * K_TILE_BYTES + ((vector + i) ^ line % VECTORS) * VECTOR
                    registers = cute.make_rmem_tensor((WORDS,), Uint32)
                    for j in cutlass.range_constexpr(WORDS):
                        word = words[i * WORDS + j, number]
                        registers[j] = nearest_tfloat32(word) if self.rounded else word
                    target = cute.make_ptr(Uint32, place, cute.AddressSpace.smem, assumed_align=VECTOR)
                    cute.autovec_copy(registers, cute.make_tensor(target, cute.make_layout((WORDS,))))


def own_load(form: str, element, rows: int, k_major: bool, registers: int) -> OwnLoad:
    """The loads of an operand in a form."""
    return DenseLoad(element, rows) if form == "dense" else OwnLoad(form, element, rows, k_major, registers)


def word_at(address):
    """The word of shared memory at an address."""
    place = cute.make_ptr(Uint32, address, cute.AddressSpace.smem, assumed_align=4)
    return cute.make_tensor(place, cute.make_layout((1,)))[0]
