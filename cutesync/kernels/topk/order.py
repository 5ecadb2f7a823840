"""Elements as integers that are ordered as the elements are. Device code.

The key of an element is a signed integer of 32 bits (64 for 8-byte elements); the larger key wins. Zeros of both signs
have one key, and so have all NaN, which is the largest value. For the smallest elements the order is reversed.
"""

from __future__ import annotations

from typing import Any

from cutlass import Float32, Int32, Int64

from ...dtypes import DType
from ...monoid import choose

INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}  # its bits


class Order:
    """The order of elements of ``dtype``: ``of(element)`` is a key of ``type``."""

    def __init__(self, dtype: DType, largest: bool) -> None:
        self.dtype, self.largest = dtype, largest
        self.type: Any = Int64 if dtype.size == 8 else Int32
        self.lowest, self.highest = int(self.type.min), int(self.type.max)

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
