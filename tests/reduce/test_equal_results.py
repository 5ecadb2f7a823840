"""Reductions of arrays that are broadcast along a kept axis: equal results are computed once.

They agree with NumPy, and nothing beside ``out`` is written."""

import numpy as np

import cutesync as cs
from cutesync.kernels import spread
from cutesync.kernels.reduce import copies, strided_plan, strided_policy
from cutesync.runtime import call as calls

from ..cases import data, same

STAMP = 77  # in all memory around a strided ``out``


def test_equal_results_are_reduced_once(monkeypatch):
    """Along a kept axis whose elements are broadcast, a thread stores its results several times."""
    monkeypatch.setattr(copies, "COPYING_THREADS", 10)
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    x = data((40, 16), "int16")
    cases = (
        ((24, 40, 16), (0, 16, 1), 2),
        ((40, 6, 16), (16, 0, 1), 0),
        ((7, 40, 3), (0, 16, 5), 1),
        ((7, 4, 3), (0, 16, 5), 1),
    )
    for shape, steps, axis in cases:
        view = np.lib.stride_tricks.as_strided(x, shape, [2 * step for step in steps])
        wanted = view.sum(axis, dtype=np.int16)
        gaps = np.full((*wanted.shape[:1], 3, *wanted.shape[1:]), STAMP, np.int16)
        out = cs.asarray(gaps)
        cs.reduce(cs.asarray(x).as_strided(shape, steps), axis=axis, out=out[:, 1])
        gaps[:, 1] = wanted
        same(np.asarray(out), gaps)
    assert [choice.copies and choice.copies[0] for choice in chosen] == [24, 6, 7, ()]
    monkeypatch.setattr(copies, "MIN_LENGTH_OF_FEW", 1)  # the fewest copies, with fewer threads
    monkeypatch.setattr(calls, "_plans", {})
    same(np.asarray(cs.sum(cs.asarray(x).as_strided(shape, steps), axis=axis)), view.sum(axis))
    assert chosen[-1].copies[0] == 7


def test_equal_results_side_by_side_are_stored_as_vectors(monkeypatch):
    """Of an axis that is broadcast and the last of the results: beside gaps, in every alignment, and of odd extents."""
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    x = data((5, 4, 33), "int16")
    for extent, pitch, first in ((16, 16, 0), (16, 24, 0), (24, 24, 2), (9, 16, 1), (80, 80, 4)):
        view = np.broadcast_to(x[..., None], (5, 4, 33, extent))
        wanted = view.max(1)
        buffer = np.full((5, 33, pitch + 8), STAMP, np.int16)
        out = cs.asarray(buffer)
        cs.max(cs.asarray(x).as_strided(view.shape, (132, 33, 1, 0)), axis=1, out=out[:, :, first : first + extent])
        buffer[:, :, first : first + extent] = wanted
        same(np.asarray(out), buffer)
    assert [choice.policy.fill for choice in chosen] == [8, 8, 2, 1, 4]
    assert [choice.copies[0] for choice in chosen] == [2, 2, 6, 9, 4]
    for name in ("LONG_ROW_BYTES", "COPYING_THREADS"):
        monkeypatch.setattr(copies, name, 0)
    found = cs.max(cs.asarray(x).as_strided((5, 4, 33, 640), (132, 33, 1, 0)), axis=1)
    same(np.asarray(found), np.broadcast_to(x.max(1)[..., None], (5, 33, 640)))
    assert chosen[-1].copies[0] == 80


def test_many_equal_results_are_copied_by_a_launch_of_their_own(monkeypatch):
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES", "MIN_DENSE_BYTES"):
        monkeypatch.setattr(spread, name, 1)
    launched = []
    for name in ("_launch", "_dense"):
        launch = getattr(spread, name)
        monkeypatch.setattr(spread, name, lambda *given, launch=launch: launched.append(given[0]) or launch(*given))
    x = data((5, 3, 4), "int16")
    for shape, steps, axis in (
        ((5, 70, 3, 4), (12, 0, 4, 1), 2),
        ((5, 3, 4, 65), (12, 4, 1, 0), 1),
        ((64, 5, 3, 4), (0, 12, 4, 1), (1, 3)),
        ((5, 3, 70, 4), (-12, 4, 0, 1), 0),
    ):
        first = 48 if steps[0] < 0 else 0
        view = np.lib.stride_tricks.as_strided(x.reshape(-1)[first:], shape, [2 * step for step in steps])
        array = cs.asarray(x).reshape(60).as_strided(shape, steps, first)
        same(np.asarray(cs.sum(array, axis=axis)), view.sum(axis))
        if isinstance(axis, int):
            same(np.asarray(cs.argmax(array, axis=axis)), view.argmax(axis))
            same(np.asarray(cs.reduce(array, lambda a, b: b, axis=axis)), np.take(view, -1, axis))
    assert [found.dense for found in launched] == [False] * 3 + [True] * 3 + [False] * 4


def test_few_positions_of_results_with_copies_beside_them_have_narrow_loads(monkeypatch):
    """So that a thread stores a sector at most."""
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    x = data((4, 96), "uint16")
    for beside in (2, 4, 8):
        found = cs.max(cs.asarray(x).as_strided((4, 96, beside), (96, 1, 0)), axis=0)
        same(np.asarray(found), np.broadcast_to(x.max(0)[:, None], (96, beside)))
    assert [choice.policy.bytes for choice in chosen] == [16, 8, 4]


def test_results_of_long_equal_rows_are_copied_where_reading_these_again_takes_longer(monkeypatch):
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES", "MIN_DENSE_BYTES"):
        monkeypatch.setattr(spread, name, 20_000)  # more than results
    launched = []
    launch = spread._launch
    monkeypatch.setattr(spread, "_launch", lambda *given: launched.append(given[0].copies) or launch(*given))
    x = data((3, 80), "int16")
    for copies_of, length in ((90, 80), (90, 30), (70, 80)):  # the second are too short
        view = np.broadcast_to(x[:, :length], (copies_of, 3, length))
        given = cs.asarray(x).as_strided(view.shape, (0, 80, 1))
        same(np.asarray(cs.sum(given, axis=2)), view.sum(2))
    assert launched == [90, 70]


def test_neighbouring_threads_store_equal_results_side_by_side(monkeypatch):
    """What is left of a repeated axis behind the copies of a thread is the last kept axis."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(copies, "COPYING_THREADS", 200)
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    x = data((90, 7), "int16")
    for axis, shape, steps in (
        (0, (90, 7, 990), (7, 1, 0)),
        (1, (90, 7, 495), (7, 1, 0)),
        (1, (5, 18, 7, 990), (126, 7, 1, 0)),
    ):
        view = np.lib.stride_tricks.as_strided(x, shape, [2 * step for step in steps])
        same(np.asarray(cs.max(cs.asarray(x).as_strided(shape, steps), axis=axis)), view.max(axis), f"{shape} {axis}")
    assert all(choice.copies and choice.kept[-1].steps == (0, choice.policy.fill) for choice in chosen)
    monkeypatch.setattr(copies, "MIN_BESIDE", 1000)
    monkeypatch.setattr(calls, "_plans", {})
    same(
        np.asarray(cs.max(cs.asarray(x).as_strided((90, 7, 990), (7, 1, 0)), axis=0)),
        np.repeat(x.max(0), 990).reshape(7, 990),
    )
    assert chosen[-1].kept[-1].steps[0] == 1
