"""Elements that are repeated as often as an array of counts says. Device code.

A warp makes a tile of ``TILE`` neighbouring results. It searches the sums of groups of runs, which are added up, for
the group of the first one, then reads group after group from there on, until one ends behind the tile:

    values    the elements of the tile's runs that are not empty, in order, in shared memory
    bits      32 words: where each of these runs begins in the tile

The run of a position is the number of bits up to it. Where a group has no result, as where many runs are empty, the
warp searches again, so empty runs take no more loads than others. Where all runs have the same length, a division
finds the run of a position.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ...warp import LANES, broadcast, scan_states
from ..coordinates import element, store
from ..gather import WORDS, At, Gather, Stepped
from ..plain import PlainKernel
from ..select.chunk import VECTOR_BYTES, cells, put
from ..select.where import below
from ..tiled import positions
from .repeat import GROUP, Decoding
from .sums import length_at

WARPS = 8
TILE = LANES * 32  # a bit in a word of each lane
RESULTS = WARPS * TILE  # of a block
EACH = GROUP // LANES  # neighbouring runs of a lane

# A launch's arguments: ``lengths`` has how many results each of ``runs`` runs of ``values`` has, unless each has
# ``times``; those from the end of all on, up to ``size``, are ``fill``. ``count`` gets where the last run ends.
# ``sums`` has where each of ``groups`` groups of runs ends.
Arguments = namedtuple("Arguments", "values lengths out count sums fill runs groups size times")


class Decode(PlainKernel):
    """The kernel."""

    name = "decode"

    def __init__(self, decoding: Decoding) -> None:
        size = decoding.dtype.size
        super().__init__(WARPS * LANES, 0 if decoding.alike else RESULTS * size + WARPS * LANES * 4 + 2 * VECTOR_BYTES)
        self.decoding, self.kind, self.size = decoding, WORDS[size], size
        self.each = VECTOR_BYTES // size  # results that a lane stores at once
        self.gather: Any = None if decoding.layout is None else Gather(decoding.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        values, lengths, n, out, count, sums = arrays
        fill, runs, size, times, step, *rest = numbers
        groups = cutlass.max((runs + (GROUP - 1)) // GROUP, Int64(1))
        if self.gather is not None:
            self.gather.bind(rest)
            values = At(self.gather, 0, values)
            lengths = lengths if self.decoding.alike else At(self.gather, 1, lengths)
        runs = positions(runs, n) if self.decoding.counted else runs
        return Arguments(values, lengths, Stepped(out, step), count, sums, fill, runs, groups, size, times)

    @cute.jit
    def body(self, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * TILE
        total = a.runs * a.times
        if cutlass.const_expr(not self.decoding.alike):
            total = cutlass.max(Int64(element(a.sums + (a.groups - 1))), Int64(0))
        if first + lane == 0:
            store(a.count, total)
        if cutlass.const_expr(self.decoding.alike):
            self.divide(a, first, cutlass.min(total, a.size), lane)
        else:
            self.make_tile(a, first, total, warp, lane)

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
    def make_tile(self, a: cutlass.Constexpr, first, total, warp, lane):
        elements = SmemAllocator().allocate_array(self.kind, RESULTS, byte_alignment=VECTOR_BYTES)
        words = SmemAllocator().allocate_array(Uint32, WARPS * LANES, byte_alignment=VECTOR_BYTES)
        stop = Int32(cutlass.min(cutlass.max(cutlass.min(total, a.size) - first, Int64(0)), Int64(TILE)))
        held, bits = (elements + warp * TILE).toint(), words + warp * LANES
        store(bits + lane, Uint32(0))
        cute.arch.sync_warp()
        if stop > 0:
            self.mark(a, held, bits, first, stop, lane)
        cute.arch.sync_warp()
        word = Int32(element(bits + lane))
        here = Int32(cute.arch.popc(word))
        tally = scan_states((here,), lambda a, b: (a[0] + b[0],), lane)[0] - here
        sink = (a.out + first).toint()
        side_by_side = (a.out + (first + 1)).toint() - sink == self.size
        if (stop == TILE) & side_by_side & (sink % VECTOR_BYTES == 0):
            self.store_vectors(held, word, tally, sink, lane)
        else:
            self.store_each(a, held, word, tally, first, stop, lane)

    @cute.jit
    def mark(self, a: cutlass.Constexpr, held, bits: cute.Pointer, first, stop, lane):
        """Put the elements of the runs of ``stop`` positions in shared memory, and a bit where each begins."""
        group, begin, found = search_by_warp(a.sums, first, Int64(0), a.groups, lane), Int32(0), Int32(0)
        start = Int64(0)  # where the group's runs begin
        if group > 0:
            start = Int64(element(a.sums + (group - 1)))
        while (begin < stop) & (group < a.groups):
            places = [group * GROUP + (lane * EACH + k) for k in range(EACH)]
            values = [self.value(a, cutlass.min(place, a.runs - 1)) for place in places]
            lengths = [length_at(a.lengths, place, a.runs) for place in places]
            (through,) = scan_states((sum(lengths),), lambda p, q: (p[0] + q[0],), lane)
            end = start - first + through - sum(lengths)  # of the runs before
            edges = [inside(end)]
            for length in lengths:
                end = end + length
                edges.append(inside(end))
            counts = [(after > before) & (before < stop) for before, after in zip(edges, edges[1:])]
            own = sum(map(Int32, counts))
            (ranks,) = scan_states((own,), lambda p, q: (p[0] + q[0],), lane)
            rank = found + ranks - own
            for k in cutlass.range_constexpr(EACH):
                if counts[k]:
                    put(self.kind, held + cutlass.min(rank, TILE - 1) * self.size, values[k])
                    word = edges[k] // LANES
                    cute.arch.atomic_or(bits + word, Uint32(1) << Uint32(edges[k] % LANES), scope="cta")
                rank = rank + Int32(counts[k])
            (total,), (more,) = broadcast((through,), LANES - 1), broadcast((ranks,), LANES - 1)
            start, found, group = start + total, found + more, group + 1
            known = inside(start - first)
            if (known <= begin) & (group < a.groups):
                group = search_by_warp(a.sums, first + begin, group, a.groups, lane)
            begin = cutlass.max(known, begin)

    def value(self, a: Arguments, place):
        """The bits of the element at a place."""
        return self.kind(cells(self.kind, (a.values + place).toint(), 1, cute.AddressSpace.gmem)[0])

    @cute.jit
    def store_vectors(self, held, word, tally, sink, lane):
        """Store a whole tile to address ``sink``, in vectors of neighbouring results."""
        for step in cutlass.range(TILE // (LANES * self.each), unroll=1):
            place = (step * LANES + lane) * self.each
            of_row, rank = broadcast((word, tally), place // LANES)
            shift = place % LANES
            rank = rank + Int32(cute.arch.popc(of_row & Int32(below(shift))))
            rest = Uint32(of_row) >> Uint32(shift)
            row = cute.make_rmem_tensor((self.each,), self.kind)
            for i in cutlass.range_constexpr(self.each):
                rank = rank + Int32((rest >> i) & 1)
                row[i] = cells(self.kind, held + (rank - 1) * self.size, 1)[0]
            there = cells(self.kind, sink + place * self.size, self.each, cute.AddressSpace.gmem, VECTOR_BYTES)
            cute.autovec_copy(row, there)

    @cute.jit
    def store_each(self, a: cutlass.Constexpr, held, word, tally, first, stop, lane):
        """Store a tile of ``stop`` results one by one, and what fills the rest."""
        fill, size, out = bits_of(a.fill, self.kind), a.size, a.out
        for row in cutlass.range(LANES, unroll=1):
            of_row, rank = broadcast((word, tally), row)
            rank = rank + Int32(cute.arch.popc(of_row & Int32(below(lane) | (Uint32(1) << Uint32(lane)))))
            place = row * LANES + lane
            if first + place < size:
                value = fill
                if place < stop:
                    value = self.kind(cells(self.kind, held + (rank - 1) * self.size, 1)[0])
                put(self.kind, (out + (first + place)).toint(), value, cute.AddressSpace.gmem)


def inside(place) -> Int32:
    """A place of the array, counted from where a tile begins, as one of the tile."""
    return Int32(cutlass.min(cutlass.max(place, Int64(0)), Int64(TILE)))


def bits_of(number, kind):
    """The bits of a number in an integer register of type ``kind``."""
    return number.bitcast(kind) if type(number).is_float else kind(number)


@cute.jit
def search_by_warp(ends: cute.Pointer, position, first, runs, lane):
    """How many of ``runs`` ends, of which the ``first`` first do, lie at ``position`` or before it. Each step looks at
    32."""
    low, high = Int64(first), Int64(runs)
    while low < high:
        step = (high - low + LANES - 1) // LANES
        probe = cutlass.min(low + lane * step + (step - 1), high - 1)
        before = cute.arch.popc(cute.arch.vote_ballot_sync(Int64(element(ends + probe)) <= position))
        after = Int64(cute.arch.shuffle_sync(probe, cutlass.min(before, LANES - 1)))
        low = cutlass.min(low + before * step, high)
        if before < LANES:
            high = after
        else:
            low = high
    return low
