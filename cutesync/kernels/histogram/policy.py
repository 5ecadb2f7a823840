"""Which kernels count, with which sizes: a pure function of lengths and types, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import DType
from ...sizes import ceil_div
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
VECTOR_BYTES = 16
LOAD_BYTES = {1: 32}  # that a thread has on their way, by the size of an element
MOST_LOAD_BYTES = 64
ELEMENTS = 4  # that a thread has on their way, if they are loaded one by one
THREADS = 512, 1024  # of a block, where two or one fit a multiprocessor: 64 registers a thread
COUNTER_BYTES, SUM_BYTES = 4, 16
SHARED_BINS = (256, 2048, 12 << 10, 48 << 10)  # counters in shared memory; with the last, one block a multiprocessor
SHARED_SUMS = (256, 2048, 6 << 10, 12 << 10)  # likewise
BIAS = 1022  # of exponents: a float64 is below 2**(its exponent field - BIAS)
LAST_BIT = -1074  # the exponent of the least float64: sums have no bits below
SUM_BITS = 62  # of the sum of either half of fixed-point weights
SPANS = {"b": (1, 1), "f": (16, 40)}  # of bool and float16: e and b, if weights are multiples of 2**(e - b) up to 2**e


class Simple:
    """What kernels without counters have in common."""

    smem = 0
    blocks_per_sm = 1


@dataclass(frozen=True)
class ClearPolicy(Simple, Policy, kernel=".kernel:ClearCounts"):
    """Store zeros, and the edges, ``threads`` a block."""

    threads: int = 256


@dataclass(frozen=True)
class FinishPolicy(Simple, Policy, kernel=".weights:Finish"):
    """Make results of sums, a thread each."""

    threads: int = 256


@dataclass(frozen=True)
class TotalPolicy(Policy, kernel=".weights:Total"):
    """Add all results, in one block."""

    threads: int = 1024
    blocks_per_sm: int = 1

    @property
    def smem(self) -> int:
        """The bytes of shared memory: a state and a flag of each warp."""
        return self.threads // 32 * 12 + 32


@dataclass(frozen=True)
class DensityPolicy(Simple, Policy, kernel=".weights:Density"):
    """Divide results, a thread each."""

    threads: int = 256


@dataclass(frozen=True)
class CountPolicy(Policy, kernel=".kernel:CountKernel"):
    """Blocks of ``threads``, which load ``unroll`` vectors at a time. With ``shared``, the number of counters in shared
    memory, a block adds them to the result in the end; without, every element is added to it."""

    threads: int
    unroll: int
    shared: int
    blocks_per_sm: int

    @property
    def smem(self) -> int:
        """The bytes of shared memory."""
        return COUNTER_BYTES * self.shared + 16 if self.shared else 0


@dataclass(frozen=True)
class StridedPolicy(CountPolicy, kernel=".kernel:StridedCount"):
    """As ``CountPolicy``; ``unroll`` are elements."""


@dataclass(frozen=True)
class ExponentPolicy(CountPolicy, kernel=".weights:Exponents"):
    """The largest exponents of weights; as ``StridedPolicy``, of exponents instead of counters."""


@dataclass(frozen=True)
class SumPolicy(CountPolicy, kernel=".weights:Sums"):
    """The sums of weights; as ``StridedPolicy``, of pairs of sums instead of counters."""

    @property
    def smem(self) -> int:
        return SUM_BYTES * self.shared + 16 if self.shared else 0


@dataclass(frozen=True)
class Choice:
    """A policy and the number of its blocks."""

    policy: CountPolicy
    grid: int


def choose(kind: type[CountPolicy], length: int, size: int, bins: int) -> Choice:
    """Return the policy of a ``kind`` for ``length`` elements of ``size`` bytes."""
    rooms = SHARED_SUMS if kind is SumPolicy else SHARED_BINS
    shared = next((room for room in rooms if bins <= room), 0)
    alone = shared == rooms[-1]
    unroll, each = ELEMENTS, ELEMENTS
    if kind is CountPolicy:
        unroll = LOAD_BYTES.get(size, MOST_LOAD_BYTES) // VECTOR_BYTES
        each = unroll * VECTOR_BYTES // size
    policy = kind(THREADS[alone], unroll, shared, 1 if alone else 2)
    blocks = ceil_div(length, policy.threads * each)
    return Choice(policy, max(1, min(blocks, policy.blocks_per_sm * SMS)))


@dataclass(frozen=True)
class Window:
    """The form of sums of weights (``weights``): ``digits`` bits in either half; ``exponent`` is the least of the
    biased exponents. ``known``: all weights fit below it exactly, so no exponents are looked for."""

    digits: int
    exponent: int
    known: bool


def window(weights: DType, length: int) -> Window:
    """Return the form of sums of up to ``length`` weights."""
    digits = SUM_BITS - max(length - 1, 0).bit_length()
    top, span = (8 * weights.size,) * 2 if weights.kind in "iu" else SPANS[weights.kind]
    known = span <= 2 * digits and (weights.kind != "f" or weights.name == "float16")
    return Window(digits, BIAS + top if known else max(BIAS + LAST_BIT + 2 * digits, 1), known)
