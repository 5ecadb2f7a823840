"""Axes of strided arrays: merged ones visit the same elements in the same order."""

from __future__ import annotations

import itertools

import numpy as np

from cutesync.runtime.layout import Axis, axes_of, merged


def visited(axes: list[Axis], count: int) -> list[tuple[int, ...]]:
    """Return the offsets in each of ``count`` arrays that the axes visit, in order."""
    places = itertools.product(*(range(axis.extent) for axis in axes))
    return [tuple(sum(i * axis.steps[k] for i, axis in zip(place, axes)) for k in range(count)) for place in places]


def test_merged_axes_visit_the_same_elements_in_order() -> None:
    rng = np.random.default_rng(3)
    fewer = 0
    for _ in range(500):
        shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 5)))
        steps = []
        for _ in range(rng.integers(1, 4)):
            whole = np.zeros(tuple(n * 2 for n in shape), np.int8)
            view = whole[tuple(slice(None, n) if rng.random() < 0.8 else slice(None, None, 2) for n in shape)]
            view = view if rng.random() < 0.7 else view[tuple(slice(None, None, -1) for _ in shape)]
            steps.append(view.strides)
        axes = axes_of(shape, *steps)
        less = merged(axes)
        assert visited(less, len(steps)) == visited(axes, len(steps))
        assert not any(axis.extent == 1 for axis in less)
        fewer += len(less) < sum(n > 1 for n in shape)
    assert fewer > 10


def test_contiguous_arrays_are_one_axis() -> None:
    assert merged(axes_of((4, 1, 6), (6, 99, 1))) == [Axis(24, (1,))]
    assert merged(axes_of((4, 6), (6, 1), (8, 1))) == [Axis(4, (6, 8)), Axis(6, (1, 1))]
    assert merged(axes_of((4, 6), (0, 0))) == [Axis(24, (0,))]
    assert merged(axes_of((), ())) == []
