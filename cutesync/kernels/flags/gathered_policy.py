"""Results that would be stored one by one down the rows: of small arrays, threads lie in the order of results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.layout import Axis
from ...sizes import ceil_div
from .form import Form
from .order import pace_in, pace_out
from .strided_choice import MAX_NARROW, THREADS, Facts, StridedChoice, TilePolicy

# Up to so many threads have one row each, in smaller blocks (H200, heads int32 (220, 26): 1.4 us, so 1.1 us; both bool
# (228, 67) transposed: 2.0 us, so 1.1 us).
FEWEST_THREADS, FEW_IN_BLOCK = 1 << 15, 128
# Others have so many rows of the axis of the smallest stride of the input (H200, both int16 (3, 4, 40197) along its
# first axis, read in the order of 2, 1, 0: tiles down the rows 10.3 us, of one row 2.9 us, of two 2.6 us, of four 2.0
# us), in arrays of so many elements; fewer if tiles are runs of memory (tails bfloat16 (2, 1115973) transposed: 9.4 us,
# so 5.9 us, but runs 4.2 us), in place of blocks that transpose (heads uint8 (66, 814) transposed: 1.7 us, so 1.0 us;
# but tails bool (2, 16, 76, 46), read in the order of 0, 3, 1, 2: 1.8 and 2.1 us), and where results of neighbours in
# the input are less than so many elements apart (tails uint8 (145247, 6, 3), read in the order of 0, 2, 1: 4.8 and 6.5
# us): of two bytes (heads int16 (17354, 2, 3): 1.3 us, so 1.1 us), and of others.
ROWS, MAX_GATHERED, MAX_RUNS, MAX_BLOCKS, MIN_APART = 4, 1 << 22, 1 << 19, 3 << 15, 10
MAX_NEAR, HALF = 1 << 17, 2
# Elements of a tile down the rows in larger arrays: of a warp's results, so many lie between those that it stores at
# once (tails bool (2, 10492417): of four rows of two 103 us, of two 29.6 us, of one 50.5 us; tails int8 (8, 4022031):
# 55.8, 37.7 and 27.5 us; difference uint8 (3, 9889625): of 32 rows of one 296 us, of four 38 us; but near each other,
# both int32 (7, 152702, 7), read in the order of 0, 2, 1: of eight 28.5 us, of four 33.4 us).
SINGLY = 4


def are_apart(columns: Axis) -> bool:
    """Return whether results of neighbours in the input lie in different places."""
    return pace_out(columns) >= MIN_APART


def is_gathered(axes: Sequence[Axis], facts: Facts, run: bool, blocks: bool) -> bool:
    """Return whether threads lie in the order of results, in place of tiles, which may be a ``run`` of memory, or of
    ``blocks`` that transpose."""
    total = math.prod(axis.extent for axis in axes)
    if not are_apart(axes[0]):
        return not blocks and total <= (MAX_NEAR if facts.size == HALF else FEWEST_THREADS)
    return total <= (MAX_BLOCKS if blocks else MAX_RUNS if run else MAX_GATHERED)


def gathered(axes: Sequence[Axis], form: Form, facts: Facts) -> StridedChoice:
    """Return the launch of threads in the order of results, which find their elements in the caches."""
    stored = tuple(sorted(axes, key=pace_out))
    fastest, along = stored.index(min(axes, key=pace_in)), stored.index(form.flagged)
    several = fastest > 0 and math.prod(axis.extent for axis in axes) > FEWEST_THREADS
    row, tall = (fastest, min(ROWS, stored[fastest].extent)) if several else (max(1, fastest), 1)
    counts = tuple(ceil_div(axis.extent, tall if k == row else 1) for k, axis in enumerate(stored))
    threads, equal = math.prod(counts), form.flagged.steps[0] == 0
    how = False, False, False, facts.periodic, facts.counted, threads > MAX_NARROW, "vector", equal
    block = FEW_IN_BLOCK if threads <= FEWEST_THREADS else THREADS
    return StridedChoice(TilePolicy(len(axes), along, row, 1, tall, *how, block), stored, counts)
