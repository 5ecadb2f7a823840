"""Which sizes a selection has: a pure function of lengths, types and alignment, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...sizes import ceil_div, power_of_two_below
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
LANES = 32
WORD_BYTES = 8  # of shared memory for 32 positions: which are selected, and how many before them
STAGE_BYTES, RING_BYTES = 24 << 10, 216 << 10  # most of a tile, and of all tiles in the ring
MAX_STAGES = 12
MIN_ROWS = 4  # of a chunk: one-byte elements are moved four to a lane


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sizes`` bytes. ``addresses`` are those of the arrays of elements,
    ``mask`` is the address of a mask (None: there is none)."""

    length: int
    sizes: tuple[int, ...]
    addresses: tuple[int, ...]
    mask: int | None = None


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:PipelineSelect"):
    """Resident blocks with a ring of ``stages`` tiles. ``count_warps`` warps count the selected elements of each tile;
    two squads of ``warps_per_squad`` warps move them, a chunk of ``rows`` times 32 positions each.

    ``units``: for each array, how many elements a lane moves at once. ``mask_aligned``: masks begin on 16 bytes.
    """

    count_warps: int
    warps_per_squad: int
    rows: int
    stages: int
    units: tuple[int, ...]
    mask_aligned: bool = True

    @property
    def chunk(self) -> int:
        """Positions of a chunk."""
        return self.rows * LANES

    @property
    def tile(self) -> int:
        """Positions of a tile."""
        return self.chunk * self.warps_per_squad


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` at most."""

    policy: PipelinePolicy
    tiles: int
    grid: int


PIPELINE = PipelinePolicy(count_warps=8, warps_per_squad=8, rows=32, stages=4, units=())


def units_of(problem: Problem) -> tuple[int, ...]:
    """Return how many elements of each array a lane moves at once: those of a 4-byte word, if words are aligned."""
    return tuple(1 if at % 4 else max(1, 4 // size) for size, at in zip(problem.sizes, problem.addresses))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    masked = problem.mask is not None
    each = sum(problem.sizes) + masked + WORD_BYTES / LANES  # bytes of shared memory for a position
    warps = PIPELINE.warps_per_squad
    most = power_of_two_below(int(STAGE_BYTES / each)) // (warps * LANES)
    spread = power_of_two_below(max(problem.length // SMS, 1)) // (warps * LANES)  # a tile for each multiprocessor
    rows = max(MIN_ROWS, min(most, spread))
    stages = min(MAX_STAGES, int(RING_BYTES / (each * rows * LANES * warps))) // 2 * 2
    policy = replace(
        PIPELINE,
        rows=rows,
        stages=stages,
        units=units_of(problem),
        mask_aligned=not masked or (problem.mask or 0) % 16 == 0,
    )
    tiles = max(1, ceil_div(problem.length, policy.tile))
    return Choice(policy, tiles, min(SMS, tiles))
