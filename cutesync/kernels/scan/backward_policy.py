"""Which columns that run backwards in the input, but not in the results, are scanned as those that do not."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from ...sizes import ceil_div
from ..hardware import VECTOR_BYTES, WORD_BYTES
from . import column_policy
from .column_policy import MAX_UNROLLED_ROWS, ColumnPolicy, ColumnTilePolicy
from .layout import STEPS, Layout
from .problem import Choice, Problem
from .ragged_column_policy import ragged_columns
from .strided_policy import StridedPolicy

# Against strided tiles, which load such elements one by one or turn words in shared memory (H200, max int8 (16384,
# 512): 37.4 us, so 9.7 us; inclusive bool (65536, 128): 27.6 and 9.6 us; exclusive uint16 (2000, 20, 400): 26.5 and
# 19.6 us; reverse int64 (8192, 256): 16.2 and 11.8 us). These are as fast where a thread has many positions of columns
# of its own (lambda uint16 (8192, 64, 64): 36.2 us, so 38.3 us; int64 (41, 25, 320): 4.0 and 4.1 us), or, in short
# rows, all but a few (bfloat16 (11, 9, 1737, 33): 19.8 and 21.2 us), where a tile has few columns (int64 (2, 1643, 46,
# 5): 7.2 and 15.9 us), or depends on others and theirs do not (int32 (215, 1296): 3.0 and 3.7 us; bool (512, 256): 2.6
# and 3.1 us), and in tiles of small elements that no words hold whole, unless few chains of theirs lie side by side
# (int16 (40000, 301), five: 31.2 and 35.5 us; (31429, 439), two: 72.2 and 38.2 us; (12792, 227), one: 22.7 and 10.9
# us).
MAX_FLAT_ROWS, MIN_LANES, MAX_CHAINS = 8, 9, 3
# Of such elements words are faster from so many bytes on, in several chains, too (bool (27, 1689, 1829): 138 us, so 84
# us; int16 (40000, 301): 30.6 and 26.1 us; (39, 39, 1765): 9.3 and 8.2 us; reverse int8 (304, 69, 345), in tiles of
# columns: 20.8 and 11.6 us).
MIN_RAGGED_BYTES = 5 << 20


def is_backward(problem: Problem, layout: Layout) -> bool:
    """Return whether the only input runs backwards along the columns that are neighbours."""
    if problem.several or problem.counted or layout.firsts or len(layout.scanned) != 1 or not layout.columns:
        return False
    return layout.columns[-1].steps == (-1, 1)


def backward_columns(problem: Problem, layout: Layout, other: Choice) -> tuple[Choice, tuple[int, int, int]] | None:
    """Return the policy, the launch and the extents; None if strided tiles, the ``other`` choice, are better. An
    address of the input that counts is that behind the first column of a row."""
    *others, last = layout.columns
    form = replace(layout, columns=(*others, Axis(last.extent, (1, 1)))).form(1)
    if form is None:
        return None
    rows, length, inner = form.extents
    if form.view is None:
        form = form._replace(view="pitched", steps=(length * inner, inner) * 2)
    form = form.gathered()
    xs = tuple((x + size) % VECTOR_BYTES for x, size in zip(problem.xs, problem.sources))
    view = "backward"
    seen = replace(
        problem, rows=rows, length=length, inner=inner, xs=xs, view=view, pitches=form.pitches, group=form.group
    )
    if not column_policy.suits(seen):
        return None
    ragged = ragged_columns(seen) if seen.size_of_results >= MIN_RAGGED_BYTES else None
    choice = ragged or column_policy.columns(seen)
    if not _gains(seen, choice, other):
        return None
    steps = dict(zip(STEPS, (*form.steps, form.group, *form.next)))
    return replace(choice, layout=steps, view=view), form.extents


def _gains(problem: Problem, choice: Choice, other: Choice) -> bool:
    """Return whether a choice is faster than the ``other``, of strided tiles."""
    policy, strided = choice.policy, other.policy
    if isinstance(policy, ColumnPolicy):
        most = MAX_UNROLLED_ROWS // 2 if problem.wide == 8 else MAX_UNROLLED_ROWS
        return problem.length <= (MAX_FLAT_ROWS if policy.flat else most)
    assert isinstance(policy, ColumnTilePolicy) and isinstance(strided, StridedPolicy)
    if policy.lanes < MIN_LANES or (strided.alone and not policy.alone):
        return False
    singly = policy.width == 1 and problem.source < WORD_BYTES and not policy.alone
    return not singly or ceil_div(problem.rows * problem.inner, strided.lanes) <= MAX_CHAINS
