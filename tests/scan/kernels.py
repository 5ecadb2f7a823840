"""Every scan kernel, made small: the configurations that tests put in the place of the chosen ones, so that a few
hundred elements make many tiles, rings that wrap and waits that matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from cutesync.kernels.hardware import LANES, VECTOR_BYTES
from cutesync.kernels.scan import backward_policy, column_policy, plan, ragged_column_policy, strided_policy
from cutesync.kernels.scan.cluster_policy import ColumnClusterPolicy
from cutesync.kernels.scan.column_groups import group_slots
from cutesync.kernels.scan.column_policy import (
    ColumnPolicy,
    ColumnStripPolicy,
    ColumnTilePolicy,
)
from cutesync.kernels.scan.column_vectors import in_vectors, skew_of_tiles
from cutesync.kernels.scan.layout import Layout
from cutesync.kernels.scan.narrow_policy import NarrowPolicy
from cutesync.kernels.scan.policy import LINE_BYTES, PipelinePolicy, RunPolicy
from cutesync.kernels.scan.problem import Choice, Problem
from cutesync.kernels.scan.ragged_column_policy import RaggedColumnPolicy
from cutesync.kernels.scan.row_policy import ROW_WARPS, RowPolicy, ShortRowPolicy
from cutesync.kernels.scan.slice_policy import SINGLE_THREADS, SinglePolicy, SlicePolicy
from cutesync.kernels.scan.wave_policy import WavePolicy
from cutesync.runtime import call
from cutesync.sync.lookback import slots_of

# Lengths and shapes at which the chosen kernels differ
SMALL = (1, 2, 3, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1009)
LARGE = (4099, 20011, 65537, 300007, 1299709, 10**7 + 19)
LONG = [
    (65536, 40),
    (40, 65536),
    (4096, 513),
    (1000, 1000),
    (3, 100_000),
    (100_000, 3),
    (20_000, 16),
    (16, 20_000),
    (300, 2, 300),
    (33, 129, 65),
    (2, 1 << 22),
    (1 << 22, 2),
    (2_200_001, 3),
    (9, 10_001),
]

Chooser = Callable[[Problem], Choice]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _tiles(problem: Problem, warps: int, rows: int, boundary: int) -> int:
    items = VECTOR_BYTES // math.gcd(VECTOR_BYTES, problem.inner * problem.wide)
    return _ceil(problem.length + boundary // problem.source - 1, warps * rows * LANES * items)


def _shift(problem: Problem) -> int | None:
    return problem.shift if problem.inner == 1 else 0


def short_rows(unroll: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        items, shift = problem.vector(problem.length)
        group = 1 << (problem.length // items - 1).bit_length()
        assert group <= LANES
        return Choice(
            ShortRowPolicy(items, group, unroll, shift), 1, _ceil(problem.rows, ROW_WARPS * (LANES // group) * unroll)
        )

    return choose


def rows(team: int, rows: int, ragged: bool = False) -> Chooser:
    def choose(problem: Problem) -> Choice:
        items, shift = (problem.items, problem.shift) if ragged else problem.vector(problem.length)
        assert _ceil(problem.length, items) + ragged <= team * rows * LANES
        return Choice(RowPolicy(items, team, rows, shift, ragged), 1, _ceil(problem.rows, max(1, ROW_WARPS // team)))

    return choose


def wave(warps: int, rows: int, asks: bool = True) -> Chooser:
    def choose(problem: Problem) -> Choice:
        tiles = _tiles(problem, warps, rows, VECTOR_BYTES)
        slots = problem.rows * tiles if tiles > 1 else 0
        policy = WavePolicy(tiles == 1, warps, rows, _shift(problem), asks=asks)
        return Choice(policy, tiles, problem.rows * tiles, slots, problem.inner)

    return choose


def pipeline(
    folders: int, squads: int, warps: int, rows: int, stages: int, blocks: int, look_aheads: int = 1
) -> Chooser:
    def choose(problem: Problem) -> Choice:
        tiles = _tiles(problem, warps, rows, LINE_BYTES)
        policy = PipelinePolicy(folders, squads, warps, rows, stages, _shift(problem), look_aheads=look_aheads)
        return Choice(policy, tiles, min(blocks, problem.rows * tiles), problem.rows * slots_of(tiles), problem.inner)

    return choose


def runs(vectors: int, stages: int, blocks: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        assert problem.places is not None
        tiles = _tiles(problem, 4, vectors, LINE_BYTES)
        policy = RunPolicy(4, 2, 4, vectors, stages, problem.shift, look_aheads=2, places=problem.places)
        return Choice(policy, tiles, min(blocks, problem.rows * tiles), problem.rows * slots_of(tiles))

    return choose


def columns(width: int, lanes: int, unroll: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        items, _ = problem.vector(problem.inner)
        each = min(width, items)
        tiles = _ceil(problem.inner // each, lanes)
        return Choice(ColumnPolicy(each, lanes, unroll, problem.aligned(each) == 0), tiles, problem.rows * tiles)

    return choose


def column_tiles(
    width: int,
    lanes: int,
    groups: int,
    height: int,
    group: int,
    blocks: int,
    prefetch: bool = False,
    fixed: bool = False,
) -> Chooser:
    """``blocks``: 0 if each has one tile."""

    def choose(problem: Problem) -> Choice:
        skew = skew_of_tiles(problem)
        if not in_vectors(problem, min(width, problem.items), lanes, groups, height, skew):
            skew = 0
        each = min(width, problem.items if skew else problem.vector(problem.inner)[0])
        tiles, chains = _ceil(problem.length, groups * height), problem.rows * _ceil(problem.inner // each, lanes)
        aligned = problem.aligned(each) == 0
        vectors = in_vectors(problem, each, lanes, groups, height, skew)
        alone, asks = tiles == 1, prefetch and tiles > 1
        flags = alone, aligned, asks, vectors, fixed
        policy = ColumnTilePolicy(each, lanes, groups, height, group, 1, *flags, skew, once=not blocks)
        if tiles == 1:
            return Choice(policy, 1, chains)
        slots = problem.rows * group_slots(tiles, group) * problem.inner
        return Choice(policy, tiles, min(blocks or chains * tiles, chains * tiles), slots)

    return choose


def column_clusters(width: int, lanes: int, groups: int, height: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        items, _ = problem.vector(problem.inner)
        each = min(width, items)
        blocks, chains = _ceil(problem.length, groups * height), problem.rows * _ceil(problem.inner // each, lanes)
        assert blocks <= groups
        policy = ColumnClusterPolicy(each, lanes, groups, height, 1, problem.aligned(each) == 0, blocks)
        return Choice(policy, 1, chains * blocks)

    return choose


def ragged_columns(lanes: int, groups: int, height: int, group: int, blocks: int, beside: int = 1) -> Chooser:
    """Of elements of up to two bytes; in place another kernel. ``beside`` warps have a tile each."""

    def choose(problem: Problem) -> Choice:
        width = ragged_column_policy.WORD_BYTES // problem.source
        if not problem.apart:
            return columns(1, 8, 4)(problem)
        whole = problem.aligned(width) == 0 and (problem.view is not None or problem.inner % width == 0)
        across = ragged_column_policy.across(problem, width, lanes, whole)
        tiles, chains = _ceil(problem.length, groups * height), problem.rows * across
        policy = RaggedColumnPolicy(width, lanes, groups, height, group, 1, tiles == 1, whole, tiles > 1, beside=beside)
        if tiles == 1:
            return Choice(policy, 1, _ceil(chains, beside))
        slots = problem.rows * group_slots(tiles, group) * _ceil(problem.inner, width) * width
        return Choice(policy, tiles, min(blocks, chains * tiles), slots)

    return choose


def column_strips(width: int, lanes: int, groups: int, height: int, stages: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        items, _ = problem.vector(problem.inner)
        each = min(width, items)
        policy = ColumnStripPolicy(each, lanes, groups, height, stages, 1, problem.aligned(each) == 0)
        strips = problem.rows * _ceil(problem.inner // each, lanes)
        return Choice(policy, _ceil(problem.length, groups * height), strips)

    return choose


def slabs(runs: int, run: int, stages: int, blocks: int, group: int, anywhere: bool = False) -> Chooser:
    """``anywhere``: tiles need not begin on boundaries of 16 bytes."""

    def choose(problem: Problem) -> Choice:
        tiles = _ceil(problem.length, runs * run)
        assert runs * run * problem.inner * problem.source % VECTOR_BYTES == 0
        slots = problem.rows * group_slots(tiles, group) * problem.inner
        policy = NarrowPolicy(problem.inner, runs, run, stages, group, not anywhere)
        return Choice(policy, tiles, min(blocks, problem.rows * tiles), slots)

    return choose


def outer_slices(segments: int, count: int, anywhere: bool = False) -> Chooser:
    """``anywhere``: tiles need not begin on boundaries of 16 bytes."""

    def choose(problem: Problem) -> Choice:
        aligned = not anywhere and count * problem.length * problem.inner * problem.source % VECTOR_BYTES == 0
        capacity = count * (problem.length * problem.inner + VECTOR_BYTES)
        return Choice(SlicePolicy(segments, capacity, aligned, aligned, 1), count, _ceil(problem.rows, count))

    return choose


def singles(unroll: int) -> Chooser:
    def choose(problem: Problem) -> Choice:
        width, _ = problem.vector(problem.items)
        each = problem.length * problem.inner
        grid = _ceil(problem.rows * each, width * unroll * SINGLE_THREADS)
        return Choice(SinglePolicy(width, unroll, problem.aligned(width) == 0, problem.length, problem.inner), 1, grid)

    return choose


# name: (choice, shape of 4-byte elements, axis)
KERNELS: dict[str, tuple[Chooser, tuple[int, ...], int]] = {
    "short rows of vectors": (short_rows(2), (130, 24), 1),
    "short rows of elements": (short_rows(4), (130, 19), 1),
    "rows by one warp": (rows(1, 2), (11, 126), 1),
    "rows by two warps": (rows(2, 2), (5, 101), 1),
    "rows by eight warps": (rows(8, 1), (3, 900), 1),
    "a row by sixteen warps": (rows(16, 1), (1, 1800), 1),
    "ragged rows": (rows(2, 2, ragged=True), (5, 403), 1),
    "one tile": (wave(4, 2), (1, 1001), 1),
    "rows of one tile": (wave(2, 2), (3, 501), 1),
    "rows of three vectors a lane": (wave(2, 3), (3, 701), 1),
    "rows of six vectors a lane": (wave(2, 6), (2, 1301), 1),
    "a wave": (wave(2, 1), (1, 1803), 1),
    "a wave without requests": (wave(2, 2, asks=False), (1, 1803), 1),
    "a wave of rows": (wave(2, 1), (3, 701), 1),
    "few columns in a wave": (wave(2, 1), (2, 150, 4), 1),
    "columns": (columns(4, 8, 4), (2, 37, 36), 1),
    "columns in one tile": (column_tiles(2, 8, 5, 4, 8, 2), (19, 22), 0),
    "tiles of columns": (column_tiles(4, 4, 4, 2, 3, 3, True), (2, 101, 12), 1),
    "tiles of columns, one a block": (column_tiles(4, 4, 4, 2, 3, 0, True), (2, 101, 12), 1),
    "tiles of columns in vectors": (column_tiles(1, 16, 4, 4, 2, 3, True), (2, 53, 20), 1),
    "tiles of columns by one block": (column_tiles(2, 3, 2, 5, 2, 1), (2, 43, 10), 1),
    "outer slices": (outer_slices(1, 4), (9, 21, 12), 1),
    "outer slices of odd rows": (outer_slices(1, 8), (61, 21), 1),
    "outer slices in pieces": (outer_slices(8, 2), (5, 100, 20), 1),
    "outer slices of few columns": (outer_slices(64, 1), (3, 403, 4), 1),
    "outer slices that begin anywhere": (outer_slices(8, 1, anywhere=True), (5, 99, 5), 1),
    "single elements": (singles(2), (2101, 1), 1),
    "slices of a vector": (singles(2), (1051, 2, 1), 1),
    "clusters of columns": (column_clusters(2, 4, 8, 2), (2, 45, 12), 1),
    "tiles of columns by many": (column_tiles(1, 16, 4, 3, 2, 128), (61, 19), 0),
    "slabs": (slabs(4, 3, 3, 2, 4), (203, 5), 0),
    "slabs of many runs": (slabs(64, 3, 2, 2, 3), (403, 3), 0),
    "slabs of rows": (slabs(8, 2, 2, 3, 2), (2, 101, 12), 1),
    "slabs by many": (slabs(4, 5, 3, 4, 128), (150, 33), 0),
    "pipeline, small ring": (pipeline(4, 2, 4, 1, 2, 3), (1, 4203), 1),
    "pipeline, three squads": (pipeline(4, 3, 4, 1, 3, 2), (1, 3603), 1),
    "pipeline, all in turn, one block": (pipeline(8, 1, 4, 1, 2, 1, 2), (1, 2603), 1),
    "few columns in a pipeline": (pipeline(4, 1, 4, 1, 2, 2), (300, 4), 0),
    "pipeline of rows": (pipeline(4, 2, 4, 1, 4, 3), (3, 1301), 1),
}


CHOSEN = strided_policy.strided


@dataclass(frozen=True)
class StridedTiles:
    """Tiles of scans of strided arrays, of which there are several."""

    lanes: int
    height: int
    group: int
    blocks: int
    wide: bool = False

    def __call__(self, problem: Problem, layout: Layout) -> Choice:
        choice = CHOSEN(problem, layout)
        layout = strided_policy.ordered(problem, layout)
        sizes = {"lanes": self.lanes, "height": self.height, "group": self.group, "wide": self.wide}
        along = choice.policy.along
        units = strided_policy.units_of(problem, layout, along, self.lanes, self.height)
        policy = replace(choice.policy, **sizes, units=units, blocks_per_sm=1, alone=False)
        tiles, chains = _ceil(layout.length, policy.tile), _ceil(layout.count, self.lanes)
        if tiles == 1:
            return replace(choice, policy=replace(policy, alone=True), tiles=1, grid=chains, slots=0)
        slots = group_slots(tiles, self.group) * layout.count
        return replace(choice, policy=policy, tiles=tiles, grid=min(self.blocks, chains * tiles), slots=slots)


def force(monkeypatch, choice: Chooser | StridedTiles) -> None:
    """Make every scan of this test run with this configuration."""
    if isinstance(choice, StridedTiles):
        monkeypatch.setattr(strided_policy, "strided", choice)
        monkeypatch.setattr(plan, "suits", lambda problem: False)
    else:
        monkeypatch.setattr(plan, "choose", lambda problem: replace(choice(problem), view=problem.view))
        monkeypatch.setattr(plan, "suits", lambda problem: True)
    monkeypatch.setattr(call, "_plans", {})


def force_backward(monkeypatch, choice: Chooser | None = None) -> None:
    """Make scans of columns that run backwards run by the kernels of columns, with this configuration."""
    monkeypatch.setattr(backward_policy, "_gains", lambda *_: True)
    if choice is not None:
        monkeypatch.setattr(column_policy, "columns", choice)
    monkeypatch.setattr(call, "_plans", {})
