"""The normal form of a reduction of strided arrays: the fewest axes, in the order in which memory is read best.

Axes of extent 1 are dropped. Kept axes are sorted by the first input's strides, and run forwards in it: results may be
computed in any order. Reduced axes are treated alike if the operator commutes; else they keep their order, so that
operands come in C order. Those of argmin and argmax are sorted, too, but not reversed: each has a weight, and the index
of a position is the sum of its coordinates times the weights. Of equal elements the lowest index counts, so broadcast
axes are left out. Then neighbours are merged where all arrays allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...runtime.layout import Axis, merged
from ...runtime.view import contiguous_strides


class Normal(NamedTuple):
    """The axes of a reduction, outermost first. ``kept`` have a step for each input, then for each output; ``reduced``
    have a step for each input. ``starts`` says by how many elements the first position of each array, inputs and then
    outputs, lies behind the array's own first element. All elements that are reduced are so many times ``repeats`` of
    those along ``reduced``, in their order: a broadcast axis before them is left out. ``weights`` has that of each
    reduced axis if indexes count elements, and these are not numbered in the order of ``reduced``."""

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    starts: tuple[int, ...]
    repeats: int = 1
    weights: tuple[int, ...] = ()

    @property
    def results(self) -> int:
        return math.prod([axis.extent for axis in self.kept])

    @property
    def length(self) -> int:
        """How many elements are reduced for a result."""
        return math.prod([axis.extent for axis in self.reduced])

    def reversed(self) -> Normal:
        """Return the form with the elements of a result from the last to the first."""
        behind = [[(axis.extent - 1) * step for step in axis.steps] for axis in self.reduced]
        ends = [sum(steps) for steps in zip(*behind)]
        starts = tuple(start + end for start, end in zip(self.starts, (*ends, *(0,) * len(self.starts))))
        reduced = tuple(Axis(axis.extent, tuple(-step for step in axis.steps)) for axis in self.reduced)
        return self._replace(reduced=reduced, starts=starts)

    def contiguous(self, inputs: int) -> tuple[int, int, int] | None:
        """Return (outer, length, inner) if all arrays are contiguous arrays of these three axes, the outputs without
        the second; else None."""
        if len(self.reduced) > 1 or len(self.kept) > 2 or self.repeats > 1 or self.weights:
            return None
        (length, steps) = self.reduced[0] if self.reduced else Axis(1, ())
        step = steps[0] if steps else 1
        sides = [self.kept[:1], self.kept[1:]] if len(self.kept) == 2 or step == 1 else [(), self.kept]
        outer, inner = (math.prod(axis.extent for axis in side) for side in sides)
        expected = Normal(
            tuple(_axes(inputs, sides[0], length * inner, inner)) + tuple(_axes(inputs, sides[1], 1, 1)),
            (Axis(length, (inner,) * inputs),) if self.reduced else (),
            self.starts,
        )
        return (outer, length, inner) if expected == self else None

    def runs(self) -> tuple[int, int, bool]:
        """Return the extent of the runs of one input, of which each result has several, their number, and whether
        anything lies between them; zeros of others."""
        if len(self.reduced) < 2 or self.reduced[-1].steps != (1,) or self.repeats > 1:
            return 0, 0, False
        run, pace, gaps = self.reduced[-1].extent, 1, False
        for extent, (step, *_) in sorted((*self.kept, *self.reduced), key=lambda axis: abs(axis.steps[0])):
            if abs(step) < pace:  # several times the same
                return 0, 0, False
            gaps |= abs(step) > pace
            pace = abs(step) * extent
        return run, self.results * self.length // run, gaps

    def in_order_of(self, inputs: int) -> Normal:
        """Return the form with results in the order of the inputs: outputs are contiguous along the kept axes."""
        steps = contiguous_strides(tuple(axis.extent for axis in self.kept))
        kept = [Axis(n, own[:inputs] + (step,) * (len(own) - inputs)) for (n, own), step in zip(self.kept, steps)]
        return self._replace(kept=tuple(merged(kept)))


def _axes(inputs: int, side: Sequence[Axis], step_in: int, step_out: int) -> Iterable[Axis]:
    """Return the axes with the steps of contiguous arrays."""
    return (Axis(extent, (step_in,) * inputs + (step_out,) * (len(steps) - inputs)) for extent, steps in side)


def normal(
    axes: Sequence[Axis], reduced: frozenset[int], inputs: int, commutes: bool, equal: bool, places: bool = False
) -> Normal:
    """Return the normal form of ``axes``, whose steps are those of the inputs, then of the outputs. ``equal``: elements
    along a broadcast axis are equal operands. ``places``: the result is the lowest index of some element."""
    count = len(axes[0].steps) if axes else 0
    starts = [0] * count
    kept = [axis for i, axis in enumerate(axes) if i not in reduced]
    gone = [Axis(axis.extent, axis.steps[:inputs]) for i, axis in enumerate(axes) if i in reduced]
    kept = _sorted(kept, starts)
    if places:
        gone, weights = _weighted(gone)
        return Normal(tuple(merged(kept)), tuple(gone), tuple(starts), weights=weights)
    if commutes:
        gone = _sorted(gone, starts)
    gone, repeats = merged(gone), 1
    while equal and gone and gone[0].extent > 1 and not any(gone[0].steps):
        repeats *= gone.pop(0).extent
    return Normal(tuple(merged(kept)), tuple(gone), tuple(starts), repeats)


def _weighted(axes: Sequence[Axis]) -> tuple[list[Axis], tuple[int, ...]]:
    """Return the axes of indexed elements, of the largest step first, without broadcast ones, and their weights; no
    weights if positions are numbered as indexes are."""
    weights = [math.prod(axis.extent for axis in axes[i + 1 :]) for i in range(len(axes))]
    own = [Axis(n, (*steps, weight)) for (n, steps), weight in zip(axes, weights) if any(steps)]
    found = merged(sorted(own, key=lambda axis: -abs(axis.steps[0])))
    inside = [math.prod(axis.extent for axis in found[i + 1 :]) for i in range(len(found))]
    given = tuple(axis.steps[-1] for axis in found)
    return [Axis(n, steps[:-1]) for n, steps in found], () if list(given) == inside else given


def _sorted(axes: list[Axis], starts: list[int]) -> list[Axis]:
    """Return the axes, of the largest step first, with no negative step of the first array that has a step; and add to
    ``starts`` where this begins."""
    found = []
    for extent, steps in axes:
        if extent == 1:
            continue
        if (steps[0] or next((step for step in steps if step), 0)) < 0:
            for i, step in enumerate(steps):
                starts[i] += (extent - 1) * step
            steps = tuple(-step for step in steps)
        found.append(Axis(extent, steps))
    if len(found) > 1:
        found.sort(key=lambda axis: [-step if step else -math.inf for step in axis.steps])
    return found
