"""Results of one or two bytes of a tile of runs, stored by warps as in ``decode_store``, in words. Device code.

    changes   an element for each place of the window: where a run begins, its element xor that of the run before it;
              0 elsewhere

A place has the element of the run of the window's first place, xor the changes up to it. Those of a lane's vectors are
added up in words; what the lanes before have changed, of several vectors each, is scanned in one word.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint32

from ...monoid import choose
from ...warp import LANES
from ..gather import WORDS
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..select.chunk import cells, popc, put, put_if
from ..select.squeeze import add_if
from ..words import funnel_shift_left, permuted
from .decode_place import BEGIN_BYTES, EACH
from .decode_policy import GROUP, SCRATCH_BYTES, window_of
from .decode_store import ROWS, Band, Runs, find_run, load_begins, load_words

BYTE_BITS, WORD_BITS = 8, 32
WORDS_OF_VECTOR = VECTOR_BYTES // WORD_BYTES
FEW = 3  # runs that begin in a window: they change it one by one (2**28 int8 of 1000 92 us, 97 without)
ROWS_OF_VECTORS = 2  # that are looked at together
EDGE = 16  # as many elements as a vector has, or more
VECTORS = SCRATCH_BYTES // (LANES * VECTOR_BYTES)  # of a lane
# Of elements of a size, of ``prmt``: a word of the k-th element of a word, for each k; the last elements of two words
ALL_OF = {1: (0x0000, 0x1111, 0x2222, 0x3333), 2: (0x1010, 0x3232), 4: (0x3210,)}
LAST_OF = {1: 0x0073, 2: 0x7632}
LOW_HALVES = 0x5410


class FillStorer:
    """Stores results of ``size`` bytes."""

    def __init__(self, size: int, windows: int, dense: bool) -> None:
        self.size, self.kind, self.windows, self.dense = size, WORDS[size], windows, dense
        self.each = VECTOR_BYTES // size  # results that a lane stores at once
        self.unit = WORD_BYTES // size  # elements of a word
        self.window = window_of(size)

    @cute.jit
    def store(self, out, runs: Runs, band: Band, lane):
        """Store a band, which has at least one result."""
        run = find_run(runs, cutlass.max(band.low, 0), lane)
        if cutlass.const_expr(self.windows == 1):
            self.store_window(out, runs, band, run, lane)
        else:
            low = band.low
            while low < band.stop:
                at = band._replace(low=low, stop=cutlass.min(low + self.window, band.stop))
                run, low = run + self.store_window(out, runs, at, run, lane), low + self.window

    @cute.jit
    def store_window(self, out, runs: Runs, at: Band, run, lane):
        """Store a window. Those behind ``run`` begin in it or behind it; return how many do in it."""
        found = self.all_of(Uint32(cells(self.kind, runs.values + run * self.size, 1)[0]), 0)
        begin = Int32(cells(Int32, runs.begins + (run + 1 + lane) * BEGIN_BYTES, 1)[0])
        begins = Uint32(cute.arch.vote_ballot_sync(begin < at.stop))
        words, count = tuple(found for _ in range(VECTORS * WORDS_OF_VECTOR)), popc(begins)
        if count > FEW:
            for k in cutlass.range_constexpr(VECTORS):
                cells(Int32, self.address(at, k, lane), WORDS_OF_VECTOR, align=VECTOR_BYTES).fill(0)
            cute.arch.sync_warp()  # nothing is changed
            count = self.mark_dense(runs, at, run, lane) if self.dense else self.mark(runs, at, run + 1, lane)
            cute.arch.sync_warp()  # all changes are there
            words = self.filled(at, found, lane)
        elif count > 0:
            change = self.all_of(self.change(runs.values + (run + 1 + lane) * self.size), 0)
            for number in cutlass.range(count, unroll=1):
                place = (Int32(cute.arch.shuffle_sync(begin, number)) - at.low) * self.size
                words = self.changed_from(words, place, Uint32(cute.arch.shuffle_sync(change, number)), lane)
        self.put(out, at, [words[k : k + WORDS_OF_VECTOR] for k in range(0, len(words), WORDS_OF_VECTOR)], lane)
        return count

    def changed_from(self, words: tuple, place, change, lane) -> tuple:
        """The words of a lane's vectors, changed from a byte of the window on."""
        found = []
        for k, word in enumerate(words):
            vector, word_of = divmod(k, WORDS_OF_VECTOR)
            ahead = place - (vector * LANES + lane) * VECTOR_BYTES - word_of * WORD_BYTES
            found.append(word ^ (change & ones_from(cutlass.max(ahead, 0) * BYTE_BITS)))
        return tuple(found)

    def address(self, at: Band, k: int, lane) -> Any:
        """The address of a lane's changes of a vector."""
        return at.flags + (k * LANES + lane) * VECTOR_BYTES

    @cute.jit
    def mark_dense(self, runs: Runs, at: Band, run, lane):
        """As ``mark``, of the runs behind ``run``, many of which begin in the window: whole vectors of neighbours."""
        last, first = find_run(runs, at.stop - 1, lane), run + 1
        start = (first + (EACH - 1)) & -EACH
        rows = cutlass.max(last + 1 - start, 0) // GROUP
        if (runs.values & (WORD_BYTES - 1)) != 0:
            rows = Int32(0)
        to, rank = at.flags - at.low * self.size, start + lane * EACH
        for _ in cutlass.range(rows, unroll=ROWS_OF_VECTORS):
            begins = load_words(runs.begins + rank * BEGIN_BYTES)
            for begin, change in zip(begins, self.changes(runs.values + rank * self.size)):
                put(self.kind, to + begin * self.size, self.kind(change))
            rank = rank + GROUP
        begin = Int32(cells(Int32, runs.begins + (first + lane) * BEGIN_BYTES, 1)[0])
        change = self.change(runs.values + (first + lane) * self.size)
        put_if((lane < start - first) & (begin < at.stop), self.kind, to + begin * self.size, self.kind(change))
        self.mark(runs, at, start + rows * GROUP, lane)
        return last - run

    def changes(self, address) -> list:
        """What the neighbours change whose elements, a byte each, are the word at an address."""
        earlier, word = (Uint32(cells(Uint32, address + at, 1)[0]) for at in (-WORD_BYTES, 0))
        change = word ^ funnel_shift_left(earlier, word, Uint32(BYTE_BITS))
        return [change >> (BYTE_BITS * k) for k in range(WORD_BYTES)]

    @cute.jit
    def mark(self, runs: Runs, at: Band, first, lane):
        """Store the changes by the runs from one on that begin in the window; return how many there are."""
        rank, going, own = first + lane, Int32(1), Uint32(0)
        address, values = runs.begins + rank * BEGIN_BYTES, runs.values + rank * self.size
        to = at.flags - at.low * self.size
        while going != 0:
            begins = load_begins(address)
            changes = [self.change(values + row * (LANES * self.size)) for row in range(ROWS)]
            live = [begin < at.stop for begin in begins]
            for there, begin, change in zip(live, begins, changes):
                put_if(there, self.kind, to + begin * self.size, self.kind(change))
                if cutlass.const_expr(self.windows > 1):
                    own = add_if(there, Uint32(1), own)
            going = Int32(cute.arch.shuffle_sync(Int32(live[-1]), LANES - 1))
            address, values = address + ROWS * LANES * BEGIN_BYTES, values + ROWS * LANES * self.size
        if cutlass.const_expr(self.windows > 1):
            own = cute.arch.warp_redux_sync(own, "add")
        return Int32(own)

    def change(self, address) -> Any:
        """What the run changes whose element is at an address."""
        return self.element(address) ^ self.element(address - self.size)

    def element(self, address) -> Any:
        return Uint32(cells(self.kind, address, 1)[0])

    def all_of(self, word, k: int) -> Any:
        """The k-th element of a word, in all its places."""
        return permuted(word, Uint32(0), Uint32(ALL_OF[self.size][k])) if self.unit > 1 else word

    def through(self, word) -> Any:
        """The changes of a word up to each of its elements."""
        bits = BYTE_BITS * self.size
        while bits < WORD_BITS:
            word, bits = word ^ (word << bits), 2 * bits
        return word

    def before(self, vectors: list, found, lane) -> list:
        """The element before each of a lane's vectors, in all places of a word; ``found`` is that before the window."""
        befores = []
        for first in range(0, VECTORS, self.unit):
            words = [self.total(vector) for vector in vectors[first : first + self.unit]]
            while len(words) > 1:  # the last elements of words side by side
                chosen = LAST_OF[self.size] if len(words) == self.unit else LOW_HALVES
                words = [permuted(words[i], words[i + 1], Uint32(chosen)) for i in range(0, len(words), 2)]
            (own,) = words
            through = changed_through_lanes(own, lane)
            totals = self.through(Uint32(cute.arch.shuffle_sync(through, LANES - 1)))
            ahead = totals << (BYTE_BITS * self.size) if self.unit > 1 else Uint32(0)
            word = through ^ own ^ ahead ^ found
            befores += [self.all_of(word, k) for k in range(self.unit)]
            found = found ^ self.all_of(totals, self.unit - 1)
        return befores

    def total(self, vector: list) -> Any:
        """What a vector changes, in the last place of a word."""
        a, b, c, d = vector
        return self.through(a ^ b ^ c ^ d)

    def filled(self, at: Band, found, lane) -> tuple:
        """The words of a lane's vectors of results; ``found`` is the element before the window."""
        vectors, words = [load_words(self.address(at, k, lane), Uint32) for k in range(VECTORS)], []
        for vector, before in zip(vectors, self.before(vectors, found, lane)):
            for word in vector:
                words.append(self.through(word) ^ before)
                before = self.all_of(words[-1], self.unit - 1)
        return tuple(words)

    @cute.jit
    def put(self, out, at: Band, vectors: cutlass.Constexpr, lane):
        """Store the lanes' vectors of a window, as far as it lies in the tile."""
        to = (out + (at.begin + at.low)).toint()
        if at.vectors & (at.low >= 0) & (at.low + self.window <= at.stop):
            for k, words in enumerate(vectors):
                put_words(to + (k * LANES + lane) * VECTOR_BYTES, words, cute.AddressSpace.gmem)
        else:
            self.put_part(out, at, to, vectors, lane)

    @cute.jit
    def put_part(self, out, at: Band, to, vectors: cutlass.Constexpr, lane):
        """The same of a window of which a part lies in the tile: whole vectors, and the elements before and behind."""
        for k, words in enumerate(vectors):
            put_words(self.address(at, k, lane), words, cute.AddressSpace.smem)
        cute.arch.sync_warp()  # the results are there
        low, high = cutlass.max(-at.low, 0), at.stop - at.low
        if at.vectors:
            first = cutlass.min((low + (self.each - 1)) & -self.each, high)
            last = cutlass.max(high & -self.each, first)
            for k, words in enumerate(vectors):
                place = (k * LANES + lane) * self.each
                if (place >= first) & (place < last):
                    put_words(to + place * self.size, words, cute.AddressSpace.gmem)
            here = choose(lane < EDGE, low + lane, last + (lane - EDGE))
            if here < choose(lane < EDGE, first, high):
                self.put_one(out, at, here)
        else:
            for here in cutlass.range(low + lane, high, LANES, unroll=1):
                self.put_one(out, at, here)
        cute.arch.sync_warp()  # the results have been read

    def put_one(self, out, at: Band, place) -> None:
        value = cells(self.kind, at.flags + place * self.size, 1)[0]
        put(self.kind, (out + (at.begin + (at.low + place))).toint(), value, cute.AddressSpace.gmem)


def ones_from(bit) -> Any:
    """A word of ones from a bit on; 0 from 32 on."""
    text = "shl.b32 {$w0}, {$r0}, {$r1};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[Uint32(0xFFFFFFFF), Uint32(bit)])


def put_words(address, words, space) -> None:
    """Store a vector at an address."""
    held = cute.make_rmem_tensor((len(words),), Uint32)
    for i, word in enumerate(words):
        held[i] = word
    cute.autovec_copy(held, cells(Uint32, address, len(words), space, VECTOR_BYTES))


def changed_through_lanes(word, lane) -> Any:
    """The changes of the lanes up to this one."""
    text = "mov.b32 {$w0}, {$r0};\n\t@{$r1} xor.b32 {$w0}, {$w0}, {$r2};"
    for log in range(LANES.bit_length() - 1):
        other = Uint32(cute.arch.shuffle_sync_up(word, 1 << log))
        arguments = [Uint32(word), Boolean(lane >= 1 << log), other]
        word = cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=arguments)
    return word
