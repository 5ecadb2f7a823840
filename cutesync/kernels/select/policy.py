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
MAX_TILE = 1 << 14  # positions: a tally counts those of a tile in 15 bits
MIN_ROWS = 4  # of a chunk: one-byte elements are moved four to a lane


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sizes`` bytes. ``addresses`` are those of the arrays of elements,
    ``mask`` is the address of a mask (None: there is none). ``strided``: elements are gathered. Of a selection by
    rows, ``length`` is that of each of ``rows``, which lie ``pitch`` elements apart."""

    length: int
    sizes: tuple[int, ...]
    addresses: tuple[int, ...]
    mask: int | None = None
    strided: bool = False
    rows: int | None = None
    pitch: int = 0


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


# Rows of up to so many positions: more teams of fewer warps, as a tile has one row at most. Not measured on a GPU.
SHORT_ROWS = (
    (128, replace(PIPELINE, teams=4, count_warps=1, warps_per_team=1)),
    (512, replace(PIPELINE, teams=4, count_warps=1, warps_per_team=2)),
    (2048, NARROW),
)


def fitted(policy: PipelinePolicy, problem: Problem) -> PipelinePolicy:
    """Return the policy for the alignment of a problem: a lane moves the elements of a 4-byte word at once if words are
    aligned, in every row."""
    pitch = 0 if problem.rows is None or problem.strided else problem.pitch
    aligned = lambda at, size, unit: at % unit == 0 and pitch * size % unit == 0  # noqa: E731
    units = tuple(max(1, 4 // n) if aligned(at, n, 4) else 1 for n, at in zip(problem.sizes, problem.addresses))
    return replace(policy, units=units, mask_aligned=aligned(problem.mask or 0, 1, 16))


def chosen(policy: PipelinePolicy, problem: Problem, blocks: int = SMS) -> Choice:
    """Return the launch of a policy in up to ``blocks`` blocks."""
    tiles = max(1, ceil_div(problem.length, policy.tile)) * (1 if problem.rows is None else problem.rows)
    return Choice(policy, max(1, tiles), max(1, min(blocks, tiles)))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    masked = problem.mask is not None
    each = sum(problem.sizes) + masked + WORD_BYTES / LANES  # bytes of shared memory for a position
    base = GATHERED if problem.strided else NARROW if masked and problem.sizes == (1,) else PIPELINE
    spread = max(problem.length // SMS, 1)  # a tile for each multiprocessor
    if problem.rows is not None:
        base = next((policy for length, policy in SHORT_ROWS if problem.length <= length), base)
        base = replace(base, gather_warps=2) if problem.strided and base is not GATHERED else base
        spread = problem.length * 2 - 1  # as a power of two below: a tile for each row
    unit = base.warps_per_team * LANES
    most = min(power_of_two_below(int(STAGE_BYTES / each)), MAX_TILE) // unit
    spread = power_of_two_below(max(spread, 1)) // unit
    if spread <= most and not problem.strided and problem.rows is None:
        base = replace(SMALL, warps_per_team=base.warps_per_team)
    rows = max(MIN_ROWS, min(most, spread))
    stages = min(MAX_STAGES, int(RING_BYTES / (each * rows * unit))) // base.teams * base.teams
    if stages == 0:
        allowed = f"elements of at most {int(RING_BYTES / (MIN_ROWS * unit * base.teams))} bytes in all"
        raise ArgumentValueError(explain("x", f"{sum(problem.sizes)} bytes at each position", allowed))
    return chosen(fitted(replace(base, rows=rows, stages=stages), problem), problem)
