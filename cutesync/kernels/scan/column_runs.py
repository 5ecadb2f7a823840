"""Runs of a scan's elements that are neighbours in memory, and which arrays have those of a few columns that are
followed by those of the next position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..hardware import WORD_BYTES
from .layout import Layout

# Of an array: a run of so many bytes, and elements that are not read in words otherwise (H200, reverse uint16 (4164,
# 1177, 7), read in the order of axes 1, 0, 2: 333 us, so 89 us; inclusive int16 (128, 4, 32768, 4), in that of 0, 2, 3,
# 1: 191 and 120 us; but max int8 (22, 44462, 16), in that of 2, 0, 1: 30 and 83 us; reverse float64 (1024, 8192, 4)
# backwards: 174 and 355 us; bfloat16 (8, 2, 1048576), in that of 1, 2, 0: 33 and 42 us).
MIN_RUN_BYTES, MAX_RUN_BYTES, MIN_BYTES = 8, 16, 2
# The same of elements of words that are neighbours in no other array (H200, max uint64 (16384, 4, 512) along its first
# axis, in the order of axes 2, 0, 1: 217 us, so 201 us; inclusive float64 (4, 3000, 1000): 80.4 and 73.9 us; others
# take 0.89 to 0.98 of the time).
MAX_LONE_RUN_BYTES = 32
FAR = 1 << 62  # the stride of what has no neighbours
# Columns of a block along the axis before the last, of which it has a power of two, so much of them filled at least
# (exclusive int32 (1143, 105, 376, 3), three of four: 545 us, so 583 us)
BLOCK, MIN_BLOCKS, MIN_FILLED = 4, 4, 0.8


def beside_of(layout: Layout, k: int, size: int) -> int:
    """Return how many columns of array ``k``, a power of two, lie beside each other before the next position, if they
    are a short run; 1 otherwise."""
    if len(layout.columns) < 2 or not layout.scanned:
        return 1
    inner = layout.columns[-1]
    near = abs(inner.steps[k]) == 1 and abs(layout.scanned[-1].steps[k]) == (layout.padded or (inner.extent,))[-1]
    lone = size >= WORD_BYTES and not any(abs(step) == 1 for i, step in enumerate(inner.steps) if i != k)
    most = MAX_LONE_RUN_BYTES if lone else MAX_RUN_BYTES
    fits = not inner.extent & (inner.extent - 1) and MIN_RUN_BYTES <= inner.extent * size <= most
    fits &= size >= MIN_BYTES
    return inner.extent if near and fits else 1


def whole_runs(layout: Layout, sizes: Sequence[int]) -> Layout | None:
    """Return the layout with blocks in which the last columns have the extent of a power of two, so that some array has
    them beside each other before the next position; None if they are too few for it, or have it."""
    if len(layout.columns) < 2:
        return None
    *others, before, last = layout.columns
    n = power_of_two(last.extent)
    outer = Axis(ceil_div(before.extent, BLOCK), tuple(step * BLOCK for step in before.steps))
    blocks = outer, Axis(1, (0,) * len(last.steps)), Axis(BLOCK, before.steps), Axis(n, last.steps)
    found = replace(layout, columns=(*others, *blocks), padded=(before.extent, last.extent))
    fits = n != last.extent >= MIN_FILLED * n and before.extent >= MIN_BLOCKS * BLOCK
    return found if fits and any(beside_of(found, k, size) > 1 for k, size in enumerate(sizes)) else None


def box_of(axes: Sequence[Axis], count: int) -> list[tuple[Axis, int]]:
    """Return how far ``count`` consecutive positions or columns reach along each axis."""
    found = []
    for axis in reversed(axes):
        found.append((axis, min(axis.extent, max(1, count))))
        count = ceil_div(count, axis.extent)
    return found


def run_of(box: Sequence[tuple[Axis, int]], k: int) -> tuple[int, int]:
    """Return ``(step, run)``: array ``k`` has runs of so many elements in a box, which lie ``step`` elements apart."""
    pairs = sorted((abs(axis.steps[k]), n) for axis, n in box if axis.steps[k] and n > 1)
    step, run = pairs[0][0] if pairs else 1, 1
    for each, n in pairs:
        if each != run * step:
            break
        run *= n
    return step, run


def neighbours(axes: Sequence[Axis], k: int, count: int) -> tuple[int, int]:
    """Return ``(step, run)``: the smallest stride of array ``k`` along an axis, and how many neighbours along that axis
    are among ``count`` consecutive positions or columns."""
    found, inside = (FAR, 1), 1
    for axis in reversed(axes):
        step = abs(axis.steps[k])
        if step:
            found = min(found, (step, min(axis.extent, max(1, count // inside))))
        inside *= axis.extent
    return found


def neighbours_across(axes: Sequence[Axis], k: int, count: int) -> tuple[int, int]:
    """Return the same, of neighbours along several axes."""
    step, run = run_of(box_of(axes, count), k)
    return (step, run) if run > 1 else neighbours(axes, k, count)
