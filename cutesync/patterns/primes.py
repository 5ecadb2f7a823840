"""All primes below a limit: thread i asks whether i is prime, and those that are go into a list (output_list.py).

    small primes (host) --> every thread: does one of them up to sqrt(i) divide i? --> list by atomics, or by flags and a scan

How many there are, and which, is known only to the threads: the places cannot be given out beforehand. The division is the work: below 2**28 an
H200 takes 372 ms whichever way the 14.6 million primes are listed, 374 ms by flags and a scan; writing them takes 14 us.
"""

from __future__ import annotations

import math

import numpy as np

from ..arguments import integer
from ..dtypes import INT32
from ..runtime import device_array
from .host import Call
from .output_list import listed

ITEMS, THREADS = 4, 256
MOST = 1 << 31
_SENTINEL = 65521  # its square is above 2**31: the loop over the small primes ends there


def run(
    limit: int, *, method: str | None = None, ordered: bool = False, capacity: int | None = None, stream=None
) -> np.ndarray:
    """The primes below ``limit`` (up to 2**31) as int32 NumPy array; ``method``, ``ordered`` and ``capacity`` as in output_list."""
    limit = integer(limit, "limit", 0, MOST)
    call = Call(device_array.asarray(table(limit)), stream)
    found = listed(
        call, limit, INT32, kernels, method, ordered, room(limit) if capacity is None else capacity, ITEMS * THREADS
    )
    return device_array.to_numpy(found, call.stream)


def kernels(method: str):
    """The kernel that lists, flags or scatters the primes."""
    from .prime_kernels import FlagPrimes, GivePrimes, ScatterPrimes

    return {"scan": FlagPrimes, "scatter": ScatterPrimes}.get(method, GivePrimes)(None, INT32, method, ITEMS, THREADS)


def table(limit: int) -> np.ndarray:
    """The primes up to the square root of ``limit``, and a last one beyond."""
    return np.append(reference(math.isqrt(max(limit - 1, 0)) + 1), np.int32(_SENTINEL))


def room(limit: int) -> int:
    """At least as many as there are primes below ``limit``: pi(n) < 1.25506 n / log n (Rosser and Schoenfeld)."""
    return 10 if limit < 17 else int(1.25506 * limit / math.log(limit)) + 1


def reference(limit: int) -> np.ndarray:
    """The sieve of Eratosthenes in NumPy."""
    sieve = np.ones(max(limit, 2), bool)
    sieve[:2] = False
    for p in range(2, math.isqrt(len(sieve) - 1) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    return np.flatnonzero(sieve[:limit]).astype(np.int32)
