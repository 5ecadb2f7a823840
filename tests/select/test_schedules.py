"""Selections agree with NumPy under hostile schedules, the sanitizer watching; the number of blocks changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator

from ..cases import SCHEDULES, data
from .kernels import KERNELS, bits_of, force


def odd(value, index):
    return (value ^ index) & 1


# what: options of a call of two arrays whose mask, bits or callable comes first
WHAT = {
    "mask": lambda mask: (mask, {}),
    "bits, indices": lambda mask: (bits_of(mask), {"indices": True}),
    "filled": lambda mask: (mask, {"size": 900, "fill_value": 5}),
}


@pytest.mark.drawn(22)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        pytest.param(name, what, marks=() if (name, what) == ("three blocks", "filled") else pytest.mark.slow)
        for name in KERNELS
        for what in WHAT
    ],
)
def test_agrees_under_hostile_schedules(name, what, monkeypatch):
    force(monkeypatch, name)
    x, mask = data(1291, "int16"), np.random.default_rng(1).random(1291) < 0.4
    where, options = WHAT[what](mask)
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.select(cs.asarray(x), cs.asarray(where), **options)
    assert ran.launches == SCHEDULES
    wanted = x[mask]
    assert int(found.count) == len(wanted)
    values = np.asarray(found.values)
    assert np.array_equal(values[: len(wanted)], wanted)
    if "size" in options:
        assert (values[len(wanted) :] == 5).all()
    if "indices" in options:
        assert np.array_equal(np.asarray(found.indices)[: len(wanted)], np.flatnonzero(mask))


def test_two_resident_blocks_make_progress(monkeypatch):
    """Blocks that wait for others wait only for those that have started: also where all blocks fill the rest."""
    force(monkeypatch)
    x = data(2003, "int64")
    with cs.emulate(), emulator.emulate(schedules=9, seed=5, resident=2):
        found = cs.select(cs.asarray(x), odd, size=3000)
    wanted = x[((x ^ np.arange(2003)) & 1) != 0]
    assert np.array_equal(found.values, np.concatenate([wanted, np.zeros(3000 - len(wanted), np.int64)]))


@pytest.mark.slow
def test_more_tiles_than_the_look_ahead_reads_at_once(monkeypatch):
    force(monkeypatch)
    x = data(40_000, "int8")
    with cs.emulate(sanitize=False):
        found = cs.select(cs.asarray(x), cs.asarray(x > 3))
    assert np.array_equal(found, x[x > 3])


def test_launches_in_a_row_with_changing_counts(monkeypatch):
    """One workspace, lengths on the device: the tiles of a launch are no other's."""
    force(monkeypatch)
    x = data(1291, "int32")
    with cs.emulate(schedules=3):
        a = cs.asarray(x)
        for n in (1291, 0, 700, 1, 1290):
            assert np.array_equal(
                cs.select(a, odd, n=cs.asarray(np.int64(n))), x[:n][((x ^ np.arange(1291)) & 1)[:n] != 0]
            )
