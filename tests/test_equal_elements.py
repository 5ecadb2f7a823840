"""Arrays with broadcast axes: results are computed once and copied (``kernels.spread``), and scans along such an axis
go on from powers of one state (``scan.equal``). They agree with NumPy, and nothing beside a result is written."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype as element_type
from cutesync.kernels import spread
from cutesync.kernels.scan import plan as scan_plan
from cutesync.runtime import call as calls, device
from cutesync.runtime.device_array import DeviceArray

from .cases import bicyclic, brackets, data, same, scanned
from .compiled import needed
from .faults import RESULT, TABLE, Bench, each, every, op

TYPES = ("int8", "int16", "float64")
GUARD = 37  # elements before and behind the results
SPREAD = [
    ((3, 1, 5), 77),
    ((2, 1, 16), 40),
    ((11, 1), 77),
    ((2, 1, 1100), 9),
    ((50, 1), 7),
    ((4, 1, 3, 2), 30),
    ((1, 9), 33),
    ((3, 1, 4), 700),
    ((90, 7, 1), 64),
    ((40, 1), 21),
    ((7, 1, 3), 5),
    ((3, 1, 2, 2), 4),
]


@pytest.fixture
def small(monkeypatch):
    """Copies of small slices, and new plans; the list gets the arguments of launches that copy."""
    found = []
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES", "MIN_DENSE_BYTES"):
        monkeypatch.setattr(spread, name, 1)
    monkeypatch.setattr(spread, "MIN_SLICE_BYTES", 16)
    for name in ("_launch", "_dense"):
        launch = getattr(spread, name)
        monkeypatch.setattr(spread, name, lambda *given, launch=launch: found.append(given) or launch(*given))
    return found


def repeated(x: np.ndarray, count: int) -> tuple:
    """An array on the device and NumPy's, with the first axis of extent 1 repeated."""
    shape = list(x.shape)
    shape[shape.index(1)] = count
    return cs.asarray(x).broadcast_to(tuple(shape)), np.broadcast_to(x, shape)


def guarded(shape: tuple[int, ...], dtype, first: int):
    """A contiguous array of a shape inside of a larger one, which is returned, too."""
    size = int(np.prod(shape))
    whole = cs.asarray(np.full(size + 2 * GUARD, 99).astype(dtype))
    return whole[first : first + size].reshape(shape), whole


def check_around(whole, first: int, size: int) -> None:
    rest = np.delete(np.asarray(whole), slice(first, first + size))
    assert (rest == np.array(99).astype(rest.dtype)).all(), "nothing beside the results is written"


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("dtype", "cases"), [("int8", 2), *(pytest.param(t, n, marks=pytest.mark.slow) for t, n in zip(TYPES, (12, 3, 3)))]
)
def test_results_are_copied(dtype, cases, small, on_emulator):
    for number, (shape, count) in enumerate(SPREAD[:cases]):
        ours, theirs = repeated(data(shape, dtype), count)
        kept, first = (shape.index(1) + 1) % len(shape), number % 17
        wanted = scanned(theirs, axis=kept)
        out, whole = guarded(wanted.shape, wanted.dtype, first)
        same(np.asarray(cs.scan(ours, axis=kept, out=out)), wanted, f"{shape} {count}")
        check_around(whole, first, wanted.size)
        for form in ("uint8", "bits"):
            same(
                np.asarray(cs.flag_heads(ours, axis=kept, dtype=form)),
                cs.reference.flag_heads(theirs, axis=kept, dtype=form),
            )
    calls_made = 3 * min(cases, len(SPREAD))
    assert len(small) == calls_made


def test_small_neighbours_are_copied_sooner():
    """By scans, whose tiles store single elements slowly; not by flags."""

    def kernels(call, rows: int, columns: int, dtype: str) -> int:
        x = DeviceArray(1 << 40, (rows, columns), element_type(dtype), device.DRY, None, (1, 0))
        return len(needed(call, x, axis=0))

    assert kernels(cs.scan, 163731, 34, "uint8") == kernels(cs.scan, 33805, 54, "int16") == 2
    assert kernels(cs.scan, 2149, 715, "uint8") == kernels(cs.flag_heads, 163731, 34, "uint8") == 1


def test_results_that_are_not_copied(small, on_emulator):
    """With ``n=`` what lies behind the results stays; an output whose copies do not follow each other has none."""
    ours, theirs = repeated(data((4, 1, 6), "int32"), 20)
    out, wanted = cs.asarray(np.full((4, 20, 6), 99, np.int32)), np.full((4, 20, 6), 99)
    wanted[..., :3] = np.cumsum(theirs[..., :3], 2)
    same(np.asarray(cs.scan(ours, axis=2, n=3, out=out)), wanted.astype(np.int32))
    turned = cs.asarray(np.zeros((20, 4, 12), np.int32))[:, :, ::2].transpose((1, 0, 2))
    same(np.asarray(cs.scan(ours, axis=2, out=turned)), np.cumsum(theirs, 2, dtype=np.int32))
    assert not small


