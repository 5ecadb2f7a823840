"""The workspace in any state: rubbish in the slots, states of earlier launches, a launch number that wraps, too few
slots."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.kernels.scan import policy
from cutesync.kernels.scan.policy import PipelinePolicy, Problem, WavePolicy, choose
from cutesync.runtime import device, workspace
from cutesync.runtime.device_array import DeviceArray

from ..cases import data, same, scanned
from .kernels import columns, force, pipeline, slabs, wave

# what: (configuration for small arrays, shape, axis)
PROBLEMS = {
    "wave": (wave(2, 1), (1003,), 0),
    "rows": (wave(2, 1), (2, 701), 1),
    "columns": (columns(1, 16, 4, 2, 3), (61, 19), 0),
    "slabs": (slabs(4, 3, 2, 2, 3), (143, 5), 0),
    "pipeline": (pipeline(4, 2, 4, 1, 2, 3), (2503,), 0),
}


def prepare(name: str, monkeypatch):
    choice, shape, axis = PROBLEMS[name]
    force(monkeypatch, choice)
    x = data(shape, "int32")
    return lambda: same(np.asarray(cs.scan(cs.asarray(x), axis=axis)), scanned(x, axis=axis), name)


@pytest.mark.parametrize("name", PROBLEMS)
def test_slots_may_hold_anything(name, memory, monkeypatch):
    check = prepare(name, monkeypatch)
    for dirt in (0x00, 0x7F, 0xFF):
        memory.soil(dirt)
        check()
        assert (memory.read(memory.slots, 4096) != 0x01010101 * dirt).any(), "this problem shares no workspace"
        check()
        memory.assert_ready()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_launch_number_wraps(name, memory, monkeypatch):
    """After 2**32 launches a slot of zeros, which a workspace begins with, must not pass for a state."""
    check = prepare(name, monkeypatch)
    memory.write(memory.counters + 4, np.array([2**32 - 2], np.uint32))
    for _ in range(4):
        memory.soil(0)
        check()
        memory.assert_ready()


def test_families_take_turns_on_one_workspace(memory, monkeypatch):
    """A reduction's states are no scan's, whatever slots they lie in."""
    x = data(3001, "int32")
    for name in PROBLEMS:
        check = prepare(name, monkeypatch)
        for _ in range(2):
            check()
            same(np.asarray(cs.reduce(cs.asarray(x))), cs.reference.reduce(x))
    memory.assert_ready()


def test_a_launch_that_needs_more_slots_gets_them(memory, monkeypatch):
    monkeypatch.setattr(workspace, "SLOTS", 64)
    workspace.forget(memory.ordinal, 0)
    small, large = (data(n, "int32") for n in (200, 1003))
    force(monkeypatch, wave(1, 1))
    for x in (small, large, small):
        same(np.asarray(cs.scan(cs.asarray(x))), scanned(x))
    held = workspace._by_stream[memory.ordinal, 0].size
    force(monkeypatch, pipeline(4, 1, 4, 1, 2, 2))
    same(np.asarray(cs.scan(cs.asarray(large))), scanned(large))
    assert held < workspace._by_stream[memory.ordinal, 0].size


def test_every_state_has_a_slot(launches):
    """The slots that launches ask for hold every tile's state, whatever the size of a state."""
    for dtype, words in (("int8", 1), ("float32", 1), ("float64", 2)):
        size = np.dtype(dtype).itemsize
        for shape, axis in (
            ((1 << 20,), 0),
            ((1 << 26,), 0),
            ((3, 1 << 24), 1),
            ((1 << 20, 40), 0),
            ((1 << 14, 2, 100), 0),
        ):
            x, out = (DeviceArray(at, shape, dtypes.dtype(dtype), device.HOST, None) for at in (1 << 20, 1 << 60))
            cs.scan(x, axis=axis, out=out)
            rows, inner = (shape[0], 1) if axis else (1, int(np.prod(shape[1:])))
            choice = choose(Problem(rows, shape[axis], inner, (size,), (size,), (0,), (0,)))
            if isinstance(choice.policy, PipelinePolicy):
                assert choice.slots >= rows * choice.tiles
            elif isinstance(choice.policy, WavePolicy):
                assert choice.slots >= choice.grid
            elif choice.grid > rows * choice.tiles:
                assert choice.slots >= choice.grid // choice.tiles * inner
            assert launches[-1].claim.keywords == {"slots": words * choice.slots}


def test_the_host_counts_as_the_device_does():
    """What policy.py repeats because it may not import the DSL."""
    from cutesync.kernels.scan.rows import WARPS
    from cutesync.sync.lookback import GROUP
    from cutesync.warp import LANES

    assert (policy.ROW_WARPS, policy.GROUP, policy.LANES) == (WARPS, GROUP, LANES)
