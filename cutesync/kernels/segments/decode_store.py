"""Results of a tile of runs, stored by warps, bands of neighbouring results each, a window of
``WINDOW`` after the other. Device code.

    begins    where the runs of the tile begin, none of which is empty
    flags     a byte for each place of the window: whether a run begins there

A place has the element whose number is that of the run of the first place and the flags up to it. Flags are added four
at a time, by a product, and counts of several vectors are scanned together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint16, Uint32

from ...warp import LANES
from ..gather import WORDS
from ..select.chunk import VECTOR_BYTES, cells, popc, put, put_if
from ..select.narrow import through_lanes
from .decode_place import BEGIN_BYTES
from .decode_policy import GROUP, LINE_BYTES, WINDOW

BYTE_BITS, WORD_BYTES, WORD_BITS = 8, 4, 32
ROWS = 4  # of runs that are looked at together


class Runs(NamedTuple):
    """The runs of a tile: the addresses of where they begin, and of their elements, and how many there are."""

    begins: Any
    values: Any
    count: Any


class Band(NamedTuple):
    """Places of a tile from ``low`` on, which may be negative, up to ``stop``; ``begin`` is the index of place 0 in the
    results, and ``flags`` the address of the warp's flags. ``vectors``: whether vectors of results lie side by side."""

    low: Any
    stop: Any
    begin: Any
    flags: Any
    vectors: Any


