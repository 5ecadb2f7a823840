"""Elements that are repeated along a reduced axis behind others."""

import numpy as np

import cutesync as cs
from cutesync.kernels.reduce import launches, repeated
from cutesync.runtime import call as calls

from ..cases import bicyclic, brackets, fold, same


def test_elements_that_repeat_behind_others_are_combined_by_doubling(monkeypatch):
    """By a callable, whose operands keep their order: along the last axis, one between others, or several."""
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_REPEATED", "MIN_LENGTH_REPEATED", "MIN_REPEATS"):
        monkeypatch.setattr(launches, name, 2)
    found, first = [], repeated.repeats_first
    monkeypatch.setattr("cutesync.kernels.reduce.plan.repeats_first", lambda *a: found.append(first(*a)) or found[-1])
    x = brackets((6, 5, 7))
    for shape, steps, axis, launches_of in (
        ((6, 5, 9), (35, 7, 0), None, 1),
        ((6, 9, 5), (35, 0, 1), None, 1),
        ((6, 9, 5), (35, 0, 1), (0, 1), 1),
        ((3, 6, 9, 5), (0, 35, 0, 1), (1, 2), 1),
        ((6, 9, 5, 4), (-35, 0, 1, 0), None, 2),
        ((6, 9, 5, 4), (35, 0, 1, 0), (0, 1, 3), 1),
        ((9, 6, 5), (0, 35, 1), None, 0),  # before all others: one launch
    ):
        start = 175 if steps[0] < 0 else 0
        view = np.lib.stride_tricks.as_strided(x.reshape(-1)[start:], shape, [x.itemsize * step for step in steps])
        axes = tuple(range(len(shape))) if axis is None else axis
        kept = [i for i in range(len(shape)) if i not in axes]
        each = np.ascontiguousarray(view.transpose(*kept, *axes)).reshape(*(shape[i] for i in kept), -1)
        wanted, found[:] = fold(bicyclic, each), []
        array = cs.asarray(x).reshape(210).as_strided(shape, steps, start)
        same(np.asarray(cs.reduce(array, bicyclic, axis=axis)), wanted, f"{shape} {axis}")
        assert sum(run is not None for run in found) == launches_of
    got = cs.reduce(array, bicyclic, axis=(1, 2), keepdims=True, init=5)
    before = np.concatenate([np.full((9, 1), 5, x.dtype), view.reshape(9, 30)], 1)
    same(np.asarray(got), fold(bicyclic, before)[:, None, None])
