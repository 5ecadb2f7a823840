"""The slots of a scan's workspace: each state has one, also where a launch needs more than there are."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import dtypes
from cutesync.kernels.scan import policy, row_policy
from cutesync.kernels.scan.column_policy import ColumnTilePolicy
from cutesync.kernels.scan.narrow_policy import NarrowPolicy
from cutesync.kernels.scan.policy import PipelinePolicy, choose
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.wave_policy import WavePolicy
from cutesync.runtime import device, workspace
from cutesync.runtime.device_array import DeviceArray

from ..cases import data, same, scanned
from .kernels import force, pipeline, wave


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
            packed = max(1, 4 // size) if inner % (4 // min(size, 4)) == 0 and inner > 1 else 1  # columns of a word
            inner, wide = inner // packed, size * packed
            choice = choose(Problem(rows, shape[axis], inner, (wide,), (wide,), (0,), (0,), apart=True))
            if isinstance(choice.policy, PipelinePolicy):
                assert choice.slots >= rows * choice.tiles
            elif isinstance(choice.policy, WavePolicy):
                assert choice.slots >= choice.grid
            elif isinstance(choice.policy, (ColumnTilePolicy, NarrowPolicy)):
                groups = -(-choice.tiles // choice.policy.group)
                assert choice.slots >= rows * inner * (choice.tiles + groups)
            assert launches[-1].claim.keywords == {"slots": words * choice.slots}


def test_the_host_counts_as_the_device_does():
    """What policy.py repeats because it may not import the DSL."""
    from cutesync.kernels.scan.rows import WARPS
    from cutesync.sync.lookback import GROUP
    from cutesync.warp import LANES

    assert (row_policy.ROW_WARPS, policy.GROUP, policy.LANES) == (WARPS, GROUP, LANES)
