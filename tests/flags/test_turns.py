"""Neighbours in other rows, where warps take rows in turn, vectors are joined from aligned ones, and tiles of long rows
follow each other along the flagged axis: they agree with the reference, and nothing outside of the array is read."""

from __future__ import annotations

import math

import pytest

from cutesync.kernels.flags import strided_policy, turn_policy

from .cases import keys
from .test_vectors import check, large  # noqa: F401

SLOW = pytest.mark.slow
ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")
ROWS = [
    ((3, 1201), "int16", 0),
    ((19, 563), "uint8", 0),
    ((3, 7, 555), "float32", 1),
    ((2, 3001), "bool", 0),
    ((11, 2, 409), "float16", 0),
    ((21, 301), "float32", 0),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize(
    ("shape", "dtype", "axis"), [pytest.param(*c, marks=[SLOW] * (i > 2)) for i, c in enumerate(ROWS)]
)
def test_warps_take_rows_in_turn(shape, dtype, axis, few, large, monkeypatch, on_emulator):  # noqa: F811
    """Each result is stored by one warp, whatever the number of rows, of warps and of slices."""
    monkeypatch.setattr(strided_policy, "MIN_FAR_BYTES", 1 << 30)
    for name, value in (("MIN_TURNS", 0), ("MIN_RUNS", 0), ("FEW_ROWS", few)):
        monkeypatch.setattr(turn_policy, name, value)
    names = ALL[: 3 + (dtype != "bool")]
    for options in ({}, {"successor": 1}):
        check(keys(shape, dtype), lambda x: x, axis, names, **options)
    assert all(choice.policy.turn > 0 for choice in large)


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
    check(host, lambda x: x, 0, ALL[:3])
    check(host, lambda x: x, 0, ALL[:2], successor=1, op=lambda a, b, index: (a != b) & (index % 3 != 1))
    assert all(choice.policy.vector * host.itemsize == 32 for choice in large)


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
        monkeypatch.setattr(turn_policy, name, value)
    monkeypatch.setattr(strided_policy, "WIDE_BYTES", 0)
    for options in ({}, {"successor": 1, "op": lambda a, b, index: (a != b) & (index % 3 != 1)}):
        check(keys(shape, dtype), view, axis, ALL, **options)
    assert all(choice.axes[0].extent < math.prod(shape[axis + 1 :]) for choice in large)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["bool", "float16", "int64"])
def test_rows_of_one_element_are_not_read(dtype, large, on_emulator):  # noqa: F811
    """No element decides, unless a neighbour is given."""
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
