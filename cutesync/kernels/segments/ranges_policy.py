"""Which sizes a call by segments that begins and ends give has: a pure function of lengths and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..hardware import LANES, SMS, VECTOR_BYTES
from .policy import SHARED_BYTES
from .reduced_policy import ReducedPolicy

BLOCKS_PER_SM = 3  # that fit by shared memory, and by the registers of small states
INDEX_BYTES = 8
CELL = 8  # bytes of a number in the memory of shares
# Odd, so that lanes that read their runs of 4-byte elements use different banks of shared memory. The ends of a run are
# bits of one word.
RUNS = (15, 11, 7, 5, 3)
MAX_RUN_WORDS = 48  # registers of the elements that a lane loads together


@dataclass(frozen=True)
class RangesPolicy:
    """Blocks of ``warps`` warps. A warp goes through its share of the merged list in tiles, of which each lane has
    ``run`` neighbouring members. ``threads`` of one block combine the states of shares."""

    run: int
    warps: int = 8
    threads: int = 512

    @property
    def tile(self) -> int:
        """Members of a tile."""
        return LANES * self.run

    def bytes(self, sizes: tuple[int, ...]) -> int:
        """The shared memory of a block that keeps an index and numbers of ``sizes`` bytes of each member."""
        return self.warps * self.tile * (INDEX_BYTES + sum(sizes))


ROWS = 4  # of 32 vectors, that a warp loads together
BASE, SPAN, NAME = 8, 8, 4  # bytes of a segment's records in shared memory (see ``ranges_rows``)
RECORD_BYTES = LANES * (BASE + SPAN + NAME)  # of a warp
# An end counts as so many bytes of elements: 2**22 segments of one element and a giant take 560 us where it counts as
# 32, 475 as 64, 426 as 96, 398 as 128 (H200, 2**28 float32). Most of the time of a batch of short ones is waiting.
END_BYTES = 128
# A lane goes through its own segment where none of a batch has more vectors than this, by the bytes of elements: with
# one element in most, before a giant, 469 us (521 without), of 4 float32 in order 198 (221), of 64 int8 198 (259).
# Longer ones take more, as the sectors of a segment are asked for one by one: of 16 float32 816 us (661 without), of 64
# 718 (377), of 64 int16 159 (149; H200).
LONGEST, LONGEST_OF_BYTES = 2, 4


@dataclass(frozen=True)
class RowsPolicy(ReducedPolicy, kernel=".ranges_rows:RangesReduction"):
    """Blocks that reduce segments of one array. A lane has ``run`` elements of a tile, in as many vectors as there are
    ``rows``; an end counts as ``end`` of them. Lanes go through segments of up to ``longest`` vectors."""

    rows: int = ROWS
    end: int = END_BYTES // 4
    longest: int = LONGEST
    dealt: ClassVar[bool] = True

    def bytes(self, states: tuple[int, ...], gathered: tuple[int, ...] = ()) -> int:
        """Upper bound of the shared memory of a block: records, and what chunks leave."""
        left = self.warps * self.rounds * (2 * sum(states) + 36) + self.warps * (sum(states) + 8) + 16
        return self.warps * RECORD_BYTES + left + 16 * (5 * len(states) + 13)


# Warps of a block, and blocks of a multiprocessor, by the words of a state: 64 registers a lane, or 128.
WARPS = ((2, 16, 2), (4, 8, 2))
NARROW_WARPS = 12  # most of them where a vector has 16 elements, which take 80 registers


def in_rows(sources: tuple[int, ...], states: tuple[int, ...], strided: bool) -> RowsPolicy | None:
    """Return the policy of a reduction whose elements have ``sources`` bytes at a position, and whose states have
    numbers of ``states`` bytes, if it has one array, and small states."""
    sizes = next(((warps, blocks) for most, warps, blocks in WARPS if sum(states) <= 4 * most), None)
    if strided or len(sources) > 1 or sizes is None:
        return None
    warps, blocks = sizes
    if sources[0] == 1:
        warps = min(warps, NARROW_WARPS)
    longest = LONGEST_OF_BYTES if sources[0] == 1 else LONGEST
    return RowsPolicy(ROWS * VECTOR_BYTES // sources[0], warps, blocks, end=END_BYTES // sources[0], longest=longest)


def choose(sizes: tuple[int, ...]) -> RangesPolicy:
    """Return the policy of a call whose elements and results have ``sizes`` bytes at a position."""
    words = sum(max(size, 4) // 4 for size in sizes)
    policies = [RangesPolicy(run) for run in RUNS]
    fitting = [p for p in policies if p.bytes(sizes) * BLOCKS_PER_SM <= SHARED_BYTES and p.run * words <= MAX_RUN_WORDS]
    policy = (fitting or policies[-1:])[0]
    if policy.bytes(sizes) > SHARED_BYTES:
        raise ArgumentValueError(explain("x", f"{sum(sizes)} bytes at each position", "fewer"))
    return policy


def blocks(policy: RangesPolicy, length: int, segments: int) -> int:
    """Return the number of blocks for ``segments`` segments of ``length`` elements. Where segments overlap, there are
    more members of the merged list than that, and the shares of the same blocks are larger."""
    return min(SMS * BLOCKS_PER_SM, max(1, ceil_div(length + segments, policy.warps * policy.tile)))
