"""Which sizes a selection has: a pure function of lengths, types and alignment, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div, power_of_two_below
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
LANES = 32
WORD_BYTES = 8  # of shared memory for 32 positions: which are selected, and how many before them
STAGE_BYTES, RING_BYTES = 28 << 10, 216 << 10  # most of a tile, and of all tiles in the ring
MAX_STAGES = 12
MIN_ROWS = 4  # of a chunk: one-byte elements are moved four to a lane


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sizes`` bytes. ``addresses`` are those of the arrays of elements,
    ``mask`` is the address of a mask (None: there is none). ``strided``: elements are gathered."""

    length: int
    sizes: tuple[int, ...]
    addresses: tuple[int, ...]
    mask: int | None = None
    strided: bool = False


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:PipelineSelect"):
    """Resident blocks of ``teams`` teams, which share a ring of ``stages`` tiles. In a team, ``count_warps`` warps
    count the selected elements of each tile, and ``warps_per_team`` warps move them, a chunk of ``rows`` times 32
    positions each.

    ``units``: for each array, how many elements a lane moves at once. ``mask_aligned``: masks begin on 16 bytes.
    ``gather_warps`` warps of a team bring the tiles of strided arrays, if there are any.
    """

    teams: int
    count_warps: int
    warps_per_team: int
    rows: int
    stages: int
    units: tuple[int, ...]
    mask_aligned: bool = True
    gather_warps: int = 0

    @property
    def chunk(self) -> int:
        """Positions of a chunk."""
        return self.rows * LANES

    @property
    def tile(self) -> int:
        """Positions of a tile."""
        return self.chunk * self.warps_per_team


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` at most."""

    policy: PipelinePolicy
    tiles: int
    grid: int


# H200, 2**28 int32 and a mask: 507 us; with one team of as many warps 646 us, with three of 4 warps 617 us.
PIPELINE = PipelinePolicy(teams=2, count_warps=4, warps_per_team=8, rows=32, stages=4, units=())
# Elements of one byte take more time of the warps: 2**28 int8 and a mask 249 us, with the teams above 279 us.
NARROW = replace(PIPELINE, teams=3, count_warps=2, warps_per_team=4)
# Strided arrays: one team, as most of the warps bring elements. Not measured on a GPU.
GATHERED = replace(PIPELINE, teams=1, count_warps=4, gather_warps=8)
# Arrays of a tile or two for each multiprocessor: smaller blocks start sooner.
SMALL = replace(PIPELINE, teams=1, count_warps=8)


def units_of(problem: Problem) -> tuple[int, ...]:
    """Return how many elements of each array a lane moves at once: those of a 4-byte word, if words are aligned."""
    return tuple(1 if at % 4 else max(1, 4 // size) for size, at in zip(problem.sizes, problem.addresses))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    masked = problem.mask is not None
    each = sum(problem.sizes) + masked + WORD_BYTES / LANES  # bytes of shared memory for a position
    base = GATHERED if problem.strided else NARROW if masked and problem.sizes == (1,) else PIPELINE
    unit = base.warps_per_team * LANES
    most = power_of_two_below(int(STAGE_BYTES / each)) // unit
    spread = power_of_two_below(max(problem.length // SMS, 1)) // unit  # a tile for each multiprocessor
    if spread <= most and not problem.strided:
        base = replace(SMALL, warps_per_team=base.warps_per_team)
    rows = max(MIN_ROWS, min(most, spread))
    stages = min(MAX_STAGES, int(RING_BYTES / (each * rows * unit))) // base.teams * base.teams
    if stages == 0:
        allowed = f"elements of at most {int(RING_BYTES / (MIN_ROWS * unit * base.teams))} bytes in all"
        raise ArgumentValueError(explain("x", f"{sum(problem.sizes)} bytes at each position", allowed))
    policy = replace(
        base,
        rows=rows,
        stages=stages,
        units=units_of(problem),
        mask_aligned=not masked or (problem.mask or 0) % 16 == 0,
    )
    tiles = max(1, ceil_div(problem.length, policy.tile))
    return Choice(policy, tiles, min(SMS, tiles))
