"""Rows of small elements that lie apart and begin anywhere, reduced in order: little of what lies between is read."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import slice_policy
from cutesync.runtime import call as calls, device

from ..cases import data, fold, matrix, same
from ..faults import Bench, first, op
from .strided_cases import recorded

# limits by which no array is too small
SMALL = {"MIN_ORDERED_BYTES": 0, "MIN_APART_BYTES": {1: 64, 2: 64}, "MIN_APART_FLOATS": 64, "SMS": 1}


def add(a, b):
    return a + b


def matrices(shape) -> np.ndarray:
    """Matrices of numbers below 13, four bits each."""
    found = np.zeros(shape, np.uint16)
    for entry in np.random.default_rng(7).integers(0, 13, (4, *shape), np.uint16):
        found = found << 4 | entry
    return found


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The choices; no array is too small."""
    for name, value in SMALL.items():
        monkeypatch.setattr(slice_policy, name, value)
    found = recorded(monkeypatch)
    return found


# shape of the memory, and the view of it
VIEWS = {
    "every third row": ((105, 131), np.s_[::3]),
    "sliced": ((40, 700), np.s_[:, 5:126]),
    "that end with the memory": ((33, 301), np.s_[:, 200:]),
    "of two axes, reversed": ((3, 67, 333), np.s_[::-1, :65:2, 40:111]),
    "of some hundred bytes": ((65, 1301), np.s_[::2, 3:490]),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "float16"])
def test_rows_apart_agree_with_numpy(name, dtype, on_emulator, chosen):
    shape, index = VIEWS[name]
    x = data(shape, dtype) if dtype != "float16" else np.random.default_rng(3).integers(-2, 3, shape).astype(dtype)
    found = np.asarray(cs.reduce(cs.asarray(x)[index], add, axis=-1))
    same(found, x[index].sum(-1, dtype=None if dtype == "float16" else dtype).astype(dtype), name)
    assert [type(choice.policy).__name__ for choice in chosen] == ["RowsApartPolicy"]


def test_rows_apart_keep_the_order_of_operands(chosen):
    x = matrices((70, 211))
    with cs.emulate(schedules=6, seed=5):
        found = np.asarray(cs.reduce(cs.asarray(x)[::2, 9:110], matrix, axis=1))
    same(found, fold(matrix, x[::2, 9:110]), "products")
    assert isinstance(chosen[0].policy, slice_policy.RowsApartPolicy)


def test_rows_near_each_other_or_on_boundaries_are_not_apart(chosen):
    for shape, index in (((40, 130), np.s_[:, 1:126]), ((40, 512), np.s_[:, 64:256])):
        with device.forced("dry"):
            x = cs.empty(shape, "uint8")
            cs.reduce(x[index], add, axis=1)
    assert not any(isinstance(choice.policy, slice_policy.RowsApartPolicy) for choice in chosen)


@pytest.mark.parametrize(
    ("shape", "dtype", "blocks"),
    [
        ((9000, 131), "int8", 4),
        ((90000, 131), "int8", 6),
        ((90000, 57), "int16", 6),
        ((90000, 55), "int16", None),
        ((90000, 321), "bfloat16", 6),
        ((90000, 319), "float16", None),
    ],
)
def test_blocks_of_a_multiprocessor(shape, dtype, blocks, monkeypatch):
    """Few have more registers; short rows of two bytes, and longer ones of floats, are read element by element."""
    found = recorded(monkeypatch)
    with device.forced("dry"):
        cs.reduce(cs.empty((shape[0], 5 * shape[1]), dtype)[:, 1 : shape[1] + 1], add, axis=1)
    assert getattr(found[0].policy, "blocks_per_sm", None) == blocks


@functools.cache
def bench() -> Bench:
    x = matrices((70, 211))[:, 9:110]
    wanted = fold(matrix, x[::2])

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=9, seed=3):
            for name, value in SMALL.items():
                patch.setattr(slice_policy, name, value)
            patch.setattr(calls, "_plans", {})
            view = cs.asarray(matrices((70, 211)))[::2, 9:110]
            return np.array_equal([np.asarray(cs.reduce(view, matrix, axis=1)) for _ in range(2)][-1], wanted)

    return Bench(right)


FAULTS = {
    "no barrier after the copy": (first(op(r"bar\.sync"), after=r"st\.shared"), {"race", "uninitialised"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault):
    edit, kinds = FAULTS[fault]
    bench().check(edit, kinds)
