"""``config="tune"``: what is measured, when, and how long the answer is kept. The clock is a fake: on the emulator
times say nothing."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.matmul import tune
from cutesync.kernels.matmul.plan import Problem
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.runtime import cache, call
from cutesync.runtime.emulated import EMULATOR

from .support import SMALL, agrees, integers, multiplied

SHORTLIST = tuple(MatmulPolicy(*SMALL, group=group) for group in range(1, tune.CANDIDATES + 1))
A, B = integers(100, 72), integers(72, 80)


@pytest.fixture(autouse=True)
def _emulator(on_emulator, monkeypatch, tmp_path):
    """Nothing measured yet, in this process or on disk; and a model whose shortlist is one kernel in several orders of
    tiles."""
    monkeypatch.setattr(Problem, "shortlist", lambda self, count=1: SHORTLIST[:count])
    monkeypatch.setattr(tune, "_answers", {})
    monkeypatch.setattr(call, "_plans", {})
    notes = {}
    monkeypatch.setattr(cache, "recall", notes.get)
    monkeypatch.setattr(cache, "note", notes.__setitem__)
    return notes


@pytest.fixture
def clock(monkeypatch):
    """A GPU on which the third candidate is the fastest. The list of the numbers of candidates measured."""
    measured = []

    def measure(runs, ordinal, stream):
        for run in runs[:3]:
            run()
        measured.append(len(runs))
        return [3.0, 2.5, 1.0, *[4.0] * (len(runs) - 3)]

    monkeypatch.setattr(tune, "measure", measure)
    monkeypatch.setattr(EMULATOR, "can_time", lambda stream: True)
    return measured


def test_without_a_gpu_it_is_the_models_choice():
    multiplied(A, B, config="tune")
    assert not tune._answers, "nothing was measured"


def test_measured_once_and_kept(clock, _emulator):
    in_a, in_b, out = cs.asarray(A), cs.asarray(B), cs.asarray(np.full((100, 80), 7, np.float16))
    for _ in range(3):
        cs.matmul(in_a, in_b, out=out, config="tune")
        agrees(np.asarray(out), A, B)
    multiplied(A, B, config="tune")  # another plan, the same problem
    assert clock == [tune.CANDIDATES]
    ((_, chosen),) = tune._answers.items()
    assert chosen is SHORTLIST[2]
    tune._answers.clear()
    call._plans.clear()
    multiplied(A, B, config="tune")
    assert clock == [tune.CANDIDATES] and list(tune._answers.values()) == [chosen], "another process reads the note"
    cs.matmul(A, B, out_dtype="float32", config="tune")
    assert len(clock) == 2 and len(tune._answers) == 2, "another type is another problem"


def test_measuring_writes_no_result(monkeypatch, clock):
    """C may be the result itself. Measuring must not change it before the call reads it."""
    c = integers(100, 80)
    in_place = cs.asarray(c)
    cs.matmul(cs.asarray(A), cs.asarray(B), in_place, beta=2.0, out=in_place, config="tune")
    agrees(np.asarray(in_place), A, B, c, beta=2.0)
    assert len(clock) == 1


def test_a_small_gain_is_none(monkeypatch, clock):
    monkeypatch.setattr(tune, "measure", lambda runs, ordinal, stream: [1.0, *[0.995] * (len(runs) - 1)])
    cs.matmul(A, B, config="tune")
    assert list(tune._answers.values()) == [SHORTLIST[0]]


def test_while_a_graph_is_captured_nothing_is_measured_or_kept(monkeypatch, clock):
    monkeypatch.setattr(EMULATOR, "can_time", lambda stream: False)
    in_a, in_b, out = cs.asarray(A), cs.asarray(B), cs.empty((100, 80), "float16")
    cs.matmul(in_a, in_b, out=out, config="tune")
    assert not clock and not tune._answers and not call._plans
    monkeypatch.setattr(EMULATOR, "can_time", lambda stream: True)
    cs.matmul(in_a, in_b, out=out, config="tune")
    assert clock == [tune.CANDIDATES] and len(call._plans) == 1


def test_an_activation_is_known_by_its_meaning(clock, _emulator):
    for factor in (2, 2, 3):
        cs.matmul(A, B, activation=lambda v, factor=factor: v * factor, config="tune")
    assert clock and len(_emulator) == 2
