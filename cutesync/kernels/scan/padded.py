"""Scan of arrays whose inputs and outputs have their neighbours along different axes of columns, in blocks of both that
do not divide the axes: a tile reads runs along one and writes runs along the other. Columns beyond the axes are loaded
from their last ones, and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int64

from ..coordinates import Axes, quotient
from .base import Arguments
from .column_tiles import ColumnTileScan
from .strided import StridedScan

BLOCKED = 2  # axes that have blocks


class PaddedAxes(Axes):
    """Axes of which the last four are those of blocks along two axes of these ``extents``, and those of columns inside
    a block."""

    def __init__(self, given: Sequence, rank: int, arrays: int, extents: Sequence) -> None:
        super().__init__(given, rank, arrays)
        self.extents = extents

    def places(self, position) -> list:
        """The coordinates of a position: on the axes before the two, then on these, which may be beyond them."""
        found: list[Any] = []
        for i in range(len(self.axes) - 1, -1, -1):
            extent, factor, shift, *_ = self.axes[i]
            before = quotient(position, extent, factor, shift) if i else position * 0
            found.append(position - before * extent)
            position = before
        *others, first, second, low, high = found[::-1]
        return [*others, first * self.axes[-2][0] + low, second * self.axes[-1][0] + high]

    def offsets(self, position) -> list[Any]:
        *others, first, second = self.places(position)
        last = [cutlass.min(at, type(at)(extent) - 1) for at, extent in zip((first, second), self.extents)]
        axes = [*self.axes[: -2 * BLOCKED], *self.axes[-BLOCKED:]]
        parts = [[Int64(at) * step for step in axis[3:]] for at, axis in zip((*others, *last), axes)]
        return [sum(each[1:], each[0]) for each in zip(*parts)]

    def exists(self, position):
        """Whether the axes have the coordinates of a position."""
        *_, first, second = self.places(position)
        return (first < type(first)(self.extents[0])) & (second < type(second)(self.extents[1]))


class PaddedScan(StridedScan):
    """The kernel: columns are numbered as if all blocks were full."""

    @cute.jit
    def body(self, a: Arguments):
        ColumnTileScan.body(self, a._replace(inner=Int64(self.axes(a)[1].size)))

    def axes(self, a: Arguments) -> tuple[Axes, PaddedAxes]:
        scanned, columns = StridedScan.axes(self, a._replace(layout=a.layout[:-BLOCKED]))
        numbers = [number for axis in columns.axes for number in axis]
        return scanned, PaddedAxes(numbers, self.ranks[1], columns.arrays, a.layout[-BLOCKED:])

    def is_full(self, k: int, a: Arguments, part: Any):
        return Boolean(False) if self.several(k)[1] else super().is_full(k, a, part)

    def column_exists(self, a: Arguments, column):
        number = self.number(cutlass.min(column, a.inner - 1))
        return (column < a.inner) & self.axes(a)[1].exists(number)
