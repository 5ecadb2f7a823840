"""Which kernel scans an array, with which sizes: a function of lengths, types and alignment, never of the chip.

The thresholds were measured on an H200 (132 SMs); because they do not depend on the chip, neither does any result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...sizes import ceil_div, power_of_two

SMS = 132  # multiprocessors the block counts are tuned for
VECTOR_BYTES = 16
LINE_BYTES = 128  # of memory: the pipeline's tiles begin on whole lines
LANES = 32
ROW_WARPS = 8  # of rows.py
MOST_WARPS = 16  # that scan one short row: up to 16 KiB one block is faster than several that must agree
LEAST_BYTES = 8  # of a vector: where only narrower ones divide a row, its vectors are taken as they lie in memory
GROUP = 128  # tiles, of sync.lookback: a row of a pipeline has a multiple of so many slots
LARGE_BYTES = 24 << 20  # from here on the pipeline is faster than a wave of blocks
PIPELINE = (4, 2, 4, 16, 6)  # folders, squads, warps, rows, stages: tiles of 32 KiB
SLAB_BYTES = 1 << 15  # of a few columns: shorter ones go to columns.py
SLAB_COLUMNS = 64  # the most that stream through shared memory
SLAB_TILE, SLAB_STAGES = 1 << 16, 3  # bytes, and tiles in the ring
SLAB_WORKERS, LEAST_RUNS = 256, 8  # threads, unless there would be fewer runs
MOST_SEGMENTS = 512  # blocks that share a column


@dataclass(frozen=True)
class Problem:
    """``length`` elements are scanned for each of rows * inner. ``source`` and ``result`` are element sizes in bytes,
    ``x`` and ``out`` the addresses (as far as their alignment goes)."""

    rows: int
    length: int
    inner: int
    source: int
    result: int
    x: int
    out: int

    @property
    def wide(self) -> int:
        return max(self.source, self.result)

    @property
    def items(self) -> int:
        """Elements in a vector of 16 bytes of the wider type."""
        return VECTOR_BYTES // self.wide

    @property
    def shift(self) -> int | None:
        """How many elements past a boundary out's vectors begin where x's are aligned; None where they are narrower
        than a word."""
        shift = (self.out // self.result - self.x // self.source) % self.items
        return shift if shift == 0 or self.items * self.result >= 4 else None

    def vector(self, extent: int) -> tuple[int, int | None]:
        """``(items, shift)``: the most elements of a vector that divides ``extent`` and is aligned in x; 0 if it is in
        out too, else None."""
        items = self.items
        while extent % items or self.x % (items * self.source):
            items //= 2
        return items, self.aligned(items)

    def aligned(self, items: int) -> int | None:
        return 0 if self.out % (items * self.result) == 0 else None


@dataclass(frozen=True)
class Policy:
    """Compile-time choices of a kernel; ``kernel`` is the name of its class, in the file ``module``."""

    module: ClassVar[str]
    kernel: ClassVar[str]


@dataclass(frozen=True)
class ShortRowPolicy(Policy):
    """Several rows a warp: ``group`` lanes a row, a vector of ``items`` elements each."""

    module, kernel = ".rows", "ShortRowScan"

    items: int
    group: int
    unroll: int
    shift: int | None


@dataclass(frozen=True)
class RowPolicy(Policy):
    """A row for ``team`` warps of one block, ``rows`` vectors a lane; ``ragged`` rows begin anywhere."""

    module, kernel = ".rows", "RowScan"

    items: int
    team: int
    rows: int
    shift: int | None
    ragged: bool


@dataclass(frozen=True)
class WavePolicy(Policy):
    """A tile for each block: ``warps`` chunks of ``rows`` vectors a lane; ``alone``: a row is one tile."""

    module, kernel = ".wave", "WaveScan"

    alone: bool
    warps: int
    rows: int
    shift: int | None


@dataclass(frozen=True)
class PipelinePolicy(Policy):
    """Resident blocks with a ring of ``stages`` tiles: ``folders`` warps reduce, ``squads`` of ``warps`` warps scan and
    store."""

    module, kernel = ".pipeline", "PipelineScan"

    folders: int
    squads: int
    warps: int
    rows: int
    stages: int
    shift: int | None


@dataclass(frozen=True)
class ColumnPolicy(Policy):
    """An axis that is not the last: ``lanes`` units of ``width`` columns by ``groups`` of rows; blocks may ``split``
    the rows."""

    module, kernel = ".columns", "ColumnScan"

    width: int
    lanes: int
    groups: int
    unroll: int
    split: bool
    aligned_out: bool


@dataclass(frozen=True)
class NarrowPolicy(Policy):
    """Few columns (``inner``), streamed through shared memory: ``runs`` of ``height`` rows a tile."""

    module, kernel = ".narrow", "NarrowScan"

    inner: int
    runs: int
    height: int
    stages: int
    group: int


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` cover a row; ``slots`` states are published, of ``width`` columns."""

    policy: Policy
    tiles: int
    grid: int
    slots: int = 0
    width: int = 1


