"""The kernel of ``spread`` that stores all results from an array that has each once. Device code.

Results are one run of memory, in which ``inner`` neighbours come ``copies`` times, then the next ones. A thread stores
vectors of 16 bytes on their boundaries; the first and the last may be partly outside of the run, and are stored element
by element.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
from cutlass import Int32, Uint32, cute

from ..monoid import choose
from ..sync.overlap import let_next_start
from .coordinates import element, quotient, store
from .hardware import VECTOR_BYTES, WORD_BYTES
from .plain import PlainKernel
from .spread import THREADS, UNROLL, DensePolicy
from .words import joined

Arguments = namedtuple("Arguments", "x out copies copies_factor copies_shift count inner inner_factor inner_shift")
# Of a result: the slice of neighbours, the copy of it, and the place in it.
Place = namedtuple("Place", "slice copy at")

REPEATED = {1: 0x01010101, 2: 0x00010001}  # by which an element of so many bytes fills a word


class DenseSpread(PlainKernel):
    """The kernel."""

    name, threads = "spread_dense", THREADS

    def __init__(self, policy: DensePolicy) -> None:
        self.policy = policy
        self.vector = VECTOR_BYTES // policy.size

    def arguments(self, *given) -> Arguments:
        return Arguments(*given)

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        let_next_start()
        first = cute.arch.block_idx()[0] * (THREADS * UNROLL) + cute.arch.thread_idx()[0]
        head = Int32(a.out.toint() // self.policy.size % self.vector)
        begins = [(first + u * THREADS) * self.vector - head for u in range(UNROLL)]
        if (begins[0] >= 0) & (begins[-1] + self.vector <= a.count):
            loaded = [self.load(a, begin) for begin in begins]
            for begin, registers in zip(begins, loaded):
                kind, at = a.out.value_type, (a.out + begin).toint()
                target = cute.make_ptr(kind, at, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
                cute.autovec_copy(registers, cute.make_tensor(target, cute.make_layout((self.vector,))))
        else:
            for begin in begins:
                for i in cutlass.range(self.vector, unroll=1):
                    if (begin + i >= 0) & (begin + i < a.count):
                        place = self.place(a, begin + i)
                        store(a.out + (begin + i), element(a.x + (place.slice * a.inner + place.at)))

    def place(self, a: Arguments, number) -> Place:
        beside = quotient(number, a.inner, a.inner_factor, a.inner_shift)
        found = quotient(beside, a.copies, a.copies_factor, a.copies_shift)
        return Place(found, beside - found * a.copies, number - beside * a.inner)

    def load(self, a: Arguments, begin):
        """The results of a vector."""
        registers = cute.make_rmem_tensor((self.vector,), a.x.value_type)
        place, loads = self.place(a, begin), self.policy.loads
        if loads == "vector":
            at = (a.x + (place.slice * a.inner + place.at)).toint()
            source = cute.make_ptr(a.x.value_type, at, cute.AddressSpace.gmem, assumed_align=VECTOR_BYTES)
            cute.autovec_copy(cute.make_tensor(source, cute.make_layout((self.vector,))), registers)
        elif loads == "few":
            for i in range(self.vector):
                registers[i] = element(a.x + place.slice)
                last = place.copy + 1 == a.copies
                place = Place(choose(last, place.slice + 1, place.slice), choose(last, Int32(0), place.copy + 1), 0)
        elif loads == "each":
            for i in range(self.vector):
                registers[i] = element(a.x + (place.slice * a.inner + place.at))
                place = self.following(a, place)
        else:
            self.repeat(a, place, registers)
        return registers

    def repeat(self, a: Arguments, place: Place, registers) -> None:
        """Fill a vector with copies of one result, or of two that follow each other."""
        size, values = self.policy.size, [element(a.x + place.slice)]
        if self.policy.loads == "two":
            last = quotient(a.count - 1, a.copies, a.copies_factor, a.copies_shift)
            values.append(element(a.x + cutlass.min(place.slice + 1, last)))
        if size >= WORD_BYTES:
            for i in range(self.vector):
                registers[i] = choose(place.copy + i < a.copies, values[0], values[-1])
            return
        words, count = cute.recast_tensor(registers, Uint32), VECTOR_BYTES // WORD_BYTES
        first, second = ([Uint32(value) * Uint32(REPEATED[size])] * count for value in (values[0], values[-1]))
        found = first if self.policy.loads == "one" else joined(first, second, a.copies - place.copy, size)
        for k, word in enumerate(found):
            words[k] = word

    def following(self, a: Arguments, place: Place) -> Place:
        """The place of the next result."""
        beyond = place.at + 1 == a.inner
        copy = choose(beyond, place.copy + 1, place.copy)
        last = copy == a.copies
        at = choose(beyond, Int32(0), place.at + 1)
        return Place(choose(last, place.slice + 1, place.slice), choose(last, Int32(0), copy), at)
