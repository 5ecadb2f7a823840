"""Which kernels count, with which sizes: a pure function of lengths and types, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...dtypes import DType
from ...sizes import ceil_div
from ..hardware import SMS, VECTOR_BYTES
from ..policy import Policy
from .spec import Counting, CountSpec

LOAD_BYTES = {1: 32}  # that a thread has on their way, by the size of an element
MOST_LOAD_BYTES = 64
ELEMENTS, MANY_ELEMENTS = 4, 8  # that a thread has on their way, one by one; of long weights, 8 take 0.92 of the time
THREADS = 512, 1024  # of a block, where two or one fit a multiprocessor: 64 registers a thread
COUNTER_BYTES, SUM_WORDS = 4, 4  # words of 32 bits: two sums of 64 bits
SHARED_BINS = (256, 2048, 12 << 10, 56 << 10)  # counters in shared memory; with the last, one block a multiprocessor
MAX_PARTS = {"index": 8, "uniform": 2, "edges": 1}  # of bins, each of which costs a pass; the last two search for bins
MAX_SUM_PARTS = 2  # likewise, of sums: three parts take as long as atomics of global memory
MAX_QUEUED_PARTS = 6  # of queued sums, 0.91 of the time of such atomics; 7 parts take 1.12 of it (2**28 weights)
MAX_COUNTED = 1 << 38  # elements that blocks of one part count, so that 32 bits hold the counts of one
SLOTS, WEIGHT_SLOTS = 8192, 2048  # of frequent bins; with weights, which need most of the L1 for exponents (512 tie)
QUEUED_SUM_BYTES = 12  # of shared memory: three words
QUEUED_ELEMENTS = 8  # that a thread has on their way; 4 take 1.06 to 1.17 of the time
QUEUED_LENGTHS = 1 << 24, 1 << 30  # of others, three words would not hold the sums of a block (``queued``)
LIMITED_LENGTH = 1 << 22  # of more weights (long), limits of short types are worth a launch: 2**23 take 1.13 without
QUEUE = 64  # elements that wait in a warp: 32 are taken when there are as many
MAX_SMEM = 227 << 10
SHARED_SUMS = ((256, 32), (880, 16), (3328, 4), (11500, 1))  # bins and copies of their sums; queued, 8192 take 1.11
BIAS = 1022  # of exponents: a float64 is below 2**(its exponent field - BIAS)
LAST_BIT, SHORT_LAST_BIT = -1074, -149  # the exponents of the least float64 and float32: sums have no bits below
SUM_BITS = 62  # of the sum of either half of fixed-point weights
SPANS = {"b": (1, 1), "f": (16, 40)}  # of bool and float16: e and b, if weights are multiples of 2**(e - b) up to 2**e


class Simple:
    """What kernels without counters have in common."""

    smem = 0
    blocks_per_sm = parts = 1


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
    parts = 1

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
    memory, a block adds them to the result in the end; with ``parts``, a block reads all that as many blocks read, and
    counts in one of so many parts of the bins. Without, it adds to the result all elements but those of frequent bins,
    which have ``slots`` in shared memory."""

    threads: int
    unroll: int
    shared: int
    blocks_per_sm: int
    parts: int = 1
    slots: int = 0

    @property
    def smem(self) -> int:
        """The bytes of shared memory."""
        words = self.shared + 2 * self.slots
        return COUNTER_BYTES * words + 16 if words else 0


@dataclass(frozen=True)
class StridedPolicy(CountPolicy, kernel=".kernel:StridedCount"):
    """As ``CountPolicy``; ``unroll`` are elements."""


@dataclass(frozen=True)
class LimitsPolicy(CountPolicy, kernel=".exponents:Limits"):
    """The largest and the smallest exponent of all weights, without counters."""


@dataclass(frozen=True)
class ExponentPolicy(CountPolicy, kernel=".exponents:Exponents"):
    """The largest exponents of weights; as ``StridedPolicy``, of exponents instead of counters."""


@dataclass(frozen=True)
class SumPolicy(CountPolicy, kernel=".weights:Sums"):
    """The sums of weights; as ``StridedPolicy``, of exponents and ``copies`` of pairs of sums instead of counters."""

    copies: int = 1

    @property
    def smem(self) -> int:
        return COUNTER_BYTES * (SUM_WORDS * self.copies + 1) * (self.shared or self.slots) + 32


@dataclass(frozen=True)
class QueuedPolicy(CountPolicy, kernel=".queued:QueuedSums"):
    """The sums of weights where several parts of the bins read each element: those of a block's own part wait in queues
    of warps. A bin's sum is three words, and its exponent ``exponent_bytes``; a queued weight ``weight_bytes``."""

    exponent_bytes: int = 0
    weight_bytes: int = 4

    @property
    def smem(self) -> int:
        return self.shared * (QUEUED_SUM_BYTES + self.exponent_bytes) + self.queue_bytes + 80

    @property
    def queue_bytes(self) -> int:
        """The bytes of all queues."""
        return self.threads // 32 * QUEUE * (COUNTER_BYTES + self.weight_bytes)


@dataclass(frozen=True)
class Choice:
    """A policy and the number of its blocks."""

    policy: CountPolicy
    grid: int


