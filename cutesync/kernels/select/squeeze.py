"""Elements of one or two bytes that are kept of a chunk, side by side: a lane has neighbours, in words of 32 bits.

Of each word, a permutation of bytes moves the kept elements to the low end. A lane has the last four bytes that it has
kept: a shift makes the word of the result that the next ones end, another one the last four bytes behind them. How the
words of a lane follow each other costs no branch.

A word of the result may have elements of several lanes. The lane that has its last element stores the whole word. Then
the other lanes store their elements of it, one by one: they are in these lanes' last words, which have no end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass.cute as cute
from cutlass import Boolean, Uint8, Uint16, Uint32, Uint64

from ..hardware import WORD_BYTES
from ..words import funnel_shift_left, moved_in, permuted
from .chunk import put, put_if, put_next

WORD_BITS = 32
KINDS = {1: Uint8, 2: Uint16}
KEPT_AT = 20  # of a permutation's number: from this bit on, how many bits it keeps


class Stream(NamedTuple):
    """A lane's elements of one array: ``words`` of elements of ``size`` bytes. They go to a chunk that ``begin``s at an
    address; ``ends``: whether its last word may be written. ``high``: None, or the byte that each element, a byte, has
    behind it in the chunk, whose elements have two."""

    words: list
    size: int
    begin: Any
    ends: Any
    high: Any = None


class Part(NamedTuple):
    """What is kept of a lane's elements: which, as words of bits; where in the chunk the first goes; and how many there
    are."""

    flags: list
    first: Any
    count: Any


def squeeze(streams: list[Stream], part: Part, lane) -> None:
    """Keep a part of the streams of all lanes."""
    groups = [([s for s in streams if s.size == size], size) for size in KINDS]
    groups = [group for group in groups if group[0]]
    rests = [put_whole_words(*group, part, lane) for group in groups]
    cute.arch.sync_warp()  # the words are there, and the other lanes' elements of them come after that
    for group, rest in zip(groups, rests):
        put_last_words(*group, part, rest)


def put_whole_words(streams: list[Stream], size: int, part: Part, lane) -> list:
    """Store the words that end with an element of the lane; the last word of each stream, which has no end."""
    flags, first = part.flags, part.first
    table, unit = permutations(size, lane), WORD_BYTES // size
    bits, place = Uint32(first * (8 * size)), (first * size) & -WORD_BYTES
    last, places = [Uint32(0)] * len(streams), [stream.begin + place * stored(stream) for stream in streams]
    words = len(streams[0].words)
    for k in range(words):
        word, bit = divmod(unit * k, WORD_BITS)
        permutation = Uint32(cute.arch.shuffle_sync(table, flags[word] >> bit))
        kept = permutation >> KEPT_AT
        full = ((bits ^ (bits + kept)) & WORD_BITS) != 0
        for i, stream in enumerate(streams):
            more = permuted(stream.words[k], Uint32(0), permutation)
            word, last[i] = funnel_shift_left(last[i], more, bits), moved_in(last[i], more, kept)
            here = full & stream.ends if k == words - 1 else full
            if stream.high is None:
                places[i] = put_next(here, Uint32, places[i], word)
            else:
                places[i] = put_both(here, places[i], word, stream.high)
        bits = bits + kept
    return [funnel_shift_left(rest, Uint32(0), bits) for rest in last]


def put_last_words(streams: list[Stream], size: int, part: Part, rests: list) -> None:
    """Store the lane's elements of its last word, of each stream."""
    first, count = part.first, part.count
    unit = WORD_BYTES // size
    start = (first + count) & -unit
    for k in range(unit - 1):
        own = Uint32(start + k - first) < Uint32(count)
        for stream, rest in zip(streams, rests):
            bytes_of = size * stored(stream)
            found = rest >> (8 * size * k) if stream.high is None else permuted(rest, stream.high, Uint32(0x4440 + k))
            put_if(own, KINDS[bytes_of], stream.begin + (start + k) * bytes_of, KINDS[bytes_of](found))


def stored(stream: Stream) -> int:
    """How many bytes are stored for each byte of a stream."""
    return 1 if stream.high is None else 2


@cute.jit
def put_both(condition, address, word, high):
    """As ``put_next``, of the bytes of a word, each with byte ``high`` behind it."""
    if condition:
        pair = [permuted(word, high, Uint32(chosen)) for chosen in (0x4140, 0x4342)]
        put(Uint64, address, Uint64(pair[0]) | (Uint64(pair[1]) << WORD_BITS))
        address = address + 2 * WORD_BYTES
    return address


def permutations(size: int, lane) -> Any:
    """Lane k: how the elements of a word that the bits of k keep move to its low end, as ``prmt`` takes it; behind them
    are zeros. Lanes that differ in higher bits have the same."""
    found, kept = Uint32(0), Uint32(0)  # four bits a byte
    for k in range(WORD_BYTES // size):
        bytes_of = sum((k * size + byte) << (4 * byte) for byte in range(size))
        holds = Uint32(lane >> k) & 1
        found, kept = found | (holds * bytes_of) << kept, kept + holds * (4 * size)
    return ((found | Uint32(0x4444) << kept) & 0xFFFF) | (2 * kept) << KEPT_AT


def add_if(condition, number, value) -> Any:
    """``value``, or where a condition holds ``number`` more: one instruction, where a choice and a sum take two."""
    text = "mov.b32 {$w0}, {$r0};\n\t@{$r1} add.u32 {$w0}, {$w0}, {$r2};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[value, Boolean(condition), number])
