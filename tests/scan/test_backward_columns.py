"""Scans along an axis that is not the last of arrays whose columns run backwards, by the kernels of columns."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype as element_type
from cutesync.kernels.scan import backward_policy, plan
from cutesync.kernels.scan.column_policy import ColumnPolicy, ColumnTilePolicy
from cutesync.kernels.scan.ragged_column_policy import RaggedColumnPolicy
from cutesync.kernels.scan.strided_policy import StridedPolicy
from cutesync.runtime.device import DRY
from cutesync.runtime.device_array import DeviceArray

from ..cases import data, same
from ..compiled import needed
from .kernels import force_backward, ragged_columns


@pytest.fixture
def launched(monkeypatch):
    """The choices of the launches of a test, whose arrays are too small for the kernels of columns to gain."""
    force_backward(monkeypatch)
    found = []
    launch = plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice) or launch(choice, *more))
    return found


def summed(x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    x = np.flip(x, axis) if reverse else x
    sums = np.logical_or.accumulate(x, axis) if x.dtype == bool else np.cumsum(x, axis, dtype=x.dtype)
    if exclusive:
        sums = np.roll(sums, 1, axis)
        sums[(slice(None),) * axis + (0,)] = 0
    return np.flip(sums, axis) if reverse else sums


# what: (type, shape of the memory, index of the view, axis, the policy's class and some of its fields)
UP, ALL = slice(None, None, -1), slice(None)
CASES = {
    "words of bytes": ("int8", (300, 60), (ALL, UP), 0, (ColumnTilePolicy, {"vectors": False, "width": 1})),
    "bools in vectors": ("bool", (500, 128), (ALL, UP), 0, (ColumnTilePolicy, {"vectors": True, "width": 1})),
    "bools, a last tile that is not full": ("bool", (400, 240), (ALL, UP), 0, (ColumnTilePolicy, {"vectors": True})),
    "halves": ("uint16", (300, 120), (ALL, UP), 0, (ColumnTilePolicy, {"vectors": True})),
    "words": ("int32", (200, 40), (ALL, UP), 0, (ColumnTilePolicy, {})),
    "pairs of 8 bytes": ("int64", (4, 90, 24), (ALL, ALL, UP), 1, (ColumnTilePolicy, {})),
    "rows apart": ("int16", (3, 100, 80), (UP, ALL, slice(71, 7, -1)), 1, (ColumnTilePolicy, {})),
    "few positions": ("int32", (40, 20, 96), (ALL, ALL, UP), 1, (ColumnPolicy, {"apart": False})),
    "few positions of bytes": ("int8", (40, 20, 96), (ALL, ALL, UP), 1, (ColumnPolicy, {"apart": False})),
    "odd bytes, few positions": ("bool", (300, 3, 1001), (ALL, ALL, UP), 1, (ColumnPolicy, {})),
    "positions backwards, too": ("int32", (200, 40), (UP, UP), 0, (ColumnTilePolicy, {})),
}


@pytest.mark.parametrize("how", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_agrees(name, how, on_emulator, launched):
    dtype, shape, index, axis, (kind, fields) = CASES[name]
    x = np.random.default_rng(3).random(shape) < 0.02 if dtype == "bool" else data(shape, dtype)
    found = cs.scan(cs.asarray(x)[index], axis=axis, exclusive=how[0], reverse=how[1])
    same(np.asarray(found), summed(x[index], axis, *how))
    (choice,) = launched
    assert choice.view == "backward" and isinstance(choice.policy, kind)
    assert {key: getattr(choice.policy, key) for key in fields} == fields


@pytest.mark.parametrize(("dtype", "inner", "first"), [("int8", 43, 0), ("bool", 64, 1), ("uint16", 27, 1)])
def test_ragged_rows(dtype, inner, first, on_emulator, launched, monkeypatch):
    """Tiles that depend on others and tiles with all rows, from the beginning of the memory to its end; with and
    without results that begin on words; elements combined one by one."""
    monkeypatch.setattr(backward_policy, "MIN_RAGGED_BYTES", 0)
    x = data((2 * 37 * inner + first,), dtype)
    array, memory = (a[first:].reshape(2, 37, inner)[..., ::-1] for a in (x, cs.asarray(x)))
    for groups, height in ((4, 4), (8, 8)):
        monkeypatch.setattr(backward_policy, "ragged_columns", ragged_columns(8, groups, height, 2, 2))
        found = cs.scan(memory, axis=1, exclusive=groups == 8, reverse=groups == 4)
        same(np.asarray(found), summed(array, 1, groups == 8, groups == 4))
    if dtype != "bool":
        same(np.asarray(cs.scan(memory, lambda a, b: b, axis=1)), array)
    assert {type(choice.policy) for choice in launched} == {RaggedColumnPolicy}


def test_extrema_of_bytes_and_halves(on_emulator, launched):
    """Words whose states have two words, and those of 16-bit floats."""
    for dtype in ("int8", "uint8", "float16"):
        x = data((300, 64), dtype)
        same(np.asarray(cs.scan(cs.asarray(x)[:, ::-1], "max", axis=0)), np.maximum.accumulate(x[:, ::-1], 0))
    assert all(choice.view == "backward" for choice in launched)


def test_callables_and_first_operands(on_emulator, launched):
    x = data((200, 48), "int32")
    found = cs.scan(cs.asarray(x)[:, ::-1], lambda a, b: a + b, axis=0, init=7)
    same(np.asarray(found), np.cumsum(x[:, ::-1], 0, dtype=np.int32) + 7)
    assert launched[-1].view == "backward"
    init = data((48,), "int32")
    found = cs.scan(cs.asarray(x)[:, ::-1], axis=0, init=cs.asarray(init))
    same(np.asarray(found), np.cumsum(x[:, ::-1], 0, dtype=np.int32) + init)
    assert isinstance(launched[-1].policy, StridedPolicy)


LIMITS = {  # (type, shape, whether the kernels of columns scan such columns)
    "few columns as a tile": ("int64", (3286, 46, 5), False),
    "small, in a strided tile with all positions": ("int32", (215, 1296), False),
    "small, where a strided tile has not": ("int16", (1024, 2048), True),
    "odd, in few chains of strided tiles": ("int8", (9000, 333), True),
    "odd, in several": ("bfloat16", (40_000, 301), False),
    "many positions of a thread": ("uint16", (8192, 64, 64), False),
    "few positions": ("float32", (20, 30, 8192), True),
    "few columns of slices": ("float16", (4000, 9, 33), False),
}


@pytest.mark.parametrize("name", LIMITS)
def test_where_strided_tiles_are_as_fast(name):
    dtype, shape, expected = LIMITS[name]
    kind, steps = element_type(dtype), (*(math.prod(shape[k + 1 :]) for k in range(len(shape) - 1)), -1)
    x = DeviceArray((1 << 40) + (shape[-1] - 1) * kind.size, shape, kind, DRY, None, steps)
    (spec,) = needed(cs.scan, x, lambda a, b: a + b, axis=len(shape) - 2)
    assert (spec.key[3] == "backward") == expected
