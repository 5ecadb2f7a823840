"""A chunk's words: which of its positions are selected, and how many before each word. A warp makes them ahead of the
warps that move elements; see ``chunk``. All 32 lanes call.

A lane keeps the words of rows ``lane``, ``lane + 32``, ... in registers. Where masks are aligned and all positions
exist, it makes each of 32 bytes. Otherwise a row is a ballot: a lane looks at one position of it.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32

from ...monoid import choose
from ...warp import LANES, scan_states
from .chunk import VECTOR_BYTES, cells, put
from .policy import PipelinePolicy
from .where import Where, word_of_bits, word_of_bytes

UNROLL = 8  # rows whose elements are loaded together


class ChunkCounter:
    """Makes the words of chunks of ``policy.rows`` rows."""

    def __init__(self, where: Where, policy: PipelinePolicy) -> None:
        self.where, self.rows, self.mask_aligned = where, policy.rows, policy.mask_aligned
        self.selection = where.selection
        self.words = -(-policy.rows // LANES)  # of a lane
        self.chunk = policy.chunk

    @cute.jit
    def count(self, firsts, inside, bits: cute.Pointer, position, length, words: cute.Pointer, lane):
        """Store the words of the chunk that begins at ``position`` of ``length``; how many positions are selected.

        ``firsts`` are the addresses of the tile's arrays in shared memory; the chunk begins ``inside`` elements further
        on. ``bits`` are in global memory."""
        mine = cute.make_rmem_tensor((self.words,), Int32)
        for j in cutlass.range_constexpr(self.words):
            mine[j] = Int32(0)
        full = position + self.chunk <= length
        if cutlass.const_expr(self.selection.kind == "bits"):
            self.take_bits(mine, bits, position, length, lane)
        elif cutlass.const_expr(self.selection.kind == "mask" and self.mask_aligned):
            if full:
                self.take_bytes(mine, firsts[-1] + inside, lane)
            else:
                self.take_ballots(mine, firsts, inside, position, length, lane, False)
        elif full:
            self.take_ballots(mine, firsts, inside, position, length, lane, True)
        else:
            self.take_ballots(mine, firsts, inside, position, length, lane, False)
        return self.store(mine, words, lane)

    @cute.jit
    def take_bits(self, mine, bits: cute.Pointer, position, length, lane):
        for j in cutlass.range_constexpr(self.words):
            row = lane + j * LANES
            first = position + row * LANES
            if (row < self.rows) & (first < length):
                mine[j] = word_of_bits(bits, first, length)

    @cute.jit
    def take_bytes(self, mine, mask, lane):
        """From a mask at an address that is a multiple of 16, of which all bytes exist."""
        for j in cutlass.range_constexpr(self.words):
            row = lane + j * LANES
            if row < self.rows:
                held = cute.make_rmem_tensor((8,), Uint32)
                for half in cutlass.range_constexpr(2):
                    at = mask + row * LANES + half * VECTOR_BYTES
                    target = cute.make_tensor(held.iterator + 4 * half, cute.make_layout((4,)))
                    cute.autovec_copy(cells(Uint32, at, 4, align=VECTOR_BYTES), target)
                mine[j] = word_of_bytes([Uint32(held[k]) for k in range(8)])

    @cute.jit
    def take_ballots(self, mine, firsts, inside, position, length, lane, full: cutlass.Constexpr):
        """From the elements, or from the bytes of a mask. ``full``: all positions exist."""
        for j in cutlass.range_constexpr(self.words):
            rows = min(LANES, self.rows - j * LANES)
            step = min(UNROLL, rows)
            found = Int32(0)
            for first in cutlass.range(0, rows, step, unroll=1):
                row = j * LANES + first
                flags = [
                    self.flag(firsts, inside, position, (row + u) * LANES + lane, length, full) for u in range(step)
                ]
                for u, flag in enumerate(flags):
                    ballot = Int32(cute.arch.vote_ballot_sync(flag))
                    found = choose(lane == first + u, ballot, found)
            mine[j] = found

    def flag(self, firsts, inside, position, place, length, full: bool) -> Any:
        """Whether the element at ``place`` of the chunk is selected."""
        if full:
            return self.holds(firsts, inside + place, position + place)
        return self.holds_if(position + place < length, firsts, inside + place, position + place)

    @cute.jit
    def holds_if(self, exists, firsts, place, index):
        holds = Boolean(False)
        if exists:
            holds = self.holds(firsts, place, index)
        return holds

    def holds(self, firsts, place, index) -> Any:
        if self.selection.kind == "mask":
            return cells(Uint8, firsts[-1] + place, 1)[0] != Uint8(0)
        sources = self.selection.sources
        elements = [cells(t.cutlass, at + place * t.size, 1)[0] for t, at in zip(sources, firsts)]
        return self.where.holds(elements, index)

    @cute.jit
    def store(self, mine, words: cute.Pointer, lane):
        """Store the words, each with the number of those selected before it; their number in all."""
        total = Int32(0)
        for j in cutlass.range_constexpr(self.words):
            word = Int32(mine[j])
            count = Int32(cute.arch.popc(word))
            (through,) = scan_states((count,), lambda a, b: (a[0] + b[0],), lane)
            if lane + j * LANES < self.rows:
                pair = (Int64(total + through - count) << 32) | (Int64(word) & 0xFFFFFFFF)
                put(Int64, (words + (lane + j * LANES)).toint(), pair)
            total = total + Int32(cute.arch.shuffle_sync(through, LANES - 1))
        return total
