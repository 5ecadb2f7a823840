"""A chunk's words: which of its positions are selected, and how many before each word. A warp makes them ahead of the
warps that move elements; see ``chunk``. All 32 lanes call.

A lane keeps the words of rows ``lane``, ``lane + 32``, ... in registers. Where masks are aligned and all positions
exist, it makes each of 32 bytes. Otherwise a row is a ballot: a lane looks at one position of it.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8, Uint32

from ...monoid import choose
from ...warp import LANES, broadcast, scan_states, shift_up
from .chunk import VECTOR_BYTES, cells, put
from .policy import PipelinePolicy
from .tally import pack
from .where import Where, word_of_bits, word_of_bytes

UNROLL = 8  # rows whose elements are loaded together


# Where a chunk begins: ``firsts`` are the addresses of its tile's arrays in shared memory, the chunk lies ``inside``
# elements further on, at ``position`` of the array's ``length``.
Place = namedtuple("Place", "firsts inside position length")


class ChunkCounter:
    """Makes the words of chunks of ``policy.rows`` rows."""

    def __init__(self, where: Where, policy: PipelinePolicy) -> None:
        self.where, self.rows, self.mask_aligned = where, policy.rows, policy.mask_aligned
        self.selection = where.selection
        self.words = -(-policy.rows // LANES)  # of a lane
        self.chunk = policy.chunk

    @cute.jit
    def count(self, at: Place, bits: cute.Pointer, words: cute.Pointer, lane):
        """Store the words of a chunk; its tally. ``bits`` are in global memory."""
        mine = cute.make_rmem_tensor((self.words,), Int32)
        for j in cutlass.range_constexpr(self.words):
            mine[j] = Int32(0)
        full = at.position + self.chunk <= at.length
        if cutlass.const_expr(self.selection.kind == "bits"):
            self.take_bits(mine, bits, at, lane)
        elif cutlass.const_expr(self.selection.kind == "mask" and self.mask_aligned):
            if full:
                self.take_bytes(mine, at.firsts[-1] + at.inside, lane)
            else:
                self.take_ballots(mine, at, lane, False)
        elif full:
            self.take_ballots(mine, at, lane, True)
        else:
            self.take_ballots(mine, at, lane, False)
        if cutlass.const_expr(self.selection.kind == "heads"):
            if (at.position == 0) & (at.length > 0) & (lane == 0):
                mine[0] = Int32(mine[0]) | 1  # the first position is a head
        return self.store(mine, words, lane)

    @cute.jit
    def take_bits(self, mine, bits: cute.Pointer, at: Place, lane):
        for j in cutlass.range_constexpr(self.words):
            row = lane + j * LANES
            first = at.position + row * LANES
            if (row < self.rows) & (first < at.length):
                mine[j] = word_of_bits(bits, first, at.length)

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
    def take_ballots(self, mine, at: Place, lane, full: cutlass.Constexpr):
        """From the elements, or from the bytes of a mask. ``full``: all positions exist."""
        for j in cutlass.range_constexpr(self.words):
            rows = min(LANES, self.rows - j * LANES)
            step = min(UNROLL, rows)
            found = Int32(0)
            for first in cutlass.range(0, rows, step, unroll=1):
                row = j * LANES + first
                flags = [self.flag(at, (row + u) * LANES + lane, full) for u in range(step)]
                for u, flag in enumerate(flags):
                    ballot = Int32(cute.arch.vote_ballot_sync(flag))
                    found = choose(lane == first + u, ballot, found)
            mine[j] = found

    def flag(self, at: Place, place, full: bool) -> Any:
        """Whether the element at ``place`` of the chunk is selected."""
        if full:
            return self.holds(at, place)
        return self.holds_if(at.position + place < at.length, at, place)

    @cute.jit
    def holds_if(self, exists, at: Place, place):
        holds = Boolean(False)
        if exists:
            holds = self.holds(at, place)
        return holds

    def holds(self, at: Place, place) -> Any:
        if self.selection.kind == "mask":
            return cells(Uint8, at.firsts[-1] + at.inside + place, 1)[0] != Uint8(0)
        elements = self.elements(at, place)
        if self.selection.kind == "heads":
            return self.where.differ(self.elements(at, place - 1), elements)
        return self.where.holds(elements, at.position + place)

    def elements(self, at: Place, place) -> list:
        """The elements of a position of the chunk, or of the one before the tile."""
        sources = self.selection.sources
        return [cells(t.cutlass, x + (at.inside + place) * t.size, 1)[0] for t, x in zip(sources, at.firsts)]

    @cute.jit
    def store(self, mine, words: cute.Pointer, lane):
        """Store the words, each with the tally of those before it; the tally of all."""
        count, last = Int32(0), Int32(0)
        for j in cutlass.range_constexpr(self.words):
            word, row = Int32(mine[j]), lane + j * LANES
            through = (Int32(cute.arch.popc(word)),)
            if cutlass.const_expr(self.selection.lengths is not None):
                place = choose(word != 0, row * LANES + 32 - Int32(cute.arch.clz(word)), Int32(0))
                through = scan_states((*through, place), later, lane)
                before = choose(lane > 0, shift_up(through)[1], Int32(0))
                before = cutlass.max(before, last)
            else:
                through = (*scan_states(through, later, lane), Int32(0))
                before = Int32(0)
            if row < self.rows:
                tally = pack(count + through[0] - Int32(cute.arch.popc(word)), before)
                put(Int64, (words + row).toint(), (Int64(tally) << 32) | (Int64(word) & 0xFFFFFFFF))
            ends = broadcast(through, LANES - 1)
            count = count + ends[0]
            last = cutlass.max(last, ends[1])
        return pack(count, last)


def later(a, b):
    """A run of rows and the one behind it: their counts, and the place of the last selected position, if known."""
    return (a[0] + b[0], *(cutlass.max(x, y) for x, y in zip(a[1:], b[1:])))
