"""The description of an array, whichever library made it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ..dtypes import DType
from ..errors import ArgumentValueError, explain


@dataclass(frozen=True)
class View:
    """A checked array: address, shape, element type, device, whether it is C-contiguous and may be written, and its
    strides in elements (None: C-contiguous)."""

    ptr: int
    shape: tuple[int, ...]
    dtype: DType
    device: int
    contiguous: bool
    writable: bool = True
    strides: tuple[int, ...] | None = None

    @functools.cached_property
    def steps(self) -> tuple[int, ...]:
        """The strides in elements, for every layout."""
        return contiguous_strides(self.shape) if self.strides is None else self.strides

    @property
    def span(self) -> tuple[int, int]:
        """The addresses ``(start, stop)`` of the lowest byte and past the highest byte of all elements; equal for an
        empty array."""
        start, stop = self.reach
        return self.ptr + start, self.ptr + stop

    @property
    def reach(self) -> tuple[int, int]:
        """The same, counted from ``ptr``."""
        if self.contiguous or self.strides is None or not self.size:
            return 0, self.nbytes
        low = high = 0
        for extent, step in zip(self.shape, self.strides):
            if step < 0:
                low += (extent - 1) * step
            else:
                high += (extent - 1) * step
        return low * self.dtype.size, (high + 1) * self.dtype.size

    @functools.cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in elements."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= max(extent, 1)
    return tuple(reversed(steps))


def is_c_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def in_elements(strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Convert strides from bytes to elements. Raise ArgumentValueError unless all are multiples of ``size``."""
    if any(stride % size for stride in strides):
        came = f"strides of {tuple(strides)} bytes for elements of {size}"
        raise ArgumentValueError(explain("array", came, "multiples of the element", "copy it first"))
    return tuple(stride // size for stride in strides)
