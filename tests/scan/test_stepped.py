"""Scans of one row whose elements lie a few elements apart: waves that load them one by one."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import plan, policy
from cutesync.kernels.scan.policy import WavePolicy, choose, suits
from cutesync.kernels.scan.problem import Problem
from cutesync.runtime import call

from ..cases import adjacent, data, same, scanned, segments
from ..faults import RESULT, Bench, every


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test, in which tiles are small and no row is too short."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(policy, "MIN_GAPPED_BYTES", 0)
    monkeypatch.setattr(policy, "_sizes", lambda problem, table, total: (2, 2))
    monkeypatch.setattr(call, "_plans", {})
    return found


def stepped(x: np.ndarray, step: int, first: int):
    """An array of the values of ``x``, ``step`` elements apart, from element ``first`` of its memory on; the last one
    ends the memory."""
    memory = np.full(first + (x.size - 1) * step + 1, 77, x.dtype)
    memory[first::step] = x
    return cs.asarray(memory)[first::step]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "step"), [("int16", 2), ("float32", 3), ("int64", 4)])
def test_every_step(dtype, step, on_emulator, policies):
    for length, first, reverse in ((2, 0, dtype == "int16"), (1211, 1, dtype == "int16")):
        x = data((length,), dtype)
        around = cs.asarray(np.full(length + 9, 7, dtype))
        cs.scan(stepped(x, step, first), reverse=reverse, out=around[first : first + length])
        found = np.asarray(around)
        same(found[first : first + length], scanned(x, axis=0, reverse=reverse), f"{length}")
        assert (found[:first] == 7).all() and (found[first + length :] == 7).all()
    assert {(type(each), each.gap) for each in policies} == {(WavePolicy, step)}


def test_operators_that_do_not_commute(on_emulator, policies):
    x = segments((1301,), 0)
    for options in ({"reverse": True}, {"exclusive": True, "init": 5}):
        found = np.asarray(cs.scan(stepped(x, 3, 1), adjacent, **options))
        same(found, scanned(x, adjacent, axis=0, **options), str(options))
    assert {(type(each), each.gap) for each in policies} == {(WavePolicy, 3)}


def test_hostile_schedules(policies):
    x = data((1101,), "int32")
    with cs.emulate(schedules=3, seed=5):
        same(np.asarray(cs.scan(stepped(x, 2, 1))), scanned(x, axis=0))
    assert [each.gap for each in policies] == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        every(r"(ld\.global\.b32 .*)\+12\]", r"\1+8]"),
        every(r"(mul\.lo\.s64 \t%rd\d+, %rd\d+), 3;", r"\1, 2;"),
        every(r"(mul\.lo\.s32 \t%r\d+, %r\d+), 3;", r"\1, 4;"),
    ],
    ids=["an element beside it", "tiles that are too near", "ends that are too far"],
)
def test_planted_faults_are_found(edit, policies, on_emulator):
    x = data((1101,), "int32")

    def right() -> bool:
        with cs.emulate():
            return np.array_equal(np.asarray(cs.scan(stepped(x, 3, 1))), scanned(x, axis=0))

    Bench(right).check(edit, {RESULT, "out-of-bounds"})


def test_where_elements_are_loaded_one_by_one():
    def problem(length: int, size: int, gap: int) -> Problem:
        return Problem(1, length, 1, (size,), (size,), (0,), (0,), view="pitched", pitches=((0, 0), (0, 0)), gap=gap)

    for length, size, gap in ((1 << 14, 4, 4), (1 << 20, 2, 2), (1 << 20, 8, 3)):
        assert suits(problem(length, size, gap)) and choose(problem(length, size, gap)).policy.gap == gap
    for length, size, gap in ((1 << 12, 4, 2), (1 << 20, 2, 4), (1 << 20, 1, 2), (1 << 23, 4, 2)):
        assert not suits(problem(length, size, gap))
