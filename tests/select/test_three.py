"""Partitions in three parts agree with NumPy: masks, bits and callables, of arrays of any strides."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.kernels.select import three
from cutesync.runtime import call

from ..cases import SCHEDULES, STAND_FOR_ALL, data, numpy_dtype
from .kernels import bits_of
from .test_agreement import equal, slow


def force(monkeypatch) -> None:
    for name in ("CountPolicy", "MovePolicy"):
        monkeypatch.setattr(three, name, functools.partial(getattr(three, name), warps=3, rows=4))
    monkeypatch.setattr(call, "_plans", {})


@pytest.fixture
def small(monkeypatch):
    """Chunks of 128 positions, of which some lie in the same block."""
    force(monkeypatch)
    with cs.emulate():
        yield


def parted(x: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = [x[m] for m in (first, second & ~first, ~first & ~second)]
    return np.concatenate(parts), np.array([len(part) for part in parts])


@pytest.mark.drawn(2)
@pytest.mark.parametrize("length", [slow(0), slow(1), slow(127), 1500, slow(5000)])
def test_masks_bits_and_callables(small, length):
    x, rng = data(length, "int16"), np.random.default_rng(3)
    first, second = x > 3, rng.random(length) < 0.4
    values, counts = parted(x, first, second)
    order, _ = parted(np.arange(length), first, second)
    found = cs.partition3(x, lambda v: v > 3, second)
    equal(found.values, values)
    equal(found.counts, counts)
    found = cs.partition3(*map(cs.asarray, (x, bits_of(first), second)), indices=True)
    for one, wanted in zip(found, (values, counts, order)):
        equal(one, wanted)


def test_lengths_arguments_and_results_that_are_given(small):
    x = data(900, "int32")
    out, counts = np.full((910, 2), 99, np.int32), np.zeros(3, np.int64)
    targets, bound = (cs.asarray(out), cs.asarray(counts)), cs.asarray(np.int32(3))
    for n in (0, 300, 2000):
        part = x[:n]
        found = cs.partition3(
            cs.asarray(x),
            lambda v, a: v > a,
            lambda v, i, a: (i % 3 == 0) & (v < a),
            args=(bound,),
            n=cs.asarray(np.array(n)),
            out=(targets[0][:, 1], targets[1]),
        )
        out[: len(part), 1], wanted = parted(part, part > 3, (np.arange(len(part)) % 3 == 0) & (part < 3))
        assert found.counts is targets[1]
        equal(targets[0], out)
        equal(targets[1], wanted)
    host = np.zeros(1000, np.int32)
    cs.partition3(x, x > 5, x > 0, out=host, n=500)
    equal(host, np.append(parted(x[:500], x[:500] > 5, x[:500] > 0)[0], np.zeros(500, np.int32)))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", [slow(name) for name in STAND_FOR_ALL])
def test_strided_and_several_arrays(small, dtype):
    x = data(1200, dtype).astype(numpy_dtype(dtype)).reshape(40, 30)
    mask = np.random.default_rng(1).random((30, 40)) < 0.3
    device, flat = cs.asarray(x), x.T.ravel()
    (one, two), counts, _ = cs.partition3((device.T, device.T), cs.asarray(mask), lambda a, b: a > b - a)
    other = cs.select(flat, lambda v: v > v - v, indices=True).indices
    values, wanted = parted(flat, mask.ravel(), np.isin(np.arange(1200), other))
    equal(one, values)
    equal(two, values)
    equal(counts, wanted)


@pytest.mark.slow
def test_agrees_under_hostile_schedules(monkeypatch):
    force(monkeypatch)
    x = data(1500, "int32")
    with cs.emulate(schedules=SCHEDULES, seed=3):
        found = cs.partition3(cs.asarray(x), lambda v: v > 3, lambda v: v < -3)
    values, counts = parted(x, x > 3, x < -3)
    equal(found.values, values)
    equal(found.counts, counts)


def test_refused():
    x = np.arange(9, dtype=np.int32)
    with cs.emulate():
        for second, options, error in (
            (x, {}, ArgumentTypeError),
            (x[1:] > 0, {}, ArgumentValueError),
            (None, {}, ArgumentTypeError),
            (lambda a, b, c: a, {}, ArgumentTypeError),
            (x > 1, {"out": x[:5]}, ArgumentValueError),
            (x > 1, {"out": (x, x, x)}, ArgumentTypeError),
            (x > 1, {"indices": 2}, ArgumentTypeError),
            (x > 1, {"n": 1.5}, ArgumentTypeError),
        ):
            with pytest.raises(error):
                cs.partition3(x, lambda v: v > 3, second, **options)
