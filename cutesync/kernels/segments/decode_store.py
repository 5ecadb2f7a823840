"""Results of a tile of runs, stored by warps, bands of neighbouring results each, a window of
``WINDOW`` after the other. Device code.

    begins    where the runs of the tile begin, none of which is empty
    flags     a byte for each place of the window: whether a run begins there

A place has the element whose number is that of the run of the first place and the flags up to it. Flags are added four
at a time, by a product, and counts of several vectors are scanned together. Vectors that lie whole in the tile are
stored by predicates, so that elements of several are loaded side by side (H200, 2**26 int64 in runs of 1 334 us, with a
branch for each vector 460, of 1.5 273, 340), and the few results at its ends by themselves; windows that are whole in
a form of their own were as fast only where all are (runs of 1.02 534 us, 333).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint8, Uint16, Uint32

from ...monoid import choose
from ...warp import LANES
from ..gather import WORDS
from ..hardware import LINE_BYTES, VECTOR_BYTES, WORD_BYTES
from ..select.chunk import cells, popc, put, put_if
from ..select.narrow import through_lanes
from .decode_place import BEGIN_BYTES
from .decode_policy import GROUP, WINDOW

BYTE_BITS, WORD_BITS = 8, 32
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
            first = runs.values + run * self.size
            last = first
            if at.vectors:
                last = self.store_window(out, at, first, True, lane)
                self.put_ends(out, at, first, last, lane)
            else:
                last = self.store_window(out, at, first, False, lane)
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

    def store_window(self, out, at: Band, last, vectors: bool, lane) -> Any:
        """Store a window, but not its ends, if it is stored in ``vectors``. ``last`` is the address of the element of
        the last run before it; return that of the next one."""
        for first in range(0, self.steps, self.together):
            last = self.store_rows(out, at, last, range(first, first + self.together), vectors, lane)
        return last

    @cute.jit
    def store_rows(self, out, at: Band, last, rows: cutlass.Constexpr, vectors: cutlass.Constexpr, lane):
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
                self.put_vector(out, at, [value] * self.each, row, vectors, lane)
        else:
            for k, row in enumerate(rows):
                start = last + self.field_of(before, k) * self.size
                values = [cells(self.kind, place, 1)[0] for place in self.places(start, *sums[k])]
                self.put_vector(out, at, values, row, vectors, lane)
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

    def put_vector(self, out, at: Band, values: list, row: int, vectors: bool, lane) -> None:
        """Store a lane's vector of a row of the window: if it lies whole in the tile, or element by element."""
        first, here = row * LANES * self.each, at.low + lane * self.each
        if vectors:  # addresses and bounds of all rows are one each, and numbers that the instructions have
            address = (out + (at.begin + at.low)).toint() + lane * VECTOR_BYTES + first * self.size
            self.put_whole((here >= -first) & (at.stop - here >= first + self.each), address, values)
        else:
            self.put_all(out, at, values, here + first)

    @cute.jit
    def put_whole(self, exists, address, values: cutlass.Constexpr):
        if exists:
            found = cute.make_rmem_tensor((self.each,), self.kind)
            for i, value in enumerate(values):
                found[i] = value
            cute.autovec_copy(found, cells(self.kind, address, self.each, cute.AddressSpace.gmem, VECTOR_BYTES))

    @cute.jit
    def put_all(self, out, at: Band, values: cutlass.Constexpr, here):
        for i, value in enumerate(values):
            if (here + i >= 0) & (here + i < at.stop):
                self.put_result(out, at, here + i, value)

    @cute.jit
    def put_ends(self, out, at: Band, first, last, lane):
        """Store the results of a window whose vectors do not lie whole in the tile. ``first`` is the address of the
        element of the first result, and ``last`` of the last one."""
        head, tail, place = at.low & (self.each - 1), (at.stop - at.low) & (self.each - 1), at.stop - 1 - lane
        if (at.low < 0) & (lane < cutlass.min(head, at.stop)):
            begun = sum((self.begins(at, k, k <= lane) for k in range(1, self.each - 1)), Int32(0))
            self.put_result(out, at, lane, cells(self.kind, first + begun * self.size, 1)[0])
        if (lane < tail) & (place >= 0):
            begun = sum((self.begins(at, at.stop - k, k <= lane) for k in range(1, self.each - 1)), Int32(0))
            self.put_result(out, at, place, cells(self.kind, last - begun * self.size, 1)[0])

    def begins(self, at: Band, place, asked) -> Any:
        """Whether a run begins at a place of the window, if that is ``asked`` for."""
        flag = cells(Uint8, at.flags + choose(asked, place - at.low, Int32(0)), 1)[0]
        return choose(asked, Int32(Uint32(flag)), Int32(0))

    def put_result(self, out, at: Band, place, value) -> None:
        put(self.kind, (out + (at.begin + place)).toint(), value, cute.AddressSpace.gmem)


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
