"""Faults planted in the compiled reduction kernels: the emulator must find each of them, and nothing in the kernels as they are."""

import re

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import EmulationError
from cutesync.kernels.reduce import plan
from cutesync.kernels.reduce.policy import Choice, Policy, SegmentPolicy
from cutesync.runtime import call, compiler, device, workspace

pytestmark = pytest.mark.slow

N, WHOLE = 41003, 40960  # several chunks a block, with and without a ragged end


@pytest.fixture(autouse=True)
def _clean_workspace():
    """A mutant may leave the counters anywhere: the tests that follow get a workspace of their own."""
    yield
    workspace.forget(device.HOST, 0)


def use(monkeypatch, policy: Policy, splits: int, edit=None) -> None:
    """Make every reduction of this test run by ``policy`` with ``splits`` blocks, its PTX changed by ``edit``."""
    monkeypatch.setattr(plan, "choose", lambda problem: Choice(policy, splits, 1, splits))
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(compiler, "_kernels", {})
    if edit is not None:
        get = compiler.get

        def edited(*arguments, **options):
            kernel = get(*arguments, **options)
            changed = edit(kernel.ptx)
            assert changed != kernel.ptx, "the fault was not planted: the kernel's PTX has changed its form"
            kernel.ptx = changed
            return kernel

        monkeypatch.setattr(compiler, "get", edited)


def run(x, calls: int = 2):
    """Fold ``x`` under all policies, twice on one workspace; the last result."""
    with cs.emulate(schedules=9, seed=3):
        array = cs.asarray(x)
        for _ in range(calls):
            result = np.asarray(cs.reduce(array))
    return result


GRID = SegmentPolicy("grid", 4, 4, 2, False, True)
KERNELS = {
    "one block": (SegmentPolicy("block", 4, 4, 2), 1),
    "few blocks": (GRID, 5),
    "more blocks than lanes": (SegmentPolicy("grid", 2, 2, 2), 37),
    "whole chunks, one block": (SegmentPolicy("block", 4, 4, 2, True), 1),
    "whole chunks": (SegmentPolicy("grid", 4, 4, 2, True, True), 5),
}


def elements(kernel: str) -> np.ndarray:
    return np.arange(WHOLE if kernel.startswith("whole") else N, dtype=np.int32)


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_as_they_are(name, monkeypatch):
    use(monkeypatch, *KERNELS[name])
    x = elements(name)
    assert run(x) == x.sum(dtype=np.int32)


def drop(pattern: str, which: int = 0):
    """Delete one instruction: the ``which``-th line that matches."""

    def edit(ptx: str) -> str:
        found = [match for match in re.finditer(rf"^[^\n]*{pattern}[^\n]*\n", ptx, re.M)]
        return ptx[: found[which].start()] + ptx[found[which].end() :]

    return edit


def swap(old: str, new: str):
    return lambda ptx: ptx.replace(old, new)


FAULTS = {
    "no barrier between the warps' states and their fold": ("one block", drop(r"bar\.sync")),
    "no barrier before the collector's news is read": ("more blocks than lanes", drop(r"bar\.sync", 2)),
    "no barrier between the collector's warps and their fold": ("more blocks than lanes", drop(r"bar\.sync", 3)),
    "a state published by a plain store": ("few blocks", swap("st.relaxed.gpu.global.b64", "st.global.b64")),
    "a state published for the block alone": (
        "few blocks",
        swap("st.relaxed.gpu.global.b64", "st.relaxed.cta.global.b64"),
    ),
    "a state collected by a plain load": ("few blocks", swap("ld.relaxed.gpu.global.b64", "ld.global.b64")),
    "a state collected within the block alone": (
        "more blocks than lanes",
        swap("ld.relaxed.gpu.global.b64", "ld.relaxed.cta.global.b64"),
    ),
    "the epoch never raised": ("few blocks", drop(r"(atom|red)\.[\w.]*add", 1)),
    "no barrier in a block of whole chunks": ("whole chunks, one block", drop(r"bar\.sync")),
    "no barrier before the fold of whole chunks": ("whole chunks", drop(r"bar\.sync")),
    "whole chunks published for the block alone": (
        "whole chunks",
        swap("st.relaxed.gpu.global.b64", "st.relaxed.cta.global.b64"),
    ),
    "whole chunks collected by a plain load": ("whole chunks", swap("ld.relaxed.gpu.global.b64", "ld.global.b64")),
    "lanes that look the wrong way": ("one block", swap("shfl.sync.bfly.b32", "shfl.sync.up.b32")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault, monkeypatch):
    kernel, edit = FAULTS[fault]
    use(monkeypatch, *KERNELS[kernel], edit)
    x = elements(kernel)
    try:
        result = run(x)
    except EmulationError:
        return
    assert result != x.sum(dtype=np.int32), "the mutant survived"
