"""Which tiles of columns have one block each, as the blocks that share one wait for each other: a pure function of the
problem."""

from __future__ import annotations

from ...sizes import ceil_div
from ..hardware import SMS
from .copies import SECTOR_BYTES
from .strided_problem import THREADS

# Tiles of columns of a small array that few blocks would share, at most so many, have one block each if they have fewer
# positions (H200, argmax int8 (256, 8, 512, 2) along its first axis: 4.7 us, so 2.3 us; max int16 (557, 3500): 4.4 and
# 3.9 us; but argmax uint16 (877, 2096): 5.4 and 6.0 us). So have slices of one vector in larger arrays, with more
# positions (squares uint8 (1024, 1024, 8): 8.7 us, so 5.7 us; argmax int8 (2089, 1314, 4): 8.6 and 7.5 us).
MAX_LONE_SHARE, MAX_LONE_LENGTH, MAX_LONE_BYTES = 3, (768, 2048), (1 << 22, 1 << 24)
# So have up to a wave of tiles of a sector or more of small arrays, of twice as many threads: partials of blocks take
# longer (enter, publish, collect) than some more loads. Bytes of an array; groups of a block and positions of a thread
# (H200, argmax bool (32, 1024, 64) along axis 1: 5.1 us, so 3.0 us; sum uint32 (4, 512, 256): 4.2 and 2.7 us; max int32
# (861, 196): 2.8 and 2.0 us; but any float32 (2539, 64), of 20 positions: 2.9 and 3.1 us; max int16 (8, 2141, 128), of
# 34: 4.2 and 4.6 us). With 256 groups of vectors they take as long.
MAX_WIDE_BYTES, WIDE_GROUPS = 1 << 23, {128: 16, 64: 24}


def lone_block(
    kind: str, load_bytes: int, units: int, near: int, length: int, total: int, groups: int, splits: int
) -> tuple[int, int] | None:
    """Return the threads and the groups of blocks that have a tile each, where ``splits`` of other ``groups`` would
    share one; None if these are as fast."""
    tiles, one = ceil_div(units, THREADS // groups), near <= 1  # slices of one vector
    few = splits <= MAX_LONE_SHARE and tiles >= SMS // 2 and total <= MAX_LONE_BYTES[one]
    if kind == "vector" and few and length < MAX_LONE_LENGTH[one]:
        return THREADS, groups
    for groups, most in WIDE_GROUPS.items():
        lanes = 2 * THREADS // groups
        fits = lanes <= near and lanes * load_bytes >= SECTOR_BYTES and ceil_div(units, lanes) <= SMS
        if fits and length <= most * groups and total <= MAX_WIDE_BYTES:
            return 2 * THREADS, groups
    return None
