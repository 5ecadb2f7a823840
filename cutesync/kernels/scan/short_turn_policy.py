"""Which tiles scan short axes where elements are neighbours along one axis of columns, and results along the scanned
axis and another one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two
from ..axes import NUMBER_BITS, numbers, parameters
from ..policy import Policy
from .layout import Layout
from .problem import Choice, Problem
from .short_policy import MAX_BYTES, MAX_LENGTH

THREADS = 256
LINE_BYTES, WORD_BYTES = 128, 4
TILE_BYTES = 1 << 14  # of a tile's results, at most
MIN_ACROSS, LEAST_LANES = 8, 32  # columns along the axis of neighbouring elements, and threads along it
STEPS = ("x_step", "x_next", "out_next", "second_extent", "first_extent")


@dataclass(frozen=True)
class ShortTurnPolicy(Policy, kernel=".short_turn:ShortTurnScan"):
    """Tiles of ``across`` columns along the axis of neighbouring elements, ``width`` of which a thread loads at once,
    times ``inner`` along the next. Results of a column along the first axis lie ``pitch`` bytes apart in shared memory;
    ``store`` are stored at once, from words of ``word`` bytes. ``rank`` axes of tiles."""

    rank: int
    length: int
    across: int
    inner: int
    width: int
    store: int
    pitch: int
    word: int


def short_turn(problem: Problem, layout: Layout) -> Choice | None:
    """Return the policy and the launch; None for other arrays."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1:
        return None
    length, (x_step, out_step) = layout.scanned[0]
    columns = list(layout.columns)
    places = [i for i, axis in enumerate(columns) if axis.steps[0] == 1]
    if length > MAX_LENGTH or length * problem.wide > MAX_BYTES or out_step != 1 or not places:
        return None
    first = columns.pop(places[0])
    second = columns.pop() if columns and columns[-1].steps[1] == length else Axis(1, (0, 0))
    if first.extent < MIN_ACROSS:
        return None
    source, size = problem.source, problem.results[0]
    across = min(power_of_two(first.extent), max(LEAST_LANES, LINE_BYTES // source))
    inner = min(second.extent, max(1, TILE_BYTES // (across * length * size)))
    inner = ceil_div(second.extent, ceil_div(second.extent, inner))
    while across < min(first.extent, THREADS) and across * 2 * inner * length * size <= TILE_BYTES:
        across *= 2
    steps = [axis.steps for axis in (*columns, second)]
    width = math.gcd(
        max(1, WORD_BYTES // source), first.extent, problem.xs[0] // source, x_step, *(s[0] for s in steps)
    )
    run, word = inner * length, max(WORD_BYTES, size)
    tiles = [steps[1] for steps in (*(axis.steps for axis in columns), first.steps)]
    store = math.gcd(word // size, problem.outs[0] // size, run, second.extent * length, *tiles)
    pitch = (ceil_div(run * size, word) | 1) * word
    axes = [Axis(axis.extent, (*axis.steps, 0, 0)) for axis in columns]
    axes.append(Axis(ceil_div(second.extent, inner), (inner * second.steps[0], run, inner, 0)))
    axes.append(Axis(ceil_div(first.extent, across), (across, across * first.steps[1], 0, across)))
    grid = math.prod(axis.extent for axis in axes)
    if grid >= 1 << NUMBER_BITS:
        return None
    policy = ShortTurnPolicy(power_of_two(len(axes)), length, across, inner, width, store, pitch, word)
    names = [*(Scalar(name, "Int64") for name in STEPS), *parameters("axis", policy.rank, 4, False)]
    given = x_step, second.steps[0], first.steps[1], second.extent, first.extent
    values = [*given, *numbers(axes, policy.rank, 4, False)]
    return Choice(policy, 1, grid, layout=dict(zip(names, values, strict=True)))
