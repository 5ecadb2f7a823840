"""Bytes that a callable, a mask or bits select, in tiles that leave their stages early. All 32 lanes call.

As the heads of runs of bytes (``heads``): a lane has 32 neighbours of each 32 rows, whose bits are found in words as in
``narrow``; once there is room, it brings few selected elements bit by bit, and puts many in whole words.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32

from ...warp import LANES
from .chunk import Chunk
from .heads import PLACES, ByteHeadFinder
from .narrow import NarrowCompactor
from .where import Where, word_of_bits


class ByteSelector(ByteHeadFinder):
    """Finds what is selected of chunks of ``rows`` (a multiple of 32) times 32 positions."""

    def __init__(self, where: Where, rows: int) -> None:
        super().__init__(where, rows)
        self.of_words = NarrowCompactor(where, LANES)

    @cute.jit
    def find(self, at: Chunk, bits: cute.Pointer, lane):
        flags = self.none()
        if cutlass.const_expr(self.selection.kind == "bits"):
            flags = tuple(self.given(at, bits, start + lane * LANES) for start in range(0, self.chunk, PLACES))
        else:
            if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
                flags = self.flags_of_whole(at, bits, lane)
            else:
                flags = self.find_each(at, lane)
        return flags

    @cute.jit
    def given(self, at: Chunk, bits: cute.Pointer, place):
        """The bits of 32 positions from a place of the chunk on."""
        word = Int32(0)
        if at.position + place < at.length:
            word = word_of_bits(bits, at.position + place, at.length)
        return Uint32(word)

    def flags_of_whole(self, at: Chunk, bits, lane) -> tuple:
        found: list = []
        for start in range(0, self.chunk, PLACES):
            begins = tuple(begin + start for begin in at.begins)
            part = at._replace(begins=begins, position=at.position + start)
            found += self.of_words.flags(part, [self.of_words.load(begins[0], 1, lane)], bits, lane)
        return tuple(found)
