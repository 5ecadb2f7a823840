"""Which narrow arrays are streamed through shared memory, and with which tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...sizes import ceil_div
from ..policy import Policy
from .column_policy import WORD_BYTES, group_slots
from .problem import LANES, SMS, VECTOR_BYTES, Choice, Problem

# Columns, more if words hold no whole rows, and bytes of a row: wider rows are lines of memory of their own (H200, max
# float32 (131072, 64): 29.7 us, in tiles of columns 26.2 us; but bool (87, 5768, 146): 68 us, in tiles 150 us).
MAX_COLUMNS, MAX_ROW_BYTES = 64, 255
MIN_TILES = 2  # in an outer slice
# Tiles of an SM: 3 of 64 KiB fit its shared memory. More that are smaller are slower in large arrays (H200, max uint64
# (2097152, 16), 3 of 64 KiB 174 us, 4 of 48 KiB 203 us, 6 of 32 KiB 265 us).
LARGE_TILES, SMALL_TILES = (1 << 16, 3), (1 << 15, 6)
# Bytes read and written from which on tiles are large, and from which on others are slower (H200, lambda uint16
# (524288, 8): in tiles of columns 17.3 us, so 12.2 us; int64 (139302, 6): 13.8 and 10.9 us; lambda int16 (26022, 44):
# 8.5 and 7.8 us; max int8 (4, 16384, 32): 6.1 and 6.6 us).
LARGE_BYTES, MIN_BYTES = 24 << 20, 4 << 20
# 256 threads per block; more if this would leave fewer than 8 runs per column, up to some that leave registers
WORKERS, MIN_RUNS, MAX_WORKERS = 256, 8, 960
GROUP = 128  # tiles per group of the look-back


@dataclass(frozen=True)
class NarrowPolicy(Policy, kernel=".narrow:NarrowScan"):
    """A narrow array of ``inner`` columns, streamed through shared memory in tiles of ``runs`` times ``height``
    rows. ``aligned``: tiles begin on boundaries of 16 bytes."""

    inner: int
    runs: int
    height: int
    stages: int
    group: int
    aligned: bool = True


def narrow(problem: Problem) -> Choice | None:
    """Return the policy and the launch; None if tiles cannot be copied and scanned in place, or others are faster."""
    inner, size = problem.inner, problem.source
    outer_slice = problem.length * inner * size
    total = 2 * problem.rows * outer_slice
    tile_bytes, stages = LARGE_TILES if total > LARGE_BYTES else SMALL_TILES
    odd = inner * size % WORD_BYTES != 0  # words hold no whole rows
    fits = (inner <= MAX_COLUMNS or odd) and inner * size <= MAX_ROW_BYTES and problem.sources == problem.results
    fits &= not problem.several and dense(problem)
    aligned = not any(at % VECTOR_BYTES for at in starts(problem))
    if not aligned:  # what lies beside a tile is read, too
        fits &= problem.apart and not problem.counted and all(step >= 0 for step in problem.pitches[0])
    if not fits or total <= MIN_BYTES or outer_slice < MIN_TILES * tile_bytes:
        return None
    least = MIN_RUNS if inner * MIN_RUNS <= MAX_WORKERS else MIN_RUNS // 2
    if inner * least > MAX_WORKERS:
        return None
    runs = max(least, min(LANES, 1 << (WORKERS // inner).bit_length() - 1))
    # Runs of a multiple of ``apart`` rows, plus one, begin in different banks of shared memory.
    apart = 128 // size // math.gcd(128 // size, inner) if inner <= 16 else 1
    run = (tile_bytes // (size * inner * runs) - 1) // apart * apart + 1
    while runs * run * inner * size % VECTOR_BYTES:
        run -= 1
    tiles = ceil_div(problem.length, runs * run)
    slots = problem.rows * group_slots(tiles, GROUP) * inner
    policy = NarrowPolicy(inner, runs, run, stages, GROUP, aligned)
    return Choice(policy, tiles, min(SMS, problem.rows * tiles), slots)


def dense(problem: Problem) -> bool:
    """Return whether each outer slice is one run of memory, forwards, in the inputs and in the outputs."""
    return problem.view is None or all(steps[1] == problem.inner for steps in problem.pitches)


def starts(problem: Problem) -> list[int]:
    """Return the places of outer slices that are dense, in bytes: those of the first, and the strides."""
    found = [*problem.xs, *problem.outs]
    for size, steps in zip((problem.source, problem.results[0]), problem.pitches):
        each = problem.length * problem.inner if problem.rows > 1 else 0
        found += [step * size for step in ([each] if problem.view is None else [steps[0], steps[-1]])]
    return found
