"""Flags and differences of arrays whose elements, or neighbours, would be loaded one by one, a result at a time.

The results of a thread are as far apart as a block has threads. So a warp loads and stores what lies side by side,
whereas single loads of threads with vectors of results touch as many lines each as the vector is long.
"""

from __future__ import annotations

from cutlass import cute

from ...monoid import choose
from .flat import FlatFlags
from .strided import Arguments
from .vector import Vector


class SingleFlags(FlatFlags):
    """The kernel; ``work`` counts results."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.singles = policy.singles

    @cute.jit
    def body(self, a: Arguments):
        """What a thread does: all is loaded before the first result is stored. Results behind the array are the last
        one again, and are not stored."""
        first = self.block(a) * (self.threads * self.singles) + cute.arch.thread_idx()[0]
        first, last = first * self.vector, a.work - self.vector
        if first < a.work:
            numbers = [first + k * (self.threads * self.vector) for k in range(self.singles)]
            found = [self.result(a, choose(number < a.work, number, last)) for number in numbers]
            for number, results in zip(numbers, found):
                self.keep(a, number, results)

    def result(self, a: Arguments, number) -> list:
        """The result of a number, a list for each output."""
        digits = self.split(a, number)
        v = Vector(number, digits, self.places(a, digits[0], self.vector), self.place(a.n * a.extents[0]))
        return self.results(a, v, False)

    def starts(self, a: Arguments, v: Vector, alike: bool) -> list:
        """The pointers to the elements, which are in one slice."""
        return super().starts(a, v._replace(limit=None), alike)

    @cute.jit
    def keep(self, a: Arguments, number, results):
        """Store a result, if there is one of this number."""
        if number < a.work:
            for target, values in zip(a.outs, results):
                self.store(target + number, values, False)
