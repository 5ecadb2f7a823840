"""Which reductions of few positions have tiles of results in shared memory, as these lie in another order than
elements: a pure function of the normal form, types and alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS
from .copies import SECTOR_BYTES
from .order_of_results import smallest_step
from .strided_loads import load_of, positions_of
from .strided_problem import THREADS, ShortPolicy, StridedChoice, StridedProblem

DOWN = 64  # results of a tile that are neighbours in the output
LINE_BYTES = 128  # that neighbouring threads read
MAX_LENGTH, MAX_WORDS = 16, 4  # positions, and words of a state
FLIGHT_BYTES, TILE_BYTES = 128, 1 << 15  # of a thread's loads in flight, and of a block's results, at most
MIN_BYTES, MIN_SIDE = 1 << 22, 32  # of an array; neighbours in the input, and in the output
# Axes of neighbours in the output; and where these are several, positions of elements of up to two bytes and of wider
# ones, and bytes between rows that collide in the caches (H200, any bfloat16 (5, 4304, 18, 11): 18.2 us, so 7.0 us; sum
# float32 (12, 8909, 9, 18): 35.1 and 28.5 us; but max float64 (14, 410, 4, 14, 2): 3.8 and 5.0 us; max int8 (16, 12310,
# 6, 14): 19.6 and 22.5 us; any bfloat16 (2, 131072, 16, 16), rows 256 KiB apart: 73 and 81 us; argmax int16 (3, 16384,
# 16, 4), 32 KiB: 7.7 and 8.1 us). Wider ones in vectors of an array of more bytes are faster stored one by one (H200,
# max float64 (5, 74296, 19, 2): 37 us, in tiles 52 us; sum float32 (9, 9928, 14, 23): 46 and 49 us).
MAX_ROWS, MAX_LENGTHS, APART_BYTES, MAX_WIDE_BYTES = 3, (7, 12), 1 << 15, 1 << 26


@dataclass(frozen=True)
class TurnedPolicy(ShortPolicy, kernel=".turned:TurnedReduce"):
    """A block has a tile of results: ``across`` units side by side in the input, times ``DOWN`` neighbours in the
    output, along the last ``rows`` of the kept axes. A thread has ``results`` of them at once, so many ``turns``."""

    across: int = 0
    turns: int = 1
    rows: int = 1


def choose(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice of a tile of results; None if others are faster."""
    form, inputs, size = problem.form, problem.inputs, problem.size
    if inputs > 1 or len(problem.outputs) > 1 or problem.counted or problem.words > MAX_WORDS or len(form.kept) < 2:
        return None
    if not 0 < form.length <= MAX_LENGTH or form.results * form.length * size < MIN_BYTES:
        return None
    *others, last = form.kept
    rows = _neighbours(others)
    apart = all(axis.steps[0] * size % APART_BYTES == 0 for axis in rows)
    if len(rows) > 1 and (form.length > MAX_LENGTHS[size > 2] or apart):
        return None
    if not rows or abs(last.steps[1]) * problem.outputs[0].size < SECTOR_BYTES:
        return None
    columns = smallest_step(form.kept) < smallest_step(form.reduced)
    load, load_bytes, pace = load_of(problem, columns)
    if load == "words" or pace > 1:
        load, load_bytes = "element", size
    if len(rows) > 1 and load == "vector" and size > 2 and form.results * form.length * size > MAX_WIDE_BYTES:
        return None
    width = load_bytes // size if load == "vector" else 1
    reduced = positions_of(form, load_bytes // size, load)
    others = [axis for axis in others if axis not in rows]
    kept = (*others, Axis(last.extent // width, tuple(step * width for step in last.steps)), *rows)
    high = math.prod(axis.extent for axis in rows)
    units, length = form.results // width // high, math.prod(axis.extent for axis in reduced)
    if min(units * width, high) < MIN_SIDE or form.results >= 1 << NUMBER_BITS:
        return None
    across = min(LINE_BYTES // max(load_bytes, 4), TILE_BYTES // (DOWN * width * problem.outputs[0].size))
    own, positions = DOWN * across // THREADS, power_of_two(length)
    results = min(own, max(1, FLIGHT_BYTES // (positions * max(load_bytes, 4))))
    policy = TurnedPolicy(
        power_of_two(len(kept)),
        power_of_two(len(form.reduced)),
        True,
        load,
        load_bytes,
        THREADS,
        1,
        positions,
        problem.in_turn and load != "row",
        False,
        False,
        repeated=form.repeats > 1,
        indexed=bool(form.weights),
        results=results,
        across=across,
        turns=own // results,
        rows=len(rows),
    )
    tiles = ceil_div(units, across) * ceil_div(high, DOWN)
    return StridedChoice(policy, 1, tiles, kept, reduced, repeats=form.repeats)


def _neighbours(axes: list[Axis]) -> list[Axis]:
    """Return those of the axes along which results are neighbours in the output, of the largest step first: the one of
    step 1, and if it is short the next, whose step is its extent."""
    found: list[Axis] = []
    step = 1
    while not found or (step < MIN_SIDE and len(found) < MAX_ROWS):
        axis = next((a for a in axes if a.steps[0] and a.extent > 1 and a.steps[1] in (step, -step)), None)
        if axis is None:
            break
        found.insert(0, axis)
        step *= axis.extent
    return found
