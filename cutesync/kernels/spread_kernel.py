"""The kernel of ``spread``: copies of one slice of results, behind it in memory. Device code.

A slice of ``inner`` neighbours is followed by ``span`` elements, which repeat it. A thread stores vectors of 16 bytes
on their boundaries; the first and the last of a span may be partly outside of it, and are stored element by element.
The elements of a slice that is whole vectors are loaded as vectors, out of the caches. Those of a vector inside of
another slice are joined from words if it is long, those at its ends are loaded one by one.

Short slices would have few whole vectors behind them. There the span includes the slice itself, all of it in one block,
which stores after a barrier what it has loaded.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
from cutlass import Int32, cute

from ..monoid import choose
from ..sync.overlap import let_next_start
from .coordinates import Axes, element, quotient
from .hardware import VECTOR_BYTES, WORD_BYTES
from .plain import PlainKernel
from .spread import MIN_VECTORS, THREADS, UNROLL, SpreadPolicy
from .words import words_from

Arguments = namedtuple("Arguments", "out count span inner factor shift axes")
# A vector: where its slice begins, and the place of its first element in the span, which is below 0 outside of it.
Unit = namedtuple("Unit", "slice place")


class Spread(PlainKernel):
    """The kernel. Slices have numbers along ``axes``, the last of which counts the vectors of a span."""

    name, threads = "spread", THREADS

    def __init__(self, policy: SpreadPolicy) -> None:
        self.policy = policy
        self.vector = VECTOR_BYTES // policy.size

    @cute.jit
    def main(self, out: cute.Pointer, count, span, inner, factor, shift, axes: tuple):
        let_next_start()
        a = Arguments(out, count, span, inner, factor, shift, Axes(axes, self.policy.rank, 2))
        first = cute.arch.block_idx()[0] * (THREADS * UNROLL) + cute.arch.thread_idx()[0]
        numbers = [first + u * THREADS for u in range(UNROLL)]
        units = [self.unit(a, cutlass.min(number, count - 1)) for number in numbers]
        if cutlass.const_expr(self.policy.short):
            self.store_short(a, numbers, units)
        else:
            self.store_long(a, numbers, units)

    @cute.jit
    def store_short(self, a: cutlass.Constexpr, numbers: cutlass.Constexpr, units: cutlass.Constexpr):
        """Store vectors over the slices that they are loaded from."""
        loaded = [self.load(a, unit) for unit in units]
        cute.arch.sync_threads()
        for number, unit, registers in zip(numbers, units, loaded):
            if number < a.count:
                cute.autovec_copy(registers, self.aligned(unit.slice + unit.place))

    @cute.jit
    def store_long(self, a: cutlass.Constexpr, numbers: cutlass.Constexpr, units: cutlass.Constexpr):
        """Store vectors behind the slices."""
        whole = numbers[-1] < a.count
        for unit in units:
            whole = whole & (unit.place >= 0) & (unit.place + self.vector <= a.span)
        if whole:
            loaded = [cute.make_rmem_tensor((self.vector,), unit.slice.value_type) for unit in units]
            for unit, registers in zip(units, loaded):
                self.load_some(a, unit, registers)
            for unit, registers in zip(units, loaded):
                cute.autovec_copy(registers, self.aligned(unit.slice + (unit.place + a.inner)))
        else:
            for number, unit in zip(numbers, units):
                self.store_some(a, unit, number < a.count)

    def unit(self, a: Arguments, number) -> Unit:
        """The vector of a number. Vectors begin on the last boundary before the span."""
        far, place = a.axes.offsets(number)
        start = a.out + far
        if self.policy.short:
            return Unit(start, Int32(place))
        head = (start + a.inner).toint() // self.policy.size % self.vector
        return Unit(start, Int32(place) - Int32(head))

    def rest(self, a: Arguments, place):
        """The place in the slice of an element of the span."""
        return place - quotient(place, a.inner, a.factor, a.shift) * a.inner

    def aligned(self, start):
        kind = start.value_type
        at = cute.make_ptr(kind, start.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
        return cute.make_tensor(at, cute.make_layout((self.vector,)))

    def load(self, a: Arguments, unit: Unit):
        """The elements of a vector inside the span."""
        registers = cute.make_rmem_tensor((self.vector,), unit.slice.value_type)
        self.load_at(a, unit.slice, self.rest(a, unit.place), registers)
        return registers

    def load_at(self, a: Arguments, start, place, registers) -> None:
        if self.policy.whole:
            cute.autovec_copy(self.aligned(start + place), registers)
            return
        for i in range(self.vector):
            registers[i] = element(start + place)
            place = choose(place + 1 == a.inner, Int32(0), place + 1)

    @cute.jit
    def load_some(self, a: cutlass.Constexpr, unit: cutlass.Constexpr, registers: cute.Tensor):
        """Load the elements of a vector inside the span: one if the slice has no more, words if all of these lie inside
        of the slice."""
        place = self.rest(a, unit.place)
        if cutlass.const_expr(not self.policy.whole):
            beside = WORD_BYTES // min(self.policy.size, WORD_BYTES)
            inside = (place >= beside) & (place + (self.vector + beside) <= a.inner)
            if a.inner == 1:
                value = element(unit.slice)
                for i in cutlass.range_constexpr(self.vector):
                    registers[i] = value
            elif inside & (a.inner >= MIN_VECTORS * self.vector):
                words = cute.recast_tensor(registers, Int32)
                for i, word in enumerate(words_from(unit.slice + place, self.policy.size)):
                    words[i] = word
            else:
                self.load_at(a, unit.slice, place, registers)
        else:
            self.load_at(a, unit.slice, place, registers)

    @cute.jit
    def store_some(self, a: cutlass.Constexpr, unit: Unit, exists):
        """Store the elements of a vector that lie in the span."""
        for i in cutlass.range(self.vector, unroll=1):
            at = unit.place + i
            if exists & (at >= 0) & (at < a.span):
                value = element(unit.slice + self.rest(a, at))
                cute.make_tensor(unit.slice + (at + a.inner), cute.make_layout((1,)))[0] = value
