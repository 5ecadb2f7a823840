"""Counts agree with NumPy under hostile schedules, the sanitizer watching, and planted faults are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.runtime import device

from .. import faults
from ..cases import SCHEDULES
from ..faults import each, every
from .kernels import KERNELS, force


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in KERNELS])
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = np.random.default_rng(1).integers(-2, 70, 1603)
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.bincount(cs.asarray(x), length=60)
        assert ran.launches == 2 * SCHEDULES
    assert np.array_equal(found, np.bincount(x[(x >= 0) & (x < 60)], minlength=60))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in KERNELS])
def test_sums_have_the_same_bits_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    rng = np.random.default_rng(4)
    x, w = rng.integers(-2, 70, (7, 229)), rng.standard_normal((7, 229)) * np.exp(20 * rng.standard_normal((7, 229)))
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.histogram(cs.asarray(x).T, 60, (0, 60), weights=cs.asarray(w).T)[0]
        assert ran.launches == 4 * SCHEDULES
    wanted = reference.histogram(x, 60, (0, 60), weights=w)[0]
    assert np.asarray(found).tobytes() == wanted.tobytes()


def sums_are_right(x: np.ndarray) -> bool:
    """Weights and densities, of strided arrays, against the reference. Each of the two elements that a thread holds
    together is the only one of its bin with the largest exponent, or the only one with an infinity of its sign. Large
    weights cancel, so that the last bits of sums count."""
    w = np.round(np.random.default_rng(5).standard_normal(len(x)) * 2.0**30) / 2.0**30  # no kernel rounds these
    held = np.arange(len(x)) // (3 * 64) % 2
    for one, u, weight in ((0, 0, 2.0**40), (19, 1, 2.0**40), (38, 0, np.inf), (38, 1, -np.inf)):
        w[np.flatnonzero((x == one) & (held == u))[:2]] = weight, -weight if one < 38 else weight
    device, weights = cs.asarray(np.repeat(x, 2)), cs.asarray(np.repeat(w, 2))
    densities = cs.histogram(device[::2], 60, (0, 60), density=True)
    sums = cs.bincount(device[1::2], weights[1::2], length=60)
    wanted = *reference.histogram(x, 60, (0, 60), density=True), reference.bincount(x, w, length=60)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip((*densities, sums), wanted))


@functools.cache
def bench(name: str) -> faults.Bench:
    x = np.random.default_rng(2).integers(0, 60, 1603) // 20 * 19

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            force(patch, name)
            with cs.emulate(schedules=9, seed=3):
                counts, edges = cs.histogram(cs.asarray(x), 60, (0, 60))
                bins = cs.bincount(cs.asarray(x), length=60)
                summed = sums_are_right(x)
            right = summed and np.array_equal(counts, bins) and np.array_equal(edges, np.arange(61.0))
            return right and np.array_equal(bins, np.bincount(x, minlength=60))

    return faults.Bench(right)


TABLE = {name: faults.TABLE[name] for name in ("no block barrier", "no wait for the launch before", "no store")}
NOT_ADDED = every(r"redux\.sync\.add\.s32 \t?(%r\d+), (%r\d+), [^;]*;", r"mov.b32 \1, \2;")
OWN = {
    "queued": (
        (every(r"^[ \t]*(atom|red)\.[^;\n]*shared[^;\n]*;"), {faults.RESULT}),
        (every(r"bar\.warp\.sync[^;]*;"), {"race"}),
        (NOT_ADDED, {faults.RESULT}),
    ),
    "parts": ((every(r"^[ \t]*(atom|red)\.[^;\n]*shared[^;\n]*;"), {faults.RESULT}),),
    "shared": (
        (each(r"^[ \t]*(atom|red)\.[^;\n]*shared[^;\n]*;"), {faults.RESULT, "mismatch"}),
        (each(r"^[ \t]*(atom|red)\.[^;\n]*global[^;\n]*;"), {faults.RESULT}),
    ),
    "global": (
        (every(r"^[ \t]*(atom|red)\.[^;\n]*global[^;\n]*;"), {faults.RESULT}),
        (
            every(
                r"atom\S*\.cas\S*\.b32 \t?(%r\d+), \[(%r\d+)\], (%r\d+|-1), (%r\d+);",
                r"mov.b32 \1, \3; st.shared.b32 [\2], \4;",
            ),
            {"race"},
        ),
        (every(r"ld\.relaxed\.cta\.shared(::cta)?\.b32", "ld.shared.b32"), {"race"}),
        (NOT_ADDED, {faults.RESULT}),
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
