"""Flags and differences of strided arrays, along any axis and of the first ``n`` items, agree with the reference.

Nothing beside the elements of ``out`` is written; and nothing is read outside of the array that the view is of, as no
memory is there."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import (
    ballots_policy,
    boxes_policy,
    gathered_policy,
    periods,
    plan,
    split_policy,
    strided_policy,
    tile_policy,
)
from cutesync.runtime import call, compiler

from ..cases import numpy_dtype, same
from ..memory import forget_behind
from ..views import random_view
from .cases import keys

SENTINEL = 77
LIMITS = "MIN_TRANSPOSED", "MIN_TRANSPOSED_ROWS", "MIN_TRANSPOSED_THIN"  # of arrays that blocks transpose
SLOW = pytest.mark.slow


def forms(rng: np.random.Generator, differences: bool, bits: bool) -> tuple[str, dict]:
    """A call and its options."""
    names = ["flag_heads", "flag_tails", "flag_heads_and_tails", *(["adjacent_difference"] if differences else [])]
    call, options = str(rng.choice(names)), {}
    if call == "adjacent_difference":
        return call, {"reverse": bool(rng.integers(2))}
    if rng.random() < 0.25:
        options["tile"] = int(rng.choice([1, 2, 3, 7, 40]))
    if rng.random() < 0.25:
        options["op"] = indexed
    if rng.random() < 0.3:
        ends = {"predecessor": "flag_tails", "successor": "flag_heads"}  # and the call that does not take it
        options |= {name: int(rng.integers(0, 3)) for name, without in ends.items() if call != without}
    return call, options | {"dtype": "bits" if bits else "uint8"}


def indexed(a, b, index):
    return (a != b) & (index % 5 != 2)


def strided_out(rng: np.random.Generator, shape, dtype: str):
    """An array of the shape inside of a larger one, which is returned, too; both as DeviceArray, and the same view of a
    NumPy array of marks."""
    order = rng.permutation(len(shape))
    if rng.random() < 0.5:  # C-contiguous, anywhere
        first, size = int(rng.integers(0, 20)), int(np.prod(shape))
        device, marks = cs.asarray(np.full(size + 40, SENTINEL, numpy_dtype(dtype))), np.zeros(size + 40, bool)
        part = slice(first, first + size)
        return device[part].reshape(shape), device, marks[part].reshape(shape), marks
    steps = [int(rng.choice([1, 1, 2, -1])) for _ in shape]
    wide = [extent * abs(step) + int(rng.integers(0, 3)) for extent, step in zip(shape, steps)]
    memory = np.full([wide[i] for i in order], SENTINEL, numpy_dtype(dtype))
    device, marks = cs.asarray(memory), np.zeros(memory.shape, bool)
    back = tuple(int(i) for i in np.argsort(order))
    index = tuple(
        slice(0, extent * step, step) if step > 0 or not extent else slice(extent - 1, None, -1)
        for extent, step in zip(shape, np.where(np.array(shape) == 0, 1, steps).tolist())
    )
    return device.transpose(back)[index], device, marks.transpose(back)[index], marks


def check_written(out, whole, marks, all_marks, wanted) -> None:
    """``out`` has what is wanted, and nothing else of the array around it is written."""
    marks[...] = True
    assert (np.asarray(whole)[~all_marks] == SENTINEL).all()
    same(np.asarray(out), wanted)


def draw_n(rng: np.random.Generator, length: int):
    return int(rng.choice([-3, 0, 1, length // 2, max(length - 1, 0), length, length + 5]))


def unwritten(wanted: np.ndarray, axis: int, n: int, bits: bool) -> np.ndarray:
    """What ``out`` has where ``n`` items count: the sentinel behind them."""
    count = min(max(n, 0), 1 << 60)
    rows = np.moveaxis(wanted.copy(), axis, -1)
    rows[..., -(-count // 32) if bits else count :] = SENTINEL
    return np.moveaxis(rows, -1, axis)


KINDS = [
    ("int32", False),
    ("bool", False),
    ("uint8", False),
    ("bool", True),
    ("float64", False),
    ("float16", False),
    ("int8", True),
    ("int64", True),
]
MOST = {"gpu": 1 << 20, "emulator": 6000}  # elements


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("dtype", "bits", "cases"),
    [("int32", False, 6), *(pytest.param(*kind, 8, marks=pytest.mark.slow) for kind in KINDS[1:])],
)
def test_random_views(place, monkeypatch, dtype, bits, cases):
    """Each array with the tiles of large arrays, or those of small ones."""
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(gathered_policy, "FEWEST_THREADS", 0)
    rng, done = np.random.default_rng([5, bits, len(dtype)]), 0
    while done < cases:
        extents = rng.integers(1, int(rng.choice([8, 40, 300, 2500])), rng.integers(1, 5))
        if np.prod(extents) > MOST[place.name]:
            continue
        host = keys(tuple(int(n) for n in extents), dtype)
        ours, theirs = random_view(rng, cs.asarray(host), host) if rng.random() < 0.7 else (cs.asarray(host), host)
        if theirs.ndim:
            done += 1
            monkeypatch.setattr(tile_policy, "FEWEST_THREADS", done % 2 << 15)
            monkeypatch.setattr(tile_policy, "is_gathered", lambda *_, small=done % 2: small)
            check_call(rng, ours, theirs, bits)


def check_call(rng: np.random.Generator, ours, theirs: np.ndarray, bits: bool) -> None:
    axis = int(rng.integers(-theirs.ndim, theirs.ndim))
    call, options = forms(rng, not bits and theirs.dtype != bool, bits)
    options |= {"axis": axis}
    n = draw_n(rng, theirs.shape[axis]) if rng.random() < 0.5 else None
    given = {} if n is None else {"n": n if rng.random() < 0.5 else cs.asarray(np.array(n, np.int64))}
    if n is not None:
        forget_behind(ours, n, axis)
    wanted = getattr(reference, call)(theirs, **options, n=n)
    several = isinstance(wanted, tuple)
    wanted = wanted if several else (wanted,)
    outs = [strided_out(rng, each.shape, each.dtype.name) for each in wanted]
    targets = tuple(out for out, *_ in outs)
    getattr(cs, call)(ours, **options, **given, out=targets if several else targets[0])
    for (out, whole, marks, all_marks), each in zip(outs, wanted):
        expected = each if n is None else unwritten(each, axis, n, bits)
        check_written(out, whole, marks, all_marks, expected)
    if n is None:
        found = getattr(cs, call)(ours, **options)
        for one, each in zip(found if several else (found,), wanted):
            same(np.asarray(one), each)


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_results_in_another_order_than_elements(on_emulator, monkeypatch, rounds):
    """Large arrays are transposed in shared memory, whatever the strides of ``out`` and the flagged axis."""
    for limit in LIMITS:
        monkeypatch.setattr(tile_policy, limit, 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(call, "_plans", {})
    chosen, choose = [], strided_policy.fit_tiles
    monkeypatch.setattr(strided_policy, "fit_tiles", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    rng = np.random.default_rng(8)
    for shape, axes in (((70, 39), (1, 0)), ((3, 40, 66), (2, 0, 1)), ((40, 5, 36), (2, 1, 0))):
        host = keys(shape, "int8")
        for _ in range(rounds):
            check_call(rng, cs.asarray(host).transpose(axes), host.transpose(axes), False)
    assert sum(isinstance(choice.policy, tile_policy.TransposedPolicy) for choice in chosen) >= 2 * rounds
    for shape in ((600, 4), (72, 4)):  # a thread has less than a word of the results
        host = keys(shape, "uint64")
        same(np.asarray(cs.flag_heads(cs.asarray(host).T, axis=1)), reference.flag_heads(host.T, axis=1))
        assert isinstance(chosen[-1].policy, tile_policy.TransposedPolicy) and chosen[-1].policy.stores != "words"


def test_results_down_the_rows_are_aligned_vectors(monkeypatch):
    """As many as fit the distance of columns in the results."""
    for limit in LIMITS:
        monkeypatch.setattr(tile_policy, limit, 1 << 40)
    for name in ("FEW_THREADS", "FEWEST_THREADS"):
        monkeypatch.setattr(tile_policy, name, 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(call, "_plans", {})
    chosen, choose = [], strided_policy.fit_tiles
    monkeypatch.setattr(strided_policy, "fit_tiles", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    for rows, wanted, down in ((44, 4, True), (48, 16, True), (45, 4, False)):
        host = keys((rows, 9), "int8")
        same(np.asarray(cs.flag_tails(cs.asarray(host).T, axis=0)), reference.flag_tails(host.T, axis=0))
        assert (chosen[-1].policy.rows, chosen[-1].policy.down) == (wanted, down)


def test_columns_of_two_axes(monkeypatch):
    """They are one axis of the input and two of the results; not where the inner ones of these are neighbours."""
    for limit in LIMITS:
        monkeypatch.setattr(tile_policy, limit, 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(call, "_plans", {})
    chosen = []
    monkeypatch.setattr(
        strided_policy, "choose_split", lambda *given: chosen.append(split_policy.choose_split(*given)) or chosen[-1]
    )
    for shape, axes, axis, dtype in (
        ((45, 70, 7), (1, 0, 2), 1, "int16"),
        ((2, 37, 5, 6), (0, 3, 2, 1), 3, "float32"),
    ):
        host = keys(shape, dtype).transpose(axes)
        x = cs.asarray(np.ascontiguousarray(host.transpose(np.argsort(axes)))).transpose(axes)
        for found, wanted in zip(
            cs.flag_heads_and_tails(x, axis=axis), reference.flag_heads_and_tails(host, axis=axis)
        ):
            same(np.asarray(found), wanted)
    assert [choice.policy.split for choice in chosen if choice] == [True]


@pytest.mark.parametrize(("dtype", "cases"), [("int16", 2), pytest.param("int8", 3, marks=SLOW)])
def test_runs_along_several_axes(dtype, cases, on_emulator, monkeypatch):
    """Boxes in shared memory, whatever the order of the axes, and short rows as periods."""
    monkeypatch.setattr(boxes_policy, "MIN_ELEMENTS", 0)
    monkeypatch.setattr(boxes_policy, "FAR_BYTES", 8)
    monkeypatch.setattr(boxes_policy, "MIN_FILLED", 0)
    monkeypatch.setattr(periods, "MIN_TRANSPOSED", 0)
    monkeypatch.setattr(call, "_plans", {})
    chosen, choose = [], strided_policy.choose_boxes
    monkeypatch.setattr(strided_policy, "choose_boxes", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    rng = np.random.default_rng([9, len(dtype)])
    for shape, axes in (((23, 40, 3), (1, 0, 2)), ((7, 5, 20, 4), (2, 0, 1, 3)), ((5, 6, 50), (2, 0, 1))) * cases:
        host = keys(shape, dtype)
        check_call(rng, cs.asarray(host).transpose(axes), host.transpose(axes), False)
    assert sum(choice is not None for choice in chosen) >= cases
    assert np.asarray(cs.flag_heads(cs.asarray(host)[None].transpose(0, 2, 3, 1), axis=0)).all()  # of one position


def test_differences_of_few_columns_in_another_order(monkeypatch):
    """Threads have one row each: blocks have as many threads as their tiles."""
    for limit in LIMITS:
        monkeypatch.setattr(tile_policy, limit, 0)
    monkeypatch.setattr(call, "_plans", {})
    for shape, dtype in (((100, 8), "int32"), ((70, 8), "int64"), ((257, 16), "float32")):
        host = np.random.default_rng(4).integers(-99, 99, shape).astype(dtype)
        found = cs.adjacent_difference(cs.asarray(host).T, axis=1)
        same(np.asarray(found), reference.adjacent_difference(host.T, axis=1))


@pytest.mark.parametrize("op", ["sub", *(pytest.param(op, marks=pytest.mark.slow) for op in ("add", "xor"))])
def test_differences_of_bytes_in_words(op):
    """Four at a time, whatever the rows' alignment: no byte borrows from another, and the first item is copied."""
    rng = np.random.default_rng(3)
    for shape, axis in (((3, 1004), 0), ((5, 33, 64), 1), ((70, 1600), 0), ((3, 3, 401, 19), 0), ((2, 1500), 1)):
        for dtype in ("int8", "uint8"):
            host = rng.integers(0, 256, shape).astype(dtype)
            reverse = bool(rng.integers(2))
            found = cs.adjacent_difference(cs.asarray(host), op, axis=axis, reverse=reverse)
            same(np.asarray(found), reference.adjacent_difference(host, op, axis=axis, reverse=reverse))


