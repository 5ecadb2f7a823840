"""How many tiles of columns are a group of the look-back."""

from __future__ import annotations

from ...sizes import ceil_div, power_of_two, power_of_two_below
from .problem import SMS

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
