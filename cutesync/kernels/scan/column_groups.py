"""How many tiles of columns are a group of the look-back, and which are one wave of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import SMS
from .problem import Problem

TILE_THREADS, TILE_BLOCKS = 256, 3  # of a block; blocks of an SM
MAX_UNIT = 8  # rows that a thread combines at once
MIN_TILE_GROUP, MAX_TILE_GROUP = 8, 128  # tiles whose aggregates one look-back reads
# Three chains of tiles or more side by side read 4 to 8 MiB while the end of a group is passed on, which takes 2.5 us
# (H200, reverse uint8 (101672, 323) of rows of 374: 58.8 us, so 48.8 us; int64 (19064, 303): 40.0 and 36.7 us; with
# twice as many tiles in a group float32 (2**20, 64): 153.9 us, so 159.4 us, lambda uint16 (96869, 276): 57.3 and 60.2
# us; with two chains uint64 (23811, 44): 12.3 and 12.7 us). Groups of tiles of several arrays are not measured.
GROUP_BYTES, MIN_GROUPED_CHAINS = 4 << 20, 3


def group_of(chains: int, tile_bytes: int) -> int:
    """Return how many tiles are a group: its end is passed on while all chains read those of the next one.
    ``tile_bytes``: 0 if a wave of tiles is enough."""
    group = power_of_two_below(max(1, SMS // chains))
    if tile_bytes and chains >= MIN_GROUPED_CHAINS:
        group = max(group, power_of_two(GROUP_BYTES // (chains * tile_bytes)))
    return min(MAX_TILE_GROUP, max(MIN_TILE_GROUP, group))


def group_slots(tiles: int, group: int) -> int:
    """Return the number of slots of a column of ``tiles`` tiles: one for each tile of each group, and one for what
    comes before the group."""
    return ceil_div(tiles, group) * (group + 1)


def one_wave(
    problem: Problem,
    chains: int,
    shape: tuple[int, int],
    heights: Sequence[int],
    resident: Callable[[int, int], int],
) -> tuple[int, int] | None:
    """Return one of the ``heights`` of a group, and the number of tiles of a chain, with which one wave of blocks has a
    tile each: as few as possible on each SM, and equally many. ``shape`` are the groups and the threads of a block;
    ``resident`` says how many blocks an SM holds. None if there is no such height."""
    groups, threads = shape
    for blocks in range(1 if threads > TILE_THREADS // 2 else 2, TILE_BLOCKS + 1):
        tiles = SMS * blocks // chains
        tiles -= tiles % MAX_TILE_GROUP if tiles > MAX_TILE_GROUP else 0
        if tiles == 0:
            continue
        rows = ceil_div(problem.length, groups * MAX_UNIT * tiles) * MAX_UNIT
        fits = [h for h in heights if h >= rows and resident(h, 2) >= blocks]
        if fits:
            return fits[0], ceil_div(problem.length, groups * (fits[0] if problem.counted else rows))
    return None
