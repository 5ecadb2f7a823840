"""Short rows that a few lanes share: of elements in order, which they take in turn, and of whole vectors with gaps."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import along_policy, slice_policy, strided_loads
from cutesync.kernels.reduce.strided_problem import OrderedPolicy, StridedPolicy

from ..cases import bicyclic, brackets, data, fold, matrices, matrix, same
from ..compiled import dry, needed
from .strided_cases import recorded


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The choices that calls make, for which no array is too small."""
    monkeypatch.setattr(along_policy, "MIN_ORDERED", 1)
    monkeypatch.setattr(strided_loads, "MIN_ROWS", 1)
    monkeypatch.setattr(slice_policy, "MIN_SLICES", 1 << 30)
    return recorded(monkeypatch)


# what: (shape, index of the view)
ROWS = {
    "whole chunks, split": ((5, 400), np.s_[:, : 128 * 3 : 3]),
    "a chunk and a rest": ((9, 300), np.s_[::2, ::3]),
    "backwards, split": ((7, 500), np.s_[:, ::-2]),
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("what", ROWS)
def test_lanes_take_elements_of_short_rows_in_turn(what, on_emulator, chosen):
    shape, index = ROWS[what]
    x, entries = brackets(shape), matrices(shape)
    with cs.emulate(seed=3):
        same(np.asarray(cs.reduce(cs.asarray(x)[index], bicyclic, axis=1)), fold(bicyclic, x[index]))
        found = cs.reduce(cs.asarray(entries)[index], matrix, axis=1)
    same(np.asarray(found), fold(matrix, entries[index]).astype(entries.dtype))
    for choice in chosen:
        assert isinstance(choice.policy, OrderedPolicy) and choice.policy.groups == 8
        assert choice.policy.unroll == 8 and (choice.splits > 1) == what.endswith("split")


@pytest.mark.parametrize("n", [0, 100])
def test_as_many_elements_as_count(n, on_emulator, chosen):
    x = brackets((5, 300))[:, ::3]
    found = cs.reduce(cs.asarray(x.base)[:, ::3], bicyclic, axis=1, init=7, n=n)
    same(np.asarray(found), fold(bicyclic, np.concatenate([np.full((5, 1), 7), x[:, :n]], axis=1)))


def test_elements_that_lie_close_are_taken_in_runs(on_emulator, chosen):
    x = data((5, 300), "int8")
    found = cs.reduce(cs.asarray(x)[:, 1:200], lambda a, b: a + b, axis=1)
    same(np.asarray(found), x[:, 1:200].sum(1, dtype="int8"))
    assert [type(choice.policy) for choice in chosen] == [StridedPolicy]


# what: (elements of a row, of the pitch, threads that share it)
VECTORS = {"int32": (32, 40, 4), "uint8": (272, 288, 8), "float16": (256, 320, 8), "int64": (28, 50, 4)}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", ["sum", "argmax", "any"])
@pytest.mark.parametrize("dtype", VECTORS)
def test_rows_of_whole_vectors_are_shared(dtype, name, on_emulator, chosen):
    length, pitch, groups = VECTORS[dtype]
    x = data((70, pitch), dtype, "max" if dtype == "float16" else "add")
    found = np.asarray(getattr(cs, name)(cs.asarray(x)[:, :length], axis=1))
    same(found, getattr(np, name)(x[:, :length], axis=1).astype(found.dtype))
    (choice,) = chosen
    assert (choice.policy.load, choice.policy.bytes, choice.policy.groups) == ("row", 16, groups)


def test_rows_of_whole_vectors_keep_the_order(on_emulator, chosen):
    for length in (16, 38, 64, 70):
        x = brackets((9, 80))
        found = cs.reduce(cs.asarray(x)[:, :length], bicyclic, axis=1)
        same(np.asarray(found), fold(bicyclic, x[:, :length]), str(length))
    assert [choice.policy.groups for choice in chosen] == [4, 8, 8, 8]


def test_many_elements_that_are_read_one_by_one_have_more_blocks(monkeypatch):
    found = recorded(monkeypatch)
    for count, dtype in ((3 << 18, "int8"), (1 << 20, "int8"), (1 << 20, "float64")):
        needed(cs.sum, dry((count, 9), dtype)[:, :5])
    needed(cs.sum, dry((15 << 20,), "int8")[::3])  # of one axis
    assert [choice.splits // 132 for choice in found] == [2, 8, 4, 2]
