"""Scans of strided arrays: every layout agrees with the reference, and nothing beside a result is written."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype
from cutesync.kernels.scan import plan, strided_policy
from cutesync.kernels.scan.layout import layout_of
from cutesync.kernels.scan.strided_policy import FEW_TILES, orders, strides_of_slots
from cutesync.runtime import call
from cutesync.runtime.device import DRY
from cutesync.runtime.device_array import DeviceArray

from ..cases import adjacent, data, same, scanned, segments
from ..compiled import needed
from .kernels import StridedTiles, force

BAND = 64  # elements before and behind an array's memory


@pytest.fixture
def chosen(monkeypatch):
    """The choices of a test."""
    found, strided = [], strided_policy.strided
    monkeypatch.setattr(strided_policy, "strided", lambda *given: found.append(strided(*given)) or found[-1])
    monkeypatch.setattr(call, "_plans", {})
    return found


def memory_of(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Random strides of an array of a shape, whose elements have memory of their own: ``(steps, first, size)``, the
    place of its first element in a buffer of ``size`` elements."""
    steps, step = [0] * len(shape), 1
    for axis in rng.permutation(len(shape)):
        gap = int(rng.choice([1, 1, 1, 2, 3]))
        steps[axis] = step * gap * int(rng.choice([1, 1, 1, -1]))
        step *= shape[axis] * gap + int(rng.integers(0, 3))
    first = BAND + sum(-s * (n - 1) for s, n in zip(steps, shape) if s < 0)
    return tuple(steps), first, step + 2 * BAND


def strided(rng: np.random.Generator, x: np.ndarray) -> tuple[DeviceArray, DeviceArray, np.ndarray]:
    """An array of the values of ``x`` with random strides: ``(view, buffer, inside)``; ``inside`` says which elements
    of the buffer are the view's."""
    steps, first, size = memory_of(rng, x.shape)
    buffer, inside = rng.integers(1, 99, size).astype(x.dtype), np.zeros(size, bool)
    for base, values in ((buffer, x), (inside, True)):
        np.lib.stride_tricks.as_strided(base[first:], x.shape, [s * base.itemsize for s in steps])[...] = values
    whole = cs.asarray(buffer)
    return whole.as_strided(x.shape, steps, first), whole, inside


def random_shape(rng: np.random.Generator, most: int = 900) -> tuple[int, ...]:
    while True:
        shape = tuple(int(n) for n in np.exp(rng.uniform(0, 5, rng.integers(1, 5))).astype(int))
        if math.prod(shape) <= most:
            return shape


def check_strided(rng: np.random.Generator, x: np.ndarray, op="add", *, axis, **options) -> None:
    """The scan of a strided array into a new one, into a strided one, and in place."""
    view, whole, _ = strided(rng, x)
    before = np.asarray(whole)
    wanted = scanned(x, op, axis=axis, **options)
    what = f"{op} of {x.shape} along {axis}, {view.steps} {options}"
    same(np.asarray(cs.scan(view, op, axis=axis, **options)), wanted, what)
    same(np.asarray(whole), before, "the input stays")
    out, around, inside = strided(rng, np.zeros_like(wanted))
    untouched = np.asarray(around)[~inside]
    assert cs.scan(view, op, axis=axis, out=out, **options) is out
    same(np.asarray(out), wanted, f"{what} into {out.steps}")
    same(np.asarray(around)[~inside], untouched, "around the result")
    if axis is not None:
        assert cs.scan(view, op, axis=axis, out=view, **options) is view
        same(np.asarray(view), wanted, f"{what} in place")


WAYS = [{}, {"reverse": True}, {"exclusive": True, "reverse": True}, {"init": 3}]
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10)]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("seed", [1, *SLOW])
def test_random_strides(seed, on_emulator):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    dtype = rng.choice(["int8", "int32", "float64"])
    axis = None if rng.random() < 0.2 else int(rng.integers(len(shape)))
    check_strided(rng, data(shape, dtype), axis=axis, **WAYS[rng.integers(len(WAYS))])


