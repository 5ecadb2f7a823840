"""All primes below a limit: thread i tests whether i is prime; the primes go into a list (output_list.py).

    small primes (host) --> every thread: does one of them up to sqrt(i) divide i? --> list by atomics, or by a scan

How many primes there are, and which, only the threads know: the places cannot be given out beforehand. The division is
the work: all ways to list the 14.6 million primes below 2**28 take about the same time (the table in README.md).
"""

from __future__ import annotations

import math

import numpy as np
from cutlass import Boolean, Int32, Uint32, cute

from cutesync.arguments import integer
from cutesync.dtypes import INT32
from cutesync.patterns.channel_kernels import Give
from cutesync.patterns.compaction import Flag, Scatter
from cutesync.patterns.host import placed
from cutesync.patterns.kernel import part
from cutesync.patterns.output_list import chosen, listed
from cutesync.runtime import device_array

ITEMS, THREADS = 4, 256
MOST = 1 << 31
SENTINEL = 65521  # its square is above 2**31: the loop over the small primes ends there


class GivePrimes(Give):
    """``x`` holds the small primes in order and one whose square is above every candidate."""

    def values(self, x, first, count):
        return [Int32(first) + self.place(j) for j in range(self.items)]

    def keeps(self, x, value):
        return is_prime(x, value)


class FlagPrimes(GivePrimes, Flag):
    pass


class ScatterPrimes(GivePrimes, Scatter):
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


def run(
    limit: int, *, method: str | None = None, ordered: bool = False, capacity: int | None = None, stream=None
) -> np.ndarray:
    """The primes below ``limit`` (up to 2**31), an int32 NumPy array; the other arguments are those of output_list."""
    limit = integer(limit, "limit", 0, MOST)
    small, stream = placed(device_array.asarray(table(limit)), stream)
    capacity, method = room(limit) if capacity is None else capacity, chosen(method, ordered)
    found = listed(small, limit, INT32, kernels, ITEMS * THREADS, method, capacity, stream)
    return device_array.to_numpy(found, stream)


def kernels(method: str, dtype):
    """The kernel that lists, flags or scatters the primes."""
    return {"scan": FlagPrimes, "scatter": ScatterPrimes}.get(method, GivePrimes)(None, INT32, method, ITEMS, THREADS)


def table(limit: int) -> np.ndarray:
    """The primes up to the square root of ``limit``, and a last one beyond."""
    return np.append(reference(math.isqrt(max(limit - 1, 0)) + 1), np.int32(SENTINEL))


def room(limit: int) -> int:
    """An upper bound of the number of primes below ``limit``: pi(n) < 1.25506 n / log n (Rosser and Schoenfeld)."""
    return 10 if limit < 17 else int(1.25506 * limit / math.log(limit)) + 1


def reference(limit: int) -> np.ndarray:
    """The sieve of Eratosthenes in NumPy."""
    sieve = np.ones(max(limit, 2), bool)
    sieve[:2] = False
    for p in range(2, math.isqrt(len(sieve) - 1) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    return np.flatnonzero(sieve[:limit]).astype(np.int32)
