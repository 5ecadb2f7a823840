"""``algorithm="tiered"`` and the pattern of that name: scans by launches alone, in one, two and three tiers."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import EmulationError
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.patterns import tiered_scan
from cutesync.runtime import call
from cutesync.runtime.launch import in_turn

from .. import faults
from ..cases import SCHEDULES, adjacent, bicyclic, brackets, data, everywhere, same, scanned, segments, with_slow


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 32 vectors: some thousand elements make three tiers."""
    monkeypatch.setattr(tiered_scan, "WARPS", 1)
    monkeypatch.setattr(tiered_scan, "ROWS", 1)
    monkeypatch.setattr(call, "_plans", {})


# what: (data, operator, options, launches)
CASES = {
    "one tier": (data(61, "int64"), "add", {}, 1),
    "two tiers, from the end": (data(500, "int32"), "max", {"reverse": True, "exclusive": True, "init": -5}, 3),
    "order, from a first operand": (brackets(4501), bicyclic, {"exclusive": True, "init": (2 << 32) | 1}, 5),
    "neighbours in rows, from the end": (segments((2, 4501)), adjacent, {"reverse": True}, 5),
    "halves, rounded once": (np.full(4001, 3, np.float16), "add", {}, 3),
    "bytes into int64": (data((2, 4001), "int8"), "add", {"dtype": "int64", "reverse": True, "axis": None}, 5),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "name", with_slow(CASES, {"order, from a first operand", "neighbours in rows, from the end", "bytes into int64"})
)
def test_agrees_under_hostile_schedules(name, small_tiles):
    x, op, options, launches = CASES[name]
    with cs.emulate(schedules=SCHEDULES, seed=4) as ran:
        got = cs.scan(cs.asarray(x), op, algorithm="tiered", **options)
    assert ran.launches == SCHEDULES * launches
    same(got, scanned(x, op, **options), name)


def test_in_place_and_views_that_begin_anywhere(place, small_tiles):
    x = data(316, "float32")
    for offset, shift in ((0, 0), (1, 0), (3, 2)):
        whole, out = cs.asarray(x), cs.empty(316, "float32")
        for reverse in (False, True):
            view = whole[offset : offset + 301]
            got = cs.scan(view, reverse=reverse, out=out[shift : shift + 301], algorithm="tiered")
            same(got, scanned(x[offset : offset + 301], reverse=reverse), f"{offset} {shift}")
        same(cs.scan(view, out=view, algorithm="tiered"), scanned(x[offset : offset + 301]), f"{offset} in place")


def test_the_first_operand_may_lie_on_the_device(place, small_tiles):
    for length in (500, 61):  # in two tiers, and in one launch
        x, options = data(length, "int32"), {"init": 9, "exclusive": True}
        for init in (9, 10):  # read when the kernel runs
            there = options | {"init": cs.asarray(np.full(1, init, np.int32))}
            same(cs.scan(cs.asarray(x), algorithm="tiered", **there), scanned(x, **options | {"init": init}), str(init))


@everywhere("dtype", ["bool", "int8", "float16", "float32", "float64"], emulator=lambda dtype: dtype == "float32")
def test_sizes_around_the_tiles(place, dtype):
    for n in place.sizes([1, 4093, 4094, 16_385, 70_001, 10**7 + 19, 3 * 10**7]):
        x = data(n, dtype)
        same(cs.scan(cs.asarray(x), algorithm="tiered"), scanned(x), str(n))


def test_the_pattern_is_that_scan(place):
    x = data((3, 4500), "int32", "min")
    options = {"exclusive": True, "init": 3}
    same(tiered_scan.run(x, "min", **options), tiered_scan.reference(x, "min", **options))
    assert tiered_scan.run(x[:0]).shape == (0, 4500)


def test_what_it_does_not_take_is_refused(on_emulator):
    x = np.zeros((3, 4), np.int32)
    with pytest.raises(ArgumentValueError, match="not the last; needs .* the last axis, or axis=None"):
        cs.scan(x, axis=0, algorithm="tiered")
    for algorithm in ("hope", ["tiered"], None):
        with pytest.raises((ArgumentValueError, ArgumentTypeError), match="'auto' or 'tiered'"):
            cs.scan(x, algorithm=algorithm)


def test_every_planted_fault_is_found(small_tiles, monkeypatch):
    """The kernels have one block barrier each; what they wait for otherwise is the end of a launch."""
    monkeypatch.setattr(tiered_scan, "WARPS", 4)
    x = data(1200, "int32")

    def right() -> bool:
        with cs.emulate(schedules=9, seed=2):
            return np.array_equal(np.asarray(cs.scan(cs.asarray(x), algorithm="tiered")), scanned(x))

    bench = faults.Bench(right)
    assert len(bench.texts) == 2  # the reduction and the scan, which also scans the totals
    bench.check(faults.only(faults.op(r"bar\.sync")), {"race", "uninitialised"})


def test_a_launch_out_of_order_is_found(small_tiles, monkeypatch):
    """The scan of the tiles before that of their totals reads what is not there yet."""
    monkeypatch.setattr(tiered_scan, "in_turn", lambda steps, *rest: in_turn(steps[-1:], *rest))
    with cs.emulate(), pytest.raises(EmulationError, match="nobody has written"):
        cs.scan(cs.asarray(data(500, "int32")), algorithm="tiered")
