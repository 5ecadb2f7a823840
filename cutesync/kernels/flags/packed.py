"""Flags as bits of short rows that lie side by side: a block has several whole ones, which are a run of memory.

A lane flags one item, so a warp reads items side by side, and a vote gives the flags of 32 of them, of whatever rows.
Blocks put these in shared memory. After one barrier, threads join the words of the rows of two of them, and store them
side by side.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, Uint32, cute
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...warp import LANES
from ..coordinates import quotient
from .strided import Arguments, StridedKernel
from .words import funnel_shift

MAX_UNROLL = 8  # items of a lane that are loaded before the first is compared


class PackedFlags(StridedKernel):
    """The kernel: blocks of up to ``elements`` elements. Digit 0 divides by the elements of a row, digit 1 counts
    blocks."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.elements = policy.elements
        self.unroll = min(MAX_UNROLL, self.elements // self.threads)
        self.words = self.elements // LANES
        self.smem = marking.outputs * self.words * 4 + 16

    @cute.jit
    def body(self, a: Arguments):
        """Flag the rows of a block."""
        thread, block = cute.arch.thread_idx()[0], Int64(cute.arch.block_idx()[0])
        votes = SmemAllocator().allocate_array(Uint32, self.marking.outputs * self.words, byte_alignment=16)
        length = Int32(a.counts[0])
        each = Int32(self.elements) // length  # rows
        first = block * each
        rows = Int32(cutlass.min(a.extents[1] - first, Int64(each)))
        x, count = a.x + first * a.steps[0][1], rows * length
        for begin in cutlass.range_constexpr(0, self.elements, self.threads * self.unroll):
            if begin < count:
                self.vote(a, x, votes, begin + thread, count)
        cute.arch.sync_threads()
        words = (length + (LANES - 1)) // LANES
        for number in cutlass.range(thread, rows * words, self.threads):
            row = Int32(Uint32(number) // Uint32(words))
            self.join(a, votes, (first, row, count), number - row * words)

    def vote(self, a: Arguments, x, votes, begin, count) -> None:
        """Put the flags of some items of each lane into shared memory."""
        places = [begin + k * self.threads for k in range(self.unroll)]
        held = [cutlass.min(place, count - 1) for place in places]
        items = [self.get(x, place) for place in held]
        for k, side in enumerate(self.sides):
            besides = [cutlass.max(cutlass.min(place + (1 if side else -1), count - 1), Int32(0)) for place in held]
            others = [self.get(x, place) for place in besides]
            for place, at, item, other in zip(places, held, items, others):
                pair = (item, other) if side else (other, item)
                self.keep(votes, k, place, self.flag(a, side, at, place >= count, pair))

    def flag(self, a: Arguments, side: int, place, outside, pair):
        """The flag of the item at a place of the block's run; 0 if it lies outside."""
        length = Int32(a.counts[0])
        rest = place - Int32(quotient(Uint32(place), a.counts[0], a.factors[0], a.shifts[0])) * length
        edge = rest + 1 == length if side else rest == 0
        flag = self.guarded(outside if self.called else None, side, pair, (edge, Int64(rest + side), a.ends[side]))
        return choose(outside, Int32(0), Int32(flag))

    @cute.jit
    def keep(self, votes, k: cutlass.Constexpr, place, flag):
        """Put the flags of a warp into shared memory."""
        word = Uint32(cute.arch.vote_ballot_sync(flag != 0))
        if place % LANES == 0:
            self.put(votes, k * self.words + place // LANES, word)

    @cute.jit
    def join(self, a: Arguments, votes, at, word):
        """Store a word of a row, which may lie in the last word of votes alone."""
        (first, row, count), length = at, Int32(a.counts[0])
        begin = row * length + word * LANES
        held = begin // LANES, cutlass.min(begin // LANES + 1, (count - 1) // LANES)
        valid = Uint32(0xFFFFFFFF) >> Uint32(LANES - cutlass.min(length - word * LANES, Int32(LANES)))
        for k in cutlass.range_constexpr(len(a.outs)):
            low, high = (self.read(votes, k * self.words + place) for place in held)
            value = funnel_shift(low, high, begin % LANES) & valid
            steps = a.steps[1 + k]
            self.put(a.outs[k], (first + row) * steps[1] + Int64(word) * steps[0], value)

    @staticmethod
    def read(votes, place):
        return cute.make_tensor(votes + place, cute.make_layout((1,)))[0]
