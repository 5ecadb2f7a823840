"""Columns whose rows begin anywhere: some rows at once are one of whole vectors, and a second launch reduces what is
left of them."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import folded, launches, strided_policy
from cutesync.runtime import call as calls

from ..cases import data, same


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The choices of the first launches; no array is too small."""
    found: list = []
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES_OF_FOLDED", "MIN_COLUMNS_OF_FOLDED", "MIN_LENGTH_OF_FOLDED"):
        monkeypatch.setattr(launches, name, 3)
    monkeypatch.setattr(
        folded, "choose", lambda problem: found.append(strided_policy.choose(problem)) or found[-1], raising=True
    )
    return found


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", ["sum", "max", "any"])
@pytest.mark.parametrize("dtype", ["int8", "bool", "uint16", "float16"])
def test_rows_that_begin_anywhere_are_reduced_some_at_once(name, dtype, on_emulator, chosen):
    for shape, axis in (((1203, 43), 0), ((3, 1600, 9), 1), ((40, 31, 5), (0, 1))):
        x = data(shape, dtype) if dtype != "float16" else np.random.default_rng(3).integers(-1, 2, shape).astype(dtype)
        found = np.asarray(getattr(cs, name)(cs.asarray(x), axis=axis))
        same(found, getattr(np, name)(x, axis=axis).astype(found.dtype), f"{name} {dtype} {shape}")
    assert {choice.policy.load for choice in chosen} == {"vector"}


@pytest.mark.parametrize("joined", [False, True])
def test_the_last_rows_are_shared_by_blocks(joined, on_emulator, chosen, monkeypatch):
    """Every thread has another position before the last one, of which there are only some columns."""
    monkeypatch.setattr(strided_policy, "MIN_COLLECTED", 0 if joined else 1 << 30)
    monkeypatch.setattr(launches, "BYTES_OF_FOLDED", 0)
    for rows, begin in ((40001, 0), (40015, 3), (40016, 0)):
        memory = data((rows * 3 + begin,), "int16")
        x, own = memory[begin:].reshape(rows, 3), cs.asarray(memory)[begin:].reshape(rows, 3)
        found = np.asarray(cs.reduce(own, axis=0, init=7, transform=lambda v: v * v, keepdims=True))
        same(found, (x * x).sum(0, dtype="int16", keepdims=True) + np.int16(7))
    assert [choice.splits > 1 for choice in chosen] == [True] * 3


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", ["int8", "bool", "int16"])
@pytest.mark.parametrize("columns", [5, 16, 43])
def test_arrays_that_begin_anywhere(dtype, columns, on_emulator, chosen):
    for begin in (1, 3, 7):
        memory = data((1003 * columns + begin,), dtype)
        x, own = memory[begin:].reshape(1003, columns), cs.asarray(memory)[begin:].reshape(1003, columns)
        for name in ("sum", "max"):
            found = np.asarray(getattr(cs, name)(own, axis=0))
            same(found, getattr(np, name)(x, axis=0).astype(found.dtype), f"{name} {dtype} {begin}")
    assert len(chosen) == 6


def test_others_are_not(on_emulator, chosen):
    x = data((1203, 43), "int8")
    cs.reduce(cs.asarray(x), lambda a, b: a + b, axis=0)  # in order
    cs.sum(cs.asarray(x.ravel())[1:-42].reshape(2, 601, 43), axis=1)  # slices on no boundary
    cs.sum(cs.asarray(x[:, :40].copy()), axis=0)  # whose rows lie on boundaries
    cs.max(cs.asarray(x[:40]), axis=0)  # of few rows
    assert not chosen
