"""Scans of narrow arrays whose rows have gaps, or columns in another order, or which run backwards, or whose
results lie column by column."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.dtypes import dtype as element_type
from cutesync.kernels.scan import narrow_apart_policy, plan
from cutesync.kernels.scan.narrow_apart_policy import NarrowApartPolicy
from cutesync.kernels.scan.policy import suits
from cutesync.runtime import call, device
from cutesync.runtime.device_array import DeviceArray

from .. import faults
from ..cases import adjacent, data, same, scanned, segments
from ..compiled import needed


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test."""
    return prepared(monkeypatch)


def prepared(monkeypatch) -> list:
    """Make small arrays large, with small tiles; return the policies of launches from here on."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    limits = {"TILE_BYTES": 1 << 11, "MIN_BYTES": 0, "MIN_SLICE_BYTES": 0, "MAX_ROW_BYTES": 512, "SMS": 3}
    for name, number in limits.items():
        monkeypatch.setattr(narrow_apart_policy, name, number)
    monkeypatch.setattr(plan, "suits", lambda problem: False)
    for other in ("short", "short_turn", "slices_apart"):
        monkeypatch.setattr(plan, other, lambda problem, layout: None)
    monkeypatch.setattr(call, "_plans", {})
    return found


def apart(x: np.ndarray, shape: tuple[int, ...], part: tuple, order=None, first: int = 0):
    """An array of the values of ``x`` that is a part of a memory of ``shape``, with its axes in another order. The
    memory begins ``first`` elements before, and ends with the last element."""
    places = np.arange(first, first + int(np.prod(shape))).reshape(shape)[part]
    places = places.transpose(order or range(places.ndim))
    memory = np.full(places.max() + 1, 77, x.dtype)
    memory[places] = x
    steps = tuple(step // places.itemsize for step in places.strides)
    return cs.asarray(memory).as_strided(x.shape, steps, int(places.flat[0]))


def check(x, view, axis: int, op="add", **options) -> None:
    """A scan of a view; what lies around its results stays."""
    around = cs.asarray(np.full(x.size + 37, 7, x.dtype))
    cs.scan(view, op, axis=axis, out=around[19 : 19 + x.size].reshape(x.shape), **options)
    found = np.asarray(around)
    same(found[19 : 19 + x.size].reshape(x.shape), scanned(x, op, axis=axis, **options))
    assert (found[:19] == 7).all() and (found[19 + x.size :] == 7).all()


EVERY = slice(None)
# The axis, the memory, the part of it that is an array, and the order of its axes
GAPS = {
    "every second column": (1, (3, 700, 10), (EVERY, EVERY, slice(0, 10, 2)), None),
    "some columns": (1, (2, 700, 15), (EVERY, EVERY, slice(4, 10)), None),
    "columns of two axes": (0, (900, 6, 10), (EVERY, EVERY, slice(3, 5)), None),
    "few positions": (2, (2, 3, 9, 12), (EVERY, EVERY, EVERY, slice(1, 9, 3)), None),
    "columns backwards": (0, (600, 7), (EVERY, slice(None, None, -1)), None),
    "positions backwards": (1, (3, 400, 8), (EVERY, slice(None, None, -1), slice(6, None, -2)), None),
    "columns in another order": (0, (500, 3, 4), (EVERY, EVERY, EVERY), (0, 2, 1)),
}
TURNED = {
    "few columns": (1, (3000, 8), (EVERY, EVERY), (1, 0)),
    "columns with gaps": (1, (700, 11), (EVERY, slice(1, 11, 3)), (1, 0)),
    "positions and columns backwards": (1, (900, 5), (slice(None, None, -1), slice(None, None, -1)), (1, 0)),
    "slices": (2, (5, 400, 3), (EVERY, EVERY, EVERY), (0, 2, 1)),
    "columns of two axes, each apart": (2, (800, 6, 5), (EVERY, slice(1, 4), EVERY), (1, 2, 0)),
}
RUNS = {  # of results of several columns
    "neighbouring columns": (1, (700, 2, 5), (EVERY, EVERY, EVERY), (2, 0, 1)),
    "neighbouring columns of two axes": (1, (300, 2, 2, 5), (EVERY, EVERY, EVERY, EVERY), (3, 0, 2, 1)),
}
MANY = {"many columns": (1, (120, 77), (EVERY, EVERY), (1, 0))}  # of small elements
ALL, TYPES = GAPS | TURNED | RUNS | MANY, ("uint8", "float16", "int32", "float64")


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in ALL for dtype in TYPES[: 2 if name in MANY else None]]
)
def test_values(name, dtype, on_emulator, policies):
    turned = name not in GAPS
    axis, shape, part, order = ALL[name]
    whole = np.empty(shape, np.int8)[part]
    x = data(whole.transpose(order or range(whole.ndim)).shape, dtype)
    for first, options in ((0, {}), (3, {"reverse": True, "exclusive": True}), (1, {"op": "max"})):
        check(x, apart(x, shape, part, order, first), axis, **options)
    assert {(type(each), each.turned) for each in policies} == {(NarrowApartPolicy, turned)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_operands_keep_their_order(turned, reverse, on_emulator, policies):
    shape = (600, 6) if not turned else (3, 600)
    x = segments(shape, int(turned))
    view = apart(x, (600, 6), (EVERY, slice(0, 6, 2)), (1, 0)) if turned else apart(x, (600, 9), (EVERY, slice(0, 6)))
    check(x, view, int(turned), adjacent, reverse=reverse)
    assert {(type(each), each.turned) for each in policies} == {(NarrowApartPolicy, turned)}


@pytest.mark.parametrize("start", ["value", "memory"])
def test_first_operands(start, on_emulator, policies):
    x = data((2, 400, 4), "int16")
    view = apart(x, (2, 400, 8), (EVERY, EVERY, slice(1, 8, 2)))
    first = np.int16(5) if start == "value" else cs.asarray(np.full(1, 5, np.int16))[0]
    found = cs.scan(view, axis=1, init=first, exclusive=True)
    same(np.asarray(found), scanned(x, axis=1, init=5, exclusive=True))
    assert {type(each) for each in policies} == {NarrowApartPolicy}


def test_scans_in_place(on_emulator, policies):
    """They read nothing that others overwrite: rows that lie apart in the output, too, are no tiles of this kind."""
    x = data((2, 301, 6), "int16")
    view = apart(x, (2, 310, 6), (EVERY, slice(0, 301), EVERY))
    cs.scan(view, axis=1, out=view)
    same(np.asarray(view), scanned(x, axis=1))
    assert NarrowApartPolicy not in map(type, policies[1:])


@pytest.mark.parametrize("turned", [False, True])
def test_hostile_schedules(turned, policies):
    """Workers store the results of a tile before they put those of another in their place."""
    x = data((3, 901) if turned else (901, 3), "int8")
    with cs.emulate(schedules=3, seed=5):
        view = apart(x, (901, 3), (EVERY, EVERY), (1, 0)) if turned else apart(x, (901, 6), (EVERY, slice(0, 6, 2)))
        check(x, view, int(turned))
    assert {(type(each), each.turned) for each in policies} == {(NarrowApartPolicy, turned)}


@functools.cache
def bench(turned: bool) -> faults.Bench:
    """Two scans on one workspace, of several tiles for each stage; few blocks fit."""
    x = data((3, 143) if turned else (143, 3), "int32")
    wanted = scanned(x, axis=int(turned))

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            prepared(patch)
            patch.setattr(narrow_apart_policy, "MAX_RUNS", 16)
            patch.setattr(narrow_apart_policy, "TILE_BYTES", 1 << 8)
            with cs.emulate(), emulator.emulate(schedules=9, seed=3, resident=2):
                memory = np.repeat(x.T if turned else x, 2, axis=1)
                view = cs.asarray(memory)[:, ::2]
                view = view.T if turned else view
                return all(np.array_equal(np.asarray(cs.scan(view, axis=int(turned))), wanted) for _ in range(2))

    return faults.Bench(right)


# A warp releases a stage behind a barrier of all who read it; no thread has the four vectors of an unrolled store
HARMLESS = ["no sync_warp #1", "no store #1"]
EARLY, KINDS = faults.VARIANT["named barrier count -32"]
TABLE = faults.VARIANT | {"named barrier count -32": (EARLY, KINDS | {"uninitialised"})}  # results that are not there


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_no_mutant_survives(turned):
    assert bench(turned).survivors(TABLE, HARMLESS) == HARMLESS


# Shape, strides, axis and type, and whether the array is streamed
CHOSEN = {
    "bytes": ((1 << 24, 8), (8, -1), 0, "uint8", True),
    "few bytes": ((1 << 16, 5), (10, 2), 0, "uint8", False),
    "threads without columns": ((1796523, 10), (10, -1), 0, "float16", True),
    "no threads without columns": ((2421753, 8), (8, -1), 0, "float16", False),
    "the same, smaller": ((131072, 8), (8, -1), 0, "float16", True),
    "columns that are rows": ((7, 932894), (1, 7), 1, "float16", True),
    "wide columns that are rows": ((3, 700000), (1, 3), 1, "float64", False),
    "bytes of many columns that are rows": ((100, 40000), (1, 100), 1, "int8", True),
    "many columns of two bytes": ((96, 20000), (1, 96), 1, "float16", False),
    "bytes of pairs of columns": ((16, 100000, 2), (1, 32, 16), 1, "int8", True),
    "words in another order": ((1048576, 8, 8), (64, 1, 8), 0, "float32", True),
    "fewer words in another order": ((131072, 8, 8), (64, 1, 8), 0, "float32", False),
    "gaps": ((2079002, 6), (8, 1), 0, "float16", False),
    "odd rows": ((1257220, 9), (11, 1), 0, "int16", True),
    "odd rows of smaller arrays": ((26924, 51), (57, 1), 0, "float16", False),
    "odd rows of few positions": ((4000, 1000, 9), (11000, 11, 1), 1, "int16", False),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_which_arrays_are_streamed(name):
    shape, steps, axis, dtype, streamed = CHOSEN[name]
    x = DeviceArray(1 << 40, shape, element_type(dtype), device.DRY, None, steps)
    (spec,) = needed(cs.scan, x, axis=axis)
    assert isinstance(spec.key[1], NarrowApartPolicy) == streamed


ODD = {
    "bytes": ((2, 700, 13), (EVERY, EVERY, slice(2, 11)), "uint8"),
    "elements of 2 bytes": ((900, 8), (EVERY, slice(1, 6)), "float16"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_rows_that_lie_apart(name, on_emulator, policies, monkeypatch):
    """Of these there are tiles of columns, which store elements one by one."""
    shape, part, dtype = ODD[name]
    monkeypatch.setattr(plan, "suits", suits)
    for limit, number in {"MIN_ODD_BYTES": {1: 0, 2: 0}, "MIN_ODD_LENGTH": 0}.items():
        monkeypatch.setattr(narrow_apart_policy, limit, number)
    monkeypatch.setattr(narrow_apart_policy, "slices", lambda problem: None)
    x = data(np.empty(shape, np.int8)[part].shape, dtype)
    for first, options in ((0, {}), (5, {"reverse": True})):
        check(x, apart(x, shape, part, None, first), len(shape) - 2, **options)
    assert {type(each) for each in policies} == {NarrowApartPolicy}
