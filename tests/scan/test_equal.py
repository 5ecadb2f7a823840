"""Scans of arrays that are repeated along the scanned axis, of neighbouring columns: who stores which positions."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import equal_policy, plan
from cutesync.kernels.scan.equal_policy import EqualPolicy
from cutesync.runtime import call

from ..cases import data, same, scanned

# Type, positions and columns, the elements of a vector, and how many threads have neighbouring positions
NEAR = (
    ("uint64", 1100, 6, 2, 32),
    ("int32", 70, 6, 2, 32),
    ("int16", 2100, 24, 4, 32),
    ("uint8", 33, 48, 4, 8),
    ("float64", 1030, 3, 1, 32),
    ("int32", 21, 133, 1, 4),
    ("int16", 7, 3, 1, 2),
)
WAYS = ({}, {"reverse": True}, {"exclusive": True}, {"exclusive": True, "reverse": True, "init": 3})


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test. Threads have as many positions as in large arrays."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(equal_policy, "MIN_THREADS", 0)
    monkeypatch.setattr(call, "_plans", {})
    return found


def repeated(dtype: str, length: int, columns: int):
    """An array whose rows of columns are repeated, and its values."""
    x = data((2, 1, columns), dtype)
    return cs.asarray(x).broadcast_to((2, length, columns)), np.broadcast_to(x, (2, length, columns))


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "length", "columns", "width", "lanes"), NEAR)
def test_short_rows_of_columns(dtype, length, columns, width, lanes, on_emulator, policies):
    view, values = repeated(dtype, length, columns)
    for ways in WAYS:
        same(np.asarray(cs.scan(view, axis=1, **ways)), scanned(values, axis=1, **ways), f"{dtype} {ways}")
    found = {(policy.way, policy.width, policy.unroll, policy.lanes) for policy in policies}
    assert set(map(type, policies)) == {EqualPolicy} and found == {("across", width, 32, lanes)}


def test_rows_that_stay_apart(on_emulator, policies, monkeypatch):
    """Rows of lines, and rows that blocks have alone, are whole lines of a warp as they are; bytes and pairs of words
    that warps have alone are not, either way; in small arrays a thread has few positions."""
    for dtype, columns in (("int32", 32), ("int32", 259), ("uint8", 45), ("float32", 70)):
        view, values = repeated(dtype, 40, columns)
        same(np.asarray(cs.scan(view, axis=1)), scanned(values, axis=1), f"{dtype} {columns}")
    monkeypatch.setattr(equal_policy, "MIN_THREADS", 1 << 15)
    cs.scan(repeated("int32", 40, 6)[0], axis=1)
    assert [(policy.unroll, policy.lanes) for policy in policies] == [(32, 1)] * 4 + [(1, 1)]
