"""What a selection returns: arrays of a capacity that the host knows, and a length that only the device knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Selected:
    """The selected elements: the first ``count`` of ``values``, and their ``indices`` if the call asked for them.

    ``count`` is a 0-d int64 array on the device; it may be larger than ``values``, which then has the first ones. It
    unpacks as ``values, count`` or ``values, count, indices``. ``len(selected)``, ``selected.exact()`` and
    ``np.asarray(selected)`` wait for the device (the default stream); nothing else does. With several arrays,
    ``values`` is a tuple.
    """

    __slots__ = ("count", "indices", "values")

    def __init__(self, values: Any, count: Any, indices: Any = None) -> None:
        self.values, self.count, self.indices = values, count, indices

    def __iter__(self) -> Iterator:
        return iter((self.values, self.count) if self.indices is None else (self.values, self.count, self.indices))

    def __len__(self) -> int:
        """Wait for the device; return how many selected elements ``values`` has."""
        first = self.values[0] if type(self.values) is tuple else self.values
        return min(int(self.count), first.shape[0])

    def exact(self) -> Any:
        """Wait for the device; return the values without what lies behind them: an array, or a tuple of them for
        several arrays. With indices, return ``(values, indices)``."""
        n = len(self)
        values = tuple(v[:n] for v in self.values) if type(self.values) is tuple else self.values[:n]
        return values if self.indices is None else (values, self.indices[:n])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return a NumPy copy of the values, after waiting for the device."""
        n = len(self)
        several = type(self.values) is tuple
        host = np.stack([_host(v[:n]) for v in self.values]) if several else _host(self.values[:n])
        return host if dtype is None else host.astype(dtype)

    def __repr__(self) -> str:
        indices = "" if self.indices is None else f", indices={self.indices!r}"
        return f"Selected(values={self.values!r}, count={self.count!r}{indices})"


def _host(x: Any) -> np.ndarray:
    """Return a NumPy copy of an array of any library."""
    if hasattr(x, "cpu"):  # torch
        return x.cpu().numpy()
    return x.get() if hasattr(x, "get") else np.asarray(x)  # CuPy has get
