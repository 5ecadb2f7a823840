"""Elements as integers that are ordered as the elements are. Device code.

The key of an element is a signed integer of 32 bits (64 for 8-byte elements); the larger key wins. Zeros of both signs
have one key, and so have all NaN, which is the largest value. For the smallest elements the order is reversed.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32, Uint64

from ...dtypes import DType
from ...monoid import choose

INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}  # its bits


class Order:
    """The order of elements of ``dtype``: ``of(element)`` is a key of ``type``."""

    def __init__(self, dtype: DType, largest: bool) -> None:
        self.dtype, self.largest = dtype, largest
        self.type: Any = Int64 if dtype.size == 8 else Int32
        self.lowest, self.highest = int(self.type.min), int(self.type.max)
        self.floats = dtype.kind == "f" and dtype.size <= 4
        self.held: Any = Float32 if self.floats else self.type

    def hold(self, element) -> Any:
        """A loaded element as it is held in registers, in type ``held``: keys of many elements are never needed."""
        return Float32(element) if self.floats else self.of(element)

    def missing(self) -> Any:
        """What is held where there is no element: none comes after it, NaN aside."""
        return Float32(float("-inf" if self.largest else "inf")) if self.floats else self.type(self.lowest)

    def last(self) -> Any:
        """The element that no other comes after, NaN aside."""
        kind, size = self.dtype.kind, self.dtype.size
        if kind == "f":
            return self.dtype.cutlass(float("-inf" if self.largest else "inf"))
        if kind == "b":
            return self.dtype.cutlass(not self.largest)
        low, high = (0, 2 ** (8 * size) - 1) if kind == "u" else (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
        return self.dtype.cutlass(low if self.largest else high)

    def first(self, a, b) -> Any:
        """The one of two held elements that comes first; of two NaN, or zeros, any."""
        if not self.floats:
            return cutlass.max(a, b)
        return cute.arch.fmax(a, b, nan=True) if self.largest else cute.arch.fmin(a, b)

    def key(self, held) -> Any:
        """The key of a held element."""
        return self._of_float(held) if self.floats else held

    def floor(self, key) -> Any:
        """The held element of a key."""
        if not self.floats:
            return key
        magnitude = cutlass.min(cutlass.max(key, -key), self.type(INFINITY[4]))  # the lowest key is its own negative
        magnitude = choose(key == self.type(self.lowest), self.type(INFINITY[4]), magnitude)
        negative = key < 0 if self.largest else key > 0
        return choose(negative, magnitude | self.type(self.lowest), magnitude).bitcast(Float32)

    def reaches(self, held, floor) -> Any:
        """Whether a held element does not come after another one; true where one is NaN."""
        if not self.floats:
            return held >= floor
        return cutlass.not_(held < floor) if self.largest else cutlass.not_(held > floor)

    def between(self, low, high) -> Any:
        """The key in the middle above ``low`` and not above ``high``."""
        unsigned = Uint64 if self.type.width == 64 else Uint32
        span = unsigned(high) - unsigned(low)
        return low + self.type(span >> unsigned(1)) + self.type(span & unsigned(1))

    def of(self, element) -> Any:
        """The key of a loaded element."""
        kind, size = self.dtype.kind, self.dtype.size
        if kind == "f":
            return self._of_float(element)
        if kind == "b":
            found = Int32(element != type(element)(0))
        elif kind == "u" and size >= 4:
            found = self.type(element) ^ self.type(self.lowest)
        else:
            found = self.type(element)
        return found if self.largest else found ^ self.type(-1)

    def _of_float(self, element) -> Any:
        bits = (Float32(element) if self.dtype.size < 4 else element).bitcast(self.type)
        sign = bits >> (self.type.width - 1)
        if not self.largest:
            sign = sign ^ self.type(-1)
        magnitude = bits & self.type(self.highest)
        nan = self.type(self.highest if self.largest else self.lowest)
        return choose(magnitude > self.type(INFINITY[self.type.width // 8]), nan, (magnitude ^ sign) - sign)
