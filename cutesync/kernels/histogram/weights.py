"""Sums of weights that are the same in every run: fixed-point numbers, whose order of addition does not matter. Device
code.

    limits      the least and the largest exponent of all weights  (of float32 and shorter types, if there are many)
    exponents   the largest exponent of a bin's weights            (not for types of few bits; not where those are near)
    sums        each weight as two integers, added to the bin's     in shared or global memory, by atomics; for few bins
                                                                    lanes of a warp have sums of their own
    finish      the two sums as one number, rounded once

A weight w of a bin whose weights are below 2**e is rounded to ``(high * 2**d + low) * 2**(e - 2d)``: ``high`` is the
integer nearest to ``w * 2**(d - e)``, and ``low`` the one nearest to the rest, at that scale. With at most 2**k weights
and d = 62 - k no sum leaves 64 bits. So the sum of the rounded weights is exact; each differs from its weight by at
most ``2**(e - 2d - 1)``. It is the idea of reproducible summation in bins of exponents (Demmel and Nguyen 2013), with
one window of two words.

Words: the high sums, the low sums, then for each bin two 32-bit numbers: the biased exponent e + ``BIAS``, and bits
that tell of +infinity, -infinity and NaN. Such weights are not added. Exponents are at least so large that ``low`` has
no bits below those of the weights' type. The limits come last. If no weight has bits below the ``low`` of the largest
one, all bins may have its exponent: nothing is rounded then either, and sums are the same.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Float64, Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ...block.reduce import Reduce
from ...monoid import choose, convert, nonzero
from ...sync.overlap import let_next_start
from ..coordinates import element, store
from ..tiled import positions
from .base import Arguments, Elements, HistogramKernel, meet
from .kernel import Slots
from .policy import BIAS, SUM_BITS, SUM_WORDS, SumPolicy, short

FRACTION_BITS, SPECIAL = 52, 2047  # of float64
SHORT_FRACTION_BITS, SHORT_SPECIAL, SHORT_BIAS = 23, 255, 127  # of float32
EXPONENT_BIAS = 1023  # of float64, as stored
SUM_PIECES = 3  # of ``PIECE_BITS`` that a sum has
ENOUGH_COPIES = 8  # of sums: with fewer, a warp whose elements have one bin adds them first
UP, DOWN, NONE = 1, 2, 4  # a bin has +infinity, -infinity, NaN


def exponent_of(weight) -> Any:
    """The biased exponent of a float64: it is below ``2**(result - 1022)``."""
    return Int32((weight.bitcast(Int64) >> FRACTION_BITS) & SPECIAL)


def scaled(value, exponent) -> Any:
    """``value * 2**exponent``, in two steps: each factor is a normal number."""
    for part in (exponent >> 1, exponent - (exponent >> 1)):
        value = value * (Int64(part + (BIAS + 1)) << FRACTION_BITS).bitcast(Float64)
    return value


def nearest(value) -> Any:
    """The nearest integer; the even one of two."""
    return cute.arch.inline_ptx("cvt.rni.s64.f64 {$w0}, {$r0};", write_only_types=[Int64], read_only_args=[value])


def notes(a: Arguments) -> Any:
    """The 32-bit numbers of bins: an exponent, and bits of special weights."""
    address = (a.words + 2 * Int64(a.bins)).toint()
    return cute.make_ptr(Int32, address, cute.AddressSpace.gmem, assumed_align=4)


def short_field(weight) -> Any:
    """The exponent of a float32 as it is stored."""
    return (Int32(Float32(weight).bitcast(Int32)) >> SHORT_FRACTION_BITS) & SHORT_SPECIAL


def limits(a: Arguments) -> Any:
    """The largest exponent of all weights, and ``SPECIAL`` less the smallest one, if they are looked for; else 0."""
    return notes(a) + 2 * Int64(a.bins)


def near(a: Arguments, most, least) -> Any:
    """Whether no weight (float32) between these limits has bits below the ``low`` of the largest one."""
    return most + least - SPECIAL <= 2 * a.digits - (SHORT_FRACTION_BITS + 1)


@cute.jit
def common(a: Arguments, weights: cutlass.Constexpr):
    """The exponent of the sums of all bins, if these need no other ones as no weight is rounded with it; else -1."""
    found = Int32(-1)
    if cutlass.const_expr(short(weights)):
        most, least = Int32(element(limits(a))), Int32(element(limits(a) + 1))
        if (most > 0) & near(a, most, least):
            found = cutlass.max(most, Int32(a.exponent))
    return found


class Sums(Elements):
    """The sums of weights, as pairs of integers. In shared memory, where atomics have 32 bits, a sum is two words: an
    addition to the lower one tells whether it carries. Lanes of a warp may have ``copies`` of sums, so that those of a
    frequent bin do not meet."""

    policy: SumPolicy

    def __init__(self, counting: Any, policy: Any) -> None:
        super().__init__(counting, policy)
        self.slots = Slots(policy.slots, policy.threads, SUM_WORDS)
        self.copies = getattr(policy, "copies", 1)
        self.room = (policy.shared or policy.slots) * self.copies

    @cute.jit
    def body(self, a: Arguments):
        thread, copies = cute.arch.thread_idx()[0], self.copies
        if cutlass.const_expr(self.counting.counted):
            a = a._replace(length=positions(a.length, a.n))
        everywhere = common(a, self.counting.weights)
        if cutlass.const_expr(self.policy.shared > 0):
            size = self.policy.shared
            words = SmemAllocator().allocate_array(Int32, SUM_WORDS * copies * size, byte_alignment=16)
            exponents = SmemAllocator().allocate_array(Int32, size, byte_alignment=16)
            for i in cutlass.range(thread, SUM_WORDS * copies * size, self.threads, unroll=1):
                store(words + i, Int32(0))
            for i in cutlass.range(thread, a.width, self.threads, unroll=1):
                store(exponents + i, self.exponent(a, everywhere, a.first + i))
            cute.arch.sync_threads()
            self.visit_all(a, (words, exponents))
            cute.arch.sync_threads()
            let_next_start()
            for i in cutlass.range(thread, a.width, self.threads, unroll=1):
                for half in cutlass.range_constexpr(2):
                    self.add(a, a.first + i, half, self.total(words, i, half))
        else:
            self.add_directly(a, everywhere)

    @cute.jit
    def add_directly(self, a: Arguments, everywhere):
        """Add to sums in global memory, but for those of frequent bins."""
        held = self.slots.make(a.block)
        self.visit_all(a, (held, everywhere))
        cute.arch.sync_threads()
        let_next_start()
        for i in cutlass.range(cute.arch.thread_idx()[0], self.policy.slots, self.threads, unroll=1):
            bin = Int32(element(held.bins + i))
            for half in cutlass.range_constexpr(2):
                self.add(a, bin, half, self.total(held.words, i, half))

    @cute.jit
    def exponent(self, a: Arguments, everywhere, i):
        """The exponent of the sums of bin ``i``; that of all bins, unless it is -1."""
        found = Int32(everywhere)
        if found < 0:
            found = cutlass.max(Int32(a.exponent), Int32(element(notes(a) + 2 * Int64(i))))
        return found

    @cute.jit
    def visit(self, a: Arguments, memory: Any, item: tuple):
        value, weight, exists = item
        found, counts = self.bin_of(value, a)
        counts = Boolean(counts & exists)
        exponent = Int32(a.exponent)
        if counts:
            if cutlass.const_expr(self.policy.shared > 0):
                exponent = Int32(element(memory[1] + found))
            else:
                exponent = self.exponent(a, memory[1], found)
        counts = self.finite(a, a.first + found, weight, counts)
        weight = choose(counts, weight, type(weight)(0))
        high, low = self.fixed(weight, a.digits + BIAS - exponent, a.digits)
        if cutlass.const_expr(self.copies < ENOUGH_COPIES):
            counts, (high, low) = meet(found, counts, (high, low), SUM_PIECES)
        if counts:
            if cutlass.const_expr(self.policy.shared > 0):
                self.add_shared(memory[0], found, 0, high)
                self.add_shared(memory[0], found, 1, low)
            else:
                slot, mine = self.slots.find(memory[0], found)
                if mine:
                    self.add_shared(memory[0].words, slot, 0, high)
                    self.add_shared(memory[0].words, slot, 1, low)
                else:
                    self.add(a, found, 0, high)
                    self.add(a, found, 1, low)

    @cute.jit
    def finite(self, a: Arguments, place, weight, counts) -> Boolean:
        """Whether an element counts whose weight is finite; others are noted for their bin."""
        if counts & (weight - weight != 0):
            kind = choose(weight != weight, Int32(NONE), choose(weight > 0, Int32(UP), Int32(DOWN)))
            cute.arch.atomic_or(notes(a) + (2 * Int64(place) + 1), kind, sem="relaxed", scope="gpu")
            counts = Boolean(False)
        return counts

    @cute.jit
    def fixed(self, weight, scale, digits):
        """The integer nearest to a finite weight times ``2**scale``, and that nearest to ``2**digits`` times the rest.
        A short weight with a rest takes float64 too: in 64-bit integers, wide ones take 1.05 to 1.12 of the time."""
        if cutlass.const_expr(short(self.counting.weights)):
            bits, field = Int32(Float32(weight).bitcast(Int32)), short_field(weight)
            fraction = bits & ((1 << SHORT_FRACTION_BITS) - 1)
            fraction = choose(field != 0, fraction | (1 << SHORT_FRACTION_BITS), fraction)
            shift = cutlass.max(field, Int32(1)) - (SHORT_BIAS + SHORT_FRACTION_BITS) + scale
            signed = Int64(choose(bits < 0, -fraction, fraction))
            high, low = signed << Int64(cutlass.min(cutlass.max(shift, Int32(0)), Int32(SUM_BITS))), Int64(0)
            if (shift < 0) & (fraction != 0):
                high, low = self.rounded(Float64(weight), scale, digits)
        else:
            high, low = self.rounded(Float64(weight), scale, digits)
        return high, low

    def rounded(self, weight, scale, digits) -> tuple:
        """As ``fixed``."""
        weight = scaled(weight, scale)
        high = nearest(weight)
        return high, nearest(scaled(weight - Float64(high), digits))

    def place(self, i, half: int):
        """The index of the lower word of this lane's copy of a sum in shared memory, and how far the upper one is."""
        copy = Int32(cute.arch.lane_idx()) & (self.copies - 1)
        return i * self.copies + copy + 2 * half * self.room, self.room

    @cute.jit
    def add_shared(self, words, found, half: cutlass.Constexpr, number):
        """Add a number to a sum in shared memory."""
        if number != 0:
            place, size = self.place(found, half)
            lower, upper = Uint32(number & 0xFFFFFFFF), Int32(number >> 32)
            before = Uint32(cute.arch.atomic_add(words + place, Int32(lower), sem="relaxed", scope="cta"))
            upper += Int32(before + lower < lower)
            cute.arch.atomic_add(words + (place + size), upper, sem="relaxed", scope="cta")

    @cute.jit
    def total(self, words, i, half: cutlass.Constexpr):
        """The sum of all copies of a sum."""
        place, size = self.place(i, half)
        found = Int64(0)
        for turn in cutlass.range_constexpr(self.copies):
            one = place ^ turn  # each lane begins with its own copy
            found += (Int64(element(words + (one + size))) << 32) + (Int64(element(words + one)) & 0xFFFFFFFF)
        return found

    @cute.jit
    def add(self, a: Arguments, i, half: cutlass.Constexpr, number):
        """Add a number to a sum in global memory."""
        if number != 0:
            place = a.words + (Int64(a.bins) * half + i)
            cute.arch.atomic_add(place, number, sem="relaxed", scope="gpu")