@pytest.mark.parametrize("dtype", ["int8", pytest.param("float32", marks=pytest.mark.slow)])
def test_slices_apart_are_loaded_in_pieces(dtype, monkeypatch):
    """Vectors of slices between which others lie, also backwards; those of slices that are no whole vectors are not."""
    monkeypatch.setattr(call, "_plans", {})
    chosen = []
    monkeypatch.setattr(
        plan, "choose_strided", lambda *given: chosen.append(strided_policy.choose_strided(*given)) or chosen[-1]
    )
    rng = np.random.default_rng(7)
    host = keys((7, 40, 16), dtype)
    for index in (np.s_[::2], np.s_[::-1], np.s_[:, 4:37], np.s_[:, 1:, :]):
        for axis in (1, 2):
            for function in ("flag_heads_and_tails", "adjacent_difference"):
                n = draw_n(rng, host[index].shape[axis])
                found = getattr(cs, function)(cs.asarray(host)[index], axis=axis)
                wanted = getattr(reference, function)(host[index], axis=axis)
                for one, each in zip(*((x,) if not isinstance(x, tuple) else x for x in (found, wanted))):
                    same(np.asarray(one), each)
                out = cs.asarray(np.full(host[index].shape, SENTINEL, np.uint8))
                cs.flag_tails(cs.asarray(host)[index], axis=axis, n=n, out=out)
                same(np.asarray(out), unwritten(reference.flag_tails(host[index], axis=axis, n=n), axis, n, False))
    pieces = [getattr(choice.policy, "piece", 0) > 1 and not choice.policy.whole for choice in chosen]
    assert any(pieces) and not all(pieces)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("int8", marks=pytest.mark.slow)])
