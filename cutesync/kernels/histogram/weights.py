"""Sums of weights that are the same in every run: fixed-point numbers, whose order of addition does not matter. Device
code.

    exponents   the largest exponent of a bin's weights            (not for types of few bits)
    sums        each weight as two integers, added to the bin's     in shared or global memory, by atomics
    finish      the two sums as one number, rounded once

A weight w of a bin whose weights are below 2**e is rounded to ``(high * 2**d + low) * 2**(e - 2d)``: ``high`` is the
integer nearest to ``w * 2**(d - e)``, and ``low`` the one nearest to the rest, at that scale. With at most 2**k weights
and d = 62 - k no sum leaves 64 bits. So the sum of the rounded weights is exact; each differs from its weight by at
most ``2**(e - 2d - 1)``. It is the idea of reproducible summation in bins of exponents (Demmel and Nguyen 2013), with
one window of two words.

Words: the high sums, the low sums, then for each bin two 32-bit numbers: the biased exponent e + ``BIAS``, and bits
that tell of +infinity, -infinity and NaN. Such weights are not added. Exponents are at least so large that ``low`` has
no bits below those of float64.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Float64, Int32, Int64

from ...block.reduce import Reduce
from ...monoid import choose, convert, nonzero
from ...warp import reduce_commutative
from ..coordinates import element, store
from .base import Arguments, Elements, HistogramKernel, agree
from .policy import BIAS

FRACTION_BITS, SPECIAL = 52, 2047  # of float64
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


class Exponents(Elements):
    """The largest exponent of the finite weights of each bin."""

    def whole(self, a: Arguments):
        return notes(a)

    def flush(self, a: Arguments, i, found) -> None:
        cute.arch.atomic_max(notes(a) + 2 * Int64(i), found, sem="relaxed", scope="gpu")

    @cute.jit
    def visit(self, a: Arguments, largest, item: tuple):
        value, weight, exists = item
        found, counts = self.bin_of(value, a)
        exponent = exponent_of(weight)
        if counts & exists & (exponent > 0) & (exponent < SPECIAL):
            if cutlass.const_expr(self.policy.shared > 0):
                cute.arch.atomic_max(largest + found, exponent, sem="relaxed", scope="cta")
            else:
                cute.arch.atomic_max(largest + 2 * Int64(found), exponent, sem="relaxed", scope="gpu")


class Sums(Elements):
    """The sums of weights, as pairs of integers."""

    word, words = Int64, 2

    def whole(self, a: Arguments):
        return a.words

    def flush(self, a: Arguments, i, found) -> None:
        cute.arch.atomic_add(a.words + i, found, sem="relaxed", scope="gpu")

    @cute.jit
    def visit(self, a: Arguments, sums, item: tuple):
        value, weight, exists = item
        found, counts = self.bin_of(value, a)
        counts = counts & exists
        numbers = notes(a) + 2 * Int64(found)
        exponent = Int32(a.exponent)
        if counts:
            exponent = cutlass.max(exponent, Int32(element(numbers)))
        if counts & (exponent_of(weight) == SPECIAL):
            kind = choose(weight != weight, Int32(NONE), choose(weight > 0, Int32(UP), Int32(DOWN)))
            cute.arch.atomic_or(numbers + 1, kind, sem="relaxed", scope="gpu")
        counts = counts & (exponent_of(weight) < SPECIAL) & (weight != 0)
        weight = scaled(choose(counts, weight, Float64(0)), a.digits + BIAS - exponent)
        high = nearest(weight)
        low = nearest(scaled(weight - Float64(high), a.digits))
        same, leader = agree(found, counts)
        if same:
            high, low = reduce_commutative((high, low), lambda u, v: (u[0] + v[0], u[1] + v[1]))
            counts = Boolean(Int32(cute.arch.lane_idx()) == leader)
        if counts:
            self.add(sums + found, high)
            self.add(sums + (Int64(a.bins) + found), low)

    def add(self, pointer, number) -> None:
        scope: Any = "cta" if self.policy.shared else "gpu"
        cute.arch.atomic_add(pointer, number, sem="relaxed", scope=scope)


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
