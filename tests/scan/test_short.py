"""Scans along short axes of strided arrays: all loads and stores, at every alignment; tiles that blocks turn."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import plan, short_policy, short_turn_policy
from cutesync.kernels.scan.short_policy import ShortPolicy
from cutesync.kernels.scan.short_turn_policy import ShortTurnPolicy, _tall_tile
from cutesync.runtime import call, device

from .. import faults
from ..cases import STAND_FOR_ALL, adjacent, data, same, scanned, segments

# Order of the axes in memory, shape, axis, elements added to a row of memory; then whether neighbours are loaded along
# the axis, and whether all results of a thread are one run
LAYOUTS = {
    "turned": ((1, 0), (96, 4), 1, 0, False, True),
    "turned, odd": ((1, 0), (37, 3), 1, 0, False, True),
    "turned, two axes": ((2, 0, 1), (5, 24, 2), 2, 8, False, True),
    "rows apart": ((0, 1), (33, 8), 1, 3, True, True),
    "results across": ((0, 2, 1), (3, 4, 40), 1, 0, True, False),
}


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test. Threads have as many columns as in large arrays."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(short_policy, "SMS", 0)
    for limit in ("FEW_TILES", "MIN_TILE", "MIN_RUN_BYTES"):
        monkeypatch.setattr(short_turn_policy, limit, 0)
    monkeypatch.setattr(call, "_plans", {})
    return found


def strided(x: np.ndarray, order: tuple[int, ...], gap: int, first: int):
    """An array of the values of ``x`` whose axes lie in this order in memory, from element ``first`` on, with ``gap``
    elements behind each row."""
    turned = x.transpose(order)
    memory = np.full((*turned.shape[:-1], turned.shape[-1] + gap), 77, x.dtype)
    memory[..., : turned.shape[-1]] = turned
    whole = cs.asarray(np.concatenate([np.zeros(first, x.dtype), memory.reshape(-1)]))
    steps = np.array(memory.strides)[np.argsort(order)] // x.itemsize
    return whole.as_strided(x.shape, tuple(int(step) for step in steps), first)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", ["uint8", *(pytest.param(t, marks=pytest.mark.slow) for t in ("float64",))])
def test_layouts(name, dtype, on_emulator, policies):
    order, shape, axis, gap, along, dense = LAYOUTS[name]
    x = data(shape, dtype)
    for first, ways in ((0, {}), (1, {"reverse": True, "init": 3}), (8, {"exclusive": True})):
        view = strided(x, order, gap, first)
        same(np.asarray(cs.scan(view, axis=axis, **ways)), scanned(x, axis=axis, **ways), f"{name} {first} {ways}")
    if dtype == "uint8":  # rows of wider elements are vectors where they lie
        assert {(type(policy), policy.along, policy.dense) for policy in policies} == {(ShortPolicy, along, dense)}


@pytest.mark.parametrize(
    "length", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow)]
)
def test_numbers_of_columns_and_types(length, on_emulator, policies):
    for dtype in (*STAND_FOR_ALL, "int32"):
        for columns in (1, 31, 32, 33, 257) if dtype == "int8" else (0, 37):
            x = data((columns, length), dtype)
            if length * x.itemsize <= short_policy.MAX_BYTES:
                found = cs.scan(strided(x, (1, 0), 0, 1), "max", axis=1, **({"init": 0} if columns else {}))
                same(
                    np.asarray(found),
                    scanned(x, "max", axis=1, **({"init": 0} if columns else {})),
                    f"{dtype} {columns}",
                )
    assert ShortPolicy in map(type, policies)


def test_equal_columns_are_loaded_once(on_emulator, policies):
    for dtype, columns in (("uint8", 48), ("int16", 34), ("float64", 6)):
        x = data((7, 5), dtype)
        view = cs.asarray(x).reshape(7, 5, 1).broadcast_to((7, 5, columns))
        found = np.asarray(cs.scan(view, axis=1, reverse=dtype == "int16"))
        same(found, scanned(np.broadcast_to(x[..., None], found.shape), axis=1, reverse=dtype == "int16"), dtype)
    assert [(policy.gap, policy.width, policy.load) for policy in policies] == [(0, 16, 1), (0, 2, 1), (0, 2, 1)]
    x = data((7, 1, 3), "uint8")
    found = np.asarray(cs.scan(cs.asarray(x).broadcast_to((7, 12, 3)), axis=2))
    same(found, scanned(np.broadcast_to(x, found.shape), axis=2), "rows of equal columns")
    assert (policies[-1].gap, policies[-1].width, policies[-1].dense) == (0, 4, True)


def test_order_of_operands_and_scans_in_place(on_emulator, policies):
    x = segments((64, 8), 1)
    for reverse in (False, True):
        view = strided(x, (1, 0), 0, 0)
        wanted = scanned(x, adjacent, axis=1, reverse=reverse)
        same(np.asarray(cs.scan(view, adjacent, axis=1, reverse=reverse)), wanted)
        same(np.asarray(cs.scan(view, adjacent, axis=1, reverse=reverse, out=view)), wanted, "in place")


def test_a_thread_moves_whole_vectors(on_emulator, policies):
    cs.scan(strided(np.ones((4096, 2), np.uint16), (1, 0), 0, 0), axis=1)
    assert policies == [ShortPolicy(1, 2, 4, False, 4, True, 8)]


# Order of the axes in memory, shape and axis; elements are neighbours along another one
TURNED = {
    "one run": ((2, 1, 0), (75, 7, 2), 2),
    "parts of runs": ((2, 1, 0), (40, 200, 3), 2),
    "words": ((0, 3, 2, 1), (2, 64, 8, 4), 3),
    "blocks of threads": ((2, 1, 0), (301, 3, 2), 2),
    "one run of all positions": ((1, 2, 0), (75, 3, 7), 1),
    "a run of each position": ((0, 2, 1), (3, 75, 7), 0),
    "parts of a run of each position": ((2, 0, 1), (3, 40, 203), 0),
    "neighbours along the axis": ((2, 0, 1), (70, 2, 4), 1),
    "units of a position": ((3, 2, 0, 1), (10, 36, 2, 32), 2),
    "units of columns": ((2, 1, 0), (75, 64, 3), 2),
    "odd runs of many positions": ((2, 0, 1), (13, 70, 145), 0),
    "odd runs of most positions": ((0, 3, 1, 2), (2, 30, 37, 11), 1),
    "tall runs of words": ((2, 0, 1), (48, 36, 40), 0),
    "tall runs of 64 positions": ((3, 0, 1, 2), (2, 64, 36, 20), 1),
    "tall columns of odd runs": ((0, 3, 1, 2), (2, 61, 12, 45), 1),
    "tall runs of pairs": ((2, 0, 1), (24, 36, 40), 0),
    "tall runs of more positions": ((0, 3, 1, 2), (1, 70, 66, 17), 1),
}
OF_PAIRS = ("odd runs of many positions", "odd runs of most positions", "tall runs of pairs")
SMALL = 7  # the last of them are tiles of elements of one and two bytes
UNITS = ("units of a position", "units of columns")  # of which results are words


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(("uint8", name) for name in TURNED),
        *(("float16", name) for name in OF_PAIRS),
        *(pytest.param("float64", name, marks=pytest.mark.slow) for name in list(TURNED)[:-SMALL:2]),
    ],
)
def test_tiles_that_are_turned(name, dtype, on_emulator, policies):
    order, shape, axis = TURNED[name]
    x = data(shape, dtype)
    ways_of = ((0, {}), (1, {"reverse": True, "init": 3}), (8, {"exclusive": True}))
    turn = list(TURNED).index(name)
    for first, ways in (ways_of[turn % 3], ways_of[(turn + 1) % 3]):
        around = cs.asarray(np.full(x.size + 8, 7, dtype))
        out = around[first % 5 : first % 5 + x.size].reshape(shape)
        cs.scan(strided(x, order, 0, first), axis=axis, out=out, **ways)
        same(np.asarray(out), scanned(x, axis=axis, **ways), f"{name} {first} {ways}")
        assert (np.delete(np.asarray(around), slice(first % 5, first % 5 + x.size)) == 7).all()
    assert set(map(type, policies)) == {ShortTurnPolicy}
    assert dtype != "uint8" or {policy.unit for policy in policies} == {4 if name in UNITS else 1}


@pytest.mark.parametrize("second", [70, 150])
def test_tiles_that_store_lines(second, on_emulator, policies, monkeypatch):
    """As tiles are of a few results, those of lines are larger."""
    monkeypatch.setattr(short_turn_policy, "MIN_RUN_BYTES", 128)
    monkeypatch.setattr(short_turn_policy, "TILE_BYTES", 1 << 9)
    x = data((3, 34, second), "int16")
    same(np.asarray(cs.scan(strided(x, (0, 2, 1), 0, 0), axis=0, reverse=True)), scanned(x, axis=0, reverse=True))
    assert [policy.inner for policy in policies] == [second if second < 128 else 64]


def test_taller_columns_of_two_bytes(on_emulator, policies):
    """Only if words hold their results whole."""
    for second in (20, 21):
        x = data((33, 64, second), "float16")
        found = cs.scan(strided(x, (2, 0, 1), 0, 0), "max", axis=0, reverse=True)
        same(np.asarray(found), scanned(x, "max", axis=0, reverse=True))
    assert [getattr(policy, "store", 0) for policy in policies] == [2, 0]


def test_batches_of_bytes(on_emulator, policies, monkeypatch):
    """A loop, with a part of a tile at the end of each axis; fewer tiles lie along the axis of results."""
    for limit, number in {"MIN_RUN_BYTES": 64, "TILE_BYTES": 1 << 9, "LINE_BYTES": 32, "SMS": 1}.items():
        monkeypatch.setattr(short_turn_policy, limit, number)
    x = data((5, 101, 136), "uint8")
    same(np.asarray(cs.scan(strided(x, (0, 2, 1), 0, 0), axis=0, reverse=True)), scanned(x, axis=0, reverse=True))
    assert [(policy.inner, policy.across, policy.blocks_per_sm) for policy in policies] == [(64, 32, 4)]


@pytest.mark.parametrize(
    ("count", "first", "second", "length", "tile"),
    [
        (1, 6366, 159, 13, (32, 32)),
        (3, 752, 185, 21, (64, 27)),
        (1, 3247, 155, 29, (32, 31)),
        (1, 17, 9, 10, (32, 9)),
        (1, 9, 600, 32, (16, 60)),
    ],
)
def test_tiles_of_odd_bytes_fill_all_multiprocessors(count, first, second, length, tile):
    assert _tall_tile(1, count * first * second, first, second, length) == tile


ALL, UP, PART = slice(None), slice(None, None, -1), slice(1, 10)
# Shape, axis, and the slices of an array that give its elements; whether neighbours are loaded along the axis, how many
# at once of two bytes, how far apart they are, and which axes run backwards
APART = {
    "second columns": ((30, 2, 16), 1, (..., slice(0, 32, 2)), (False, 4, 2, (False, False))),
    "odd columns": ((30, 3, 16), 1, (..., slice(1, 32, 2)), (False, 2, 2, (False, False))),
    "fourth columns": ((30, 2, 16), 1, (..., slice(0, 64, 4)), (False, 2, 4, (False, False))),
    "second columns backwards": ((30, 2, 16), 1, (UP, ..., slice(31, None, -2)), (False, 4, 2, (False, True))),
    "columns backwards": ((30, 3, 16), 1, (..., UP), (False, 2, 1, (False, True))),
    "runs of rows apart": ((5, 9, 16, 3), 3, (ALL, UP), (True, 2, 1, (False, False))),
    "rows backwards": ((5, 9, 16, 3), 3, (ALL, UP, ALL, UP), (True, 2, 1, (True, False))),
    "rows from the last": ((5, 9, 16, 4), 3, (ALL, PART, UP), (True, 8, 1, (False, True))),
    "all backwards": ((5, 9, 16, 2), 3, (ALL, PART, UP, UP), (True, 8, 1, (True, True))),
}


def steps_of(view: np.ndarray) -> tuple[tuple[int, ...], int]:
    """The strides of a view, and where it begins in its base, in elements."""
    first = view.__array_interface__["data"][0] - view.base.__array_interface__["data"][0]
    return tuple(step // view.itemsize for step in view.strides), first // view.itemsize


def taken(name: str, dtype: str):
    """An array of device memory that ends with the last element of a view of it, and the view's values."""
    shape, _, of, _ = APART[name]
    step = max((abs(part.step or 1) for part in of if isinstance(part, slice)), default=1)
    whole = (*shape[:-1], shape[-1] * step) if step > 1 else shape
    whole = tuple(n + (isinstance(part, slice) and part.stop == 10) for n, part in zip(whole, (*of, None, None)))
    memory = np.arange(np.prod(whole)).astype(dtype) % 7
    view = memory.reshape(whole)[of]
    ends = [max(0, (n - 1) * pace) for n, pace in zip(view.shape, view.strides)]
    lowest = view.ctypes.data - memory.ctypes.data
    end = (lowest + sum(ends)) // memory.itemsize + 1
    steps = tuple(pace // memory.itemsize for pace in view.strides)
    return cs.asarray(memory[:end].copy()).as_strided(view.shape, steps, lowest // memory.itemsize), view


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", APART)
def test_elements_apart_and_backwards(name, on_emulator, policies):
    _, axis, _, wanted = APART[name]
    for dtype in ("int16", "uint8", "float64"):
        x, values = taken(name, dtype)
        for ways in ({}, {"reverse": True, "init": 3}) if dtype == "int16" else ({"exclusive": True},):
            around = cs.asarray(np.full(values.size + 16, 7, dtype))
            cs.scan(x, axis=axis, out=around[8 : 8 + values.size].reshape(values.shape), **ways)
            found = np.asarray(around)
            same(found[8:-8].reshape(values.shape), scanned(values, axis=axis, **ways), f"{name} {dtype} {ways}")
            assert (found[:8] == 7).all() and (found[-8:] == 7).all()
    first = policies[0]
    assert (first.along, first.load, first.gap, first.backward) == wanted


def test_what_is_left_to_tiles(on_emulator, policies, monkeypatch):
    """Results that are not beside enough others, and short runs that are no words, in large arrays."""
    monkeypatch.setattr(short_policy, "ODD_BYTES", 0)
    wide, runs = np.zeros((5, 4, 8, 64), "int16"), np.zeros((5, 9, 64, 3), "uint8")
    for view, axis in ((wide[..., :32:2], 2), (wide[..., :4:2], 2), (runs[:, ::-1], 3), (runs[:, ::-1, :40], 3)):
        cs.scan(cs.asarray(view.base).as_strided(view.shape, *steps_of(view)), axis=axis)
    assert [isinstance(policy, ShortPolicy) for policy in policies] == [True, False, True, False]


@functools.cache
def bench_apart() -> faults.Bench:
    """A scan of elements that lie two apart."""

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=1):
            patch.setattr(short_policy, "SMS", 0)
            patch.setattr(call, "_plans", {})
            x, values = taken("second columns", "int16")
            return np.array_equal(np.asarray(cs.scan(x, axis=1)), scanned(values, axis=1))

    return faults.Bench(right)


OF_ELEMENTS_APART = {
    "what lies between": (faults.every(r"mov\.b32( \t)\{(%rs\d+), _\}", r"mov.b32\1{_, \2}"), {faults.RESULT}),
    "the last vector is loaded whole": (
        faults.every(r"setp\.ne\.b64( \t%p\d+), (%rd\d+), %rd\d+;", r"setp.ne.b64\1, \2, -1;"),
        {"out-of-bounds"},
    ),
}


@pytest.mark.parametrize("fault", OF_ELEMENTS_APART)
def test_faults_of_elements_apart_are_found(fault):
    bench_apart().check(*OF_ELEMENTS_APART[fault])