def choose(problem: Problem) -> Choice:
    """The one configuration of a problem with at least one element."""
    if problem.inner > 1:
        if _narrow(problem):
            return _slabs(problem)
        return _long_rows(problem, problem.inner) if _few_columns(problem) else _columns(problem)
    items, shift = problem.vector(problem.length)
    vectors = problem.length // items
    if problem.rows > 1 and vectors <= LANES:
        group = power_of_two(vectors)
        return Choice(
            ShortRowPolicy(items, group, 4, shift), 1, ceil_div(problem.rows, ROW_WARPS * (LANES // group) * 4)
        )
    most = LANES * (2 * MOST_WARPS if problem.rows == 1 else 16 * ROW_WARPS)
    ragged = problem.length > LANES * problem.items and (items * problem.wide < LEAST_BYTES or vectors > most)
    if ragged:
        items, shift = problem.items, problem.shift
        vectors = ceil_div(problem.length + VECTOR_BYTES // problem.source - 1, items)
    if vectors > most:
        return _long_rows(problem)
    if problem.rows == 1:
        return Choice(RowPolicy(items, MOST_WARPS, 2, shift, ragged), 1, 1)
    team, rows = _ragged_team(vectors) if ragged else _team(vectors)
    return Choice(RowPolicy(items, team, rows, shift, ragged), 1, ceil_div(problem.rows, ROW_WARPS // team))


def _ragged_team(vectors: int) -> tuple[int, int]:
    """As ``_team``: few warps with many rows each, as both ends of a row take a warp as long as many vectors."""
    team = min(power_of_two(ceil_div(vectors, 10 * LANES)), ROW_WARPS)
    return team, ceil_div(vectors, team * LANES)


def _team(vectors: int) -> tuple[int, int]:
    """Warps a row and rows of vectors a warp."""
    rows = 2 if vectors <= 64 else 4
    team = min(power_of_two(ceil_div(vectors, rows * LANES)), ROW_WARPS)
    while team * rows * LANES < vectors:
        rows *= 2
    return team, rows


def _few_columns(problem: Problem) -> bool:
    """Whether a position of all columns makes one state of registers, and every slab is long and begins on a
    boundary."""
    slab = problem.length * problem.inner
    starts = [problem.x, problem.out] + ([slab * problem.source, slab * problem.result] if problem.rows > 1 else [])
    return (
        problem.inner <= 4
        and problem.inner * problem.wide <= VECTOR_BYTES
        and slab * problem.wide >= SLAB_BYTES
        and not any(at % VECTOR_BYTES for at in starts)
    )


def _narrow(problem: Problem) -> bool:
    """Whether slabs are worth streaming through shared memory, and tiles of them can be copied and scanned in place."""
    slab = problem.length * problem.inner * problem.source
    starts = (problem.x, problem.out, slab if problem.rows > 1 else 0)
    fits = (
        problem.inner <= SLAB_COLUMNS
        and problem.source == problem.result
        and not any(at % VECTOR_BYTES for at in starts)
    )
    if problem.inner == 2 or problem.source < 4:
        fits &= not _few_columns(problem)  # these are faster side by side
    return fits and 2 * problem.rows * slab > LARGE_BYTES and slab >= 8 * SLAB_TILE


def _slabs(problem: Problem) -> Choice:
    inner, size = problem.inner, problem.source
    runs = max(LEAST_RUNS, min(LANES, 1 << (SLAB_WORKERS // inner).bit_length() - 1))
    apart = (
        128 // size // math.gcd(128 // size, inner) if inner <= 16 else 1
    )  # runs of a multiple of it and one rows begin in banks of their own
    run = (SLAB_TILE // (size * inner * runs) - 1) // apart * apart + 1
    while runs * run * inner * size % VECTOR_BYTES:
        run -= 1
    tiles = ceil_div(problem.length, runs * run)
    slots = problem.rows * (tiles + ceil_div(tiles, GROUP)) * inner
    return Choice(NarrowPolicy(inner, runs, run, SLAB_STAGES, GROUP), tiles, min(SMS, problem.rows * tiles), slots)


def _long_rows(problem: Problem, width: int = 1) -> Choice:
    items = VECTOR_BYTES // math.gcd(VECTOR_BYTES, width * problem.wide)
    vector = items * width * problem.wide  # bytes
    total = problem.rows * problem.length * width * problem.wide
    shift = problem.shift if width == 1 else 0

    def fitted(rows: int) -> int:
        """The most rows, a power of two, whose vectors take no more registers than ``rows`` of 16 bytes, and with their
        prefixes twice as many. Half of them where elements do not fill a register each, or fill two: with more the
        pipeline spills."""
        if width == 1:
            return rows
        most = min(rows * VECTOR_BYTES // vector, rows * 8 // (vector // 4 + width * max(1, problem.wide // 4)))
        return 1 << max(most if problem.wide == 4 else most // 2, 1).bit_length() - 1

    def tiles_of(warps: int, rows: int, boundary: int) -> int:
        slack = (
            boundary // problem.source - 1 if width == 1 else items - 1
        )  # positions that may be missing before the first element
        return ceil_div(problem.length + slack, warps * fitted(rows) * LANES * items)

    folders, squads, warps, rows, stages = PIPELINE
    tiles = tiles_of(warps, rows, LINE_BYTES)
    if total > LARGE_BYTES and tiles > 1:
        slots = problem.rows * ceil_div(tiles, GROUP) * GROUP
        return Choice(
            PipelinePolicy(folders, squads, warps, fitted(rows), stages, shift),
            tiles,
            min(SMS, problem.rows * tiles),
            slots,
            width,
        )
    warps, rows = (
        (4, 4) if total <= 1 << 19 else (8, 4) if total <= 1 << 21 else (8, 8) if total <= 6 << 20 else (8, 16)
    )
    tiles = tiles_of(warps, rows, VECTOR_BYTES)
    return Choice(
        WavePolicy(tiles == 1, warps, fitted(rows), shift),
        tiles,
        problem.rows * tiles,
        problem.rows * tiles if tiles > 1 else 0,
        width,
    )


def _columns(problem: Problem) -> Choice:
    items, _ = problem.vector(problem.inner)
    while items > 1 and problem.rows * (problem.inner // items) < SMS * 240:
        items //= 2
    units = problem.inner // items
    lanes = min(power_of_two(units), 128)
    tiles = ceil_div(units, lanes)
    blocks = problem.rows * tiles
    groups = 1
    if problem.rows * units < SMS * 256:  # too few columns to fill the GPU: groups and blocks share the rows
        groups = min(128 // lanes, power_of_two(problem.length // 16 + 1))
    splits = (
        min(ceil_div(SMS * 8, blocks), problem.length // (groups * 16), MOST_SEGMENTS)
        if groups > 1 or blocks < SMS
        else 1
    )
    splits = max(1, splits)
    slots = problem.rows * splits * problem.inner if splits > 1 else 0
    unroll = 32 if items * problem.source <= 8 and groups == 1 else 16
    return Choice(
        ColumnPolicy(items, lanes, groups, unroll, splits > 1, problem.aligned(items) == 0),
        tiles,
        blocks * splits,
        slots,
    )
