"""Scans of axes of one element: copies of strided arrays, which begin anywhere."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.scan import lone_policy, plan
from cutesync.kernels.scan.lone_policy import LonePolicy
from cutesync.runtime import call, device

from .. import faults
from ..cases import data, same, scanned

# The shape of the memory, the index of the view, which has an axis of one element, and this axis
VIEWS = {
    "rows apart": ((5, 45), np.s_[None, :, 3:36], 0),
    "rows up to the array's end": ((5, 47), np.s_[None, :, 3:], 0),
    "rows of vectors apart": ((5, 64), np.s_[:, None, 16:48], 1),
    "rows of groups": ((3, 7, 25), np.s_[:, 1:6, None, :23], 2),
    "from an element on": ((7, 31), np.s_[1:, None], 1),
    "short rows": ((40, 6), np.s_[:, None, 1:4], 1),
    "backward": ((6, 37), np.s_[None, :, ::-1], 0),
    "backward rows": ((6, 37), np.s_[None, ::-1, :35], 0),
    "steps": ((6, 60), np.s_[:, ::2, None], 2),
}
WAYS = [{}, {"init": 3, "reverse": True}, {"exclusive": True, "init": 2}]
slow = pytest.mark.slow


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test. Threads have vectors as in large arrays."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(lone_policy, "MIN_BYTES", 0)
    monkeypatch.setattr(lone_policy, "SMS", 0)
    monkeypatch.setattr(call, "_plans", {})
    return found


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("int8", name) if dtype == "int8" and i % 2 == 0 else pytest.param(dtype, name, marks=slow)
        for dtype, step in (("int8", 1), ("int16", 2), ("int64", 2))
        for i, name in enumerate(list(VIEWS)[::step])
    ],
)
def test_views(name, dtype, on_emulator, policies):
    shape, index, axis = VIEWS[name]
    x, number = data(shape, dtype), (list(VIEWS).index(name) + np.dtype(dtype).itemsize) % len(WAYS)
    for first, ways in enumerate(WAYS[number : number + 1], number):
        wanted = scanned(x[index], axis=axis, **ways)
        around = cs.asarray(np.full(wanted.size + 8, 1, dtype))
        cs.scan(cs.asarray(x)[index], axis=axis, out=around[first : first - 8].reshape(wanted.shape), **ways)
        same(np.asarray(around)[first : first - 8].reshape(wanted.shape), wanted, f"{name} {ways}")
        assert (np.delete(np.asarray(around), slice(first, first - 8)) == 1).all()
    assert set(map(type, policies)) == {LonePolicy}


def test_types_of_results_and_scans_in_place(on_emulator, policies):
    x = data((9, 1, 37), "int16")
    view = cs.asarray(x)[:, :, :33]
    same(np.asarray(cs.scan(view, axis=1, dtype="int64", init=5)), x[:, :, :33].astype(np.int64) + 5)
    same(np.asarray(cs.scan(view, axis=1, init=5, out=view)), x[:, :, :33] + np.int16(5), "in place")


@functools.cache
def bench() -> faults.Bench:
    """Two scans, the second of what the first has stored, in more than a block."""
    x = data((70, 1, 75), "int16")

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            patch.setattr(lone_policy, "MIN_BYTES", 0)
            patch.setattr(call, "_plans", {})
            with cs.emulate(), emulator.emulate(schedules=2, seed=3, resident=2):
                found = cs.scan(cs.asarray(x)[:, :, :72], axis=1, init=1)
                return np.array_equal(np.asarray(cs.scan(found[:, :, 1:], axis=1, init=2)), x[:, :, 1:72] + 3)

    return faults.Bench(right)


FAULTS = {
    "no wait for the launch before": faults.TABLE["no wait for the launch before"],
    "no store of a vector": (faults.each(faults.op(r"st\.global\.v")), {faults.RESULT, "uninitialised"}),
    "words as they lie": (
        faults.each(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {faults.RESULT},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    bench().check(*FAULTS[fault])
