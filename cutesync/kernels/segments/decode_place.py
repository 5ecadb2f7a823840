"""Where the runs of a tile begin. Device code.

Warps have groups of ``GROUP`` neighbouring runs, a lane ``EACH`` of them. They add up their lengths; when it is known
what comes before each group in the tile, they put where runs begin in shared memory, in place of the lengths. Behind
them are ``FAR`` places.

Most tiles have no empty runs and none of ``LONG`` results: then a warp remembers where its runs begin in their groups.
Of other tiles all warps read the lengths again, before one of them overwrites any: empty runs are left out, so the
elements of the others are moved side by side.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...dtypes import DType
from ...monoid import choose
from ...warp import LANES, reduce_commutative, scan_states
from ..gather import WORDS
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, put, put_if
from ..select.narrow import through_lanes
from .decode_policy import GROUP

EACH = GROUP // LANES
LONG = 1 << 18  # where runs of tiles without longer ones begin are numbers of 32 bits
SHORT, HALF_BITS = 1 << 8, 16  # of groups without longer ones, where runs begin are numbers of half as many
FAR = 1 << 30  # places that lie further behind the first result are not told apart
BEGIN_BYTES, WORD_BITS = 4, 32
# What is said of a group beside the number of its runs that are not empty: some are, and some are long
HAS_EMPTY, HAS_LONG = 1 << 16, 1 << 17


class Placer:
    """Finds where runs of lengths of a type begin, with elements of another one."""

    def __init__(self, values: DType, lengths: DType) -> None:
        self.kind: Any = WORDS[values.size]
        self.each = max(BEGIN_BYTES // values.size, 1)  # elements that lie side by side in a register
        self.length: Any = lengths.cutlass
        narrow = lengths.size < BEGIN_BYTES or (lengths.size == BEGIN_BYTES and self.length.signed)
        self.number: Any = Int32 if narrow else Int64  # of a length in a register

    @cute.jit
    def measure(self, address, groups: tuple, exist, lane):
        """Of each of a warp's ``groups`` of a tile, whose lengths lie at an address and of which ``exist`` runs exist:
        how many results it has, how many runs that are not empty, and what is said of it. Then where the lane's
        runs begin in their groups, as ``begins`` says, if none is empty or long."""
        found = self.load(self.length, address, groups, exist, lane)
        begins = tuple(Int32(0) for _ in found)
        results, runs = tuple(Int64(0) for _ in groups), tuple(Int32(GROUP) for _ in groups)
        bits = self.bits(found)
        if cute.arch.vote_all_sync(bits < SHORT):
            begins, results = self.begins(found, self.through_pairs, lane)
        elif cute.arch.vote_any_sync(bits >= LONG):
            words, lengths = Int32(HAS_EMPTY), self.counts(found)
            most = functools.reduce(cutlass.max, lengths)
            if cute.arch.vote_any_sync(most >= LONG):
                words = Int32(HAS_EMPTY | HAS_LONG)
            sums = [sum(map(Int64, of_group(lengths, k)), Int64(0)) for k in range(len(groups))]
            results = reduce_commutative(tuple(sums), lambda p, q: tuple(x + y for x, y in zip(p, q)))
            lives = [count_live(of_group(lengths, k)) for k in range(len(groups))]
            runs = tuple(words + Int32(cute.arch.warp_redux_sync(live, "add")) for live in lives)
        else:
            begins, results = self.begins(found, self.through_each, lane)
        return results, runs, begins

    def bits(self, lengths: tuple) -> Any:
        """The bits of all lengths less 1, as a word; or more than ``LONG`` has, if a length is 0, below, or too long
        for that. Most are short: so all are looked at together."""
        lows = [Uint32(length) if self.length.width >= WORD_BITS else Uint32(Int32(length)) for length in lengths]
        bits = functools.reduce(operator.or_, [low - 1 for low in lows])
        if self.length.width > WORD_BITS:
            highs = [Uint32(length >> WORD_BITS) for length in lengths]
            bits = bits | choose(functools.reduce(operator.or_, highs) != 0, Uint32(LONG), Uint32(0))
        return bits

    def begins(self, lengths: tuple, through_lanes_of: Any, lane) -> tuple:
        """Of each group, where a lane's first run begins in it, and the lengths of all but the last one; and how many
        results each group has."""
        own = [[Int32(length) for length in of_group(lengths, k)] for k in range(len(lengths) // EACH)]
        results = [sum(some, Int32(0)) for some in own]
        throughs, totals = through_lanes_of(results, lane)
        begins = [[through - result, *some[:-1]] for through, result, some in zip(throughs, results, own)]
        return tuple(begin for some in begins for begin in some), tuple(map(Int64, totals))

    def through_each(self, results: list, lane) -> tuple:
        """How many results the lanes of each group have up to this one, and all of them."""
        throughs = [Int32(through_lanes(Uint32(result), lane)) for result in results]
        return throughs, [Int32(cute.arch.shuffle_sync(through, LANES - 1)) for through in throughs]

    def through_pairs(self, results: list, lane) -> tuple:
        """The same of groups of short runs, two groups in a word."""
        pairs = [results[k : k + 2] for k in range(0, len(results), 2)]
        words = [sum(result << (HALF_BITS * i) for i, result in enumerate(pair)) for pair in pairs]
        throughs, totals = self.through_each(words, lane)
        halves = lambda word: (word & (2**HALF_BITS - 1), Int32(Uint32(word) >> HALF_BITS))  # noqa: E731
        return tuple([half for word in some for half in halves(word)][: len(results)] for some in (throughs, totals))

    def lengths(self, address, groups: tuple, exist, lane) -> tuple:
        """The lengths of a lane's runs, of group after group. Those below 0 are 0."""
        return self.counts(self.load(self.length, address, groups, exist, lane))

    def counts(self, lengths: tuple) -> tuple:
        return tuple(cutlass.max(self.number(length), self.number(0)) for length in lengths)

    @cute.jit
    def load(self, kind: cutlass.Constexpr, address, groups: tuple, exist, lane):
        """A lane's neighbours of each group; 0 where none exist."""
        size = kind.width // 8
        align = min(VECTOR_BYTES, EACH * size)
        found = tuple(kind(0) for _ in range(EACH * len(groups)))
        if (exist >= groups[-1] * GROUP + GROUP) & ((address & (align - 1)) == 0):
            places = [address + (group * GROUP + lane * EACH) * size for group in groups]
            found = tuple(value for place in places for value in self.load_vector(kind, place, align))
        else:
            places = [group * GROUP + (lane * EACH + k) for group in groups for k in range(EACH)]
            found = tuple(self.load_one(kind, address, place, exist) for place in places)
        return found

    def load_vector(self, kind, address, align: int) -> list:
        held = cute.make_rmem_tensor((EACH,), kind)
        cute.autovec_copy(cells(kind, address, EACH, align=align), held)
        return [kind(held[k]) for k in range(EACH)]

    @cute.jit
    def load_one(self, kind: cutlass.Constexpr, address, place, exist):
        found = kind(0)
        if place < exist:
            found = kind(cells(kind, address + place * (kind.width // 8), 1)[0])
        return found

    def packed(self, address, group, exist, lane) -> list:
        """A lane's elements of a group; narrow ones side by side in words, into whose move the compiler does not look,
        as there would be too few registers for one each."""
        found = self.load(self.kind, address, (group,), exist, lane)
        if self.each == 1:
            return list(found)
        words = []
        for k in range(0, EACH, self.each):
            word = sum(Uint32(found[k + i]) << (self.kind.width * i) for i in range(self.each))
            words.append(
                cute.arch.inline_ptx("mov.b32 {$w0}, {$r0};", write_only_types=[Uint32], read_only_args=[word])
            )
        return words

    def unpacked(self, words: list, i: int) -> Any:
        """The lane's element number ``i`` of a group."""
        return self.kind(words[i // self.each] >> (self.kind.width * (i % self.each))) if self.each > 1 else words[i]

    def put_all(self, address, group, start, begins: tuple, lane) -> None:
        """Store where the runs of a group begin that begins at ``start``; none of the tile is empty or long."""
        some = cute.make_rmem_tensor((EACH,), Int32)
        for k in range(EACH):
            some[k] = start + sum(begins[: k + 1], Int32(0))
        to = address + (group * GROUP + lane * EACH) * BEGIN_BYTES
        cute.autovec_copy(some, cells(Int32, to, EACH, align=VECTOR_BYTES))

    def put_live(self, number, addresses: tuple, lengths: tuple, values: list, start, rank, lane) -> None:
        """Store where those runs of a group begin that are not empty, and their elements, from place ``rank`` on. The
        group begins at ``start``; places are numbers of a type."""
        lengths = tuple(number(length) for length in lengths)
        own, (begins_at, values_at) = count_live(lengths), addresses
        rank = rank + Int32(through_lanes(Uint32(own), lane)) - own
        (begin,) = scan_states((sum(lengths, number(0)),), lambda p, q: (p[0] + q[0],), lane)
        begin = number(start) + begin - sum(lengths, number(0))
        for i, length in enumerate(lengths):
            live, place = length > 0, Int32(cutlass.max(cutlass.min(begin, number(FAR)), number(-1)))
            put_if(live, Int32, begins_at + rank * BEGIN_BYTES, place)
            put_if(live, self.kind, values_at + rank * (self.kind.width // 8), self.unpacked(values, i))
            begin, rank = begin + length, rank + choose(live, Int32(1), Int32(0))

    def put_end(self, addresses: tuple, runs, lane) -> None:
        """Behind ``runs`` runs, as many as a group has begin far away; of narrow elements, each of them has one."""
        begins_at, values_at = addresses
        for k in range(EACH):
            place = runs + (k * LANES + lane)
            put(Int32, begins_at + place * BEGIN_BYTES, Int32(FAR))
            if self.kind.width < 32:
                put(self.kind, values_at + place * (self.kind.width // 8), self.kind(0))


def of_group(numbers: tuple, k: int) -> tuple:
    return numbers[k * EACH : (k + 1) * EACH]


def count_live(lengths: tuple) -> Any:
    return sum((choose(length > 0, Int32(1), Int32(0)) for length in lengths), Int32(0))


@cute.jit
def sum_groups(results, runs, tile: cutlass.Constexpr, lane):
    """The results and the runs of a tile's groups up to this lane's, and what is said of all: ``tile`` runs at most."""
    through, live, word = results, Int32(GROUP) * (lane + 1), Int32(0)
    if cute.arch.vote_any_sync(runs >= HAS_EMPTY):
        word = Int32(HAS_EMPTY)
        if cute.arch.vote_any_sync(runs >= HAS_LONG):
            word = Int32(HAS_LONG)
        state = results, runs & (HAS_EMPTY - 1)
        through, live = scan_states(state, lambda p, q: (p[0] + q[0], p[1] + q[1]), lane)
    else:
        through = Int64(Int32(through_lanes(Uint32(Int32(results)), lane)))
        live = cutlass.min(live, tile)
    return through, live, word