class Storer:
    """Stores results of ``size`` bytes, four or more."""

    window = WINDOW

    def __init__(self, size: int) -> None:
        self.size, self.kind = size, WORDS[size]
        self.each = VECTOR_BYTES // size  # results that a lane stores at once
        self.bytes = min(self.each, WORD_BYTES)  # flags of a word
        self.field = BYTE_BITS if self.each <= WORD_BYTES else 2 * BYTE_BITS  # bits of a count of a row of vectors
        self.steps = WINDOW // (LANES * self.each)
        self.together = min(WORD_BITS // self.field, self.steps)

    @cute.jit
    def store(self, out, runs: Runs, band: Band, lane):
        """Store a band, which has at least one result."""
        run, low = find_run(runs, cutlass.max(band.low, 0), lane), band.low
        while low < band.stop:
            for vector in cutlass.range_constexpr(WINDOW // (LANES * VECTOR_BYTES)):
                to = band.flags + (vector * LANES + lane) * VECTOR_BYTES
                cells(Int32, to, WORD_BYTES, align=VECTOR_BYTES).fill(0)
            at = band._replace(low=low, stop=cutlass.min(low + WINDOW, band.stop))
            cute.arch.sync_warp()  # no flag is set
            self.mark(runs, at, run, lane)
            cute.arch.sync_warp()  # all flags are set
            last = runs.values + run * self.size
            if at.vectors & (low >= 0) & (low + WINDOW <= at.stop):
                last = self.store_window(out, at, last, True, lane)
            else:
                last = self.store_window(out, at, last, False, lane)
            cute.arch.sync_warp()  # the flags have been read
            run, low = (last - runs.values) // self.size, low + WINDOW

    @cute.jit
    def mark(self, runs: Runs, at: Band, run, lane):
        """Set the flags of the runs behind ``run`` that begin in the window."""
        address, to = runs.begins + (run + 1 + lane) * BEGIN_BYTES, at.flags - at.low
        begins = load_begins(address)
        while Int32(cute.arch.shuffle_sync(begins[-1], LANES - 1)) < at.stop:  # then all of the rows do
            for begin in begins:
                put(Uint8, to + begin, Uint8(1))
            address = address + ROWS * LANES * BEGIN_BYTES
            begins = load_begins(address)
        for begin in begins:
            put_if(begin < at.stop, Uint8, to + begin, Uint8(1))

    def store_window(self, out, at: Band, last, whole: bool, lane) -> Any:
        """Store a window, which is ``whole`` if all its vectors are stored. ``last`` is the address of the element of
        the last run before it; return that of the next one."""
        for first in range(0, self.steps, self.together):
            last = self.store_rows(out, at, last, range(first, first + self.together), whole, lane)
        return last

    @cute.jit
    def store_rows(self, out, at: Band, last, rows: cutlass.Constexpr, whole: cutlass.Constexpr, lane):
        """The same of several vectors of each lane, those of ``rows``."""
        sums = [self.sums(at.flags + (row * LANES + lane) * self.each) for row in rows]
        counts = [ends[-1] for _, ends in sums]
        packed = Uint32(0)
        for k, count in enumerate(counts):
            packed = packed | (count << (self.field * k))
        through = Uint32(through_lanes(packed, lane))
        totals = Uint32(cute.arch.shuffle_sync(through, LANES - 1))
        before = through - packed
        if totals == 0:
            value = cells(self.kind, last, 1)[0]
            for row in rows:
                self.put_vector(out, at, [value] * self.each, row, whole, lane)
        else:
            for k, row in enumerate(rows):
                start = last + self.field_of(before, k) * self.size
                values = [cells(self.kind, place, 1)[0] for place in self.places(start, *sums[k])]
                self.put_vector(out, at, values, row, whole, lane)
                last = last + self.field_of(totals, k) * self.size
        return last

    def sums(self, address) -> tuple:
        """Running sums of a vector's flags at an address, in each of its words, and of all flags up to the end of
        each."""
        kind = {2: Uint16, 4: Uint32}[self.bytes]
        words = cute.make_rmem_tensor((self.each // self.bytes,), kind)
        cute.autovec_copy(cells(kind, address, cute.size(words), align=self.each), words)
        ones = sum(1 << (BYTE_BITS * k) for k in range(self.bytes))
        found = [Uint32(words[k]) * ones for k in range(cute.size(words))]
        ends: list = []
        for word in found:
            own = (word >> (BYTE_BITS * (self.bytes - 1))) & 0xFF
            ends.append(own + ends[-1] if ends else own)
        return found, ends

    def places(self, start, words: list, ends: list) -> list:
        """The address of the element of each place of a vector; ``start`` is that of the run before."""
        found = []
        for i in range(self.each):
            word, byte = divmod(i, self.bytes)
            begin = start + Int32(ends[word - 1]) * self.size if word > 0 else start
            found.append(with_byte(words[word], byte, self.size, begin))
        return found

    def field_of(self, word, k: int) -> Any:
        return Int32((word >> (self.field * k)) & ((1 << self.field) - 1))

    def put_vector(self, out, at: Band, values: list, row: int, whole: bool, lane) -> None:
        """Store a lane's vector of a row of the window, as far as it lies in the tile."""
        if whole:  # all addresses are one, and numbers that the instructions have
            begin = (out + (at.begin + at.low)).toint() + lane * VECTOR_BYTES
            self.put_whole(begin + row * (LANES * VECTOR_BYTES), values)
        else:
            self.put_part(out, at, values, at.low + (row * LANES + lane) * self.each)

    def put_whole(self, address, values: list) -> None:
        found = cute.make_rmem_tensor((self.each,), self.kind)
        for i, value in enumerate(values):
            found[i] = value
        cute.autovec_copy(found, cells(self.kind, address, self.each, cute.AddressSpace.gmem, VECTOR_BYTES))

    @cute.jit
    def put_part(self, out, at: Band, values: cutlass.Constexpr, here):
        """Store a vector from a place of the tile on, as far as it lies in it."""
        if at.vectors & (here >= 0) & (here + self.each <= at.stop):
            self.put_whole((out + (at.begin + here)).toint(), values)
        else:
            for i, value in enumerate(values):
                if (here + i >= 0) & (here + i < at.stop):
                    put(self.kind, (out + (at.begin + here + i)).toint(), value, cute.AddressSpace.gmem)


def load_words(address, kind=Int32) -> list:
    """The four words of a vector in shared memory."""
    held = cute.make_rmem_tensor((VECTOR_BYTES // WORD_BYTES,), kind)
    cute.autovec_copy(cells(kind, address, cute.size(held), align=VECTOR_BYTES), held)
    return [kind(held[k]) for k in range(cute.size(held))]


def load_begins(address) -> tuple:
    """Where the runs of ``ROWS`` rows begin, of which a lane's first one has its begin at an address."""
    return tuple(Int32(cells(Int32, address + row * (LANES * BEGIN_BYTES), 1)[0]) for row in range(ROWS))


def find_run(runs: Runs, place, lane) -> Any:
    """The number of the last run that begins at a place or before it."""
    found, last = Int32(0), runs.count - 1
    for step in (GROUP, GROUP // LANES, 1):
        here = found + (lane * step + (step - 1))
        begin = cells(Int32, runs.begins + cutlass.min(here, last) * BEGIN_BYTES, 1)[0]
        found = found + popc(cute.arch.vote_ballot_sync((here <= last) & (begin <= place))) * step
    return cutlass.max(found - 1, 0)


def with_byte(word, byte: int, factor: int, more) -> Any:
    """``more``, plus a byte of a word times a factor."""
    text = "dp4a.u32.u32 {$w0}, {$r0}, {$r1}, {$r2};"
    arguments = [Uint32(word), Uint32(factor << (BYTE_BITS * byte)), Uint32(more)]
    return Int32(cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=arguments))


def lead(out, begin, size: int) -> tuple:
    """``(lead, vectors)``: how many places lie between the begin of a line of memory and index ``begin`` of the
    results, and whether these lie side by side, in whole vectors."""
    address = (out + begin).toint()
    side_by_side = (out + (begin + 1)).toint() - address == size
    return Int32(address & (LINE_BYTES - 1)) // size, side_by_side
