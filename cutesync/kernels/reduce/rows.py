"""Reduction of many short rows (up to 512 bytes): a few neighbouring lanes reduce a row, with several rows in flight.

With ``vectors`` the rows start on 16-byte boundaries and a lane loads some vectors of its row, side by side; otherwise
a lane reduces a run of single elements. Lanes of a row are neighbours and hold its elements in order, so any
associative operator works.
"""

from __future__ import annotations

import math

import cutlass
from cutlass import Int16, Int32, Int64, cute

from ...monoid import ArgMonoid, tree
from ...sync.overlap import let_next_start
from ...warp import LANES, exchange, reduce_valid
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES
from ..words import four_words, word_of_range
from .base import Arguments, ContiguousKernel
from .chunk import WORDS, aligned_words
from .orders import AnyOrder
from .packed import of_vector, of_vectors, without_effect
from .problem import ShortRowPolicy, WholeRowPolicy


def bits_below(count):
    """A word whose first ``count`` bytes, of 4 at most and of none below 0, have all bits."""
    bits = cutlass.min(cutlass.max(count, Int32(0)), Int32(4)) * 8
    return Int32((Int64(1) << Int64(bits)) - 1)


class ShortRowReduce(ContiguousKernel):
    """The kernel: ``group`` lanes (a power of two) a row, ``unroll`` rows a group.

    A warp's rows are consecutive: step u of a warp covers rows ``LANES // group * u`` and on.
    """

    def __init__(self, monoid, has_init: bool, policy: ShortRowPolicy) -> None:
        super().__init__(monoid, has_init, policy.warps * LANES, 0, 1)
        self.vectors, self.group, self.unroll, self.warps = policy.vectors, policy.group, policy.unroll, policy.warps
        self.masked, self.each = policy.masked, policy.each

    @property
    def rows_per_block(self) -> int:
        return self.warps * (LANES // self.group) * self.unroll

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        lane = thread % LANES
        first = (
            Int64(block) * self.rows_per_block
            + (thread // LANES) * ((LANES // self.group) * self.unroll)
            + lane // self.group
        )
        if cutlass.const_expr(self.vectors):
            self.fold_vectors(a, first, lane)
        elif cutlass.const_expr(self.masked > 0):
            self.fold_masked(a, first, lane)
        else:
            self.fold_elements(a, first, lane)

    @cute.jit
    def fold_vectors(self, a: Arguments, first, lane):
        length = Int32(a.length)
        member = lane % self.group
        size = self.each * VECTOR_BYTES // self.monoid.source.size
        count = length // size
        words = cute.make_rmem_tensor((self.each * WORDS, self.unroll), Int32)
        step = LANES // self.group
        for u in cutlass.range_constexpr(self.unroll):
            if (first + u * step < a.outer) & (member < count):
                at = aligned_words(a.x + (first + u * step) * length + member * size)
                cute.autovec_copy(cute.make_tensor(at, cute.make_layout((self.each * WORDS,))), words[(None, u)])
        for u in cutlass.range_constexpr(self.unroll):
            state = self.monoid.nothing()
            if member < count:
                state = of_vector(self.monoid, words[(None, u)], member * size)
            total = reduce_valid(state, count, self.monoid.combine, lane, self.group)
            self.store(a, first + u * step, total, member)

    @cute.jit
    def fold_elements(self, a: Arguments, first, lane):
        length = Int32(a.length)
        member = lane % self.group
        each = (length + self.group - 1) // self.group
        begin = member * each
        stop = cutlass.min(begin + each, length)
        step = LANES // self.group
        rows = [cutlass.min(first + u * step, a.outer - 1) * length for u in range(self.unroll)]
        state = tuple(self.lifted(a.x, rows, cutlass.min(begin, length - 1)))
        for i in range(begin + 1, stop):
            loaded = self.lifted(a.x, rows, i)
            state = tuple(self.monoid.combine(p, q) for p, q in zip(state, loaded))
        used = (length + each - 1) // each
        for u in cutlass.range_constexpr(self.unroll):
            total = reduce_valid(state[u], used, self.monoid.combine, lane, self.group)
            self.store(a, first + u * step, total, member)

    @cute.jit
    def fold_masked(self, a: Arguments, first, lane):
        member = lane % self.group
        size = self.monoid.source.size
        count = Int32(a.length) * size
        end = (a.x + a.outer * a.length).toint()
        step = LANES // self.group
        starts = [(a.x + cutlass.min(first + u * step, a.outer - 1) * a.length).toint() for u in range(self.unroll)]
        loads = [(start, member + k * self.group) for start in starts for k in range(self.masked)]
        words = cute.make_rmem_tensor((WORDS, self.unroll * self.masked), Int32)
        for i, (start, number) in enumerate(loads):
            at = (start & -VECTOR_BYTES) + number * VECTOR_BYTES
            if at + VECTOR_BYTES <= end:
                if at < start + count:
                    cute.autovec_copy(four_words(at, cute.AddressSpace.gmem), words[(None, i)])
            else:  # the last vector of the array, or one behind it
                for w in cutlass.range_constexpr(WORDS):
                    words[w, i] = Int32(word_of_range(at + 4 * w, Int32(0), Int32(cutlass.min(end - (at + 4 * w), 4))))
        skews = [Int32(start & (VECTOR_BYTES - 1)) for start in starts]
        for u in cutlass.range_constexpr(self.unroll):
            vectors = []
            for k in cutlass.range_constexpr(self.masked):
                begin = (member + k * self.group) * VECTOR_BYTES - skews[u]
                vectors.append(self.own(words[(None, u * self.masked + k)], begin, count))
            combine = self.monoid.combine
            if cutlass.const_expr(isinstance(self.monoid, ArgMonoid)):
                combine, shift = AnyOrder(self.monoid, Int32).combine, self.monoid.source.size - 1
                places = [(member + k * self.group) * VECTOR_BYTES - skews[u] for k in range(self.masked)]
                found = [of_vector(self.monoid, words, place >> shift) for words, place in zip(vectors, places)]
                state = tree(found, combine)
            else:
                state = of_vectors(self.monoid, vectors)
            for log in cutlass.range_constexpr(self.group.bit_length() - 1):
                state = combine(state, exchange(state, 1 << log))
            if cutlass.const_expr(isinstance(self.monoid, ArgMonoid)):  # none that counts is before the first
                state = (state[0], cutlass.max(state[1], Int32(0)))
            self.store(a, first + u * step, state, member)

    def own(self, words, begin, count):
        """The words of a vector that begins at byte ``begin`` of a row of ``count`` bytes: what is not of the row has
        no effect."""
        found = cute.make_rmem_tensor((WORDS,), Int32)
        other = without_effect(self.monoid)
        for w in range(WORDS):
            place = begin + 4 * w
            behind = bits_below(count - place)
            mask = behind & (bits_below(-place) ^ -1)
            found[w] = (words[w] & mask) | ((mask ^ -1) & other)
        return found

    def lifted(self, x, rows, i):
        """Element ``i`` of every row of this lane, as states; all loads come before the first use."""
        one = cute.make_layout((1,))
        values = [tuple(cute.make_tensor(p, one)[0] for p in pointers_of(x + (row + i))) for row in rows]
        return [self.monoid.lift(*value, i) for value in values]

    @cute.jit
    def store(self, a: Arguments, row, state, member):
        if (member == 0) & (row < a.outer):
            self.store_result(a, row, self.monoid.place(state, Int64(0)))


class WholeRowReduce(ContiguousKernel):
    """The kernel for rows of a few elements: a lane loads whole vectors of whole rows, and reduces each row alone.

    ``length`` is known to the compiler. A lane's ``lane_bytes``, of which ``unroll`` times are in flight, hold
    ``per_lane`` rows; ``x`` lies on a 16-byte boundary.
    """

    def __init__(self, monoid, has_init: bool, policy: WholeRowPolicy) -> None:
        super().__init__(monoid, has_init, policy.warps * LANES, 0, 1)
        self.unroll, self.aligned_out = policy.unroll, policy.aligned_out
        self.word = Int32 if policy.lane_bytes % 4 == 0 else Int16
        self.length, self.lane_words = policy.length, policy.lane_bytes * 8 // self.word.width
        self.per_lane = policy.lane_bytes // (policy.length * monoid.source.size)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        first = (Int64(block) * (self.threads * self.unroll) + thread) * self.per_lane
        step = self.threads * self.per_lane
        if first + (step * (self.unroll - 1) + self.per_lane) <= a.outer:
            # the stride is stated: a mode of one element would get stride 0
            layout = cute.make_layout((self.lane_words, self.unroll), stride=(1, self.lane_words))
            words = cute.make_rmem_tensor(layout, self.word)
            align = math.gcd(self.lane_words * self.word.width // 8, VECTOR_BYTES)
            for u in cutlass.range_constexpr(self.unroll):
                start = (a.x + (first + u * step) * self.length).toint()
                start = cute.make_ptr(self.word, start, cute.AddressSpace.gmem, assumed_align=align)
                cute.autovec_copy(cute.make_tensor(start, cute.make_layout((self.lane_words,))), words[(None, u)])
            for u in cutlass.range_constexpr(self.unroll):
                elements = cute.recast_tensor(words[(None, u)], self.monoid.source.cutlass)
                self.store_rows(a, first + u * step, elements)
        else:
            for u in range(self.unroll):
                row = first + u * step
                stop = cutlass.min(row + self.per_lane, a.outer)
                while row < stop:
                    tensor = cute.make_tensor(a.x + row * self.length, cute.make_layout((self.length,)))
                    self.store_result(a, row, self.aggregate(tensor, 0))
                    row += 1

    def store_rows(self, a: Arguments, first, elements):
        states = [self.aggregate(elements, r * self.length) for r in range(self.per_lane)]
        self.store_results(a, first, states, self.aligned_out)

    def aggregate(self, elements, first):
        """The aggregate of the row whose first element is ``elements[first]``."""
        state = self.monoid.run([elements[first + i] for i in range(self.length)], Int32(0))
        return self.monoid.place(state, Int64(0))
