"""The normal form of a scan of strided arrays: which of their axes are scanned, and which are columns.

Positions are numbered along the scanned axes, in C order. Columns are independent: their axes may be reordered,
reversed and merged. They are ordered by the strides of the results, so that neighbouring columns are neighbours in
memory where the arrays allow it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis, axes_of, merged

MAX_GAP = 4  # of a form
MAX_RUN_BYTES = 64  # of columns that are a short run
MAX_ROWS = 1 << 31  # of a form: kernels divide their numbers in 32 bits

_NAMES = "x_row", "x_step", "out_row", "out_step", "group", "x_next", "out_next", "init_row", "init_step", "init_next"
STEPS = tuple(Scalar(name, "Int64") for name in _NAMES)  # of a form that is not contiguous, as a kernel's parameters
FAR = Scalar("outer", "Int64"), Scalar("x_far", "Int64")  # of a form whose groups are in groups themselves
MIN_FAR_LENGTH = 20  # of rows of such a form: of 19 elements as fast, shorter ones are done sooner by single threads


class Form(NamedTuple):
    """Arrays seen as (rows, length, inner): ``length`` positions are scanned for each of rows * inner. ``view`` is that
    of ``base.Scan``. Rows are in groups of ``group``. ``steps`` are the strides from group to group and from position
    to position, those of the inputs, then those of the outputs; ``next`` are those from row to row. From ``outer``
    groups to the next so many, inputs lie ``far`` elements further apart than groups do. ``gap`` is the stride from
    position to position of the only input where a form has one column, and its results are neighbours."""

    extents: tuple[int, int, int]
    view: str | None = None
    steps: tuple[int, int, int, int] = (0, 0, 0, 0)
    group: int = 1
    next: tuple[int, int] = (0, 0)
    outer: int = 1
    far: int = 0

    def gathered(self) -> Form:
        """Return the same form with all rows in one group if their results lie behind one another, as those of a group
        do, and so do their elements; where rows have one column, these may have gaps between them."""
        rows, length, inner = self.extents
        each = length * inner
        if self.view is None or self.group > 1 or self.steps[2] != each or (inner > 1 and self.steps[0] != each):
            return self
        return self._replace(group=rows, next=(self.steps[0], each))

    @property
    def gap(self) -> int:
        return self.steps[1] if self.extents[2] == 1 and self.steps[1] > 1 else 1

    @property
    def pitches(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The strides that are not those of neighbours."""
        if self.view is None:
            return (), ()
        count = 1 if self.extents[2] == 1 else 2
        return (*self.steps[:count], self.next[0]), (*self.steps[2 : 2 + count], self.next[1])


