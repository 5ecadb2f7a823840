"""What a reduction by key returns: arrays of a capacity that the host knows, a length that only the device knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Reduced:
    """The keys of the segments and their results: the first ``count`` of ``keys`` and ``values``, each an array, or a
    tuple of several.

    ``count`` is a 0-d int64 array on the device; it may be larger than ``values``, which then has the first ones. It
    unpacks as ``keys, values, count``. ``len(reduced)`` and ``reduced.exact()`` wait for the device (the default
    stream); nothing else does.
    """

    __slots__ = ("count", "keys", "values")
    __match_args__ = ("keys", "values", "count")

    def __init__(self, keys: Any, values: Any, count: Any) -> None:
        self.keys, self.values, self.count = keys, values, count

    def __iter__(self) -> Iterator:
        return iter((self.keys, self.values, self.count))

    def __len__(self) -> int:
        """Wait for the device; return how many segments ``values`` has."""
        first = self.values[0] if type(self.values) is tuple else self.values
        return min(int(self.count), first.shape[0])

    def exact(self) -> tuple:
        """Wait for the device; return ``(keys, values)`` without what lies behind them."""
        n = len(self)
        return _cut(self.keys, n), _cut(self.values, n)

    def __repr__(self) -> str:
        return f"Reduced(keys={self.keys!r}, values={self.values!r}, count={self.count!r})"


def _cut(arrays: Any, n: int) -> Any:
    if arrays is None:  # there are no keys
        return None
    return tuple(array[:n] for array in arrays) if type(arrays) is tuple else arrays[:n]
