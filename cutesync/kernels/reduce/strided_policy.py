"""Which kernel reduces strided arrays, with which sizes: a pure function of the normal form, types and alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...runtime.layout import Axis
from ...runtime.workspace import GROUPS, SLOTS
from ...sizes import ceil_div, power_of_two
from ..policy import Policy
from .normal import NUMBER_BITS, Normal
from .policy import SMS, VECTOR_BYTES

THREADS = 256
LANES = 32
BLOCKS = 4  # of a multiprocessor, where several share the positions
KEPT_LANES = 32  # neighbouring threads on neighbouring results, unless there are very many of them
FULL_UNITS = 8 * SMS * THREADS  # from so many on, a thread reduces its results alone
MIN_RUN_BYTES = 128  # shorter runs are read element by element
MIN_RUNS_BYTES = 2048  # the same, where a result has several runs
PIECE_BYTES = (2048, 8192)  # pieces of runs: small ones where there are few


@dataclass(frozen=True)
class StridedPolicy(Policy, kernel=".strided:StridedReduce"):
    """Any strides: ``kept`` and ``reduced`` axes. ``lanes`` results (with ``vectors``, 16-byte vectors of results) side
    by side, times ``groups`` of positions, which are taken ``in_turn`` or in contiguous runs. Neighbouring threads are
    neighbouring lanes if ``along_kept``, else groups. With ``split`` several blocks share the positions; ``wide``
    counts in 64 bits.

    ``count`` says where the number of positions that count is: "scalar", "memory", or "" if all do. With ``empty`` it
    may be 0; then ``init`` is the result. ``identity``: else ``init`` does not count. ``divides``: the operator divides
    by the number of positions."""

    kept: int
    reduced: int
    along_kept: bool
    vectors: bool
    lanes: int
    groups: int
    unroll: int
    in_turn: bool
    split: bool
    wide: bool
    count: str = ""
    empty: bool = False
    identity: bool = False
    divides: bool = False
    columns: ClassVar[int] = 0  # of the reduced axes' steps, beside those of the inputs


@dataclass(frozen=True)
class RunPolicy(StridedPolicy, kernel=".runs:RunReduce"):
    """The last reduced axis is contiguous: positions are pieces of its runs."""

    columns: ClassVar[int] = 2


@dataclass(frozen=True)
class StridedProblem:
    """A reduction in its normal form. Elements have ``size`` bytes (the widest), a state ``words`` 32-bit words.
    ``aligned``: the only input begins on a 16-byte boundary. ``in_turn``: the operator combines any order."""

    form: Normal
    inputs: int
    size: int
    words: int
    aligned: bool
    in_turn: bool


@dataclass(frozen=True)
class StridedChoice:
    """A policy and its launch, as ``policy.Choice``; and the axes as the kernel counts them."""

    policy: StridedPolicy
    splits: int
    tiles: int
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    run: int = 0  # elements of a run, of a RunPolicy

    @property
    def grid(self) -> int:
        return self.splits * self.tiles

    @property
    def agrees(self) -> bool:
        """Whether blocks combine their partials through the workspace."""
        return self.splits > 1


def choose(problem: StridedProblem) -> StridedChoice:
    """Return the policy and the launch of a problem."""
    form = problem.form
    if form.reduced and all(step == 1 for step in form.reduced[-1].steps):
        run_bytes = form.reduced[-1].extent * problem.size
        if run_bytes >= (MIN_RUN_BYTES if len(form.reduced) == 1 else MIN_RUNS_BYTES):
            return _runs(problem)
    along_kept = _smallest(form.kept) < _smallest(form.reduced)
    vectors = along_kept and _vectors(problem)
    width = VECTOR_BYTES // problem.size if vectors else 1
    kept = form.kept
    if width > 1:
        extent, steps = kept[-1]
        kept = (*kept[:-1], Axis(extent // width, tuple(step * width for step in steps)))
    units, length = form.results // width, form.length
    groups = _groups(units, length, along_kept)
    unroll = 4 if problem.words * width > 16 else 8
    tiles = ceil_div(units, THREADS // groups)
    splits = _splits(problem, tiles, units * width, length // (groups * unroll))
    wide = max(units, length) >= 1 << NUMBER_BITS
    policy = StridedPolicy(
        power_of_two(len(kept)),  # few ranks, so that there are few kernels
        power_of_two(len(form.reduced)),
        along_kept,
        vectors,
        THREADS // groups,
        groups,
        unroll,
        problem.in_turn,
        splits > 1,
        wide,
    )
    return StridedChoice(policy, splits, tiles, kept, form.reduced)


def _groups(units: int, length: int, along_kept: bool) -> int:
    """Return the groups of a block: few numbers, so that there are few kernels."""
    if not along_kept:
        return next(groups for groups in (256, 32, 8, 1) if 4 * groups <= length or groups == 1)
    if units >= FULL_UNITS:
        return 1
    lanes = min(power_of_two(units), KEPT_LANES)
    counts = (64, 32, 16, 4, 1)
    return next(groups for groups in counts if groups == 1 or (4 * groups <= length and groups * lanes <= THREADS))


def _splits(problem: StridedProblem, tiles: int, results: int, most: int) -> int:
    """Return how many blocks share the positions of a tile, at most ``most``."""
    if tiles > GROUPS:
        return 1
    return max(1, min(ceil_div(BLOCKS * SMS, tiles), most, SLOTS // (problem.words * results)))


def _runs(problem: StridedProblem) -> StridedChoice:
    """Return the choice for axes of which the last is contiguous."""
    form = problem.form
    *outer, (run, steps) = form.reduced
    row_bytes = form.length * problem.size
    full = form.results >= 8 * SMS * 2 or row_bytes <= PIECE_BYTES[0]  # enough warps with a result each
    groups = (8 if row_bytes <= 512 and problem.in_turn else LANES) if full else THREADS
    piece_bytes = next((size for size in PIECE_BYTES if form.results * row_bytes <= size * 32 * SMS), PIECE_BYTES[-1])
    piece = run if full and len(outer) == 0 and row_bytes <= PIECE_BYTES[-1] else piece_bytes // problem.size
    pieces = ceil_div(run, piece)
    positions = pieces * form.length // run
    tiles = ceil_div(form.results, THREADS // groups)
    splits = 1 if full else _splits(problem, tiles, form.results, positions // (THREADS // LANES))
    weights = [form.length // math.prod(axis.extent for axis in form.reduced[: i + 1]) for i in range(len(outer))]
    axes = [Axis(axis.extent, (*axis.steps, 0, weight)) for axis, weight in zip(outer, weights)]
    axes.append(Axis(pieces, (piece,) * (len(steps) + 2)))
    policy = RunPolicy(
        power_of_two(len(form.kept)),
        power_of_two(len(axes)),
        False,
        False,
        THREADS // groups,
        groups,
        4,
        problem.in_turn,
        splits > 1,
        max(form.results, positions) >= 1 << NUMBER_BITS,
    )
    return StridedChoice(policy, splits, tiles, form.kept, tuple(axes), run)


def _smallest(axes: tuple[Axis, ...]) -> int:
    """Return the smallest step in memory along the last axis; a large number if there is none."""
    steps = [abs(axis.steps[0]) for axis in axes if axis.steps[0]]
    return min(steps, default=1 << 62)


def _vectors(problem: StridedProblem) -> bool:
    """Return whether all rows along the last kept axis consist of 16-byte vectors on their boundaries."""
    form, width = problem.form, VECTOR_BYTES // problem.size
    if problem.inputs > 1 or not problem.aligned or not form.kept or problem.words > 4:
        return False
    *others, last = [*form.reduced, *form.kept]
    return last.steps[0] == 1 and last.extent % width == 0 and all(axis.steps[0] % width == 0 for axis in others)