@dataclass(frozen=True)
class Layout:
    """``scanned`` and ``columns`` are axes, the outermost first; the strides of each are those of the inputs, then
    those of the outputs, then those of the first operands if these are an array (``firsts``). The arrays begin
    ``offsets`` elements behind the given addresses."""

    scanned: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    offsets: tuple[int, ...]
    firsts: bool = False
    padded: tuple[int, ...] = ()

    def without_firsts(self) -> Layout:
        """Return the layout of the inputs and outputs alone."""
        if not self.firsts:
            return self
        scanned, columns = (tuple(Axis(n, steps[:-1]) for n, steps in axes) for axes in (self.scanned, self.columns))
        return Layout(scanned, columns, self.offsets[:-1])

    def steps_of_firsts(self, inner: int) -> tuple[int, int, int]:
        """Return the strides of the first operands from group to group, from column to column, and from row to row of
        a form."""
        columns = list(self.columns)
        step = columns.pop().steps[-1] if inner > 1 else 0
        following = columns.pop().steps[-1] if len(columns) > 1 else 0
        return columns[0].steps[-1] if columns else 0, step, following

    @functools.cached_property
    def length(self) -> int:
        return math.prod(axis.extent for axis in self.scanned)

    @functools.cached_property
    def count(self) -> int:
        """The number of columns."""
        return math.prod(axis.extent for axis in self.columns)

    def interleaved(self, size: int, gaps: bool = False) -> bool:
        """Return whether all arrays have the same short runs of columns, and in the first, of so many bytes an element,
        others lie between their positions, with ``gaps`` not beside them."""
        if len(self.columns) < 2:
            return False
        run = next((axis.extent for axis in self.columns if {abs(step) for step in axis.steps} == {1}), 1)
        positions = min((abs(axis.steps[0]) for axis in self.scanned if axis.steps[0]), default=0)
        others = [abs(axis.steps[0]) for axis in self.columns if 1 < abs(axis.steps[0]) < positions]
        return 1 < run < MAX_RUN_BYTES // size and min(others, default=0) > (run if gaps else 0)

    def backward(self) -> Layout | None:
        """Return the layout seen from the other end of the scanned axis, if all arrays run backwards along it."""
        arrays = self.without_firsts().scanned
        if len(arrays) != 1 or any(step >= 0 for step in arrays[0].steps):
            return None
        axis, start = _reversed(self.scanned[0])
        return replace(self, scanned=(axis,), offsets=tuple(a + b for a, b in zip(self.offsets, start)))

    def extents(self) -> tuple[int, int, int] | None:
        """Return (rows, length, inner) if all arrays are C-contiguous arrays of this shape, else None."""
        if len(self.scanned) > 1 or len(self.columns) > 2:
            return None
        columns = list(self.columns)
        length, inner = self.length, 1
        if not self.scanned:  # of one element each: the order of the columns is that of memory
            return (self.count, 1, 1) if all(set(axis.steps) == {1} for axis in columns) and len(columns) < 2 else None
        steps = set(self.scanned[0].steps)
        if len(steps) > 1:
            return None
        (step,) = steps
        if columns and set(columns[-1].steps) == {1} and step == columns[-1].extent:
            inner = columns.pop().extent
        if step != inner or len(columns) > 1 or (columns and set(columns[0].steps) != {length * inner}):
            return None
        return columns[0].extent if columns else 1, length, inner

    def form(self, inputs: int) -> Form | None:
        """Return the form of arrays, the first ``inputs`` of which are inputs, whose columns are neighbours, or else
        whose positions are; None for others, and if inputs or outputs do not have the same strides."""
        if self.firsts:
            found = self.without_firsts().form(inputs)
            if found is None or found.view is not None:
                return None if found is not None and found.far else found
            _, length, inner = found.extents  # strides of the first operands come with others
            return Form(found.extents, "pitched", (length * inner, inner) * 2)
        extents = self.extents()
        if extents is not None:
            return Form(extents)
        columns = list(self.columns)
        inner = columns.pop().extent if columns and set(columns[-1].steps) == {1} else 1
        rows = math.prod(axis.extent for axis in columns)
        if len(self.scanned) > 1 or len(columns) > 3 or not (self.scanned or inner > 1) or rows >= MAX_ROWS:
            return None
        nothing = Axis(1, (0,) * len(self.offsets))
        following = columns.pop() if len(columns) > 1 else nothing
        row, position = columns.pop() if columns else nothing, self.scanned[0] if self.scanned else nothing
        far = [0] * len(self.offsets)
        if columns:
            if inner > 1 or self.length < MIN_FAR_LENGTH:
                return None
            far = [step - row.extent * inside for step, inside in zip(columns[0].steps, row.steps)]
            if any(far[inputs:]) or len(set(far[:inputs])) > 1:
                return None
        parts = slice(inputs), slice(inputs, None)
        steps = [axis.steps[part] for axis in (row, position, following) for part in parts]
        if any(len(set(each)) > 1 for each in steps):
            return None
        x_row, out_row, x_step, out_step, x_next, out_next = (each[0] for each in steps)
        between = any(0 < abs(step) < x_step for step in (x_row, x_next))  # elements of other rows
        gapped = inner == 1 and inputs == 1 and 1 < x_step <= MAX_GAP and not between
        if inner == 1 and not (out_step == 1 and (abs(x_step) == 1 or (gapped and far[0] == 0))):
            return None
        view = "mirrored" if inner == 1 and x_step < 0 else "pitched"
        steps_of = (x_row, x_step, out_row, out_step)
        outer = row.extent if far[0] else 1
        return Form((rows, self.length, inner), view, steps_of, following.extent, (x_next, out_next), outer, far[0])


def layout_of(shape: Sequence[int], axis: int | None, steps: Sequence[Sequence[int]], firsts: bool = False) -> Layout:
    """Return the layout of a scan along ``axis`` (None: of the flattened arrays) of arrays with these strides, in
    elements: those of the inputs, then those of the outputs, then with ``firsts`` those of the first operands."""
    last = -2 if firsts else -1  # of the outputs
    axes = axes_of(shape, *steps)
    scanned = axes if axis is None else [axes[axis]]
    columns = [] if axis is None else [other for i, other in enumerate(axes) if i != axis % len(axes)]
    offsets = [0] * len(steps)
    for i, column in enumerate(columns):
        if column.extent > 1 and column.steps[last] < 0:
            columns[i], start = _reversed(column)
            offsets = [a + b for a, b in zip(offsets, start)]
    if len(columns) > 1:
        columns.sort(key=lambda column: [-abs(step) for step in column.steps[last::-1]])
    return Layout(tuple(merged(scanned)), tuple(merged(columns)), tuple(offsets), firsts)


def _reversed(axis: Axis) -> tuple[Axis, list[int]]:
    """Return an axis seen from its other end, and where each array begins then."""
    return Axis(axis.extent, tuple(-step for step in axis.steps)), [(axis.extent - 1) * step for step in axis.steps]
