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


@dataclass(frozen=True)
class TurnedPolicy(ShortPolicy, kernel=".turned:TurnedReduce"):
    """A block has a tile of results: ``across`` units side by side in the input, times ``DOWN`` neighbours in the
    output, along the last kept axis. A thread has ``results`` of them at once, so many ``turns``."""

    across: int = 0
    turns: int = 1


def choose(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice of a tile of results; None if others are faster."""
    form, inputs, size = problem.form, problem.inputs, problem.size
    if inputs > 1 or len(problem.outputs) > 1 or problem.counted or problem.words > MAX_WORDS or len(form.kept) < 2:
        return None
    if not 0 < form.length <= MAX_LENGTH or form.results * form.length * size < MIN_BYTES:
        return None
    *others, last = form.kept
    row = next((axis for axis in others if axis.steps[0] and axis.extent > 1 and axis.steps[1] in (1, -1)), None)
    if row is None or abs(last.steps[1]) * problem.outputs[0].size < SECTOR_BYTES:
        return None
    columns = smallest_step(form.kept) < smallest_step(form.reduced)
    load, load_bytes, pace = load_of(problem, columns)
    if load == "words" or pace > 1:
        load, load_bytes = "element", size
    width = load_bytes // size if load == "vector" else 1
    reduced = positions_of(form, load_bytes // size, load)
    others = [axis for axis in others if axis is not row]
    kept = (*others, Axis(last.extent // width, tuple(step * width for step in last.steps)), row)
    high = row.extent
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
    )
    tiles = ceil_div(units, across) * ceil_div(high, DOWN)
    return StridedChoice(policy, 1, tiles, kept, reduced, repeats=form.repeats)
