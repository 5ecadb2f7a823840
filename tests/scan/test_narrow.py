"""Scans of narrow arrays whose outer slices lie apart: each is one run of memory."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import narrow_policy, plan, policy
from cutesync.kernels.scan.narrow_policy import NarrowPolicy
from cutesync.kernels.scan.policy import PipelinePolicy, WavePolicy
from cutesync.runtime import call

from ..cases import adjacent, data, same, scanned, segments


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test, in which small arrays are large and have small tiles."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(narrow_policy, "SMALL_TILES", (1 << 12, 3))
    monkeypatch.setattr(narrow_policy, "MIN_BYTES", 0)
    monkeypatch.setattr(policy, "MIN_SLICE_BYTES", 0)
    monkeypatch.setattr(plan, "suits", lambda problem: True)
    monkeypatch.setattr(call, "_plans", {})
    return found


def apart(x: np.ndarray, gap: int):
    """An array of the values of ``x`` with ``gap`` positions behind each outer slice."""
    memory = np.full((x.shape[0], x.shape[1] + gap, x.shape[2]), 77, x.dtype)
    memory[:, : x.shape[1]] = x
    return cs.asarray(memory)[:, : x.shape[1]]


@pytest.mark.parametrize("reverse", [False, True])
def test_outer_slices_apart(reverse, on_emulator, policies):
    x = segments((2, 500, 5), 1)
    view, out = apart(x, 4), apart(np.zeros_like(x), 8)
    cs.scan(view, adjacent, axis=1, reverse=reverse, out=out)
    same(np.asarray(out), scanned(x, adjacent, axis=1, reverse=reverse))
    cs.scan(view, adjacent, axis=1, reverse=reverse, out=view)
    same(np.asarray(view), scanned(x, adjacent, axis=1, reverse=reverse), "in place")
    assert {type(each) for each in policies} == {NarrowPolicy}


@pytest.mark.parametrize("pipeline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_few_columns_of_outer_slices_apart(pipeline, on_emulator, policies, monkeypatch):
    monkeypatch.setattr(policy, "PIPELINE_BYTES", 0 if pipeline else 1 << 24)
    x = data((2, 5000, 2), "float32")
    same(np.asarray(cs.scan(apart(x, 8), axis=1)), scanned(x, axis=1))
    assert [type(each) for each in policies] == [PipelinePolicy if pipeline else WavePolicy]
