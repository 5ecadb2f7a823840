"""Selections of transposed arrays, which are read in columns."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.select import plan

from ..cases import data
from .kernels import force_columns

SHAPES = [(70, 40), (35, 3, 33), (33, 129)]
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    """Counts the calls that are prepared in columns."""
    force_columns(monkeypatch)
    summed, made = plan.summed, []
    monkeypatch.setattr(plan, "summed", lambda *where: made.append(where) or summed(*where))
    return made


def positive(value, index):
    return (value > 0) & (index % 3 > 0)


def transposed(x: np.ndarray) -> tuple:
    """The array on the device with its axes in the opposite order, and the same of NumPy."""
    return cs.asarray(x).T, x.T


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "dtype", [pytest.param(t, marks=() if t == "int32" else slow) for t in ("int8", "int32", "int64")]
)
@pytest.mark.parametrize("shape", SHAPES[:1] + [pytest.param(shape, marks=slow) for shape in SHAPES[1:]])
def test_agrees_with_numpy(shape, dtype, columns):
    x, host = transposed(data(int(np.prod(shape)), dtype).reshape(shape))
    mask, where = transposed(np.random.default_rng(3).random(shape) < 0.4)
    found = cs.select(x, mask, indices=True)
    wanted = host[where]
    assert bool(columns) == (len(shape) == 2) and int(found.count) == len(wanted)
    assert np.array_equal(np.asarray(found.values)[: len(wanted)], wanted)
    assert np.array_equal(np.asarray(found.indices)[: len(wanted)], np.flatnonzero(where))
    flat = host.ravel()
    wanted = flat[(flat > 0) & (np.arange(flat.size) % 3 > 0)]
    for size in (len(wanted) // 2, flat.size + 5):
        filled = cs.select(x, positive, size=size, fill_value=3)
        assert int(filled.count) == len(wanted)
        assert np.array_equal(filled.values, np.append(wanted, np.full(size, 3, flat.dtype))[:size])


def test_counts_and_rejects(columns):
    x, host = transposed(data(1400, "int16").reshape(35, 40))
    mask, where = transposed(np.random.default_rng(4).random((35, 40)) < 0.4)
    assert np.array_equal(cs.partition(x, mask).values, np.concatenate([host[where], host[~where]]))
    for n in (0, 777):
        found = cs.select(x, mask, n=cs.asarray(np.int64(n)))
        assert np.array_equal(found, host.ravel()[:n][where.ravel()[:n]])
    assert len(columns) == 2


@slow
def test_under_hostile_schedules():
    x, host = transposed(data(2310, "int32").reshape(70, 33))
    mask, where = transposed(np.random.default_rng(5).random((70, 33)) < 0.4)
    with cs.emulate(schedules=12, seed=7):
        found = cs.select(x, mask, size=2500)
    assert np.array_equal(np.asarray(found.values)[: where.sum()], host[where])


def test_columns_that_are_few_or_short_are_gathered(monkeypatch, columns):
    monkeypatch.setattr(plan, "MIN_COLUMN", 50)
    x, host = transposed(data(1600, "int32").reshape(40, 40))
    assert np.array_equal(cs.select(x, lambda v: v > 0), host[host > 0])
    assert not columns