def choose(kind: type[CountPolicy], spec: CountSpec) -> Choice:
    """Return the policy of a ``kind`` for a call."""
    form, size, length, bins = spec.counting.form, spec.counting.dtype.size, spec.length, spec.bins
    if kind is SumPolicy:
        return _choose_sums(spec)
    if kind is LimitsPolicy:
        return _launch(LimitsPolicy(THREADS[0], QUEUED_ELEMENTS, 0, 2), length, QUEUED_ELEMENTS)
    parts = ceil_div(bins, SHARED_BINS[-1])
    if parts > MAX_PARTS[form] or parts * length > MAX_COUNTED:
        parts = 1
    shared = next((room for room in SHARED_BINS if ceil_div(bins, parts) <= room), 0)
    alone = shared == SHARED_BINS[-1]
    unroll = each = ELEMENTS if kind is StridedPolicy else _elements(length)
    if kind is CountPolicy:
        unroll = LOAD_BYTES.get(size, MOST_LOAD_BYTES) // VECTOR_BYTES
        each = unroll * VECTOR_BYTES // size
    slots = 0 if shared else WEIGHT_SLOTS if kind is ExponentPolicy else SLOTS
    return _launch(kind(THREADS[alone], unroll, shared, 1 if alone else 2, parts, slots), length, each)


def _choose_sums(spec: CountSpec) -> Choice:
    """As ``choose``."""
    length, bins, most = spec.length, spec.bins, MAX_PARTS[spec.counting.form]
    parts = ceil_div(bins, SHARED_SUMS[-1][0])
    if parts > 1 and QUEUED_LENGTHS[0] < length and spec.whole <= QUEUED_LENGTHS[1]:
        policy = queued(spec.counting, bins)
        if policy.parts <= min(MAX_QUEUED_PARTS, most):
            return _launch(policy, length, policy.unroll)
    parts = parts if parts <= min(MAX_SUM_PARTS, most) else 1
    shared, copies = next((room for room in SHARED_SUMS if ceil_div(bins, parts) <= room[0]), (0, 1))
    threads, blocks_per_sm = (THREADS[1], 1) if shared else (THREADS[0], 2)
    slots, unroll = 0 if shared else WEIGHT_SLOTS, _elements(length)
    return _launch(SumPolicy(threads, unroll, shared, blocks_per_sm, parts, slots, copies), length, unroll)


def _elements(length: int) -> int:
    """How many elements with weights a thread has on their way."""
    return ELEMENTS if length <= LIMITED_LENGTH else MANY_ELEMENTS


def queued(counting: Counting, bins: int) -> QueuedPolicy:
    """The policy that queues, with as few parts as have room."""
    weights = counting.weights
    assert weights is not None
    exponent_bytes = 0 if exact(weights) else 1 if weights.size <= 4 else 2
    policy = QueuedPolicy(THREADS[1], QUEUED_ELEMENTS, 0, 1, 1, 0, exponent_bytes, weights.size)
    shared = (MAX_SMEM - policy.smem) // (QUEUED_SUM_BYTES + exponent_bytes) // 16 * 16
    return replace(policy, shared=shared, parts=ceil_div(bins, shared - 1))  # one more for a frequent bin


def _launch(policy: CountPolicy, length: int, each: int) -> Choice:
    """A policy and its grid; a thread has ``each`` elements on their way."""
    blocks = ceil_div(length, policy.threads * each)
    most = policy.blocks_per_sm * SMS // policy.parts
    return Choice(policy, policy.parts * max(1, min(blocks, most)))


def kinds(spec: CountSpec) -> list[type[CountPolicy]]:
    """Return the kinds of kernels that visit the elements, in turn."""
    weights = spec.counting.weights
    if weights is None:
        return [CountPolicy if spec.counting.layout is None else StridedPolicy]
    if window(weights, spec.whole).known:
        return [SumPolicy]
    limited = short(weights) and spec.length > LIMITED_LENGTH
    return [*([LimitsPolicy] if limited else []), ExponentPolicy, SumPolicy]


@dataclass(frozen=True)
class Window:
    """The form of sums of weights (``weights``): ``digits`` bits in either half; ``exponent`` is the least of the
    biased exponents. ``known``: all weights fit below it exactly, so no exponents are looked for."""

    digits: int
    exponent: int
    known: bool


def short(weights: DType | None) -> bool:
    """Whether weights are float32, or converted to that without a loss."""
    return weights is not None and weights.kind == "f" and weights.size <= 4


def exact(weights: DType) -> bool:
    """Whether the form of sums of weights does not depend on them, if there are not very many (``window``)."""
    return weights.kind != "f" or weights.name == "float16"


def window(weights: DType, length: int) -> Window:
    """Return the form of sums of up to ``length`` weights."""
    digits = SUM_BITS - max(length - 1, 0).bit_length()
    top, span = (8 * weights.size,) * 2 if weights.kind in "iu" else SPANS[weights.kind]
    if exact(weights) and span <= 2 * digits:
        return Window(digits, BIAS + top, True)
    last_bit = SHORT_LAST_BIT if short(weights) else LAST_BIT
    return Window(digits, max(BIAS + last_bit + 2 * digits, 1), False)
