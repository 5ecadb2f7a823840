"""The arrays of a call as axes: the flagged one, and the others in the fewest and the most regular form."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ...runtime.call import Views
from ...runtime.layout import Axis, axes_of, merged
from ...sizes import ceil_div


@dataclass(frozen=True)
class Form:
    """``flagged`` and ``others`` have the strides of ``x``, then of each output. Along the flagged axis, those of
    packed ``bits`` count words. The others are in the order of the first output's memory, the slowest first."""

    flagged: Axis
    others: tuple[Axis, ...]
    bits: bool

    @functools.cached_property
    def rows(self) -> int:
        count = 1
        for axis in self.others:
            count *= axis.extent
        return count

    @property
    def results(self) -> int:
        """Of a row, in an output."""
        return ceil_div(self.flagged.extent, 32) if self.bits else self.flagged.extent

    @property
    def is_contiguous(self) -> bool:
        """Whether every array is C-contiguous with the flagged axis as its last."""
        length, outputs = self.flagged.extent, len(self.flagged.steps) - 1
        rows = [axis.steps for axis in self.others]
        return set(self.flagged.steps) == {1} and rows in ([], [(length, *[self.results] * outputs)])

    def in_periods(self) -> Form | None:
        """Return the form in which the rows along another axis, each right behind the one before in all arrays, are
        periods of one long row; None if there is none such axis."""
        length = self.flagged.extent
        for axis in self.others:
            if axis.steps == tuple(length * step for step in self.flagged.steps):
                others = tuple(other for other in self.others if other is not axis)
                return replace(self, flagged=Axis(length * axis.extent, self.flagged.steps), others=others)
        return None

    def unread(self) -> Form:
        """Return the form with one element in place of all, where no element decides."""
        flagged, *others = (Axis(axis.extent, (0, *axis.steps[1:])) for axis in (self.flagged, *self.others))
        return Form(flagged, tuple(merged(others)), self.bits)


def form_of(axis: int, bits: bool, views: Views, outs: Views) -> Form:
    """Return the axes of ``x`` and the outputs, of which ``axis`` is flagged."""
    x = views[0]
    axes = axes_of(x.shape, x.steps, *(out.steps for out in outs))
    flagged = axes.pop(axis)
    if flagged.extent == 1:  # no step is taken along it
        flagged = Axis(1, (1,) * len(flagged.steps))

    def pace(each: Axis) -> tuple[int, ...]:
        first, *others = map(abs, each.steps)
        return (*others, first)

    if len(axes) > 1:
        axes.sort(key=pace, reverse=True)
    return Form(flagged, tuple(merged(axes)), bits)
