"""The kernels of primes.py: those of the lists, with candidates that are their own numbers and a test by trial division."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Boolean, Int32, Uint32

from .channel_kernels import Give
from .compaction import Flag, Scatter
from .kernel import part


class _Primes:
    """``x`` holds the small primes in order and one whose square is above every candidate."""

    def values(self, x, first, count):
        return [Int32(first) + self.place(j) for j in range(self.items)]

    def keeps(self, x, value):
        return is_prime(x, value)


class GivePrimes(_Primes, Give):
    pass


class FlagPrimes(_Primes, Flag):
    pass


class ScatterPrimes(_Primes, Scatter):
    pass


@cute.jit
def is_prime(small, value: Int32):
    left = Uint32(value)
    found = Boolean(value >= 2)
    i = Int32(0)
    p = Uint32(part(small, 0, 1)[0])
    while found & (p * p <= left):
        found = left % p != 0
        i += 1
        p = Uint32(part(small, i, 1)[0])
    return found
