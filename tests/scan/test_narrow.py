"""Scans of narrow arrays whose outer slices lie apart, or begin anywhere: each is one run of memory."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import narrow_policy, plan, policy
from cutesync.kernels.scan.narrow_policy import NarrowPolicy
from cutesync.kernels.scan.policy import PipelinePolicy
from cutesync.kernels.scan.wave_policy import WavePolicy
from cutesync.runtime import call

from ..cases import adjacent, data, same, scanned, segments


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test, in which small arrays are large and have small tiles."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(narrow_policy, "TILE_BYTES", 1 << 11)
    for least in ("MIN_BYTES", "MIN_FEW_BYTES", "MIN_SLICE_BYTES"):
        monkeypatch.setattr(narrow_policy, least, 0)
    monkeypatch.setattr(narrow_policy, "SMS", 3)
    monkeypatch.setattr(policy, "MIN_SLICE_BYTES", 0)
    monkeypatch.setattr(policy, "clusters", lambda problem: None)
    monkeypatch.setattr(plan, "suits", lambda problem: True)
    monkeypatch.setattr(call, "_plans", {})
    return found


def apart(x: np.ndarray, gap: int):
    """An array of the values of ``x`` with ``gap`` positions behind each outer slice."""
    memory = np.full((x.shape[0], x.shape[1] + gap, x.shape[2]), 77, x.dtype)
    memory[:, : x.shape[1]] = x
    return cs.asarray(memory)[:, : x.shape[1]]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_outer_slices_apart(reverse, on_emulator, policies):
    x = segments((2, 500, 4), 1)
    view, out = apart(x, 4), apart(np.zeros_like(x), 8)
    cs.scan(view, adjacent, axis=1, reverse=reverse, out=out)
    same(np.asarray(out), scanned(x, adjacent, axis=1, reverse=reverse))
    cs.scan(view, adjacent, axis=1, reverse=reverse, out=view)
    same(np.asarray(view), scanned(x, adjacent, axis=1, reverse=reverse), "in place")
    assert {type(each) for each in policies} == {NarrowPolicy}


@pytest.mark.parametrize("pipeline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_few_columns_of_outer_slices_apart(pipeline, on_emulator, policies, monkeypatch):
    monkeypatch.setattr(policy, "PIPELINE_BYTES", 0 if pipeline else 1 << 24)
    monkeypatch.setattr(narrow_policy, "MIN_FEW_BYTES", 1 << 24)
    x = data((2, 5000, 2), "float32")
    same(np.asarray(cs.scan(apart(x, 8), axis=1)), scanned(x, axis=1))
    assert [type(each) for each in policies] == [PipelinePolicy if pipeline else WavePolicy]


def from_element(x: np.ndarray, first: int):
    """An array of the values of ``x`` that begins at element ``first`` of its memory and ends with it."""
    return cs.asarray(np.concatenate([np.ones(first, x.dtype), x.reshape(-1)]))[first:].reshape(x.shape)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("dtype", ["int8", *(pytest.param(t, marks=pytest.mark.slow) for t in ("int16", "float32"))])
def test_outer_slices_that_begin_anywhere(dtype, on_emulator, policies):
    """The vectors at both ends of the array are not read whole; of those between tiles each tile has its part."""
    x = data((3, 901, 5), dtype)
    for first, reverse in ((0, False), (1, True), (3, False)):
        view = from_element(x, first)
        same(np.asarray(cs.scan(view, axis=1, reverse=reverse)), scanned(x, axis=1, reverse=reverse), f"from {first}")
        around = cs.asarray(np.full(x.size + 20, 7, x.dtype))
        cs.scan(view, "max", axis=1, out=around[11 : 11 + x.size].reshape(x.shape))
        found = np.asarray(around)
        same(found[11 : 11 + x.size].reshape(x.shape), scanned(x, "max", axis=1), f"from {first} to 11")
        assert (found[:11] == 7).all() and (found[11 + x.size :] == 7).all()
    assert {(type(each), each.aligned) for each in policies} == {(NarrowPolicy, False)}


def test_tiles_of_odd_sizes_that_begin_anywhere(on_emulator, policies, monkeypatch):
    """Tiles of 55 * 8 * 21 bytes: each stage begins on a boundary all the same."""
    monkeypatch.setattr(narrow_policy, "MAX_RUNS", 8)
    monkeypatch.setattr(narrow_policy, "_height", lambda *given: 55)
    x = data((1, 1901, 21), "int8")
    same(np.asarray(cs.scan(from_element(x, 1), axis=1)), scanned(x, axis=1))
    assert [(type(each), each.runs, each.aligned) for each in policies] == [(NarrowPolicy, 8, False)]


def test_slices_apart_that_begin_anywhere(on_emulator, policies):
    """What lies between the slices is written by nobody and not read either: another scan may write there."""
    memory = data((2, 900, 6), "int8")
    view = cs.asarray(memory)[:, 3:893]
    same(np.asarray(cs.scan(view, axis=1)), scanned(memory[:, 3:893], axis=1))
    assert [(type(each), each.aligned) for each in policies] == [(NarrowPolicy, False)]


def test_scans_in_place_read_nothing_beside_their_tiles(on_emulator, policies):
    x = data((3, 701, 5), "int8")
    view = from_element(x, 1)
    cs.scan(view, axis=1, out=view)
    same(np.asarray(view), scanned(x, axis=1))
    assert not isinstance(policies[-1], NarrowPolicy)


def test_hostile_schedules(policies):
    """Workers store a tile before it is overwritten by the copy of another."""
    x = data((1, 901, 5), "int8")
    with cs.emulate(schedules=3, seed=5):
        same(np.asarray(cs.scan(from_element(x, 1), axis=1)), scanned(x, axis=1))
    assert {(type(each), each.aligned) for each in policies} == {(NarrowPolicy, False)}


@pytest.mark.parametrize("columns", [101, pytest.param(146, marks=pytest.mark.slow)])
def test_rows_of_many_columns_that_no_words_hold(columns, on_emulator, policies, monkeypatch):
    """Of up to 120 columns a tile has four runs of each, of more two."""
    monkeypatch.setattr(narrow_policy, "TILE_BYTES", 1 << 14)
    dtype = "int8" if columns == 101 else "bool"
    for shape in ((1, 401, columns), (2, 512, columns)):
        x = data(shape, dtype)
        same(np.asarray(cs.scan(cs.asarray(x), "max", axis=1)), scanned(x, "max", axis=1), f"{shape}")
    narrow = [each for each in policies if isinstance(each, NarrowPolicy)]
    assert narrow and {each.runs for each in narrow} == {4 if columns == 101 else 2}