def test_slices_of_an_axis_of_one_element(dtype, monkeypatch):
    """Results are stored in vectors, whatever lies between the rows."""
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(strided_policy, "ONE_VECTOR_THREADS", 0)
    chosen = []
    monkeypatch.setattr(
        plan, "choose_strided", lambda *given: chosen.append(strided_policy.choose_strided(*given)) or chosen[-1]
    )
    host = keys((5, 3, 1, 701), dtype)
    for index in (np.s_[..., 1:98], np.s_[::-1, :2, :, 5:], np.s_[:, 1:, :, ::-1]):
        for function, options in (("flag_heads", {"predecessor": 1}), ("flag_heads_and_tails", {}), ("flag_tails", {})):
            found = getattr(cs, function)(cs.asarray(host)[index], axis=2, **options)
            wanted = getattr(reference, function)(host[index], axis=2, **options)
            for one, each in zip(*((x,) if not isinstance(x, tuple) else x for x in (found, wanted))):
                same(np.asarray(one), each)
        found = cs.adjacent_difference(cs.asarray(host)[index], axis=2)
        same(np.asarray(found), host[index])
    assert any(getattr(choice.policy, "vector", 1) > 1 for choice in chosen)


def test_blocks_take_far_rows_in_turn(monkeypatch):
    """Each result is stored by one block, whatever the number of rows, of blocks and of slices."""
    monkeypatch.setattr(strided_policy, "MIN_FAR_BYTES", 1000)
    monkeypatch.setattr(call, "_plans", {})
    for shape, axis, dtype in (((3, 7001), 0, "int8"), ((2, 5, 1203), 1, "int16"), ((7, 1009), 0, "float32")):
        host = keys(shape, dtype)
        found = cs.flag_tails(cs.asarray(host), axis=axis)
        same(np.asarray(found), reference.flag_tails(host, axis=axis))


