"""Counts agree with NumPy under hostile schedules, the sanitizer watching, and planted faults are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device

from .. import faults
from ..faults import each, every
from .kernels import KERNELS, force


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in KERNELS])
def test_agrees_under_twenty_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = np.random.default_rng(1).integers(-2, 70, 1603)
    with cs.emulate(schedules=20, seed=3) as ran:
        found = cs.bincount(cs.asarray(x), length=60)
        assert ran.launches == 40
    assert np.array_equal(found, np.bincount(x[(x >= 0) & (x < 60)], minlength=60))


@functools.cache
def bench(name: str) -> faults.Bench:
    x = np.random.default_rng(2).integers(0, 60, 1603) // 20 * 19

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            force(patch, name)
            with cs.emulate(schedules=9, seed=3):
                counts, edges = cs.histogram(cs.asarray(x), 60, (0, 60))
                bins = cs.bincount(cs.asarray(x), length=60)
            right = np.array_equal(counts, bins) and np.array_equal(edges, np.arange(61.0))
            return right and np.array_equal(bins, np.bincount(x, minlength=60))

    return faults.Bench(right)


TABLE = {name: faults.TABLE[name] for name in ("no block barrier", "no wait for the launch before", "no store")}
OWN = {
    "shared": (
        (each(r"^[ \t]*(atom|red)\.[^;\n]*shared[^;\n]*;"), {faults.RESULT}),
        (each(r"^[ \t]*(atom|red)\.[^;\n]*global[^;\n]*;"), {faults.RESULT}),
    ),
    "global": (
        (every(r"^[ \t]*(atom|red)\.[^;\n]*global[^;\n]*;"), {faults.RESULT}),
        (every(r"vote\.sync\.all\.pred \t?(%p\d+), [^;]*;", r"setp.eq.u32 \1, 0, 0;"), {faults.RESULT}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    assert bench(name).survivors(TABLE) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_own_faults_are_found(name):
    for edit, kinds in OWN[name]:
        bench(name).check(edit, kinds)
