"""What a selection returns: arrays of a capacity that the host knows, and a length that only the device knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import ArgumentTypeError, explain

_MORE = ("indices", "inverse", "lengths", "offsets")


class Selected:
    """The selected elements: the first ``count`` of ``values``, and their ``indices`` if the call asked for them; of
    runs, ``inverse`` (the number of each element's run) and ``lengths``.

    ``count`` is a 0-d int64 array on the device; it may be larger than ``values``, which then has the first ones. It
    unpacks as ``values, count`` and what the call asked for, in that order. ``len(selected)``, ``selected.exact()`` and
    ``np.asarray(selected)`` wait for the device (the default stream); nothing else does. With several arrays,
    ``values`` is a tuple.

    Of a selection by rows, results have the selected elements of each row at the start of a row, ``count`` has a number
    for each, and ``exact()`` returns a list for each result. If it is packed, they have those of all rows, and
    ``offsets`` says where those of each row begin, and where the last ones end.
    """

    __slots__ = ("count", "indices", "inverse", "lengths", "offsets", "values")
    __match_args__ = ("values", "count", "indices", "inverse", "lengths", "offsets")

    def __init__(
        self,
        values: Any,
        count: Any,
        indices: Any = None,
        inverse: Any = None,
        lengths: Any = None,
        offsets: Any = None,
    ) -> None:
        self.values, self.count = values, count
        self.indices, self.inverse, self.lengths, self.offsets = indices, inverse, lengths, offsets

    @property
    def more(self) -> tuple:
        """What the call asked for beside the values."""
        return tuple(array for array in (getattr(self, name) for name in _MORE) if array is not None)

    def __iter__(self) -> Iterator:
        return iter((self.values, self.count, *self.more))

    def __len__(self) -> int:
        """Wait for the device; return how many selected elements ``values`` has."""
        first = self.values[0] if type(self.values) is tuple else self.values
        if self.count.shape:
            came = f"rows of shape {tuple(self.count.shape)}"
            raise ArgumentTypeError(
                explain("len", came, "one length", "count has one for each row, exact() their parts")
            )
        return min(int(self.count), first.shape[0])

    def exact(self) -> Any:
        """Wait for the device; return the values without what lies behind them: an array, or a tuple of them for
        several arrays. Return a tuple of it and of what else the call asked for, if there is any."""
        if self.count.shape:
            return self._rows()
        n = len(self)
        values = tuple(v[:n] for v in self.values) if type(self.values) is tuple else self.values[:n]
        more = tuple(a if a is self.inverse or a is self.offsets else a[:n] for a in self.more)
        return (values, *more) if more else values

    def _rows(self) -> Any:
        """Return ``exact()`` of a selection by rows: a list of the rows in place of an array."""
        counts = _host(self.count)

        def cut(array: Any) -> list:
            ends = (None if array is self.inverse else int(n) for n in counts.flat)
            return [array[(*row, slice(end))] for row, end in zip(np.ndindex(counts.shape), ends)]

        values = tuple(map(cut, self.values)) if type(self.values) is tuple else cut(self.values)
        more = tuple(map(cut, self.more))
        return (values, *more) if more else values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return a NumPy copy of the values, after waiting for the device."""
        n = len(self)
        several = type(self.values) is tuple
        host = np.stack([_host(v[:n]) for v in self.values]) if several else _host(self.values[:n])
        return host if dtype is None else host.astype(dtype)

    def __repr__(self) -> str:
        more = "".join(f", {name}={getattr(self, name)!r}" for name in _MORE if getattr(self, name) is not None)
        return f"Selected(values={self.values!r}, count={self.count!r}{more})"


def _host(x: Any) -> np.ndarray:
    """Return a NumPy copy of an array of any library."""
    if hasattr(x, "cpu"):  # torch
        return x.cpu().numpy()
    return x.get() if hasattr(x, "get") else np.asarray(x)  # CuPy has get