@pytest.mark.parametrize("dtype", ["bool", *(pytest.param(d, marks=pytest.mark.slow) for d in ("int16",))])
def test_bits_of_short_and_narrow_rows(dtype, monkeypatch):
    """A thread loads its tile as a run of memory, which begins anywhere; nothing beside the array is read."""
    monkeypatch.setattr(ballots_policy, "MAX_FEW_BITS", 0)
    for name in ("MIN_ANY_RUN_BYTES", "MIN_TRANSPOSED"):
        monkeypatch.setattr(tile_policy, name, 0)
    monkeypatch.setattr(call, "_plans", {})
    chosen = []
    monkeypatch.setattr(
        plan, "choose_strided", lambda *given: chosen.append(strided_policy.choose_strided(*given)) or chosen[-1]
    )
    for shape, axis in (((301, 5), 1), ((90, 50), 1), ((3, 90, 2), 1), ((7, 64, 4), 1)):
        host = keys((math.prod(shape) + 3,), dtype)
        for first in (0, 3):
            own = host[first : first + math.prod(shape)]
            view = cs.asarray(own.copy()) if first == 0 else cs.asarray(host)[first:]
            for function in ("flag_heads", "flag_tails")[first // 3 :][:1]:
                found = getattr(cs, function)(view.reshape(shape), axis=axis, dtype="bits")
                same(np.asarray(found), getattr(reference, function)(own.reshape(shape), axis=axis, dtype="bits"))
    runs = [getattr(choice.policy, "loads", "") == "run" for choice in chosen]
    assert all(runs) if dtype == "bool" else any(runs)


@pytest.mark.slow
def test_numbers_of_64_bits(on_emulator, monkeypatch):
    """Arrays that need 2**31 threads and more take the same kernels with wider numbers."""
    for module in (strided_policy, tile_policy):
        monkeypatch.setattr(module, "MAX_NARROW", 0)
    monkeypatch.setattr(call, "_plans", {})
    rng = np.random.default_rng(2)
    for shape in ((9, 70), (7, 20, 3), (3, 700), (40, 5)):
        host = keys(shape, "int16")
        for bits in (False, True):
            check_call(rng, cs.asarray(host), host, bits)
            check_call(rng, cs.asarray(host)[:, :-1], host[:, :-1], bits)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 99, 100, 200])
