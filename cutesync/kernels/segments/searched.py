"""Elements that are repeated as often as an array of counts says. Device code.

A warp makes a tile of ``TILE`` neighbouring results. It searches the sums of groups of runs, which are added up, for
the group of the first one, then reads group after group from there on, until one ends behind the tile:

    held     the element of each run that is not empty, at the place in the tile where the run begins
    flags    a byte for each place: whether a run begins there

A position has the element at the last such place up to it. Where a group has no result, as where many runs are empty,
the warp searches again, so empty runs take no more loads than others. Where all runs have the same length, a division
finds the run of a position.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...warp import LANES, broadcast, scan_states
from ..coordinates import element, store
from ..flags.words import packed
from ..gather import WORDS, At, Gather, Stepped
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..plain import PlainKernel
from ..select.chunk import cells, put, put_if
from ..select.where import below
from ..tiled import positions
from ..words import permuted
from .decode_policy import GROUP
from .decode_spec import Decoding
from .sums import begins_on_vectors, length_at, neighbours
from .warp_search import search_by_warp

WARPS = 8
TILE = LANES * 32  # a bit in a word of each lane
RESULTS = WARPS * TILE  # of a block
EACH = GROUP // LANES  # neighbouring runs of a lane
FAR = 1 << 30  # places of groups that lie nearer, and are shorter, are counted in 32 bits

# A launch's arguments: ``lengths`` has how many results each of ``runs`` runs of ``values`` has, unless each has
# ``times``; those from the end of all on, up to ``size``, are ``fill``. ``count`` gets where the last run ends.
# ``sums`` has where each of ``groups`` groups of runs ends. Warps make ``turns`` tiles each.
Arguments = namedtuple("Arguments", "values lengths out count sums fill runs groups size times turns")


class SearchedDecode(PlainKernel):
    """The kernel."""

    name = "decode"

    def __init__(self, decoding: Decoding) -> None:
        size = decoding.dtype.size
        super().__init__(WARPS * LANES, 0 if decoding.alike else RESULTS * (size + 1) + 3 * VECTOR_BYTES)
        self.decoding, self.kind, self.size = decoding, WORDS[size], size
        self.each = VECTOR_BYTES // size  # results that a lane stores at once
        self.length: Any = decoding.lengths.cutlass if decoding.lengths else None
        self.register: Any = Uint32 if size < WORD_BYTES else self.kind
        self.gather: Any = None if decoding.layout is None else Gather(decoding.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        values, lengths, n, out, count, sums = arrays
        fill, runs, size, times, step, turns, *rest = numbers
        groups = cutlass.max((runs + (GROUP - 1)) // GROUP, Int64(1))
        if self.gather is not None:
            self.gather.bind(rest)
            values = At(self.gather, 0, values)
            lengths = lengths if self.decoding.alike else At(self.gather, 1, lengths)
        runs = positions(runs, n) if self.decoding.counted else runs
        return Arguments(values, lengths, Stepped(out, step), count, sums, fill, runs, groups, size, times, turns)

    @cute.jit
    def body(self, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * (a.turns * TILE)
        total = a.runs * a.times
        if cutlass.const_expr(not self.decoding.alike):
            total = cutlass.max(Int64(element(a.sums + (a.groups - 1))), Int64(0))
        if first + lane == 0:
            store(a.count, total)
        if cutlass.const_expr(self.decoding.alike):
            for turn in cutlass.range(a.turns, unroll=1):
                self.divide(a, first + turn * TILE, cutlass.min(total, a.size), lane)
        else:
            self.make_tiles(a, first, total, self.group_of_block(a, first, warp, lane), warp, lane)

    @cute.jit
    def group_of_block(self, a: cutlass.Constexpr, first, warp, lane):
        """The group of the block's first result; ``first`` is the warp's. All threads call."""
        found = cute.make_tensor(SmemAllocator().allocate_array(Int64, 1), cute.make_layout((1,)))
        if warp == 0:
            group = search(a.sums, first, Int64(0), a.groups, lane)
            if lane == 0:
                found[0] = group
        cute.arch.sync_threads()
        return Int64(found[0])

    @cute.jit
    def divide(self, a: cutlass.Constexpr, first, stop, lane):
        """Store a tile of runs of the same length."""
        for row in cutlass.range(LANES, unroll=1):
            place = first + (row * LANES + lane)
            value = a.fill
            if place < stop:
                value = type(a.fill)(element(a.values + place // a.times))
            if place < a.size:
                store(a.out + place, value)

    @cute.jit
    def make_tiles(self, a: cutlass.Constexpr, first, total, group, warp, lane):
        """A warp's tiles, the first of which begins at ``first``. No group before ``group`` has results in them."""
        elements = SmemAllocator().allocate_array(self.kind, RESULTS, byte_alignment=VECTOR_BYTES)
        marks = SmemAllocator().allocate_array(Uint8, RESULTS, byte_alignment=VECTOR_BYTES)
        held, flags = Int32((elements + warp * TILE).toint()), Int32((marks + warp * TILE).toint())
        group, start = search_near(a.sums, first, group, a.groups, lane), Int64(0)
        if group > 0:
            start = Int64(element(a.sums + (group - 1)))  # where the group's runs begin
        known = group, start, self.fetch(a, group, lane)
        for _ in cutlass.range(a.turns, unroll=1):
            stop = Int32(cutlass.min(cutlass.max(cutlass.min(total, a.size) - first, Int64(0)), Int64(TILE)))
            self.clear(held, flags, lane)
            cute.arch.sync_warp()
            if stop > 0:
                known = self.mark(a, (held, flags), known, first, stop, lane)
            cute.arch.sync_warp()
            sink = (a.out + first).toint()
            side_by_side = (a.out + (first + 1)).toint() - sink == self.size
            if (stop == TILE) & side_by_side & (sink % VECTOR_BYTES == 0):
                self.store_vectors(held, flags, sink, lane)
            else:
                self.store_each(a, held, flags, first, stop, lane)
            cute.arch.sync_warp()  # the tile has been read
            first = first + TILE

    def clear(self, held, flags, lane) -> None:
        """There are no runs in the tile yet."""
        for address, size in ((held, self.size), (flags, 1)):
            for vector in range(TILE * size // (LANES * VECTOR_BYTES)):
                cells(Int32, address + (vector * LANES + lane) * VECTOR_BYTES, 4, align=VECTOR_BYTES).fill(0)

    @cute.jit
    def mark(self, a: cutlass.Constexpr, tile: cutlass.Constexpr, known: tuple, first, stop, lane):
        """Put the elements of the runs of ``stop`` positions in shared memory, and mark where each begins. ``known`` is
        the group of the first one, where its runs begin, and what ``fetch`` returned of it; return those of the next
        tile."""
        group, start, fetched = known
        begin, rank = Int32(0), Int32(0)  # rank: how many runs are there
        while (begin < stop) & (group < a.groups):
            end, runs = fetched[0], fetched[1:]
            if (first - start < FAR) & (end - start < FAR):
                rank = self.mark_group(Int32, tile, runs, start - first, (stop, rank), lane)
            else:
                rank = self.mark_group(Int64, tile, runs, start - first, (stop, rank), lane)
            reached = Int32(cutlass.min(end - first, Int64(TILE)))
            if end - first <= TILE:
                start, group = end, group + 1
                if (reached <= begin) & (group < a.groups):
                    group = search(a.sums, first + begin, group, a.groups, lane)
                fetched = self.fetch(a, group, lane)
            begin = cutlass.max(reached, begin)
        return group, start, fetched

    def fetch(self, a: Arguments, group, lane) -> tuple:
        """Where a group ends, and the elements and the lengths of the lane's runs of it; of the last one, if there is
        no such group."""
        group = cutlass.min(group, a.groups - 1)
        return Int64(element(a.sums + group)), *self.runs_of(a, group, lane)

    def mark_group(self, number, tile: tuple, runs: tuple, start, known: tuple, lane) -> Any:
        """The ``runs`` of a group, the first of which begins at ``start`` in the ``tile``, ``(held, flags)``; places
        are of type ``number``. ``known`` has how many positions there are, and how many runs are there: return those
        then."""
        (held, flags), (stop, rank) = tile, known
        values, live, places = self.live_runs(number, runs, start, stop, lane)
        for there, place, value in zip(live, places, values):
            put_if(there, self.kind, held + place * self.size, value)
            put_if(there, Uint8, flags + place, Uint8(1))
        return rank

    def live_runs(self, number, runs: tuple, start, stop, lane) -> tuple:
        """Of a lane's runs of a group: the elements, whether they have results in the tile, and where those begin."""
        values, lengths = runs[:EACH], [number(length) for length in runs[EACH:]]
        (through,) = scan_states((sum(lengths),), lambda p, q: (p[0] + q[0],), lane)
        begin, live, places = number(start) + through - sum(lengths), [], []
        for length in lengths:
            places.append(Int32(cutlass.max(begin, 0)))
            live.append((begin < stop) & (begin + length > places[-1]))
            begin = begin + length
        return values, live, places

    def runs_of(self, a: Arguments, group, lane) -> tuple:
        """The elements and the lengths of a lane's runs of a group."""
        return self.some_runs(a, group, lane) if self.gather is not None else self.contiguous_runs(a, group, lane)

    @cute.jit
    def contiguous_runs(self, a: cutlass.Constexpr, group, lane):
        """The same of contiguous arrays, in vectors where the group is whole."""
        found = (*(self.kind(0) for _ in range(EACH)), *(self.length(0) for _ in range(EACH)))
        if begins_on_vectors(a.values) & begins_on_vectors(a.lengths) & ((group + 1) * GROUP <= a.runs):
            place = group * GROUP + lane * EACH
            values = neighbours(cute.recast_ptr(a.values + place, dtype=self.kind), EACH)
            found = (*values, *neighbours(a.lengths + place, EACH))
        else:
            found = self.some_runs(a, group, lane)
        return found

    def some_runs(self, a: Arguments, group, lane) -> tuple:
        places = [group * GROUP + (lane * EACH + k) for k in range(EACH)]
        values = [self.value(a, cutlass.max(cutlass.min(place, a.runs - 1), Int64(0))) for place in places]
        return *values, *(self.length(length_at(a.lengths, place, a.runs)) for place in places)

    def value(self, a: Arguments, place):
        """The bits of the element at a place."""
        return self.kind(cells(self.kind, (a.values + place).toint(), 1, cute.AddressSpace.gmem)[0])

    def word(self, flags, lane) -> Any:
        """Where runs begin among the 32 places of a lane, as bits."""
        found = cute.make_rmem_tensor((LANES // WORD_BYTES,), Uint32)
        cute.autovec_copy(cells(Uint32, flags + lane * LANES, cute.size(found), align=VECTOR_BYTES), found)
        return Int32(packed([Uint32(found[k]) for k in range(cute.size(found))]))

    def before(self, held, word, lane):
        """The bits of the last element before the 32 places of a lane, of which ``word`` says where runs begin."""
        last = self.last(held, lane, word, self.register(0))
        earlier = cute.arch.vote_ballot_sync(word != 0) & Int32(below(lane))
        (found,) = broadcast((last,), cutlass.max(31 - Int32(cute.arch.clz(earlier)), 0))
        return found

    @cute.jit
    def last(self, held, row, bits, other):
        """The element at the last place of a row whose bit is set; ``other`` where none is."""
        found = other
        if bits != 0:
            place = row * LANES + (31 - Int32(cute.arch.clz(bits)))
            found = self.register(cells(self.kind, held + place * self.size, 1)[0])
        return found

    @cute.jit
    def store_vectors(self, held, flags, sink, lane):
        """Store a whole tile to address ``sink``, in vectors of neighbouring results."""
        word = self.word(flags, lane)
        carried = self.before(held, word, lane)
        table = fills(self.size, lane) if self.size < WORD_BYTES else None
        for step in cutlass.range(TILE // (LANES * self.each), unroll=1):
            place = (step * LANES + lane) * self.each
            row, shift = place // LANES, place % LANES
            of_row, other = broadcast((word, carried), row)
            other = self.last(held, row, of_row & Int32(below(shift)), other)
            found = self.filled(held + place * self.size, Uint32(of_row) >> Uint32(shift), other, table)
            there = cells(found.element_type, sink + place * self.size, cute.size(found), cute.AddressSpace.gmem, 16)
            cute.autovec_copy(found, there)

    def filled(self, address, bits, other, table):
        """A vector of results: the elements at an address where ``bits`` are set, and else those before; ``other`` is
        the one before the first."""
        kind = self.kind if table is None else Uint32
        found = cute.make_rmem_tensor((VECTOR_BYTES * 8 // kind.width,), kind)
        cute.autovec_copy(cells(kind, address, cute.size(found), align=VECTOR_BYTES), found)
        if table is None:
            for i in range(self.each):
                other = choose((bits & (1 << i)) != 0, kind(found[i]), other)
                found[i] = other
            return found
        last, unit = other << (8 * (WORD_BYTES - self.size)), WORD_BYTES // self.size
        for i in range(VECTOR_BYTES // WORD_BYTES):
            chosen = Uint32(cute.arch.shuffle_sync(table, bits >> (unit * i)))
            last = permuted(last, Uint32(found[i]), chosen)
            found[i] = last
        return found

    @cute.jit
    def store_each(self, a: cutlass.Constexpr, held, flags, first, stop, lane):
        """Store a tile of ``stop`` results one by one, and what fills the rest."""
        word = self.word(flags, lane)
        carried = self.before(held, word, lane)
        fill, size, out = bits_of(a.fill, self.kind), a.size, a.out
        for row in cutlass.range(LANES, unroll=1):
            of_row, other = broadcast((word, carried), row)
            place = row * LANES + lane
            if first + place < size:
                value = fill
                if place < stop:
                    up_to = of_row & Int32(below(lane) | (Uint32(1) << Uint32(lane)))
                    value = self.kind(self.last(held, row, up_to, other))
                put(self.kind, (out + (first + place)).toint(), value, cute.AddressSpace.gmem)


def fills(size: int, lane) -> Any:
    """Lane k: how ``prmt`` makes a word of elements of ``size`` bytes of that before it and its own elements, which are
    there where bits of k are set: each of the others is the one before it. Lanes that differ in higher bits have the
    same."""
    found, last = Uint32(0), Uint32(sum((WORD_BYTES - size + byte) << (4 * byte) for byte in range(size)))
    for k in range(WORD_BYTES // size):
        own = sum((WORD_BYTES + k * size + byte) << (4 * byte) for byte in range(size))
        last = choose((lane >> k) & 1 != 0, Uint32(own), last)
        found = found | (last << (4 * size * k))
    return found


def bits_of(number, kind):
    """The bits of a number in an integer register of type ``kind``."""
    return number.bitcast(kind) if type(number).is_float else kind(number)


def search(ends: cute.Pointer, position, first, runs, lane) -> Any:
    """How many of ``runs`` ends, of which the ``first`` first do, lie at ``position`` or before it."""
    return search_by_warp(lambda place: Int64(element(ends + place)), position, Int64(first), Int64(runs), lane)


@cute.jit
def search_near(ends: cute.Pointer, position, first, runs, lane):
    """As ``search``, in one step if the next 32 ends go that far."""
    here = first + lane
    passed = (here < runs) & (Int64(element(ends + cutlass.min(here, runs - 1))) <= position)
    found = first + cute.arch.popc(cute.arch.vote_ballot_sync(passed))
    if found == first + LANES:
        found = search(ends, position, found, runs, lane)
    return found
