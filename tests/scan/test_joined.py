"""Rows and columns that begin anywhere in the input, of whole vectors in the output: each vector is joined from two,
and nothing beyond the array is read. And slices that are whole in a few vectors."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.scan import column_policy, plan, problem
from cutesync.kernels.scan.column_policy import ColumnPolicy
from cutesync.kernels.scan.problem import ANYWHERE
from cutesync.kernels.scan.slice_policy import SinglePolicy
from cutesync.runtime import call, device

from .. import faults
from ..cases import data, same, scanned
from ..faults import each, every

slow = pytest.mark.slow
TYPES = pytest.mark.parametrize("dtype", ["int8", *(pytest.param(t, marks=slow) for t in ("float16", "uint32"))])


@pytest.fixture
def launched(monkeypatch):
    """The policies of the launches of a test."""
    found = []
    launch = plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: (found.append(choice.policy), launch(choice, *more))[1])
    monkeypatch.setattr(problem, "MIN_JOINED_BYTES", 0)
    monkeypatch.setattr(column_policy, "ENOUGH_COLUMNS", 1)
    return found


def views(shape: tuple[int, ...], dtype: str):
    """Arrays that end with their memory: from its second element on, and of rows some elements apart, forwards and
    backwards."""
    x = data(shape, dtype)
    yield cs.asarray(np.concatenate([np.ones(1, dtype), x.ravel()]))[1:].reshape(shape), x
    apart = np.pad(x, (*((0, 0),) * (len(shape) - 1), (3, 0)))
    yield cs.asarray(apart)[..., 3:], x
    yield cs.asarray(apart)[::-1, ..., 3:], x[::-1]


@pytest.mark.drawn(2)
@TYPES
@pytest.mark.parametrize("length", [32, 640])
def test_rows(length, dtype, on_emulator, launched):
    for view, x in views((5, length), dtype):
        same(np.asarray(cs.scan(view, "max", axis=1)), scanned(x, "max", axis=1))
        same(np.asarray(cs.scan(view, "max", axis=1, reverse=True)), scanned(x, "max", axis=1, reverse=True))
    assert {policy.skewed for policy in launched} == {True}


def test_rows_that_run_backwards(on_emulator, launched):
    x = data((3, 67), "uint8")
    same(np.asarray(cs.scan(cs.asarray(x)[:, 66:2:-1], axis=1)), np.cumsum(x[:, 66:2:-1], 1, dtype=np.uint8))
    assert launched[0].skewed


@TYPES
def test_columns(dtype, on_emulator, launched):
    for view, x in views((2, 4, 144), dtype):
        same(np.asarray(cs.scan(view, "max", axis=1)), scanned(x, "max", axis=1))
        same(np.asarray(cs.scan(view, "max", axis=1, reverse=True)), scanned(x, "max", axis=1, reverse=True))
    assert ANYWHERE in {policy.skew for policy in launched}


@pytest.mark.parametrize("inner", [pytest.param(72, marks=slow), 116])
@pytest.mark.parametrize("dtype", ["int8", pytest.param("float16", marks=slow)])
def test_columns_of_shorter_vectors(dtype, inner, on_emulator, launched):
    inner //= np.dtype(dtype).itemsize
    for view, x in views((5, 2, inner), dtype):
        for options in ({}, {"reverse": True, "exclusive": True, "init": 3}):
            same(np.asarray(cs.scan(view, axis=1, **options)), scanned(x, axis=1, **options))
    vector, parts = (8, 1) if inner * x.itemsize == 72 else (4, 2)
    assert {policy.width * x.itemsize for policy in launched} == {vector}
    assert {policy.strips for policy in launched if policy.skew == ANYWHERE} == {parts}


@pytest.mark.parametrize("inner", [20, 36])
def test_eight_rows(inner, on_emulator, launched):
    """Of a few bytes they are slices."""
    view, x = next(views((3, 8, inner), "int8"))
    same(np.asarray(cs.scan(view, axis=1)), scanned(x, axis=1))
    assert isinstance(launched[0], ColumnPolicy) == (inner == 36)


@pytest.mark.parametrize("dtype", ["int8", pytest.param("float16", marks=slow)])
@pytest.mark.parametrize("shape", [(41, 6), (33, 3), (17, 2, 3)])
def test_slices_of_a_few_vectors(shape, dtype, on_emulator, launched):
    x = data(shape, dtype)
    for options in ({}, {"reverse": True, "exclusive": True, "init": 0}):
        same(np.asarray(cs.scan(cs.asarray(x), "max", axis=1, **options)), scanned(x, "max", axis=1, **options))
    assert {type(policy) for policy in launched} == {SinglePolicy}


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("float16", marks=slow)])
def test_slices_of_a_few_vectors_that_begin_anywhere(dtype, on_emulator, launched):
    """From the second element on, to the end of memory; in place by others."""
    for shape in ((41, 2), (33, 3), (19, 8, 2)):
        view, x = next(views(shape, dtype))
        same(
            np.asarray(cs.scan(view, "max", axis=1, reverse=shape[0] == 33)),
            scanned(x, "max", axis=1, reverse=shape[0] == 33),
        )
    assert {policy.joined for policy in launched} == {True}
    same(np.asarray(cs.scan(view, "max", axis=1, out=view)), scanned(x, "max", axis=1))
    assert not isinstance(launched[-1], SinglePolicy)


def test_words_of_columns_that_lie_apart(on_emulator, launched, monkeypatch):
    monkeypatch.setattr(column_policy, "FULL_THREADS", 100)
    x = data((2, 3, 301), "int32")
    same(np.asarray(cs.scan(cs.asarray(x), axis=1)), scanned(x, axis=1))
    assert launched[0].apart and launched[0].width == 2


@functools.cache
def bench() -> faults.Bench:
    """Rows, then columns of what they store, from its second element on."""
    x = data((9, 65), "uint8")
    first = scanned(x[:, 1:], axis=1)
    wanted = scanned(first.ravel()[1:513].reshape(1, 8, 64), axis=1)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            patch.setattr(column_policy, "ENOUGH_COLUMNS", 1)
            patch.setattr(call, "_plans", {})
            with cs.emulate(), emulator.emulate(schedules=2, seed=3, resident=2):
                rows = cs.scan(cs.asarray(x)[:, 1:], axis=1)
                found = cs.scan(rows.reshape(576)[1:513].reshape(1, 8, 64), axis=1)
                return np.array_equal(np.asarray(found), wanted)

    return faults.Bench(right)


OF_JOINED = {
    "no wait for the launch before": faults.TABLE["no wait for the launch before"],
    "no store": faults.TABLE["no store"],
    "words joined the other way": (every(r"shf\.r\.wrap", "shf.l.wrap"), {faults.RESULT}),
}


@slow
@pytest.mark.parametrize("fault", OF_JOINED)
def test_faults_are_found(fault):
    bench().check(*OF_JOINED[fault])


@slow
def test_a_vector_beyond_the_array_is_found():
    assert "out-of-bounds" in bench().finds(each(r"setp\.gt\.s64", "setp.lt.s64"))


@pytest.mark.parametrize("dtype", ["int64", pytest.param("float64", marks=slow)])
def test_long_rows_of_eight_bytes(dtype, on_emulator, launched):
    """Rows of more elements than a block has vectors, which begin in the middle of one."""
    for view, x in views((2, 1200), dtype):
        same(np.asarray(cs.scan(view, axis=1)), scanned(x, axis=1))
        same(np.asarray(cs.scan(view, axis=1, reverse=True)), scanned(x, axis=1, reverse=True))
    assert {policy.skewed for policy in launched} == {True}
