"""Faults planted in reductions and scans of states of several values are found; the kernels as they are run clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.reduce import plan
from cutesync.kernels.reduce.problem import Choice, SegmentPolicy
from cutesync.runtime import call, device

from . import faults
from .reduce.test_mutations import FAULTS
from .scan.kernels import column_tiles, force, pipeline, rows, wave
from .scan.test_mutations import FLAGS, ticket_by_block_index
from .states import CASES, data, reduced, scanned

pytestmark = pytest.mark.slow

# name: (configuration, shape, axis, states)
SCANS = {
    "rows": (rows(2, 2), (6, 101), 1, "segments"),
    "ragged rows": (rows(2, 2, ragged=True), (6, 203), 1, "maps"),
    "wave": (wave(2, 1), (1203,), 0, "segments"),
    "tiles of columns": (column_tiles(2, 4, 8, 2, 3, 5), (101, 12), 0, "segments"),
    "pipeline": (pipeline(4, 2, 4, 1, 2, 2), (4, 1101), 1, "maps"),
}
TILED = ("wave", "tiles of columns", "pipeline")


@functools.cache
def scan_bench(name: str) -> faults.Bench:
    """Two scans on one workspace, each under all policies; few blocks fit."""
    choice, shape, axis, kind = SCANS[name]
    case = CASES[kind]
    xs = data(case, shape, 2)
    wanted = scanned(case, xs, axis)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            force(patch, choice)
            with cs.emulate(), emulator.emulate(schedules=9, seed=3, resident=2):
                arrays = tuple(map(cs.asarray, xs))
                found = [cs.scan(arrays, case.op, axis=axis) for _ in range(2)]
        return all(np.array_equal(np.asarray(a), b) for one in found for a, b in zip(one, wanted, strict=True))

    return faults.Bench(right)


@pytest.mark.parametrize("name", [name for name in SCANS if name not in ("pipeline", "ragged rows")])
def test_no_mutant_of_a_scan_survives(name):
    """Pipelines wait for tiles, and release them, as those of values do (scan/test_mutations.py)."""
    assert scan_bench(name).survivors(faults.VARIANT, []) == []


@pytest.mark.parametrize("fault", FLAGS)
@pytest.mark.parametrize("name", ["wave", "pipeline"])
def test_faults_of_the_look_back_are_found(name, fault):
    scan_bench(name).check(*FLAGS[fault])


@pytest.mark.parametrize("name", TILED)
def test_tiles_numbered_by_block_index_deadlock(name):
    scan_bench(name).check(ticket_by_block_index, {"deadlock"})


GRID = SegmentPolicy("grid", 4, 4, 2, False, True)
REDUCTIONS = {
    "one block": (SegmentPolicy("block", 4, 4, 2), 1),
    "few blocks": (GRID, 5),
    "more blocks than lanes": (SegmentPolicy("grid", 2, 2, 2), 37),
}


@functools.cache
def reduce_bench(name: str) -> faults.Bench:
    """Two reductions on one workspace, each under all policies."""
    policy, splits = REDUCTIONS[name]
    case = CASES["segments"]
    xs = data(case, (12_003,), 4)
    wanted = reduced(case, xs, (0,))

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=9, seed=3):
            patch.setattr(plan, "choose", lambda problem: Choice(policy, splits, 1, splits))
            patch.setattr(call, "_plans", {})
            arrays = tuple(map(cs.asarray, xs))
            found = [cs.reduce(arrays, case.op) for _ in range(2)][-1]
            return all(np.asarray(a) == b for a, b in zip(found, wanted, strict=True))

    return faults.Bench(right)


@pytest.mark.parametrize("fault", [fault for fault, (name, *_) in FAULTS.items() if name in REDUCTIONS])
def test_every_fault_of_a_reduction_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    reduce_bench(name).check(edit, kinds)
