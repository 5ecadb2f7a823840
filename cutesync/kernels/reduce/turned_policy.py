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
# Bytes of an array, and of one of so few positions (H200, any int8 (7, 39, 7502) along its first axis: 7.7 us, so 3.2
# us; max uint32 (332, 2, 306): 3.5 and 1.6 us; but max float32 (9, 69, 370): 1.8 and 3.4 us; of 0.1 MB, any float16
# (238, 3, 45): 1.9 and 2.6 us); neighbours in the input, and in the output.
MIN_BYTES, MIN_BYTES_OF_FEW, FEW_POSITIONS, MIN_SIDE = 1 << 22, 1 << 18, 8, 32
# Rows of results of fewer neighbours are whole in a tile, if these are so many bytes apart in the input: the parts of a
# sector of results would be written at other times. Rows of more than four have few positions (H200, any float16 (2, 3,
# 53519079) with results (2, 53519079, 3): 1758 us, so 1396 us; sum uint8 (9, 2951808, 3): 335 and 76 us; squares int32
# (5, 56049, 17): 54 and 30 us; but squares uint8 (5, 16, 362368, 3) along axis 1: 36 and 62 us; max bfloat16 (6,
# 171280, 30): 24 and 28 us; single bytes, any int8 (2, 5, 1048027, 3): 27 and 50 us).
MIN_APART_BYTES, MAX_FEW_HIGH, MAX_NARROW_LENGTH, MAX_HIGH_LENGTH = 1 << 16, 4, 12, 4


@dataclass(frozen=True)
class TurnedPolicy(ShortPolicy, kernel=".turned:TurnedReduce"):
    """A block has a tile of results: ``across`` units side by side in the input, times ``down`` neighbours in the
    output, along the last kept axis. A thread has ``results`` of them at once, so many ``turns``."""

    across: int = 0
    down: int = DOWN
    turns: int = 1


def choose(problem: StridedProblem) -> StridedChoice | None:
    """Return the choice of a tile of results; None if others are faster."""
    form, inputs, size = problem.form, problem.inputs, problem.size
    if inputs > 1 or len(problem.outputs) > 1 or problem.counted or problem.words > MAX_WORDS or len(form.kept) < 2:
        return None
    total = form.results * form.length * size
    if not 0 < form.length <= MAX_LENGTH or total < (MIN_BYTES_OF_FEW if form.length <= FEW_POSITIONS else MIN_BYTES):
        return None
    *others, last = form.kept
    row = next((axis for axis in others if axis.steps[0] and axis.extent > 1 and axis.steps[1] in (1, -1)), None)
    if row is None:
        return None
    high = row.extent
    narrow = total >= MIN_BYTES and high < MIN_SIDE <= last.extent and abs(row.steps[0]) * size >= MIN_APART_BYTES
    narrow &= form.length <= (MAX_NARROW_LENGTH if high <= MAX_FEW_HIGH else MAX_HIGH_LENGTH)
    if abs(last.steps[1]) * problem.outputs[0].size < SECTOR_BYTES and not narrow:
        return None
    columns = smallest_step(form.kept) < smallest_step(form.reduced)
    load, load_bytes, pace = load_of(problem, columns)
    if load == "words" or pace > 1:
        load, load_bytes = "element", size
    narrow &= columns and load_bytes > 1
    width = load_bytes // size if load == "vector" else 1
    reduced = positions_of(form, load_bytes // size, load)
    others = [axis for axis in others if axis is not row]
    kept = (*others, Axis(last.extent // width, tuple(step * width for step in last.steps)), row)
    units, length = form.results // width // high, math.prod(axis.extent for axis in reduced)
    if units * width < MIN_SIDE or (high < MIN_SIDE and not narrow) or form.results >= 1 << NUMBER_BITS:
        return None
    down, line = (power_of_two(high), THREADS) if narrow else (DOWN, LINE_BYTES // max(load_bytes, 4))
    across = min(line, TILE_BYTES // (down * width * problem.outputs[0].size))
    own, positions = down * across // THREADS, power_of_two(length)
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
        down=down,
        turns=own // results,
    )
    tiles = ceil_div(units, across) * ceil_div(high, down)
    return StridedChoice(policy, 1, tiles, kept, reduced, repeats=form.repeats)
