"""Which sizes a reduction of segments that offsets give has: a pure function of lengths and types."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..policy import Policy
from .policy import LANES, SHARED_BYTES, SMS, VECTOR_BYTES

RUN_BYTES = 64  # of consecutive memory that a lane has at once
RUNS = (32, 16, 8, 4)  # powers of two; the ends in a run are the bits of a word
MAX_RUN_WORDS = 32  # registers of the elements of a run
MIN_TILES = 8  # of a chunk, where a warp has several
END = 6  # members of the merged list that an end counts as: it reads 8 bytes and writes a result
# By the words of a state and a position: warps of a block, and blocks of a multiprocessor, which leave a lane 128 or
# 255 registers.
WARPS = ((10, 16, 1), (1 << 10, 8, 1))
STAGES = (4, 3, 2)


@dataclass(frozen=True)
class ReducedPolicy(Policy, kernel=".reduced:SegmentReduction"):
    """Blocks of ``warps`` warps, of which ``blocks_per_sm`` fit on a multiprocessor. Each has at most ``rounds`` chunks
    for each warp. A warp goes through a chunk in tiles, of which each lane has ``run`` neighbouring elements; it copies
    ``stages`` tiles ahead."""

    run: int
    warps: int
    blocks_per_sm: int
    rounds: int = 8
    stages: int = 4

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return LANES * self.run

    def bytes(self, sources: tuple[int, ...], states: tuple[int, ...]) -> int:
        """Upper bound of the shared memory of a block, for elements and states of numbers of so many bytes."""
        warp = self.stages * LANES * sum(pitch(self.run, size) for size in sources)
        warp += self.tile * (1 + sum(states)) + LANES * VECTOR_BYTES * len(states)
        left = self.warps * self.rounds * (2 * sum(states) + 20) + self.warps * (sum(states) + 8)
        return self.warps * warp + left + 16 * (5 * len(states) + len(sources) + 10)


def pitch(run: int, size: int) -> int:
    """Return the bytes from a run of elements of ``size`` bytes to the next one in shared memory."""
    return run * size + VECTOR_BYTES


def choose(sources: tuple[int, ...], states: tuple[int, ...]) -> ReducedPolicy:
    """Return the policy of a call whose elements have ``sources`` bytes at a position, and whose states have numbers of
    ``states`` bytes: the most warps, then the longest runs, then the most stages that fit."""
    words = sum(max(size, 4) for size in sources) // 4 + sum(states) // 4
    run = next((run for run in RUNS if run * max(sources) <= RUN_BYTES and run * sum(sources) // 4 <= MAX_RUN_WORDS), 4)
    most, blocks = next((warps, blocks) for limit, warps, blocks in WARPS if words <= limit)
    for warps in (most, 8, 4):
        for r in (r for r in RUNS if r <= run):
            for stages in STAGES:
                policy = ReducedPolicy(r, warps, blocks, stages=stages)
                if policy.bytes(sources, states) * blocks <= SHARED_BYTES:
                    return policy
    raise ArgumentValueError(explain("x", f"{sum(sources)} bytes at each position", "fewer, or smaller states"))


def blocks(policy: ReducedPolicy, members: int) -> tuple[int, int]:
    """Return the number of blocks for so many members of the merged list, and the chunks of each of their warps. There
    is a thread for each block, and in a block one for each chunk, to combine what they have of segments that cross
    them."""
    most, tiles = min(SMS * policy.blocks_per_sm, policy.warps * LANES), ceil_div(members, policy.tile)
    grid = min(most, max(1, ceil_div(tiles, policy.warps)))
    return grid, min(policy.rounds, LANES, max(1, tiles // (grid * policy.warps * MIN_TILES)))
