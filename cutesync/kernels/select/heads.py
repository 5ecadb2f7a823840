"""The heads of a chunk as bits, and what is kept of them. All 32 lanes call.

    find    which positions are heads, in words as in ``flow_chunk``. Integers of one or two bytes are compared in
            words, wherever they begin. The chunk's tally takes two reductions of the warp, no scan
    bring   lane k takes the bits of the k-th 32 positions of each 1024: a scan of the lanes' counts says where its
            heads go, which are found bit by bit

If there are many heads, all elements are read again, and put where they go if they are heads: bytes in whole words, and
so are the low bytes of their places, if these are wanted, whose high ones are the same for all neighbours of a lane.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint16, Uint32

from ...monoid import choose
from ...warp import LANES
from ..gather import WORDS
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import funnel_shift, funnel_shift_left, permuted
from .chunk import Chunk, cells, popc, put
from .flow_chunk import PART_BITS, PARTS, PLACE_BYTES, FlowCompactor, last_bit, total_of
from .narrow import listed, nonzero_bytes, through_lanes
from .squeeze import Part, Stream, put_last_words, put_whole_words
from .tally import pack
from .where import Where

PLACES = LANES * LANES  # of 32 words
COUNT_BITS, WORD_BITS = 16, 32  # of the heads of 32 words; of a word
# Heads are found bit by bit if they are not more than one of so many positions; the second one of bytes, which are put
# in whole words (H200, 2**28 int8 in runs of 4, one of 4, 5, 6 the limit: unique elements 130, 104, 104 us, run lengths
# 207, 162, 162; of 5 106, 106, 109 and 176, 176, 181; of 8, bit by bit and in words, 90, 100 and 127, 146; a fifth
# selected 120, 116, 113). Bit by bit, lanes are in one another's banks (unique int16 in runs of 2 199 us, bit by bit
# 497, of 3 193, 305).
SPARSE, SPARSE_WORDS = 3.5, 5
# If more of a chunk than this are put in words, those of lanes are 32 bytes apart, in one another's banks: in halves,
# of which each second four lanes put the second one first, they seldom are (H200, 2**28 int8 all selected 148 us, as
# they are 176, in runs of 1 142, 170). If fewer are, gaps move the words of lanes to other banks, and halves take more
# (half selected 133 us, 128; 90 % 152, 143).
CROWDED = 63 / 64


class HeadFinder(FlowCompactor):
    """Finds the heads of chunks of ``rows`` (a multiple of 32) times 32 positions, of one array of narrow elements."""

    def __init__(self, where: Where, rows: int) -> None:
        super().__init__(where, rows)
        (self.dtype,) = self.read
        self.block = self if rows == LANES else HeadFinder(where, LANES)
        self.packed = self.selection.fn is None and self.dtype.kind in "iu"
        self.sparse = int(self.chunk / SPARSE)

    def none(self) -> tuple:
        return tuple(Uint32(0) for _ in range(self.words))

    @cute.jit
    def find(self, at: Chunk, bits: cute.Pointer, lane):
        """The lane's heads of a chunk, some or none of whose positions exist, as words."""
        flags = self.none()
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            flags = self.flags_of_words(at, False, lane) if self.packed else self.flags(at, None, lane)
        else:
            flags = self.find_shifted(at, lane) if self.packed else self.find_each(at, lane)
        return flags

    @cute.jit
    def find_shifted(self, at: Chunk, lane):
        flags = self.none()
        if (at.position > 0) & (at.position + (self.chunk + WORD_BYTES) <= at.length):
            flags = self.flags_of_words(at, True, lane)
        else:
            flags = self.find_each(at, lane)
        return flags

    @cute.jit
    def find_each(self, at: Chunk, lane):
        flags = self.none()
        if at.position < at.length:
            flags = self.flags(at, Int32(cutlass.min(at.length - at.position, self.chunk)), lane)
        return flags

    def flags(self, at: Chunk, stop, lane) -> tuple:
        rows, words = self.rows_of(at, stop, lane), [Uint32(0)] * self.words
        for r in range(self.parts):
            part = self.flags_of_part(at, rows, r, stop, lane)
            words[r // PARTS] = words[r // PARTS] | part << (PART_BITS * (r % PARTS))
        return tuple(words)

    def rows_of(self, at: Chunk, stop, lane) -> list:
        """The lane's elements of each part, in a list of one array."""
        (begin, *_), places = at.begins, [self.place(r, 0, lane) for r in range(self.parts)]
        return [[self.load(begin, self.dtype.size, self.dtype.cutlass, place, stop)] for place in places]

    def flags_of_words(self, at: Chunk, shifted: bool, lane) -> tuple:
        """The same of a whole chunk of integers of one or two bytes; ``shifted``: it begins anywhere, and no word
        that it has a part of reaches beyond the array."""
        (begin, *_), size, bits = at.begins, self.dtype.size, 8 * self.dtype.size
        count = self.each * size // WORD_BYTES
        ahead = Uint32(Int32(cells(self.dtype.cutlass, begin - size, 1)[0])) << (8 * WORD_BYTES - bits)
        changed = []
        for r in range(self.parts):
            words = words_at(begin + self.place(r, 0, lane) * size, count, shifted)
            last = choose(lane == LANES - 1, ahead, words[-1])
            earlier = Uint32(cute.arch.shuffle_sync(last, (lane + (LANES - 1)) & (LANES - 1)))
            ahead = words[-1]
            for word in words:
                changed.append(word ^ funnel_shift_left(earlier, word, Uint32(bits)))
                earlier = word
        each, nonzero = PARTS * count, nonzero_bytes if size == 1 else nonzero_halves
        first, *more = [nonzero(changed[k : k + each]) for k in range(0, len(changed), each)]
        head = self.where.begins((first & 1) != 0, at.position + lane == 0)
        return (first & ~1) | choose(head, Uint32(1), Uint32(0)), *more

    def tally_of(self, flags: tuple, lane) -> Any:
        """The tally of a chunk."""
        count, last = Int32(cute.arch.warp_redux_sync(sum(map(popc, flags)), "add")), Int32(0)
        if self.selection.lengths is not None:
            for w, word in enumerate(flags):
                last = choose(word != 0, w * PLACES + self.place_of(last_bit(word), lane) + 1, last)
            last = Int32(cute.arch.warp_redux_sync(last, "max"))
        return pack(count, last)

    def place_of(self, bit, lane) -> Any:
        """The place of a bit of the lane's word among those of 32 rows."""
        return (bit // PART_BITS) * (LANES * self.each) + lane * self.each + bit % PART_BITS

    def neighbours(self, word, lane) -> Any:
        """The bits of 32 neighbours, of lanes that have parts of them."""
        words = [cute.arch.shuffle_sync(word, (lane * PARTS + k) & (LANES - 1)) for k in range(PARTS)]
        return bytes_of(words, lane // PART_BITS)

    def by_parts(self, word, lane) -> Any:
        """The bits of a lane's word as parts have them."""
        return word

    def bring(self, at: Chunk, areas: list, first, begin: int, flags: tuple, lane) -> None:
        """Put the heads of a chunk at index ``first`` of the areas and on; the chunk begins at place ``begin`` of its
        tile."""
        rests = [self.neighbours(word, lane) for word in flags]
        counts = sum(popc(rest) << (COUNT_BITS * w) for w, rest in enumerate(rests))
        through = Int32(through_lanes(counts, lane))
        totals = Int32(cute.arch.shuffle_sync(through, LANES - 1))
        for w, rest in enumerate(rests):
            behind = first + ((through >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))
            self.bring_word(at, areas, rest, behind, begin, w * PLACES + lane * LANES)
            first = first + ((totals >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))

    @cute.jit
    def bring_word(self, at: Chunk, areas: list, rest, behind, begin, place):
        """Put the heads among the 32 positions from a place of the chunk on in the areas, up to index ``behind``. A
        turn puts the last one and the first one, which may be the same."""
        size, kind = self.dtype.size, WORDS[self.dtype.size]
        source = at.begins[0] + place * size
        count, first = popc(rest), begin + place
        last_to, first_to = areas[0] + (behind - 1) * size, areas[0] + (behind - count) * size
        last_listing, first_listing = areas[-1] + (behind - 1) * PLACE_BYTES, areas[-1] + (behind - count) * PLACE_BYTES
        while rest != 0:
            others = rest - 1  # of whose bits the first one is not
            top, bottom = last_bit(rest), last_bit(both_but(rest, rest, others))
            last, other = (cells(kind, source + k * size, 1)[0] for k in (top, bottom))
            put(kind, last_to, last)
            put(kind, first_to, other)
            if cutlass.const_expr(self.selection.located):
                put(Uint16, last_listing, Uint16(first + top))
                put(Uint16, first_listing, Uint16(first + bottom))
            rest = both_but(rest, others, Uint32(1) << Uint32(top))
            last_to, first_to = last_to - size, first_to + size
            if cutlass.const_expr(self.selection.located):
                last_listing, first_listing = last_listing - PLACE_BYTES, first_listing + PLACE_BYTES

    @cute.jit
    def put_found(self, at: Chunk, areas: list, first, begin, flags: tuple, lane):
        """As ``bring``, by the lane's heads, of 32 rows after the other."""
        for start in cutlass.range(0, self.chunk, PLACES, unroll=1):
            word = flags[0]
            for w in cutlass.range_constexpr(1, self.words):
                word = choose(start == w * PLACES, flags[w], word)
            part = at._replace(begins=(at.begins[0] + start * self.dtype.size,), position=at.position + start)
            rows, each = self.block.reread(part, lane), self.each
            elements = [[list(rows[r * each : (r + 1) * each])] for r in range(PARTS)]
            selected = self.counted(self.by_parts(word, lane), lane)
            self.block.put(areas, first, begin + start, elements, [selected], lane)
            first = first + sum(total_of(selected, r) for r in range(PARTS))

    @cute.jit
    def put_many(self, at: Chunk, areas: list, first, begin, flags: tuple, lane):
        """As ``bring``, of a chunk that has more than ``sparse`` heads."""
        self.put_found(at, areas, first, begin, flags, lane)

    @cute.jit
    def reread(self, at: Chunk, lane):
        """The lane's elements of a chunk that has heads."""
        held = tuple(self.dtype.cutlass(0) for _ in range(self.parts * self.each))
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            held = tuple(value for (row,) in self.rows_of(at, None, lane) for value in row)
        else:
            stop = Int32(cutlass.min(at.length - at.position, self.chunk))
            held = tuple(value for (row,) in self.rows_of(at, stop, lane) for value in row)
        return held


class ByteHeadFinder(HeadFinder):
    """The same of integers of one byte: a lane has 32 neighbours of each 32 rows, so most bits are where they are
    wanted, and few elements are another lane's."""

    def __init__(self, where: Where, rows: int) -> None:
        super().__init__(where, rows)
        self.sparse = self.chunk // SPARSE_WORDS
        self.crowded = int(self.chunk * CROWDED)

    def flags_of_words(self, at: Chunk, shifted: bool, lane) -> tuple:
        if shifted:
            return self.whole(super().flags_of_words(at, shifted, lane), lane)
        (begin, *_), flags = at.begins, []
        ahead = Uint32(Int32(cells(self.dtype.cutlass, begin - 1, 1)[0])) << (WORD_BITS - PART_BITS)
        for start in range(0, self.chunk, PLACES):
            place = begin + start + lane * LANES
            second, a, b = halves_at(place, lane)
            last = choose(second, a[-1], b[-1])
            given = choose(lane == LANES - 1, ahead, last)
            earlier = Uint32(cute.arch.shuffle_sync(given, (lane + (LANES - 1)) & (LANES - 1)))
            ahead, befores = last, [choose(second, b[-1], earlier), *a[:-1], choose(second, earlier, a[-1]), *b[:-1]]
            changed = [word ^ funnel_shift_left(one, word, Uint32(PART_BITS)) for one, word in zip(befores, a + b)]
            halves = choose(second, Uint32(0x1032), Uint32(0x3210))  # of a word of bits, as ``prmt`` takes them
            flags.append(permuted(nonzero_bytes(changed), Uint32(0), halves))
        head = self.where.begins((flags[0] & 1) != 0, at.position + lane == 0)
        return (flags[0] & ~1) | choose(head, Uint32(1), Uint32(0)), *flags[1:]

    def flags(self, at: Chunk, stop, lane) -> tuple:
        return self.whole(super().flags(at, stop, lane), lane)

    def whole(self, flags: tuple, lane) -> tuple:
        """Words of 32 neighbours, of words that have parts of them."""
        return tuple(super(ByteHeadFinder, self).neighbours(word, lane) for word in flags)

    def place_of(self, bit, lane) -> Any:
        return lane * LANES + bit

    def neighbours(self, word, lane) -> Any:
        return word

    @cute.jit
    def put_many(self, at: Chunk, areas: list, first, begin, flags: tuple, lane):
        if self.begins_on_vectors(at) & (at.position + self.chunk <= at.length):
            self.put_words(at, areas, first, begin, flags, lane)
        else:
            self.put_found(at, areas, first, begin, flags, lane)

    @cute.jit
    def put_words(self, at: Chunk, areas: list, first, begin, flags: tuple, lane) -> None:
        """As ``bring``, of a whole chunk, in words."""
        counts = sum(popc(word) << (COUNT_BITS * w) for w, word in enumerate(flags))
        through = Int32(through_lanes(counts, lane))
        totals = Int32(cute.arch.shuffle_sync(through, LANES - 1))
        parts, low = [], first
        for w in cutlass.range_constexpr(self.words):
            behind = low + ((through >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))
            parts.append(Part([flags[w]], behind - popc(flags[w]), popc(flags[w])))
            low = low + ((totals >> (COUNT_BITS * w)) & (2**COUNT_BITS - 1))
        if low - first > self.crowded:
            self.put_parts(at, areas, first, begin, parts, in_halves, lane)
        else:
            self.put_parts(at, areas, first, begin, parts, as_they_are, lane)

    def put_parts(self, at: Chunk, areas: list, first, begin, parts: list, taken, lane) -> None:
        """Put the parts of all lanes, as they are ``taken``. The chunk's first word may have other warps' elements, so
        the chunk's own go there one by one."""
        stop, rests = (first + (WORD_BYTES - 1)) & -WORD_BYTES, []
        for w, part in enumerate(parts):
            own, behind = w * PLACES + lane * LANES, part.first + part.count
            source, place = at.begins[0] + own, begin + own
            rest, to = self.put_until(stop, (source, place), areas, part.flags[0], part.first)
            for offset, words, some in taken(source, Part([rest], to, behind - to), lane):
                streams = [Stream(words, 1, areas[0], Boolean(True))]
                if self.selection.located:
                    low, high = Uint32((place + offset) & 0xFF) * 0x01010101, Uint32(place) >> PART_BITS
                    places = [low + (0x03020100 + k * 0x04040404) for k in range(len(words))]
                    streams.append(Stream(places, 1, areas[-1], Boolean(True), high))
                group = streams, 1, some
                rests.append((*group, put_whole_words(*group, lane)))
        cute.arch.sync_warp()  # the words are there, and the other lanes' elements of them come after that
        for rest in rests:
            put_last_words(*rest)

    @cute.jit
    def put_until(self, stop, begins: tuple, areas: list, rest, to):
        """Put the heads among 32 positions that go to an index below ``stop``: the others, and where they go. The
        positions' elements begin at an address, ``begins`` = that and the first one's place in the tile."""
        while (rest != 0) & (to < stop):
            others = rest & (rest - 1)
            bit = last_bit(rest ^ others)
            put(WORDS[1], areas[0] + to, cells(WORDS[1], begins[0] + bit, 1)[0])
            if cutlass.const_expr(self.selection.located):
                put(Uint16, areas[-1] + to * PLACE_BYTES, Uint16(begins[1] + bit))
            rest, to = others, to + 1
        return rest, to

    def by_parts(self, word, lane) -> Any:
        words = [cute.arch.shuffle_sync(word, k * PART_BITS + lane // PARTS) for k in range(PARTS)]
        return bytes_of(words, lane % PARTS)


def head_finder(where: Where, rows: int) -> HeadFinder:
    """What finds the heads of chunks of so many rows."""
    (dtype,) = where.selection.sources
    of_bytes = where.selection.fn is None and dtype.kind in "iu" and dtype.size == 1
    return (ByteHeadFinder if of_bytes else HeadFinder)(where, rows)


def as_they_are(place, part: Part, lane) -> list:
    """The lane's 32 neighbours from a place on: where they begin behind it, in words, and what is kept of them."""
    return [(0, words_at(place, PARTS, False) + words_at(place + VECTOR_BYTES, PARTS, False), part)]


def in_halves(place, part: Part, lane) -> list:
    """The same of each half of them, as in ``halves_at``."""
    (flags,), first, count = part
    low, high = flags & 0xFFFF, (flags >> 16) & 0xFFFF
    few, (second, a, b) = popc(low), halves_at(place, lane)
    lower, upper = (low, first, few), (high, first + few, count - few)

    def choose_part(one: tuple, other: tuple) -> Part:
        flags, first, count = (choose(second, p, q) for p, q in zip(one, other))
        return Part([flags], first, count)

    skew = choose(second, Int32(VECTOR_BYTES), Int32(0))
    return [(skew, a, choose_part(upper, lower)), (VECTOR_BYTES - skew, b, choose_part(lower, upper))]


def halves_at(place, lane) -> tuple:
    """The words of both halves of a lane's 32 neighbours; each second four lanes have the second half first, and
    whether it is so before them. Eight lanes of a vector each, 32 bytes apart, would be in one another's banks."""
    second, skew = (lane & PARTS) != 0, (lane & PARTS) * (VECTOR_BYTES // PARTS)
    return second, words_at(place + skew, PARTS, False), words_at(place + VECTOR_BYTES - skew, PARTS, False)


def bytes_of(words: list, k) -> Any:
    """The k-th bytes of four words."""
    a, b, c, d = (Uint32(word) for word in words)
    pair = Uint32(0x40) + Uint32(k) * 0x11
    return permuted(permuted(a, b, pair), permuted(c, d, pair), Uint32(0x5410))


def both_but(a, b, c) -> Any:
    """The bits that ``a`` and ``b`` have, but not those of ``c``: one instruction (the compiler makes three)."""
    text = "lop3.b32 {$w0}, {$r0}, {$r1}, {$r2}, 0x40;"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[a, b, c])


def words_at(address, count: int, shifted: bool) -> list:
    """So many words from an address on, a multiple of their size unless they are ``shifted``."""
    if not shifted:
        found = cute.make_rmem_tensor((count,), Uint32)
        cute.autovec_copy(cells(Uint32, address, count, align=count * WORD_BYTES), found)
        return listed(found)
    first, skew = address & -WORD_BYTES, address & (WORD_BYTES - 1)
    last = choose(skew > 0, Int32(count * WORD_BYTES), Int32((count - 1) * WORD_BYTES))  # not behind the elements
    held = [Uint32(cells(Uint32, first + at, 1)[0]) for at in (*range(0, count * WORD_BYTES, WORD_BYTES), last)]
    return [funnel_shift(low, high, skew * 8) for low, high in zip(held, held[1:])]


def nonzero_halves(words: list) -> Any:
    """A bit for each element of two bytes, which says whether it is not 0."""
    found = Uint32(0)
    for word in reversed(words):
        text = "mov.b32 {$w0}, 0x00010001;\n\tmin.u16x2 {$w0}, {$w0}, {$r0};"
        ones = cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[word])
        # The product has the bits of the two elements at its top.
        found = funnel_shift_left(ones * 0x40008000, found, Uint32(2))
    return found
