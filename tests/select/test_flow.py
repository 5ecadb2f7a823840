"""Selections whose tiles leave their stages early agree with NumPy: where everything is kept and room is short, where
hardly anything is, at the borders of tiles, and under hostile schedules."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator

from .. import faults
from ..cases import SCHEDULES, data
from .kernels import bits_of, force, masks
from .test_agreement import equal, positive
from .test_runs import heads_of, of_runs

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
NAMES = ["flow", slow("flow, two look ahead")]
LENGTHS = [slow(1), slow(255), slow(256), 257, slow(3000)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_selections(monkeypatch, name, length):
    force(monkeypatch, name)
    x, rng = data(length, "int32"), np.random.default_rng(length)
    with cs.emulate():
        for mask in masks(rng, length):
            equal(cs.select(x, mask).values, x[mask])
            values, _, places = cs.select(x, bits_of(mask), indices=True)
            equal(values, x[mask])
            equal(places, np.flatnonzero(mask))
            size = length // 2 + 3
            kept = x[mask][:size]
            found = cs.select(cs.asarray(x), cs.asarray(mask), size=size, fill_value=-1)
            equal(found.values, np.append(kept, np.full(size - len(kept), -1)).astype(np.int32))
        equal(cs.select(x, positive).values, x[x > 0])
        (a, b), _ = cs.select((x, x.astype(np.float64)), lambda a, b: a > 0)
        equal(a, x[x > 0])
        equal(b, x[x > 0].astype(np.float64))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_runs(monkeypatch, name, length):
    force(monkeypatch, name)
    rng = np.random.default_rng(length)
    with cs.emulate():
        for share in (0.0, 0.01, 0.3, 1.0):
            x = np.cumsum(rng.random(length) < share).astype(np.float32)
            values, index, _, lengths = of_runs(x, heads_of(x))
            equal(cs.unique_consecutive(x), values)
            for found, wanted in zip(
                cs.unique_consecutive(x, return_index=True, return_counts=True), (values, index, lengths)
            ):
                equal(found, wanted)
            capacity = max(len(values) // 2, 1)
            found = cs.run_length_encode(cs.asarray(x), size=capacity, dtype="int32")
            equal(found.lengths, lengths[:capacity].astype(np.int32))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_under_hostile_schedules(monkeypatch, name):
    force(monkeypatch, name)
    x, mask = data(1291, "int32"), np.random.default_rng(1).random(1291) < 0.7
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.select(cs.asarray(x), cs.asarray(mask), size=1000, fill_value=5)
    assert ran.launches == SCHEDULES
    wanted = np.append(x[mask], np.full(1000 - mask.sum(), 5)).astype(np.int32)
    equal(found.values, wanted)


def test_two_resident_blocks_make_progress(monkeypatch):
    """A tile that waits for room waits only for tiles of its block that come before it."""
    force(monkeypatch, "flow")
    x = data(2003, "int64")
    with cs.emulate(), emulator.emulate(schedules=5, seed=5, resident=1):
        equal(cs.select(cs.asarray(x), lambda v: v > -50, size=2003).exact(), x[x > -50])


@functools.cache
def bench() -> faults.Bench:
    """Two filled selections, of most elements at first, and then of few."""
    x, mask = data(3001, "int32"), np.random.default_rng(4).random(3001) < np.where(np.arange(3001) < 1500, 0.9, 0.1)
    wanted = np.concatenate([x[mask], np.full(3100 - mask.sum(), 7, np.int32)])

    def right() -> bool:
        arrays = cs.asarray(x), cs.asarray(mask)
        found = [cs.select(*arrays, size=3100, fill_value=7) for _ in range(2)]
        return all(np.array_equal(s.values, wanted) and int(s.count) == mask.sum() for s in found)

    return faults.of_tiles(functools.partial(force, name="flow"), right)


@pytest.mark.slow
def test_no_mutant_survives():
    harmless = [*faults.ONE_FENCE, "no init fence #4", "no init fence #5", "no look at the barrier #0"]
    assert bench().survivors(faults.TILES, harmless) == harmless


@pytest.mark.slow
@pytest.mark.parametrize("fault", faults.OF_TILES)
def test_own_faults_are_found(fault):
    bench().check(*faults.OF_TILES[fault])
