"""Which sizes a selection has: a pure function of lengths, types and alignment, not of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import LANES, SMS
from ..policy import Policy

PLACE_BYTES = 1  # of shared memory for a position whose place is kept
WORD_BYTES = 8  # for 32 positions: which are selected, and how many before them
STAGE_BYTES, RING_BYTES = 28 << 10, 216 << 10  # most of a tile, and of all tiles in the ring
PADDED_BYTES, LINES_BYTES = 222 << 10, 2 * 128  # most of the ring, with so many bytes more for an array of a tile
MAX_STAGES = 12
MAX_CLUSTER = 8  # blocks
MAX_TILE = 1 << 14  # positions: a tally counts those of a tile in 15 bits
MAX_WORDS = 16  # registers of a lane for the elements of a chunk
MIN_ROWS = 4  # of a chunk, if their elements fit
MIN_NARROW_ROWS, NARROW_ROWS = 16, 32  # of a chunk whose elements are in words


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sizes`` bytes, and a ``mask``. ``strided``: elements are gathered.
    ``heads``: the first elements of runs are selected. ``located``: the places of selected elements are kept;
    ``inverse``: the words of rows, too. ``filled``: what lies behind the selected elements is written;
    ``rejects``: that is the other elements. ``values``: elements are written. Of a selection by rows, ``length`` is
    that of each of ``rows``."""

    length: int
    sizes: tuple[int, ...]
    mask: bool = False
    strided: bool = False
    heads: bool = False
    located: bool = False
    inverse: bool = False
    rows: int | None = None
    filled: bool = False
    rejects: bool = False
    values: bool = True

    @property
    def narrow(self) -> bool:
        """Whether elements of one or two bytes come from contiguous arrays, and some are dropped."""
        return not self.strided and not self.rejects and all(size <= 2 for size in self.sizes)

    @property
    def bytes(self) -> float:
        """The shared memory for a position; where bits are counted it has none, and a bit stands for that."""
        found = sum(self.sizes) + self.mask + PLACE_BYTES * self.located + WORD_BYTES / LANES * self.inverse
        return max(found, 1 / 8)

    @property
    def padding(self) -> int:
        """The shared memory of a stage besides its positions: arrays begin anywhere in a line."""
        return LINES_BYTES * (len(self.sizes) + self.mask)


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:PipelineSelect"):
    """Resident blocks of ``teams`` teams, which share a ring of ``stages`` tiles of ``chunks`` chunks of ``rows`` times
    32 positions. In a team, ``compact_warps`` warps compact chunks, and ``store_warps`` warps store them;
    ``gather_warps`` warps bring the tiles of strided arrays, if there are any. ``narrow``: a lane has neighbouring
    elements, of one or two bytes, in words; there are 16 or 32 rows."""

    teams: int
    compact_warps: int
    store_warps: int
    chunks: int
    rows: int
    stages: int
    gather_warps: int = 0
    narrow: bool = False

    @property
    def chunk(self) -> int:
        """Positions of a chunk."""
        return self.rows * LANES

    @property
    def tile(self) -> int:
        """Positions of a tile."""
        return self.chunk * self.chunks


P = TypeVar("P", bound=PipelinePolicy)


@dataclass(frozen=True)
class FlowPolicy(PipelinePolicy, kernel=".flow:FlowSelect"):
    """One team, of ``squads`` squads that compact tiles in turn, a warp for each chunk. What is selected of up to
    ``entries`` tiles waits in a ``room`` for so many elements."""

    room: int = 0
    entries: int = 0
    squads: int = 1


@dataclass(frozen=True)
class RunPolicy(FlowPolicy, kernel=".run_flow:RunFlow"):
    """The same for runs of narrow elements, and for bytes, in chunks of 32 or 64 rows."""


@dataclass(frozen=True)
class WavePolicy(PipelinePolicy, kernel=".wave:WaveSelect"):
    """A block for each tile, whose ``compact_warps`` warps compact its chunks and store them. ``alone``: there is one
    tile. ``cluster``: the blocks of the launch, if they are one cluster. ``together``: how many of the blocks there
    must be room for on a multiprocessor."""

    alone: bool = False
    cluster: int = 1
    together: int = 1


@dataclass(frozen=True)
class ColumnPolicy(PipelinePolicy, kernel=".columns:ColumnSelect"):
    """The same for arrays whose neighbours in memory are in columns side by side: ``chunks`` is 32."""


