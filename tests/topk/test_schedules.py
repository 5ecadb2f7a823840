"""Top-k agrees with NumPy under hostile schedules, the sanitizer watching; the number of blocks changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator, reference

from ..cases import SCHEDULES, data
from .kernels import KERNELS, force

ORDERS = {"random": lambda x: x, "ascending": np.sort, "equal": np.zeros_like}


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name, order, monkeypatch):
    force(monkeypatch, name)
    x = ORDERS[order](data(1403, "int32"))
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.topk(cs.asarray(x), 40)
    assert ran.launches == SCHEDULES
    for one, wanted in zip(found, reference.topk(x, 40)):
        assert np.array_equal(one, wanted)


def test_launches_in_a_row_with_few_resident_blocks(monkeypatch):
    """One workspace: counters and bounds of a launch are no other's. No block waits for one that has not started."""
    force(monkeypatch, "five blocks of a warp")
    with cs.emulate(), emulator.emulate(schedules=5, seed=5, resident=2):
        for seed, shape in ((0, (1003,)), (1, (2, 503)), (2, (1003,))):
            x = data(shape, "int16", seed=seed)
            for one, wanted in zip(cs.topk(cs.asarray(x), 33), reference.topk(x, 33)):
                assert np.array_equal(one, wanted)