@pytest.mark.drawn(2)
@pytest.mark.parametrize("lanes", [pytest.param(n, marks=pytest.mark.slow) for n in (1, 8, 256)])
def test_tiles_of_every_width(lanes, on_emulator, monkeypatch):
    """Several groups of tiles, the last one not whole, whose operands must stay in order. Input and output have their
    neighbours along the scanned axis or across it."""
    force(monkeypatch, StridedTiles(lanes, 2, 3, 5))
    rng = np.random.default_rng(lanes)
    length = min(5 * 512 // lanes + 3, 700)
    x = segments((length, 2 + lanes % 5), 0)
    wanted = {reverse: scanned(x, adjacent, axis=0, reverse=reverse) for reverse in (False, True)}
    for reverse in (False, True):
        for view in (cs.asarray(np.asfortranarray(x).T.copy()).T, cs.asarray(np.repeat(x, 2, 1))[:, ::2]):
            same(np.asarray(cs.scan(view, adjacent, axis=0, reverse=reverse)), wanted[reverse], f"{view.steps}")
    out, around, inside = strided(rng, np.zeros_like(x))
    untouched = np.asarray(around)[~inside]
    cs.scan(view, adjacent, axis=0, reverse=True, out=out)
    same(np.asarray(out), wanted[True], f"into {out.steps}")
    same(np.asarray(around)[~inside], untouched, "around the result")


@pytest.mark.parametrize("schedules", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_agrees_under_hostile_schedules(schedules, monkeypatch):
    """Two blocks take tiles in turn; a thread scans what others copied, and stores what others scanned."""
    x = segments((200, 3), 0)
    force(monkeypatch, StridedTiles(4, 1, 2, 2))
    with cs.emulate(schedules=schedules, seed=3):
        found = cs.scan(cs.asarray(x.T.copy()).T, adjacent, axis=0, reverse=True)
    same(np.asarray(found), scanned(x, adjacent, axis=0, reverse=True))


def test_columns_in_blocks(on_emulator):
    """The input is contiguous along an axis of columns that is not the last of the output."""
    x = data((12, 5, 16), "int32")
    view = cs.asarray(x).as_strided((16, 5, 12), (1, 16, 80))
    layout = layout_of((16, 5, 12), 1, [view.view.steps, (60, 12, 1)])
    blocks = orders(layout)[-1]
    assert [axis.extent for axis in blocks.columns] == [3, 16, 4]
    assert [axis.steps for axis in blocks.columns] == [(320, 4), (1, 60), (80, 1)]
    same(np.asarray(cs.scan(view, axis=1)), np.cumsum(x.T, 1, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["float64", pytest.param("int8", marks=pytest.mark.slow)])
def test_neighbours_along_another_axis_than_the_last(dtype, on_emulator):
    """Threads that load neighbours scan columns that lie apart."""
    x = data((3, 32, 16), dtype)
    view = cs.asarray(x).as_strided((16, 3, 32), (1, 512, 16))
    wanted = np.ascontiguousarray(np.moveaxis(x, 2, 0))
    for reverse in (False, True):
        same(np.asarray(cs.scan(view, axis=1, reverse=reverse)), scanned(wanted, axis=1, reverse=reverse))


@pytest.mark.parametrize("dtype", ["int8", pytest.param("float16", marks=pytest.mark.slow)])
def test_words_of_small_elements(dtype, on_emulator, monkeypatch):
    """Neighbours along the scanned axis and across it, of the input and of the output, move in words."""
    launched = []
    launch = plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: launched.append(choice.policy) or launch(choice, *more))
    x = data((64, 100), dtype)
    rng = np.random.default_rng(2)
    for axis, reverse in ((0, True), (1, False)):
        around = rng.integers(1, 9, 6800).astype(dtype)
        whole = cs.asarray(around)
        out = whole.as_strided((100, 64), (68, 1), 0)
        cs.scan(cs.asarray(x).as_strided((100, 64), (1, 100)), axis=axis, reverse=reverse, out=out)
        same(np.asarray(out), scanned(np.ascontiguousarray(x.T), axis=axis, reverse=reverse), f"along {axis}")
        same(np.asarray(whole).reshape(100, 68)[:, 64:], around.reshape(100, 68)[:, 64:], "around the result")
    assert all(min(policy.units) > 1 and set(policy.along) == {True, False} for policy in launched)


def test_words_where_an_axis_is_short(on_emulator):
    """The axis is shorter than a word has elements."""
    for length in (1, 2, 3):
        x = np.random.default_rng(length).integers(-9, 9, (length, 24, 512)).astype(np.int8)
        for view in (cs.asarray(x)[:, :, ::4], cs.asarray(x)[:, ::-3, 1::4]):
            wanted = scanned(np.asarray(view), axis=0, exclusive=True)
            same(np.asarray(cs.scan(view, axis=0, exclusive=True)), wanted)


def test_permuted_axes_and_the_flattened_array(on_emulator, monkeypatch):
    force(monkeypatch, StridedTiles(8, 2, 2, 3))
    x = data((5, 6, 29), "int32") % 50
    view = cs.asarray(x).as_strided((29, 5, 6), (1, 174, 29))
    moved = np.moveaxis(x, 2, 0)
    for axis in (1, None):
        same(np.asarray(cs.scan(view, axis=axis)), scanned(moved.copy(), axis=axis), f"along {axis}")
    force(monkeypatch, StridedTiles(8, 2, 2, 3, wide=True))
    same(np.asarray(cs.scan(view, axis=None)), scanned(moved.copy(), axis=None), "64-bit numbers")
    same(np.asarray(cs.cumsum(view, dtype="float32")), np.cumsum(moved, dtype=np.int32).astype(np.float32))


def test_elements_that_repeat(on_emulator):
    row = cs.asarray(np.arange(7, dtype=np.int32))
    spread = row.as_strided((5, 7), (0, 1))
    for axis in (0, 1):
        same(np.asarray(cs.scan(spread, axis=axis)), np.cumsum(np.asarray(spread), axis, dtype=np.int32))
    with pytest.raises(ValueError, match="overlaps x"):
        cs.scan(spread, out=row.as_strided((5, 7), (7, 1)))


def test_states_and_named_scans(on_emulator, monkeypatch):
    """Inputs of different strides and types, two outputs, an index, and a recurrence in place."""
    force(monkeypatch, StridedTiles(4, 2, 2, 2))
    rng = np.random.default_rng(3)
    x = data((3, 200), "float32")
    x[x == 0] = np.nan
    view = strided(rng, x)[0]
    values, places = cs.cummax(view, axis=1)
    plain = cs.cummax(cs.asarray(x), axis=1)
    same(np.asarray(values), np.asarray(plain[0]))
    same(np.asarray(places), np.asarray(plain[1]))
    same(np.asarray(cs.ffill(view, reverse=True)), np.asarray(cs.ffill(cs.asarray(x), reverse=True)))
    a, b = rng.integers(-1, 2, (200, 3)).astype(np.int16), rng.integers(-3, 4, (200, 3)).astype(np.int16)
    factors, terms = strided(rng, a)[0], strided(rng, b)[0]
    wanted = np.asarray(cs.linear_recurrence(cs.asarray(a), cs.asarray(b), axis=0, init=2))
    assert cs.linear_recurrence(factors, terms, axis=0, init=2, out=factors) is factors
    same(np.asarray(factors), wanted)


def test_overlap_is_refused(on_emulator):
    memory = cs.asarray(data((60,), "int32"))
    x = memory.as_strided((5, 6), (6, 1))
    for out in (memory.as_strided((5, 6), (1, 5)), memory.as_strided((5, 6), (6, 1), 1)):
        with pytest.raises(ValueError, match="overlaps x"):
            cs.scan(x, out=out)
    for bad, words in (((5, 6), "share memory"), ((6, 5), "shape")):
        with pytest.raises(ValueError, match=words):
            cs.scan(x, out=memory.as_strided(bad, (0, 1), 30))
    with pytest.raises(ValueError, match="tiered"):
        cs.scan(x[:, ::2], algorithm="tiered")


# Strides of an input and an output of shape (4, 5, 6), the axis, and the (rows, length, inner) that they are or None
CONTIGUOUS = [
    ((30, 6, 1), (30, 6, 1), 2, (20, 6, 1)),
    ((30, 6, 1), (30, 6, 1), 1, (4, 5, 6)),
    ((30, 6, 1), (30, 6, 1), 0, (1, 4, 30)),
    ((1, 4, 20), (1, 4, 20), 0, (30, 4, 1)),
    ((6, 24, 1), (6, 24, 1), 0, (5, 4, 6)),
    ((30, -6, 1), (30, -6, 1), 0, (1, 4, 30)),
    ((30, 6, 1), (30, 6, 1), None, (1, 120, 1)),
    ((30, 6, 2), (30, 6, 1), 2, None),
    ((30, -6, 1), (30, 6, 1), 0, None),
    ((1, 4, 20), (30, 6, 1), 0, None),
    ((1, 4, 20), (1, 4, 20), None, None),
]


@pytest.mark.parametrize(("x", "out", "axis", "wanted"), CONTIGUOUS)
def test_what_is_contiguous_takes_the_kernels_of_contiguous_arrays(x, out, axis, wanted):
    assert layout_of((4, 5, 6), axis, [x, out]).extents() == wanted


def test_an_axis_that_runs_backwards_is_scanned_from_its_other_end(on_emulator):
    x = data((4, 50), "int32")
    view, out = cs.asarray(x)[:, ::-1], cs.asarray(np.zeros_like(x))[:, ::-1]
    layout = layout_of((4, 50), 1, [view.view.steps, out.view.steps])
    back = layout.backward()
    assert layout.extents() is None and back is not None and back.extents() == (4, 50, 1)
    assert back.offsets == (-49, -49)
    for options in WAYS:
        same(np.asarray(cs.scan(view, out=out, **options)), scanned(x[:, ::-1].copy(), **options), str(options))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_neighbours_lie_in_different_banks(size):
    """Of 32 threads that scan, at most two meet in a bank; of those that copy neighbouring positions, at most four.
    Elements of 8 bytes are accessed by half as many threads at once."""
    for log in range(9):
        for height in (4, 8, 16):
            lanes, threads = 1 << log, 32 if size < 8 else 16
            row, run = strides_of_slots(lanes, height, size)
            scan = [(t // lanes) * run + t % lanes * size for t in range(threads)]
            along = [p // height * run + p % height * row for p in range(threads)]
            for places, most in ((scan, 2), (along, 4)):
                words = {place // max(size, 4) for place in places}
                banks = [word % threads for word in words]
                assert max(map(banks.count, banks)) <= most, (size, lanes, height)


@pytest.mark.parametrize("dtype", ["int8", pytest.param("uint16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_columns_that_run_backwards(dtype, reverse, on_emulator, chosen):
    """A thread reads several of them as a word."""
    x = data((3, 70, 5, 16), dtype)
    for memory, index in ((x, np.s_[..., ::-1]), (np.pad(x, [(0, 0)] * 3 + [(0, 4)]), np.s_[..., 15::-1])):
        view = memory[index][..., :16]
        found = cs.scan(cs.asarray(memory)[index][..., :16], axis=1, reverse=reverse)
        same(np.asarray(found), scanned(view, axis=1, reverse=reverse), f"{view.strides}")
        assert chosen.pop().policy.backward == (True, False)


def test_short_runs_of_columns_before_the_next_position(on_emulator, chosen):
    """Neighbours of no other array; several tiles, the last one not whole."""
    memory = data((20, 150, 4), "int64")
    found = cs.scan(cs.asarray(memory).transpose((1, 2, 0)), axis=0, reverse=True)
    same(np.asarray(found), scanned(memory.transpose(1, 2, 0), axis=0, reverse=True))
    assert chosen.pop().policy.beside == (4, 1)


def test_results_that_are_neighbours_along_the_axis(on_emulator, chosen):
    """A thread stores several positions as a word, although neighbouring columns lie in as few lines."""
    x = data((36, 1001), "int8")
    same(np.asarray(cs.scan(cs.asarray(x).T, axis=1, reverse=True)), scanned(x.T, axis=1, reverse=True))
    assert chosen.pop().policy.along == (False, True)


def test_few_long_columns():
    """A tile has whole columns of an array that has too few of them for a tile an SM."""
    x = DeviceArray(1 << 40, (466, 74, 3), dtype("uint16"), DRY, None, (74, 1, 0))
    (spec,) = needed(cs.scan, x, axis=0)
    assert spec.key[1].alone and spec.key[1].tile == 512


@pytest.mark.parametrize(("shape", "lanes"), [((2065, 84), 8), ((5669, 40), 8), ((10_000, 32), 32), ((1065, 84), 32)])
def test_small_arrays_have_short_chains(shape, lanes):
    """Many columns in narrow tiles; few in high ones."""
    x = DeviceArray(1 << 40, shape, dtype("int16"), DRY, None, (1, shape[0]))
    (spec,) = needed(cs.scan, x, axis=0)
    assert spec.key[1].lanes == lanes and -(-shape[0] // spec.key[1].tile) * -(-shape[1] // lanes) >= FEW_TILES


def of_other_order(x: np.ndarray) -> DeviceArray:
    """The array, whose neighbours along the axis before the last lie side by side."""
    return cs.asarray(np.swapaxes(x, -1, -2).copy()).transpose((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


PADDED = [
    ("int16", (9, 17, 45)),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            ("float64", (2, 4, 21, 18)),
            ("float16", (3, 20, 35, 5)),
        )
    ),
]


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("dtype", "shape"), PADDED)
def test_columns_in_blocks_that_do_not_divide_their_axes(dtype, shape, on_emulator, chosen, monkeypatch):
    monkeypatch.setattr(strided_policy, "orders", lambda layout: orders(layout)[-1:] * 2)
    x, rng = data(shape, dtype), np.random.default_rng(len(shape))
    for how in ({}, {"reverse": True, "exclusive": True}):
        wanted = scanned(x, axis=-3, **how)
        same(np.asarray(cs.scan(of_other_order(x), axis=-3, **how)), wanted, f"{shape} {how}")
        out, around, inside = strided(rng, np.zeros_like(wanted))
        untouched = np.asarray(around)[~inside]
        cs.scan(of_other_order(x), axis=-3, out=out, **how)
        same(np.asarray(out), wanted, f"{shape} {how} into {out.steps}")
        same(np.asarray(around)[~inside], untouched, "around the result")
    assert isinstance(chosen[0].policy, strided_policy.PaddedPolicy)


@pytest.mark.slow
def test_padded_blocks_in_several_tiles(monkeypatch):
    """Operands in order, under hostile schedules: tiles look back."""
    monkeypatch.setattr(strided_policy, "orders", lambda layout: orders(layout)[-1:] * 2)
    force(monkeypatch, StridedTiles(64, 2, 2, 3))
    x = segments((30, 17, 5), 0)
    with cs.emulate(schedules=9, seed=3):
        found = cs.scan(of_other_order(x), adjacent, axis=0, reverse=True)
    same(np.asarray(found), scanned(x, adjacent, axis=0, reverse=True))


@pytest.mark.parametrize(("dtype", "shape"), [("int32", (9, 150, 4)), ("int16", (17, 90, 7))])
def test_columns_beside_each_other_before_the_next_position(dtype, shape, on_emulator, monkeypatch):
    """Runs of results, or of elements, have columns and positions, in several tiles."""
    monkeypatch.setattr(call, "_plans", {})
    found, beside = [], strided_policy.beside_of
    monkeypatch.setattr(strided_policy, "beside_of", lambda *given: found.append(beside(*given)) or found[-1])
    force(monkeypatch, StridedTiles(16, 2, 2, 3))
    x = data(shape, dtype)
    wanted = scanned(x, axis=1, exclusive=True)
    apart = cs.asarray(np.ascontiguousarray(x.transpose(1, 0, 2))).transpose(1, 0, 2)
    same(np.asarray(cs.scan(apart, axis=1, exclusive=True)), wanted)
    out = cs.asarray(np.zeros(wanted.transpose(1, 0, 2).shape, wanted.dtype)).transpose(1, 0, 2)
    cs.scan(cs.asarray(x), axis=1, exclusive=True, out=out)
    same(np.asarray(out), wanted)
    assert sorted(found) == [1, 1, *[8 if shape[2] == 7 else 4] * 2]