@dataclass(frozen=True)
class ColumnCountPolicy(Policy, kernel=".columns:ColumnCounts"):
    """Blocks of ``warps`` warps, each of which counts the selected elements of 32 chunks of ``chunk`` positions."""

    warps: int
    chunk: int


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` at most."""

    policy: PipelinePolicy | ColumnCountPolicy
    tiles: int
    grid: int


# H200, 2**28 int32: a callable that selects half 430 us, a mask 489 us, run lengths (runs of 8) 470 us. The time
# follows the bytes of the ring: a tile keeps its stage for some 9 us, from its ticket to its last store. Tiles of half
# the size take 630 us, of twice the size 508 us.
PIPELINE = PipelinePolicy(teams=2, compact_warps=4, store_warps=4, chunks=8, rows=16, stages=4)
ONE_TEAM = replace(PIPELINE, teams=1, compact_warps=8, store_warps=8)
RUNS_BYTES = 56 << 10  # of a tile where runs are all that is asked for: 354 us with one team instead of 390
# Strided arrays: one team, as most of the warps bring elements.
GATHER_WARPS = 8  # of a block
GATHERED = replace(PIPELINE, teams=1, compact_warps=8, gather_warps=GATHER_WARPS)
# Elements in words: a warp compacts a chunk in some 250 instructions, most of which wait for the one before, and stores
# it in 100 (H200, half of 2**28 int8 by a callable: 145 us, by rows of 32 elements 246 us).
NARROW = replace(PIPELINE, compact_warps=8)
# Tiles that leave their stages early. A squad of 16 warps takes 1.3 us for a tile of 8192, in which it reads it, waits
# for room, and puts it there: two squads of 12 do more (H200, 2**28 int32 in a trial: unique elements of runs of 8 326
# us, with one squad 349; run lengths 376, 395; all selected 571, 711; but half by a callable 398, 387). The ring has
# four stages of a mask, too (half selected 459 us, two stages 517); more of it leaves less room (all selected 744 us
# with 150 KiB). Bytes are faster in words: half of 2**28 int8 145 us, 208 as here; half of int16 247, 230 as here.
# Of narrow elements there is more to store for a tile: with twelve warps in a squad and five that store, half of 2**28
# int16 takes 230 us instead of 218, run lengths of int16 654 instead of 563 (runs of 1), 234 and 233 (runs of 8).
# Runs whose elements alone are wanted have less to store: squads of twelve take 155 us for int16 in runs of 8, squads
# of eleven 163; run lengths in runs of 1 650 and 587. Bytes that are put in whole words leave their stages early, too
# (2**28 int8, a callable that selects half 128.5 us, in two teams 130.8, a tenth 95.5, 119, all 178, 239).
# From 2**21 positions on that is faster than one team (half of 5 * 2**19 int32 by a callable in a graph: 7.2 us instead
# of 10.1; run lengths of int16 5.8, 9.0, of int64 11.3, 15.3).
FLOW = FlowPolicy(1, 12, 5, 12, 16, 0, entries=16, squads=2)
# Behind a mask of most positions there is more to store, and a tile needs more of the room: with squads of ten and nine
# that store, 99 % of 2**28 int32 take 580 us instead of 618, half 437 and 434, 1 % 330 and 321 (all of what a callable
# selects 527 and 523, runs of 8 301 and 290).
FLOW_OF_MASKS = replace(FLOW, compact_warps=10, chunks=10, store_warps=9)
FLOW_OF_NARROW = replace(FLOW, compact_warps=11, chunks=11, store_warps=7)
FLOW_OF_RUNS = RunPolicy(**vars(FLOW_OF_NARROW))
FLOW_OF_HEADS = replace(FLOW_OF_RUNS, compact_warps=12, chunks=12, store_warps=5)
FLOW_LENGTH, FLOW_RING, FLOW_BYTES = 1 << 21, 124 << 10, 220 << 10
# Arrays of a tile or two for each multiprocessor: smaller blocks start sooner. Of some eight tiles, where one team
# selects half of 2**22 int32 by a callable in 14.7 us, two teams in 20.4.
SMALL = replace(PIPELINE, teams=1, compact_warps=8)
MIN_LENGTH_OF_TEAMS = 1 << 23
# A block a tile: arrays of up to ALONE positions have one block, those of up to CLUSTERED one cluster of blocks. Blocks
# of a cluster need no tickets, and tell each other their tallies sooner (H200, half of 2**14 int32 by a callable in a
# graph: 2.4 us, 8 blocks on their own 2.8 us; of 2**15: 2.8 us, 16 blocks 3.1 us). Of more positions, some 32 to 64
# blocks are as fast as one for each multiprocessor, or faster (of 2**16: a cluster of tiles of 8192 3.4 us, 16 blocks
# 3.3 us, 32 blocks 3.1 us; of 2**18: 64 blocks and 128 3.8 us, 32 blocks 4.3 us).
ALONE, CLUSTERED, MANY_BLOCKS = 4096, 1 << 15, 64
MIN_TILE, MIN_WAVE_TILE, MAX_WAVE_TILE = 1024, 2048, 8192
# Few warps start sooner (one block of 2**12 int32: 8 warps 2.0 us, 16 warps 2.07, 32 warps 2.4; run lengths of 2**17 in
# tiles of 2048 by events: 8 warps 5.9 us, 16 warps 6.3), many compact sooner.
FEW_WARPS, WAVE_WARPS, WAVE_BYTES = 8, 16, 160 << 10
# Two blocks of up to so many warps fit on a multiprocessor (H200, 2**21 int32 in a graph: run lengths 7.6 us, by
# pipelines 10.8; half selected by a callable 7.6, 8.4; half of 2**21 int8 by a mask 6.3, by pipelines 6.0).
MAX_TOGETHER, TOGETHER_WARPS = 2, 16
# Columns of at least so many positions, in arrays of at least so many: two launches more.
MIN_COLUMN, MIN_COLUMNS, MIN_LENGTH = 64, 8, 1 << 16
COUNT_WARPS = 8
COLUMNS = ColumnPolicy(teams=1, compact_warps=4, store_warps=4, chunks=LANES, rows=4, stages=4, gather_warps=16)
# Rows of up to so many positions: more teams of fewer warps, as a tile has one row at most. Not measured on a GPU.
SHORT_ROWS = (
    (128, replace(PIPELINE, teams=4, compact_warps=1, store_warps=1)),
    (512, replace(PIPELINE, teams=4, compact_warps=2, store_warps=1)),
    (2048, replace(PIPELINE, teams=3, compact_warps=4, store_warps=2)),
)


def chosen(policy: PipelinePolicy, problem: Problem, blocks: int = SMS) -> Choice:
    """Return the launch of a policy in up to ``blocks`` blocks."""
    tiles = max(1, ceil_div(problem.length, policy.tile)) * (1 if problem.rows is None else problem.rows)
    return Choice(policy, max(1, tiles), max(1, min(blocks, tiles)))


def wave(problem: Problem) -> Choice | None:
    """Return the launch of a block for each tile, if the array is short enough for that."""
    if problem.rows is not None or problem.strided or problem.filled:
        return None
    length, alone, clustered = problem.length, problem.length <= ALONE, ALONE < problem.length <= CLUSTERED
    tile = power_of_two(ceil_div(length, MAX_CLUSTER if clustered else MANY_BLOCKS))
    tile = power_of_two(max(length, MIN_TILE)) if alone else min(max(tile, MIN_WAVE_TILE), MAX_WAVE_TILE)
    together = max(1, ceil_div(ceil_div(length, tile), SMS))
    if together > (MAX_TOGETHER if pairs(problem) else 1):
        return None
    warps = FEW_WARPS if alone or clustered or tile == MIN_WAVE_TILE else WAVE_WARPS
    rows = min(most_rows(problem), max(MIN_ROWS, tile // (warps * LANES)))
    chunks = tile // (rows * LANES)
    most = LANES if together == 1 else TOGETHER_WARPS
    if chunks > most or tile * problem.bytes > WAVE_BYTES // together:
        return None
    cluster = power_of_two(ceil_div(length, tile)) if clustered else 1
    policy = WavePolicy(1, chunks, chunks, chunks, rows, 1, alone=alone, cluster=cluster, together=together)
    return Choice(policy, cluster, cluster) if clustered else chosen(policy, problem, SMS * together)


def pairs(problem: Problem) -> bool:
    """Whether two blocks a multiprocessor are worth it: what moves rejects needs more registers, and bytes are faster
    in the words of a pipeline."""
    return not problem.rejects and max(problem.sizes, default=0) > 1


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    found = wave(problem) or flow(problem)
    if found is not None:
        return found
    base, stage = GATHERED if problem.strided else PIPELINE, STAGE_BYTES
    if problem.heads and not problem.located and not problem.strided:
        base, stage = ONE_TEAM, RUNS_BYTES
    elif problem.mask and problem.located and not problem.strided:
        base = ONE_TEAM  # there are few stages: elements, a mask and indices 870 us instead of 1013
    if problem.narrow:
        base, stage = NARROW, STAGE_BYTES
    spread = max(problem.length // SMS, 1)  # a tile for each multiprocessor
    if problem.rows is not None:
        base = next((policy for length, policy in SHORT_ROWS if problem.length <= length), base)
        if problem.strided and base is not GATHERED:
            teams = power_of_two_below(base.teams)
            base = replace(base, teams=teams, gather_warps=GATHER_WARPS // teams)
        spread = problem.length * 2 - 1  # as a power of two below: a tile for each row
    most = min(power_of_two_below(int(stage / problem.bytes)), MAX_TILE)
    spread = power_of_two_below(spread)
    if not problem.strided and problem.rows is None:
        few = base in (PIPELINE, NARROW) and problem.length < MIN_LENGTH_OF_TEAMS
        base = SMALL if few or spread <= most else base
    return chosen(sized(base, problem, min(most, spread)), problem)


def flows(problem: Problem) -> bool:
    """Whether what is selected is all that is kept of tiles, and no elements have one byte, unless ``in_words``."""
    apart = problem.strided or problem.rows is not None or problem.rejects or problem.inverse
    return not apart and (min(problem.sizes, default=0) > 1 or in_words(problem))


def lists_heads(problem: Problem) -> bool:
    """Whether the elements of runs, of one array, are looked up by their places: narrow ones."""
    return problem.heads and problem.narrow and len(problem.sizes) == 1


def in_words(problem: Problem) -> bool:
    """Whether what is selected are runs of narrow elements, or bytes; not behind a mask if their places are wanted, as
    these were not timed (2**28 int8 by a callable with places: half 404 us, in two teams 428, a tenth 130, 233)."""
    bytes_alone = problem.sizes == (1,) and problem.values
    return lists_heads(problem) or (bytes_alone and not (problem.mask and problem.located))


def flow_rows(problem: Problem) -> int:
    """Return the rows of a chunk whose elements a warp holds, each in a register of its own. Bytes behind a mask have
    as many as other narrow elements, so that there are four stages of them (2**28 int8: half 164 us, by two stages of
    twice as many rows 171; a tenth 138, 154)."""
    if not problem.narrow:
        return most_rows(problem)
    rows = 2 * NARROW_ROWS if problem.sizes == (1,) and in_words(problem) and not problem.mask else NARROW_ROWS
    return power_of_two_below(rows // len(problem.sizes))


def flow(problem: Problem) -> Choice | None:
    """Return the launch of tiles that leave their stages early, if the array is long enough for that."""
    if problem.length < FLOW_LENGTH or not flows(problem):
        return None
    runs, rows = in_words(problem), flow_rows(problem)
    of_others = FLOW_OF_NARROW if problem.narrow else FLOW_OF_MASKS if problem.mask else FLOW
    base = (FLOW_OF_RUNS if problem.located else FLOW_OF_HEADS) if runs else of_others
    tile = base.compact_warps * rows * LANES
    ring, kept = sum(problem.sizes) + problem.mask, sum(problem.sizes) + 2 * problem.located
    stages = max(2, min(MAX_STAGES, FLOW_RING // (ring * tile)) // base.squads * base.squads)
    room = (FLOW_BYTES - stages * (ring * tile + problem.padding)) // kept
    if room < tile:
        return None
    room = min(room, base.entries * tile) // LANES * LANES
    return chosen(replace(base, rows=rows, stages=stages, room=room), problem)


def choose_columns(problem: Problem, tiles: Callable[[int], int], blocks: int = SMS) -> tuple[Choice, Choice]:
    """Return the policies and launches of a problem in columns: one counts, and one selects. ``tiles`` is the number of
    tiles of chunks of a length."""
    policy = with_stages(replace(COLUMNS, rows=min(COLUMNS.rows, most_rows(problem))), problem)
    counts = ColumnCountPolicy(COUNT_WARPS, policy.chunk)
    number = tiles(policy.chunk)
    return Choice(counts, number, ceil_div(number, counts.warps)), Choice(policy, number, min(blocks, number))


def sized(policy: PipelinePolicy, problem: Problem, tile: int) -> PipelinePolicy:
    """Return the policy with chunks and stages for tiles of some ``tile`` positions."""
    rows = min(most_rows(problem), max(MIN_ROWS, tile // (policy.compact_warps * LANES)))
    chunks = min(LANES, max(policy.compact_warps, tile // (rows * LANES)))
    narrow = problem.narrow and rows >= MIN_NARROW_ROWS
    return with_stages(replace(policy, rows=rows, chunks=chunks, narrow=narrow), problem)


def most_rows(problem: Problem) -> int:
    """Return the most rows of a chunk whose elements a warp can hold."""
    if problem.narrow:
        bytes_alone = problem.sizes == (1,) and not (problem.located or problem.inverse)
        return 2 * NARROW_ROWS if bytes_alone else NARROW_ROWS
    words = sum(max(1, size // 4) for size in problem.sizes) or 1
    return power_of_two_below(max(1, MAX_WORDS // words))


def with_stages(policy: P, problem: Problem) -> P:
    """Return the policy with as many stages as there is shared memory for."""
    tile = problem.bytes * policy.tile
    most = min(int(RING_BYTES / tile), int(PADDED_BYTES / (tile + problem.padding)))
    stages = min(MAX_STAGES, most) // policy.teams * policy.teams
    if stages == 0:
        allowed = f"elements of at most {int(RING_BYTES / (policy.tile * policy.teams))} bytes in all"
        raise ArgumentValueError(explain("x", f"{sum(problem.sizes)} bytes at each position", allowed))
    return replace(policy, stages=stages)
