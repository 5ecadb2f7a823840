"""Few bytes that are kept of a chunk: a warp holds them in registers, so that a tile leaves its stage before there is
room for it. All 32 lanes call.

Of each 32 neighbours a lane has up to ``HELD`` bytes in one word: the last one, the first one, and the same of those
between them.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint16, Uint32

from ...warp import LANES
from ..gather import WORDS
from ..words import permuted
from .chunk import Chunk, cells, popc, put
from .flow_chunk import PART_BITS, PLACE_BYTES, last_bit
from .heads import COUNT_BITS, PLACES, both_but
from .narrow import through_lanes

HELD = 4


class HeldBytes:
    """Holds bytes of chunks of so many positions; their places are kept, too, if they are ``located``."""

    def __init__(self, chunk: int, located: bool) -> None:
        self.chunk, self.located = chunk, located

    def few(self, at: Chunk, flags: tuple) -> Any:
        """Whether no lane has more than ``HELD`` heads in a word of a whole chunk: in all lanes."""
        most = popc(flags[0])
        for word in flags[1:]:
            most = cutlass.max(most, popc(word))
        return Boolean(cute.arch.vote_all_sync(most <= HELD)) & (at.position + self.chunk <= at.length)

    def ends_of(self, rest) -> list:
        """The last bit of a word and the first one, then the same of those between them. -1: there is none."""
        found = []
        for _ in range(HELD // 2):
            others, top = rest - 1, last_bit(rest)
            found += [top, last_bit(both_but(rest, rest, others))]
            rest = both_but(rest, others, ones_at(top))
        return found

    def hold(self, at: Chunk, flags: tuple, lane) -> tuple:
        """The bytes of few heads of a chunk, a word for each word of flags."""
        words = []
        for w, rest in enumerate(flags):
            source = at.begins[0] + (w * PLACES + lane * LANES)
            a, b, c, d = (Uint32(cells(WORDS[1], source + cutlass.max(bit, 0), 1)[0]) for bit in self.ends_of(rest))
            words.append(permuted(permuted(a, b, Uint32(0x0040)), permuted(c, d, Uint32(0x0040)), Uint32(0x5410)))
        return tuple(words)

    def put(self, areas: list, first, begin, flags: tuple, held: tuple, lane) -> None:
        """Put heads that are held at index ``first`` of the areas and on; the chunk begins at place ``begin`` of its
        tile."""
        counts = sum(popc(rest) << (COUNT_BITS * w) for w, rest in enumerate(flags))
        through = Int32(through_lanes(counts, lane))
        totals = Int32(cute.arch.shuffle_sync(through, LANES - 1))
        for w, (rest, word) in enumerate(zip(flags, held)):
            behind = first + ((through >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))
            self.put_word(areas, rest, word, behind, begin + w * PLACES + lane * LANES)
            first = first + ((totals >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))

    @cute.jit
    def put_word(self, areas: list, rest, word, behind, place):
        ends, last, first = self.ends_of(rest), behind - 1, behind - popc(rest)
        if rest != 0:
            self.put_pair(areas, (last, ends[0], word), (first, ends[1], word >> PART_BITS), place)
        if ends[2] >= 0:
            word = word >> (2 * PART_BITS)
            self.put_pair(areas, (last - 1, ends[2], word), (first + 1, ends[3], word >> PART_BITS), place)

    def put_pair(self, areas: list, one: tuple, other: tuple, place) -> None:
        """Put two heads, which may be the same: each has an index, a bit, and a byte."""
        for index, bit, byte in (one, other):
            put(WORDS[1], areas[0] + index, WORDS[1](byte))
            if self.located:
                put(Uint16, areas[-1] + index * PLACE_BYTES, Uint16(place + bit))


def ones_at(bit) -> Any:
    """A word of one bit; 0: the bit is -1."""
    text = "shl.b32 {$w0}, {$r0}, {$r1};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[Uint32(1), Uint32(bit)])