def test_the_first_n_with_one_kernel(place, count):
    """A number and an array on the device, of several rows: nothing from place n on is written."""
    host = keys((5, 100), "int32")
    x, n = cs.asarray(host), cs.asarray(np.array(count, np.int64))
    for given in (count, n):
        for axis in (0, 1):
            out = cs.asarray(np.full(host.shape, SENTINEL, np.uint8))
            cs.flag_tails(x, axis=axis, n=given, out=out)
            same(np.asarray(out), unwritten(reference.flag_tails(host, axis=axis, n=count), axis, count, False))
    numpy = np.full(host.shape, SENTINEL, np.uint8)
    assert cs.flag_tails(host, n=np.array(count), out=numpy) is numpy
    same(numpy, unwritten(reference.flag_tails(host, n=count), 1, count, False))


def test_another_n_needs_no_kernel(on_emulator):
    x = cs.asarray(keys((4, 50), "int32"))
    for n in (7, cs.asarray(np.array(3))):
        cs.flag_heads(x, n=n)
    before = compiler.counts()["compiled"]
    for n in (0, 9, 50, 99, cs.asarray(np.array(8))):
        cs.flag_heads(x, n=n)
    assert compiler.counts()["compiled"] == before


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_columns_that_are_one_element(axis, dtype, monkeypatch):
    """Of an axis that is broadcast: one load, and vectors of results, also at the end of an odd axis."""
    monkeypatch.setattr(call, "_plans", {})
    chosen = []
    monkeypatch.setattr(
        plan, "choose_strided", lambda *given: chosen.append(strided_policy.choose_strided(*given)) or chosen[-1]
    )
    x = keys((5, 7), dtype)
    for extent in (64, 35):
        view = np.broadcast_to(x[..., None], (5, 7, extent))
        device = cs.asarray(x).as_strided(view.shape, (7, 1, 0))
        for form in ("uint8", "bits"):
            found = cs.flag_heads(device, axis=axis, dtype=form)
            same(np.asarray(found), reference.flag_heads(view, axis=axis, dtype=form))
        same(
            np.asarray(cs.flag_tails(device, axis=axis, op=indexed)), reference.flag_tails(view, axis=axis, op=indexed)
        )
    assert axis == 2 or any(getattr(choice.policy, "loads", "") == "repeated" for choice in chosen)
