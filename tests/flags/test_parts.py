"""Neighbours in other rows, where vectors are joined from aligned ones, and tiles of long rows follow each other along
the flagged axis; rows that are not read: they agree with the reference, and nothing outside of the array is read."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import parts, plan, strided_policy

from ..cases import same
from .cases import keys
from .test_strided import SENTINEL, unwritten
from .test_vectors import check, large  # noqa: F401

SLOW = pytest.mark.slow
ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")
JOINED = [
    ((301, 7), "int32"),
    ((203, 10), "uint16"),
    ((90, 3, 3), "float32"),
    ((401, 2), "float16"),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("shape", "dtype"), JOINED)
def test_neighbours_are_joined_from_vectors(shape, dtype, large, monkeypatch, on_emulator):  # noqa: F811
    monkeypatch.setattr(strided_policy, "MAX_HALF", 0)
    host = keys(shape, dtype)
    views = (lambda x: x), (lambda x: x[1:])  # which begins anywhere, of four bytes
    for view in views[: 1 + (host.itemsize == 4)]:
        check(host, view, 0, ALL[:3])
        check(host, view, 0, ALL[:2], successor=1, op=lambda a, b, index: (a != b) & (index % 3 != 1))
    assert all(choice.policy.vector * host.itemsize == 32 for choice in large)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["int16", "float16", "int32"])
@pytest.mark.parametrize(("shape", "axis"), [((31, 6), 0), ((3, 17, 66), 1), ((2, 9, 40), 1)])
def test_items_that_do_not_count_are_not_compared(shape, axis, dtype, large, monkeypatch, on_emulator):  # noqa: F811
    """Two keys at once, and neighbours joined from vectors."""
    for name, value in (("MAX_HALF", 0), ("LONG_SLICE", 2)):
        monkeypatch.setattr(strided_policy, name, value)
    host = keys(shape, dtype)
    for n in (0, 1, shape[axis] // 2, shape[axis]):
        out = cs.asarray(np.full(shape, SENTINEL, np.uint8))
        cs.flag_tails(cs.asarray(host), axis=axis, n=n, out=out)
        same(np.asarray(out), unwritten(reference.flag_tails(host, axis=axis, n=n), axis, n, False), f"{n}")
    assert all(choice.policy.by_words or dtype == "int32" for choice in large)


FAR = [
    ((9, 8, 12, 16), "float64", 0, lambda x: x),
    ((3, 17, 96), "int16", 1, lambda x: x),
    ((13, 192), "float32", 0, lambda x: x),
    ((5, 3, 256), "int8", 0, lambda x: x),
    ((9, 128), "float32", 0, lambda x: x[::-1]),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("shape", "dtype", "axis", "view"), FAR)
def test_tiles_of_far_rows_follow_each_other(shape, dtype, axis, view, large, monkeypatch, on_emulator):  # noqa: F811
    for name, value in (("MIN_TILE_BYTES", 0), ("MIN_PART", 2), ("MAX_PART", 8)):
        monkeypatch.setattr(parts, name, value)
    monkeypatch.setattr(strided_policy, "WIDE_BYTES", 0)
    for options in ({}, {"successor": 1, "op": lambda a, b, index: (a != b) & (index % 3 != 1)}):
        check(keys(shape, dtype), view, axis, ALL, **options)
    assert all(choice.axes[0].extent < math.prod(shape[axis + 1 :]) for choice in large)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["bool", "float16", "int64"])
def test_rows_of_one_element_are_not_read(dtype, large, monkeypatch, on_emulator):  # noqa: F811
    """No element decides, unless a neighbour is given."""
    monkeypatch.setattr(plan, "MIN_UNREAD", 0)
    host = keys((3, 1, 37), dtype)
    views = (lambda x: x), (lambda x: x[:, :, ::-1]), (lambda x: x.transpose(2, 1, 0)), (lambda x: x[1:2, :, 3:])
    for view in views:
        for options in ({"dtype": "bits"}, {}, {"successor": 1, "dtype": "bits"}, {"successor": 1}):
            check(host, view, 1, ALL[:2] if options.get("successor") else ALL[:3], **options)


@pytest.mark.parametrize("dtype", ["int16", pytest.param("float64", marks=SLOW)])
def test_bits_of_columns_backwards(dtype, large, on_emulator):  # noqa: F811
    for shape in ((5, 64), (33, 12), (2, 3, 40)):
        check(keys(shape, dtype), lambda x: x[..., ::-1], len(shape) - 2, ALL[:3], dtype="bits")
    assert any(choice.policy.loads == "back" and choice.policy.columns > 1 for choice in large)
