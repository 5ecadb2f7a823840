"""Which sizes a call that decodes runs has: a pure function of lengths and types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...sizes import ceil_div, power_of_two_below
from ..hardware import LANES, LINE_BYTES, SMS
from ..policy import Policy

GROUP = 128  # runs whose results a warp adds up at once
WINDOW = 32 * LANES  # neighbouring results that a warp stores at once
SCRATCH_BYTES = 2 * WINDOW  # of a warp that stores results of one or two bytes
SHARED_BYTES = 226 << 10
SMALL_RUNS = 1 << 19  # of fewer runs, smaller tiles leave less of the GPU idle
# Of MANY_RESULTS a run, smaller tiles are seldom stored in parts (so are tiles of half the size of narrow elements from
# SOME_RESULTS on: 2**28 int8 in runs of 24 94 us, 97); of FEW_RESULTS, the time of a tile hardly depends on its size.
# Those of 8 bytes take less in small tiles up to SOME_RESULTS (H200, 2**27 int64 in runs of 8 351 us, 366), but not of
# FEW_RESULTS (2**26 in runs of 1 592 us, 494). Narrow ones are stored in two windows in a row (2**28 int8 in runs of 8
# 133 us, one 140), but not of FEW_RESULTS (runs of 1 743 us, 630); wide ones never (2**27 int64 in runs of 24 298 us,
# in two 301).
MANY_RESULTS, SOME_RESULTS, FEW_RESULTS, ONE_RESULT = 32, 16, 4, 2
FEW_GROUPS = 8  # of a small tile
MAX_STAGES, NARROW_STAGES = 8, 12


class Block(NamedTuple):
    """Groups of a tile, and warps of a block: those of a squad that find where runs begin, those that store; squads."""

    groups: int
    place: int
    store: int
    squads: int


# A tile takes as long to be placed as a trip through two barriers, however small it is: two squads place narrow
# elements of short runs, tiles in turn (2**28 int8 in runs of 1 459 us, one squad 553). Where there is more to store
# than to place, 16 warps do that; more would leave too few registers (of int8 in runs of 8 121 us, 12 124, but of 1
# 546, 459; int16 of 1 303, 352, 14 warps and tiles of 28 groups 289, of 1.5 228, 224).
TWO_SQUADS, OF_LONG_LENGTHS = Block(24, 6, 16, 2), Block(16, 8, 12, 2)
OF_SHORTEST = {1: Block(32, 8, 12, 2), 2: Block(28, 7, 14, 2)}
TWO_SQUADS_UP_TO = {1: SOME_RESULTS, 2: 8}  # results a run of elements of a size
# Of the shortest runs of wide elements, more warps place two groups each, of smaller tiles (2**27 int32 in runs of 1
# 408 us; 16 warps of 32 groups, and 12 that store, 453).
ONE_SQUAD, DENSE = Block(16, 8, 16, 1), Block(32, 8, 16, 1)
SHORTEST = Block(24, 12, 16, 1)
# Of as many results a run, searches in sums are as fast as one pass (H200; 64 are not). Of more than MANY_WIDE wide
# results, smaller tiles are stored at once (2**28 int32 in runs of 200 284 us, by searches 292, of 130 295, 312, Zipf
# lengths 306, 309; 2**27 int64 in runs of 100 280, 306, but Zipf lengths 308 to 315, 302).
LONG_RESULTS, LONG_WIDE, MANY_WIDE = 96, {4: 250, 8: 120}, 1 << 27
# narrow results that one pass is better for: up to so many, and from so many on
AT_ONCE, MANY_NARROW = 1 << 14, 1 << 23
# Of kernels that search
RESULTS = 8 * WINDOW  # of a block
MAX_TURNS = 8  # tiles that a warp makes of one search
MANY_BLOCKS = 2640  # with fewer, four for each place of a GPU, a warp makes one
GROUPS = 8 * 8  # groups whose sums a block stores
TILE_WORDS = 7  # 64-bit words of a tile in the workspace (``decode_ahead.Board``)
# A tile that has more results than one of so many parts of all is stored by several blocks. More tiles of bytes are
# stored at once if there are few parts (2**28 int8 in runs of 200 77 us instead of 108, Zipf lengths 86, 109; but of
# int32 322, 303).
PARTS, FEW_PARTS = 2048, 1024
# Results; of longer runs, tiles have fewer groups (2**28 int8 in runs of 1000 75 us, 78, of 200 in tiles of eight
# groups 77, of four 80). Those of narrow elements have more, up to LONG_RESULTS a run (int16 in runs of 64 in sixteen
# groups 147 us, eight 159, but of 100 152, 148).
LARGE_TILE, LARGE_WIDE_TILE = 210_000, 105_000
UNIT = 8 * WINDOW  # results of which a block stores its share of those of such tiles


@dataclass(frozen=True)
class DecodePolicy(Policy, kernel=".decode:Decode"):
    """Resident blocks with a ring of ``stages`` tiles of ``groups`` groups of runs; ``place_warps`` of each of one or
    two ``squads``, which take tiles in turn, find where the runs of a tile begin, and ``store_warps`` store its
    results, ``windows`` windows in a turn. ``dense``: most results, a byte each, begin runs, whose marks are made of
    words (2**28 int8 in runs of 1 461 us, 520 without, but of 3 242, 227). There are 32 groups at most, as many as the
    warp has lanes that publishes a tile."""

    groups: int
    place_warps: int
    store_warps: int
    stages: int
    windows: int
    squads: int = 1
    dense: bool = False

    @property
    def tile(self) -> int:
        """Runs of a tile."""
        return self.groups * GROUP

    def stage_bytes(self, size: int, length: int) -> int:
        """Shared memory of a stage; of values of ``size`` bytes and lengths of ``length`` bytes."""
        behind = GROUP * (4 + (size if size < 4 else 0))
        return self.tile * (size + max(length, 4)) + behind + 4 * LINE_BYTES + 12 * self.groups + 128

    def fixed_bytes(self, size: int) -> int:
        """Shared memory besides."""
        return self.store_warps * scratch_bytes(size) + 4 * LINE_BYTES

    def bytes(self, size: int, length: int) -> int:
        """Upper bound of the shared memory."""
        return self.stages * self.stage_bytes(size, length) + self.fixed_bytes(size)


def window_of(size: int) -> int:
    """How many results of ``size`` bytes a warp stores at once."""
    return SCRATCH_BYTES // size if size < 4 else WINDOW


def scratch_bytes(size: int) -> int:
    """Shared memory of a warp that stores results of ``size`` bytes."""
    return SCRATCH_BYTES if size < 4 else WINDOW


class Choice(NamedTuple):
    """A policy and its launch. Tiles of more than ``limit`` results are stored in parts, of ``unit`` results or a
    multiple."""

    policy: DecodePolicy
    tiles: int
    grid: int
    limit: int
    unit: int


def searches(runs: int, results: int, size: int, strided: bool) -> bool:
    """Whether ``runs`` of so many results of ``size`` bytes are decoded by searches in sums of their lengths. Those of
    strided arrays are, whose elements few warps of a pipeline would have to gather (H200, every second of 2**25 int32:
    453 us, in one pass 480). Narrow elements are stored faster in one pass, unless it mostly waits (2**28 int8 in runs
    of 1000 78 us, by searches 103, Zipf lengths 86, 118; 2**22 in runs of 1000 10.4, 8.6)."""
    narrow = size < 4 and not AT_ONCE < results < MANY_NARROW
    long = LONG_WIDE.get(size, LONG_RESULTS) if results >= MANY_WIDE else LONG_RESULTS
    return strided or (results >= long * runs and not narrow)


def choose(runs: int, results: int, size: int, length: int) -> Choice:
    """Return the launch for ``runs`` values of ``size`` bytes and lengths of ``length`` bytes, and ``results``."""
    small, few, shortest = runs < SMALL_RUNS, results < FEW_RESULTS * runs, results < ONE_RESULT * runs
    shallow = size == 8 and not few and results < SOME_RESULTS * runs
    narrow, many = size < 4, results >= (MANY_NARROW if size < 4 else MANY_WIDE)
    if small or shallow or runs < results // (SOME_RESULTS if size == 2 else MANY_RESULTS):
        groups = groups_at_once(runs, results, size) if many else FEW_GROUPS
        block = ONE_SQUAD._replace(groups=groups, place=min(groups, ONE_SQUAD.place))
    elif narrow:
        block = block_of_narrow(runs, results, size, length)
    elif size == 4 and length <= 4 and few:
        block = SHORTEST if shortest else DENSE
    else:
        block = ONE_SQUAD
    windows = 2 if narrow and not few and (many or not small) else 1
    dense = size == 1 and shortest
    policy = DecodePolicy(block.groups, block.place, block.store, block.squads, windows, block.squads, dense)
    fitting = (SHARED_BYTES - policy.fixed_bytes(size)) // policy.stage_bytes(size, length)
    # of fewer tiles a block, some would draw more than their share at first (2**28 int16 in runs of 200 154 us, 142)
    share = runs // (SMS * policy.tile)
    most = max(MAX_STAGES, min(NARROW_STAGES, share)) if narrow else MAX_STAGES
    return launch(replace(policy, stages=min(most, fitting) // block.squads * block.squads), size, runs, results)


def block_of_narrow(runs: int, results: int, size: int, length: int) -> Block:
    """Return the warps of a block for many short runs of narrow elements."""
    if length > 4:
        return OF_LONG_LENGTHS if results < SOME_RESULTS * runs else ONE_SQUAD
    if results < ONE_RESULT * runs:
        return OF_SHORTEST[size]
    return TWO_SQUADS if results < TWO_SQUADS_UP_TO[size] * runs else ONE_SQUAD


def groups_at_once(runs: int, results: int, size: int) -> int:
    """Return the groups of a small tile: fewer of long runs, if it is stored at once then."""
    large = LARGE_TILE if size < 4 else LARGE_WIDE_TILE
    fitting = large * runs // (GROUP * results)
    if results < parts_of(size) * large or fitting == 0:
        return FEW_GROUPS
    medium = size < 4 and MANY_RESULTS * runs <= results < LONG_RESULTS * runs
    return min(2 * FEW_GROUPS if medium else FEW_GROUPS, power_of_two_below(fitting))


def parts_of(size: int) -> int:
    """Return of how many parts of all results a tile has one at most, if it is stored at once."""
    return PARTS if size == 4 else FEW_PARTS


def launch(policy: DecodePolicy, size: int, runs: int, results: int) -> Choice:
    """Return the launch of a policy for values of ``size`` bytes."""
    tiles = max(1, ceil_div(runs, policy.tile))
    limit = max(16 * policy.tile, ceil_div(results, parts_of(size) * WINDOW) * WINDOW)
    grid = min(SMS, max(tiles, ceil_div(results, UNIT)))
    return Choice(policy, tiles, grid, limit, UNIT)
