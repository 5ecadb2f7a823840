"""Lengths and offsets that lie in NumPy arrays: checked before anything is launched, as NumPy checks its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ArgumentValueError, explain

_MOST = (1 << 63) - 1


def ends_on_host(lengths: np.ndarray, n: Any, name: str) -> np.ndarray:
    """Return where each run of such a length ends. The first ``n`` lengths must not be negative, and their sum must be
    an int64."""
    lengths, count = np.asarray(lengths).reshape(-1), _number(n)
    _refuse(lengths[:count] < 0, lengths, name, "lengths of 0 and more")
    counted = lengths[:count]
    if counted.size and int(counted.max()) * counted.size > _MOST and (total := sum(counted.tolist())) > _MOST:
        raise ArgumentValueError(explain(name, f"a sum of {total}", "a sum below 2**63"))
    return np.cumsum(lengths, dtype=np.int64)


def offsets_on_host(offsets: np.ndarray, n: Any) -> np.ndarray:
    """Return ``offsets``, of which those of the first ``n`` segments must not decrease."""
    flat, count = np.asarray(offsets).reshape(-1), _number(n)
    if flat.dtype.kind in "iu":  # other types are refused where the call is parsed
        _refuse(flat[1:][:count] < flat[:-1][:count], flat[1:], "offsets", "offsets that do not decrease")
    return offsets


def sorter_on_host(sorter: np.ndarray, n: Any, length: int) -> None:
    """Check that the first ``n`` elements of ``sorter`` are places in an array of ``length`` elements."""
    sorter, count = np.asarray(sorter).reshape(-1), _number(n)
    _refuse((sorter[:count] < 0) | (sorter[:count] >= length), sorter, "sorter", f"places in an array of {length}")


def _number(n: Any) -> int | None:
    """Return how many elements count if ``n`` is a number on the host. What else it may be is checked by the call."""
    known = isinstance(n, (int, np.integer)) or (type(n) is np.ndarray and n.dtype == np.int64 and n.ndim == 0)
    return max(int(n), 0) if known else None


def _refuse(wrong: np.ndarray, elements: np.ndarray, name: str, allowed: str) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ArgumentValueError(explain(name, f"the element {elements[place]}", allowed))
