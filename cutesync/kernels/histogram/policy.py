"""Which kernel counts, with which sizes: a pure function of lengths and types, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
VECTOR_BYTES = 16
LOAD_BYTES = {1: 32}  # that a thread has on their way, by the size of an element
MOST_LOAD_BYTES = 64
THREADS = 512, 1024  # of a block, where two or one fit a multiprocessor: 64 registers a thread
COUNTER_BYTES = 4
SHARED_BINS = (12 << 10, 48 << 10)  # with so many counters, two blocks or one have them in shared memory


@dataclass(frozen=True)
class ClearPolicy(Policy, kernel=".kernel:ClearCounts"):
    """Store zeros, and the edges, ``threads`` a block."""

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
class Choice:
    """A policy and the number of its blocks."""

    policy: CountPolicy
    grid: int


def choose(length: int, size: int, bins: int) -> Choice:
    """Return the policy for ``length`` elements of ``size`` bytes."""
    two, one = SHARED_BINS
    shared = next((room for room in (256, 2048, two, one) if bins <= room), 0)
    alone = shared == one
    unroll = LOAD_BYTES.get(size, MOST_LOAD_BYTES) // VECTOR_BYTES
    policy = CountPolicy(THREADS[alone], unroll, shared, 1 if alone else 2)
    blocks = ceil_div(length * size, policy.threads * unroll * VECTOR_BYTES)
    return Choice(policy, max(1, min(blocks, policy.blocks_per_sm * SMS)))