# Rows of 71, 19 and 5 results lie in one run of memory, the shortest ones several in a vector.
EQUAL = [((1,), 5000), ((1,), 70), ((3, 1), 71), ((9, 1), 3333), ((1, 16), 40), ((1, 7), 300), ((3, 1, 24), 50)]
EQUAL += [((4, 20, 1), 19), ((60, 1), 5)]
WAYS = [{}, {"reverse": True}, {"exclusive": True}, {"exclusive": True, "reverse": True, "init": 3}, {"init": 2}]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "step"), [("int8", 3), *(pytest.param(t, 1, marks=pytest.mark.slow) for t in TYPES)])
def test_scans_of_equal_elements(dtype, step, on_emulator, monkeypatch):
    used, choose = [], scan_plan.equal
    monkeypatch.setattr(scan_plan, "equal", lambda *given: used.append(choose(*given)) or used[-1])
    monkeypatch.setattr(calls, "_plans", {})
    for number, (shape, count) in list(enumerate(EQUAL))[::step]:
        ours, theirs = repeated(data(shape, dtype), count)
        axis, first = shape.index(1), number % 17
        for way in WAYS[number % 2 :: 2] if step == 1 else WAYS[2:4]:
            wanted = scanned(theirs, axis=axis, **way)
            out, whole = guarded(wanted.shape, wanted.dtype, first)
            same(np.asarray(cs.scan(ours, axis=axis, out=out, **way)), wanted, f"{shape} {count} {way}")
            check_around(whole, first, wanted.size)
    assert used and all(used)


def test_operands_stay_in_order(on_emulator):
    """Powers of one state commute, but not with the first operand."""
    for shape, count in (((1,), 700), ((1, 5), 90)):
        ours, theirs = repeated(brackets(shape), count)
        for reverse in (False, True):
            way = {"axis": 0, "reverse": reverse, "init": int(brackets((3,), 1)[2])}
            same(np.asarray(cs.scan(ours, bicyclic, **way)), scanned(theirs, bicyclic, **way), f"{shape} {way}")


def test_equal_elements_that_are_their_own_results(small, on_emulator):
    """A maximum, or what any of some bools is: results are copies of the elements, unless they begin with others."""
    for dtype, operator in (("int16", "max"), ("bool", "add"), ("uint8", "and"), ("float32", "min")):
        ours, theirs = repeated(data((30, 1), "int8").astype(dtype), 23)
        for way in ({}, {"reverse": True}):
            same(np.asarray(cs.scan(ours, operator, dtype=dtype, **way)), np.asarray(theirs))
    copied = len(small)
    assert copied == 8
    ours, theirs = repeated(data((30, 1), "int16"), 23)
    same(np.asarray(cs.scan(ours, "max", init=3)), np.maximum(theirs, np.int16(3)))
    same(np.asarray(cs.scan(ours, "add")), scanned(theirs, axis=1))
    assert len(small) == copied


def copies_are_right(shape: tuple[int, ...] = (3, 1, 5), count: int = 300, least: int = 16) -> bool:
    ours, theirs = repeated(data(shape, "int8"), count)
    with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=3, seed=2):
        for name, value in (("MIN_BYTES", 1), ("MIN_DENSE_BYTES", 1), ("MIN_SLICE_BYTES", least)):
            patch.setattr(spread, name, value)
        patch.setattr(calls, "_plans", {})
        same(np.asarray(cs.scan(ours, axis=shape.index(1) - 1)), scanned(theirs, axis=shape.index(1) - 1))
    return True


def dense_copies_are_right() -> bool:
    """Of one result each, which lie denser than a vector or not, or in whole vectors, and of a few, also whole ones."""
    several = ((9, 28, 1), 19), ((9, 120, 1), 5), ((9, 60, 1, 3), 5), ((9, 28, 1), 32), ((9, 12, 1, 16), 5, 256)
    return all(copies_are_right(*given) for given in several)


FAULTS = {
    "the copies do not wait for the slice": TABLE["no wait for the launch before"],
    "elements outside of the slices": (every(r"setp\.lt\.s32 ", "setp.le.s32 "), {RESULT, "race", "out-of-bounds"}),
    "no store": (each(op(r"st\.global")), {RESULT, "uninitialised"}),
}


DENSE_FAULTS = {
    "the copies do not wait for the results": TABLE["no wait for the launch before"],
    "no store": (every(op(r"st\.global")), {RESULT, "uninitialised"}),
    "elements outside of the results": (every(r"setp\.ge\.s32 ", "setp.gt.s32 "), {RESULT, "out-of-bounds", "race"}),
    "the result of the slice before": (
        every(r"setp\.gt\.s32 (\t[^;]*, (?:3|7|11|15);)", r"setp.lt.s32 \1"),
        {RESULT, "out-of-bounds"},
    ),
    "no slice ends": (every(r"setp\.eq\.b32 ", "setp.ne.b32 "), {RESULT, "out-of-bounds"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    bench = Bench(copies_are_right)
    bench.texts = [text for text in bench.texts if "cutesync_spread" in text]
    bench.check(*FAULTS[fault])


@pytest.mark.parametrize("fault", DENSE_FAULTS)
def test_every_planted_fault_of_dense_copies_is_found(fault):
    bench = Bench(dense_copies_are_right)
    bench.texts = [text for text in bench.texts if "cutesync_spread_dense" in text]
    assert len(bench.texts) == 5
    bench.check(*DENSE_FAULTS[fault])


def test_short_slices_are_loaded_before_they_are_stored(small):
    """A block stores over slices that other threads of it read."""
    right = functools.partial(copies_are_right, (40, 1, 4), 64)
    bench = Bench(right)
    assert small[-1][0].copies == 64
    bench.texts = [text for text in bench.texts if "cutesync_spread" in text]
    bench.check(each(op(r"bar\.sync")), {"race"})
