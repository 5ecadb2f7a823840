"""Layouts of strided arrays that are accessed together: their axes, dropped and merged where this changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Axis(NamedTuple):
    """An axis of several arrays of one shape: its extent, and the stride of each array along it, in elements. A stride
    of 0 repeats elements, a negative one runs backwards."""

    extent: int
    steps: tuple[int, ...]


def axes_of(shape: Sequence[int], *steps: Sequence[int]) -> list[Axis]:
    """Return the axes of arrays of ``shape`` with these strides, in order."""
    return [Axis(extent, each) for extent, each in zip(shape, zip(*steps))]


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Return the fewest axes that visit the same elements of all arrays in the same order: axes of extent 1 are
    dropped, and neighbours are merged where in every array the outer one continues the inner one."""
    found: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if found and found[-1].steps == tuple(step * axis.extent for step in axis.steps):
            axis = Axis(found.pop().extent * axis.extent, axis.steps)
        found.append(axis)
    return found
