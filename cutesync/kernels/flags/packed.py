"""Flags as bits of rows of any length that lie side by side, or a little apart: a block has a run of words, of
whichever rows.

The elements of these words, and what lies between rows, are a run of memory, which threads load in vectors on their
boundaries, wherever rows and arrays begin. The flags of the run, of whatever rows, are bits in shared memory. After one
barrier, threads join each word of a row from two of them, and store words side by side. ``back``: arrays run backwards,
and so do vectors.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, Uint8, Uint16, Uint32, cute
from cutlass.memory import SmemAllocator

from ...monoid import choose, tree
from ...warp import LANES
from ..coordinates import quotient
from ..words import load_at, permuted
from . import words
from .strided import Arguments, StridedKernel
from .words import funnel_shift

BYTE = 8  # bits
BACKWARDS = 0x0123  # bytes of a word


class PackedFlags(StridedKernel):
    """The kernel. Digit 0 divides by the words of a row, digit 1 by the distance of rows; instead of the extent of its
    axis digit 0 has the words of a block. ``work`` counts words."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.unroll, self.back = policy.unroll, policy.back
        self.size = marking.source.size
        self.vector = words.VECTOR // self.size
        self.held = self.threads * self.unroll * self.vector // LANES  # words of flags in shared memory
        self.by_words = marking.compares_bytes and not any(self.given)
        self.smem = marking.outputs * self.held * 4 + 16

    @cute.jit
    def body(self, a: Arguments):
        """Flag the words of a block."""
        thread, block = Int32(cute.arch.thread_idx()[0]), Int64(cute.arch.block_idx()[0])
        bits = SmemAllocator().allocate_array(Uint32, self.marking.outputs * self.held, byte_alignment=16)
        first, pitch, length = block * a.extents[0], Int32(a.counts[1]), Int32(a.length)
        count = Int32(cutlass.min(a.work - first, a.extents[0]))
        row, begin = self.place(a, Int32(first))
        x = a.x + Int64(row) * a.steps[0][1]
        begin = begin - self.skew(x, begin)
        # places count from the begin of that row: those of the array, and of the block's words
        low = choose(row == 0, Int32(0), -pitch)
        top = Int32(cutlass.min((a.extents[1] - row) * pitch - (pitch - length), Int64(0x7FFFFFFF)))
        ahead, last = self.place(a, Int32(first) + (count - 1))
        end = (ahead - row) * pitch + cutlass.min(last + LANES, length)
        places = [begin + (thread + u * self.threads) * self.vector for u in range(self.unroll)]
        for k, flags in enumerate(self.flags(a, x, places, (low, top, end))):
            for u, part in enumerate(flags):
                self.keep(bits, k, thread + u * self.threads, part)
        cute.arch.sync_threads()
        for number in cutlass.range(thread, count, self.threads, unroll=1):
            ahead, at = self.place(a, Int32(first) + number)
            self.join(a, bits, first + number, (ahead - row) * pitch + at - begin, length - at)

    def place(self, a: Arguments, number) -> tuple:
        """The row of a word, and where its elements begin in it."""
        row = Int32(quotient(Uint32(number), a.counts[0], a.factors[0], a.shifts[0]))
        return row, (number - row * Int32(a.counts[0])) * LANES

    def start(self, x, place):
        """The pointer to the vector of the elements from a place on."""
        return x - (Int64(place) + (self.vector - 1)) if self.back else x + place

    def skew(self, x, place):
        """How many elements before a place a vector begins on its boundary."""
        address = self.start(x, place).toint()
        return Int32((-address if self.back else address) & (words.VECTOR - 1)) // self.size

    def flags(self, a: Arguments, x, places, limits) -> list:
        """The flags of the vectors at places, as the bits of a number each: a list for each output."""
        low, top, _ = limits
        loaded = [cute.make_rmem_tensor((words.VECTOR // words.BYTES,), Uint32) for _ in places]
        for place, vector in zip(places, loaded):
            self.fill(x, place, limits, vector)
        found = []
        for side in self.sides:
            shift, flags = self.vector if side else -1, []
            besides = [cutlass.max(cutlass.min(place + shift, top - 1), low) for place in places]
            others = [self.get(x, -Int64(beside) if self.back else beside) for beside in besides]
            for place, vector, other in zip(places, loaded, others):
                flags.append(self.compared_vector(a, side, place, (vector, other), (low, top)))
            found.append(flags)
        return found

    @cute.jit
    def fill(self, x, place, limits: cutlass.Constexpr, vector: cutlass.Constexpr):
        """Load the vector at a place, if it lies before the ``end`` of the block; of one that is not all in the array,
        the elements that are, each by itself."""
        low, top, end = limits
        if place < end:
            if (place >= low) & (place + self.vector <= top):
                at = cute.make_ptr(
                    Uint32, self.start(x, place).toint(), cute.AddressSpace.gmem, assumed_align=words.VECTOR
                )
                cute.autovec_copy(cute.make_tensor(at, vector.layout), vector)
            else:
                for i in cutlass.range_constexpr(words.VECTOR // words.BYTES):
                    vector[i] = self.word(x, place, i, (low, top))
        else:
            for i in cutlass.range_constexpr(words.VECTOR // words.BYTES):
                vector[i] = Uint32(0)

    def word(self, x, place, i: int, limits):
        """Word ``i`` of the vector at a place, of elements that are loaded by themselves: the nearest in place of those
        that there are not."""
        (low, top), found = limits, Uint32(0)
        for k in range(max(1, words.BYTES // self.size)):
            number = (words.BYTES * i) // self.size + k
            number = self.vector - 1 - number if self.back else number
            at = cutlass.max(cutlass.min(place + number, top - 1), low)
            start = x + (-Int64(at) if self.back else Int64(at))
            if self.size > words.BYTES:
                return load_at(Uint32, start.toint() + words.BYTES * i % self.size)
            found = found | (words.element(start, self.size) << (self.size * BYTE * k))
        return found

    def compared_vector(self, a: Arguments, side: int, place, held, limits):
        """The flags on a side of the vector at a place, as bits. ``held``: its words, and the element beside it. It has
        the end of one row at most."""
        (vector, other), pitch, length = held, Int32(a.counts[1]), Int32(a.length)
        number = place + pitch  # from 0 on
        rest = number - Int32(quotient(Uint32(number), a.counts[1], a.factors[1], a.shifts[1])) * pitch
        start = choose(rest == 0, Int32(0), pitch - rest)  # where a row begins, if it does in the vector
        edge = length - 1 - rest if side else start
        if self.by_words:
            keys = [words.keys(Uint32(vector[i]), self.marking.source) for i in range(words.VECTOR // words.KEYS)]
            keys = [permuted(key, key, Uint32(BACKWARDS)) for key in keys[::-1]] if self.back else keys
            bits = Int32(words.packed((words.tails if side else words.heads)(self.marking.op.name, keys, other)))
            return self.with_edge(bits, edge)
        elements = cute.recast_tensor(vector, self.marking.source.cutlass)
        items = [self.rule.lift(elements[i]) for i in range(self.vector)][:: -1 if self.back else 1]
        items = [*items, other] if side else [other, *items]
        asked = self.called or self.given[side]
        flags = []
        for i, pair in enumerate(zip(items, items[1:])):
            at, outside, index = place + i, None, Int64(0)
            if self.called:
                index = choose((rest > 0) & (start <= i), rest + i - pitch, rest + i)
                outside = (at < limits[0]) | (at >= limits[1]) | (index >= length)
                index = Int64(index + side)
            edges = edge == i if asked else None
            flags.append(Int32(self.guarded(outside, side, pair, (edges, index, a.ends[side]))))
        bits = tree([(flag << i,) for i, flag in enumerate(flags)], lambda a, b: (a[0] | b[0],))[0]
        return bits if asked else self.with_edge(bits, edge)

    def with_edge(self, bits, edge):
        """The bits of a vector with that of the end of a row, if it has one."""
        return choose(Uint32(edge) < self.vector, bits | (Int32(1) << (edge & (LANES - 1))), bits)

    @cute.jit
    def keep(self, bits, k: cutlass.Constexpr, number, part):
        """Put the flags of a vector into shared memory; those that make a byte together, with their neighbours."""
        group = BYTE // self.vector
        if cutlass.const_expr(group > 1):
            part = part << ((number % group) * self.vector)
            for log in range((group - 1).bit_length()):
                part = part | cute.arch.shuffle_sync_bfly(part, offset=1 << log)
            if number % group == 0:
                self.put(cute.recast_ptr(bits + k * self.held, dtype=Uint8), number // group, Uint8(part))
        else:
            kind = Uint8 if self.vector == BYTE else Uint16
            self.put(cute.recast_ptr(bits + k * self.held, dtype=kind), number, kind(part))

    @cute.jit
    def join(self, a: Arguments, bits, number, place, left):
        """Store a word, whose flags begin at a ``place`` of the block's; ``left`` of its row."""
        held = place // LANES, cutlass.min(place // LANES + 1, Int32(self.held - 1))
        valid = Uint32(0xFFFFFFFF) >> Uint32(LANES - cutlass.min(left, Int32(LANES)))
        for k in cutlass.range_constexpr(len(a.outs)):
            low, high = (self.read(bits, k * self.held + place) for place in held)
            self.put(a.outs[k], number, funnel_shift(low, high, place % LANES) & valid)

    @staticmethod
    def read(bits, place):
        return cute.make_tensor(bits + place, cute.make_layout((1,)))[0]
