"""Elements of four or eight bytes that are repeated: as ``searched``, with the runs of a tile side by side.

Device code.

    held     the elements of the runs that have a result in the tile, in order
    flags    a byte for each place: whether a run begins there

A position has the element whose number is that of the flags up to it. Flags are added four at a time, by a product, and
counts of four vectors are scanned together, a byte each. No place of ``held`` is read that is not written.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint16, Uint32

from ...monoid import choose
from ...warp import LANES
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, popc, put, put_if
from ..select.narrow import through_lanes
from ..select.where import below
from .searched import TILE, SearchedDecode, bits_of

BYTE_BITS, BYTES = 8, 4  # of a word
FLAGS = {2: Uint16, 4: Uint32}  # of a vector of results


class RankDecode(SearchedDecode):
    """The kernel."""

    def clear(self, held, flags, lane) -> None:
        for vector in range(TILE // (LANES * VECTOR_BYTES)):
            cells(Int32, flags + (vector * LANES + lane) * VECTOR_BYTES, 4, align=VECTOR_BYTES).fill(0)

    def mark_group(self, number, tile: tuple, runs: tuple, start, known: tuple, lane) -> Any:
        (held, flags), (stop, rank) = tile, known
        values, live, places = self.live_runs(number, runs, start, stop, lane)
        counts = [choose(there, Int32(1), Int32(0)) for there in live]
        through = Int32(through_lanes(sum(counts), lane))
        own = rank + through - sum(counts)
        for there, count, place, value in zip(live, counts, places, values):
            put_if(there, self.kind, held + own * self.size, value)
            put_if(there, Uint8, flags + place, Uint8(1))
            own = own + count
        return rank + Int32(cute.arch.shuffle_sync(through, LANES - 1))

    def store_vectors(self, held, flags, sink, lane) -> None:
        """Store a whole tile to address ``sink``, in vectors of neighbouring results."""
        each, kind = self.each, FLAGS[self.each]
        steps = TILE // (LANES * each)
        ones = sum(1 << (BYTE_BITS * k) for k in range(each))
        words = [Uint32(cells(kind, flags + (step * LANES + lane) * each, 1)[0]) * ones for step in range(steps)]
        counts = [(word >> (BYTE_BITS * (each - 1))) & 0xFF for word in words]
        last = held - self.size  # of the element before that of the next run
        for first in range(0, steps, BYTES):
            some = range(first, first + BYTES)
            packed = sum(counts[step] << (BYTE_BITS * (step - first)) for step in some)
            through = Uint32(through_lanes(packed, lane))
            totals = Uint32(cute.arch.shuffle_sync(through, LANES - 1))
            to = sink + (first * LANES + lane) * VECTOR_BYTES
            self.store_quad(tuple(words[step] for step in some), through - packed, totals, last, to)
            for k in range(BYTES):
                last = last + byte_of(totals, k) * self.size

    @cute.jit
    def store_quad(self, words: tuple, before, totals, last, to):
        """Store four vectors, LANES apart, from address ``to`` on. ``last`` is the address of the last element before
        them; ``before`` has how many runs begin before each of the lane's vectors, ``totals`` in each of all lanes."""
        if totals == 0:
            value = cells(self.kind, last, 1)[0]
            for k in range(BYTES):
                self.put_vector([value] * self.each, to + k * (LANES * VECTOR_BYTES))
        else:
            for k, word in enumerate(words):
                start = last + byte_of(before, k) * self.size
                places = [start + byte_of(word, i) * self.size for i in range(self.each)]
                self.put_vector([cells(self.kind, place, 1)[0] for place in places], to + k * (LANES * VECTOR_BYTES))
                last = last + byte_of(totals, k) * self.size

    def put_vector(self, values: list, to) -> None:
        found = cute.make_rmem_tensor((self.each,), self.kind)
        for i, value in enumerate(values):
            found[i] = value
        cute.autovec_copy(found, cells(self.kind, to, self.each, cute.AddressSpace.gmem, VECTOR_BYTES))

    @cute.jit
    def store_each(self, a: cutlass.Constexpr, held, flags, first, stop, lane):
        """Store a tile of ``stop`` results one by one, and what fills the rest."""
        fill, size, out, last = bits_of(a.fill, self.kind), a.size, a.out, Int32(-1)
        for row in cutlass.range(TILE // LANES, unroll=1):
            place = row * LANES + lane
            begins = cells(Uint8, flags + place, 1)[0] != Uint8(0)
            ballot = Uint32(cute.arch.vote_ballot_sync(begins))
            if first + place < size:
                value = fill
                if place < stop:
                    rank = last + popc(ballot & (below(lane) | (Uint32(1) << Uint32(lane))))
                    value = self.kind(cells(self.kind, held + rank * self.size, 1)[0])
                put(self.kind, (out + (first + place)).toint(), value, cute.AddressSpace.gmem)
            last = last + popc(ballot)


def byte_of(word, k: int) -> Any:
    return Int32((word >> (BYTE_BITS * k)) & 0xFF)