class Finish(HistogramKernel):
    """Results of sums: of weights, rounded once to float64 and then to the result's type, or of counts."""

    @cute.jit
    def body(self, a: Arguments):
        at = cute.arch.block_idx()[0] * self.threads + cute.arch.thread_idx()[0]
        result = self.counting.result
        if at < a.bins:
            value = Float64(Int64(element(a.words + at)))
            if cutlass.const_expr(self.counting.weights is not None):
                value = self.total(a, at)
            if cutlass.const_expr(result.kind == "b"):
                store(a.out + at, result.cutlass(nonzero(value)))
            elif cutlass.const_expr(result.size == 2 and result.kind == "f"):
                store(a.out + at, result.cutlass(Float32(value)))
            else:
                store(a.out + at, convert(value, result.cutlass))

    @cute.jit
    def total(self, a: Arguments, at):
        """The sum of a bin's weights."""
        high, low = Int64(element(a.words + at)), Int64(element(a.words + (Int64(a.bins) + at)))
        numbers = notes(a) + 2 * Int64(at)
        exponent = common(a, self.counting.weights)
        if exponent < 0:
            exponent = cutlass.max(Int32(a.exponent), Int32(element(numbers)))
        special = Int32(element(numbers + 1))
        digits = Int64(a.digits)
        mask = (Int64(1) << digits) - 1
        high += low >> digits
        low = low & mask
        negative = high < 0
        if negative:  # a magnitude
            high = choose(low > 0, -high - 1, -high)
            low = -low & mask
        upper, lower = Int32(high >> 32), Int32(high & 0xFFFFFFFF)
        zeros = choose(upper != 0, Int32(cute.arch.clz(upper)), 32 + Int32(cute.arch.clz(lower)))
        taken = Int64(cutlass.min(zeros - 1, Int32(a.digits)))
        rest = digits - taken
        lost = choose((low & ((Int64(1) << rest) - 1)) != 0, Int64(1), Int64(0))  # so that rounding sees all bits
        value = Float64((high << taken) | (low >> rest) | lost)
        value = scaled(scaled(value, -Int32(taken)), exponent - BIAS - a.digits)
        value = choose(negative, -value, value)
        infinite = choose((special & UP) != 0, Float64(float("inf")), Float64(float("-inf")))
        value = choose((special & (UP | DOWN)) != 0, infinite, value)
        both = (special & (UP | DOWN)) == (UP | DOWN)
        return choose(both | ((special & NONE) != 0), Float64(float("nan")), value)


class Total(HistogramKernel):
    """The sum of all results, in ``words``. One block, in the order of its threads."""

    @cute.jit
    def body(self, a: Arguments):
        thread = cute.arch.thread_idx()[0]
        total = Float64(0)
        for i in cutlass.range(thread, a.bins, self.threads, unroll=1):
            total += Float64(element(a.out + i))
        total = Reduce(Float64, (self.threads, 1, 1))(total)
        if thread == 0:
            store(a.words, total.bitcast(Int64))


class Density(HistogramKernel):
    """Results divided by the widths of their bins and by the sum of all."""

    @cute.jit
    def body(self, a: Arguments):
        at = cute.arch.block_idx()[0] * self.threads + cute.arch.thread_idx()[0]
        if at < a.bins:
            width = Float64(element(a.edges + (at + 1))) - Float64(element(a.edges + at))
            total = Int64(element(a.words)).bitcast(Float64)
            store(a.out + at, Float64(element(a.out + at)) / width / total)
