"""From the number of a position to the offsets of its elements in strided arrays. Device code.

A position of axes is numbered in C order: the last axis runs fastest. Its coordinates take a division for each axis
but the first. Numbers below 2**31 are divided by a multiplication (``axes.divisor``); larger ones by a division of 64
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cutlass
from cutlass import Int64, Uint32, cute


class Axes:
    """The axes that ``axes.parameters`` describe, for ``rank`` axes of ``arrays`` arrays."""

    def __init__(self, given: Sequence, rank: int, arrays: int) -> None:
        size = 3 + arrays
        self.axes = [tuple(given[i * size : (i + 1) * size]) for i in range(rank)]
        self.arrays = arrays

    def __extract_mlir_values__(self) -> list:
        return [value for axis in self.axes for number in axis for value in cutlass.extract_mlir_values(number)]

    def __new_from_mlir_values__(self, values) -> Axes:
        numbers = [number for axis in self.axes for number in axis]
        found = [cutlass.new_from_mlir_values(number, [value]) for number, value in zip(numbers, values)]
        return Axes(found, len(self.axes), self.arrays)

    def split(self) -> tuple[Axes, Axes, Axes]:
        """The axes but the last two, the last but one, and the last."""
        parts = self.axes[:-2] or [(1, 0, 0, *(0,) * self.arrays)], self.axes[-2:-1], self.axes[-1:]
        found = [Axes([number for axis in part for number in axis], len(part), self.arrays) for part in parts]
        return found[0], found[1], found[2]

    @property
    def size(self):
        """The number of positions."""
        total = self.axes[0][0]
        for extent, *_ in self.axes[1:]:
            total = total * extent
        return total

    @property
    def steps(self) -> tuple:
        """The steps of the last axis."""
        return self.axes[-1][3:]

    def offsets(self, position) -> list[Any]:
        """The offset of a position in each array, in elements."""
        totals: list[Any] = [None] * self.arrays
        for i in range(len(self.axes) - 1, -1, -1):
            extent, factor, shift, *steps = self.axes[i]
            at = position
            if i:
                position = quotient(position, extent, factor, shift)
                at = at - position * extent
            for k, step in enumerate(steps):
                part = Int64(at) * step
                totals[k] = part if totals[k] is None else totals[k] + part
        return totals


def quotient(n, count, factor, shift):
    """``n // count``."""
    if isinstance(n, Int64):
        return n // count
    number = Uint32(n)
    return type(n)((cute.arch.mul_hi(number, factor) + number) >> shift)


def moved(pointers: Sequence, offsets: Sequence) -> list:
    """The pointers, each by its own offset."""
    return [pointer + offset for pointer, offset in zip(pointers, offsets)]


def element(pointer):
    """What a pointer points to."""
    return cute.make_tensor(pointer, cute.make_layout((1,)))[0]


def store(pointer, value) -> None:
    """Store what a pointer points to."""
    cute.make_tensor(pointer, cute.make_layout((1,)))[0] = value
