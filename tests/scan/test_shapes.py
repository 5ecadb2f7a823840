"""Scans of every shape, along every axis, of views that begin anywhere and in place agree with the reference."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan.policy import QUARTER_TILES, PipelinePolicy, choose
from cutesync.kernels.scan.problem import Problem

from ..cases import (
    adjacent,
    check_scan,
    data,
    everywhere,
    numpy_dtype,
    places,
    same,
    scanned,
    segments,
    with_slow,
)
from .kernels import LONG, force, pipeline, rows, slabs, wave

BAND = 32


def check_within(x: np.ndarray, on, shift: int, **options) -> None:
    """The scan into an array ``shift`` elements behind a boundary, around which nothing is written."""
    memory = cs.asarray(np.full(x.size + 2 * BAND, 77, x.dtype))
    check_scan(x, on=on, out=memory[BAND + shift : BAND + shift + x.size].reshape(*x.shape), **options)
    around = np.delete(np.asarray(memory), slice(BAND + shift, BAND + shift + x.size))
    assert (around == 77).all(), f"something around the result was written, {shift} elements off"


# every offset of the input with these of the result
SHIFTS = {
    "gpu": [(offset, {0, 1, offset}) for offset in range(17)],
    "emulator": [(offset, {0, 1} if offset in (0, 4) else {offset % 4}) for offset in range(17)],
}


@places(
    "dtype, count, shifts",
    gpu=[
        (dtype, count, SHIFTS["gpu"] if count < 10**6 else [SHIFTS["gpu"][i] for i in (0, 1, 5)])
        for dtype in ("int8", "bfloat16", "float32", "float64")
        for count in (40, 1001, 150_001, 7_000_001)
    ],
    emulator=[("float32", count, SHIFTS["emulator"]) for count in (40, 1001)],
)
def test_views_that_begin_anywhere(place, dtype, count, shifts):
    """Offsets of 0 to 16 elements break every alignment of the vectors; guard bands around the result stay."""
    x = data(count + 16, dtype)
    whole = cs.asarray(x)
    for offset, offsets_of_out in shifts:
        here = slice(offset, offset + count)
        for shift in offsets_of_out:
            check_within(x[here], whole[here], shift, reverse=bool(offset & 1))


@pytest.mark.drawn(2)
@everywhere(
    "shape, axis",
    [
        ((21, 37), 1),
        ((21, 37), 0),
        ((40, 24), 1),
        ((3, 301), 1),
        ((50_000, 19), 0),
        ((50_000, 19), 1),
        ((7, 90_001), 1),
    ],
    emulator=lambda shape, axis: shape[0] * shape[1] < 1000,
)
def test_guard_bands_around_rows_and_columns(place, shape, axis):
    x = data(shape, "float32")
    whole = cs.asarray(np.concatenate([np.zeros(3, np.float32), x.ravel()]))
    before = np.asarray(whole)
    for offset, shift in ((3, 0), (3, 3), (3, 2)):
        check_within(x, whole[offset : offset + x.size].reshape(*shape), shift, axis=axis)
    same(np.asarray(whole), before, "the input stays")


# rows of the memory, and elements of it that belong to a row
UNLIKE = {"apart": np.s_[:, 3:-5], "backwards": np.s_[:, -4:2:-1], "in the opposite order": np.s_[::-1]}


KERNELS = {
    "rows": (rows(4, 2, ragged=True), 699),
    "wave": (wave(2, 1), 2201),
    "pipeline": (pipeline(4, 2, 4, 1, 2, 2), 2203),
}


@pytest.mark.parametrize(
    ("size", "length", "vectors"),
    [(1, 65_537, 4), (1, 200_001, 8), (2, 100_003, 8), (2, 163_841, 16), (4, 30_001, 16), (8, 50_001, 16)],
)
def test_rows_that_are_not_whole_are_smaller_tiles(size, length, vectors):
    """The smaller the elements, the longer the ends of a row take."""
    policy = choose(Problem(512, length, 1, (size,), (size,), (size,), (0,))).policy
    assert (type(policy), policy.vectors_per_thread) == (PipelinePolicy, vectors)
    whole = choose(Problem(512, 1 << 17, 1, (size,), (size,), (0,), (0,))).policy
    assert whole.vectors_per_thread == 16


def test_rows_of_quarter_tiles(on_emulator, monkeypatch):
    """Rows of bytes that end one element before, at, and behind the end of a tile, in a ring of many stages."""
    quarters = QUARTER_TILES
    tile = quarters.warps_per_squad * quarters.vectors_per_thread * 32 * 16
    sizes = quarters.reduce_warps, quarters.scan_squads, quarters.warps_per_squad, quarters.vectors_per_thread
    force(monkeypatch, pipeline(*sizes, quarters.stages, 3))
    for length, reverse in ((tile - 1, False), (tile, True), (tile + 1, False)):
        x = data((3, length + 1), "int8")
        view = cs.asarray(x)[:, 1:]
        same(np.asarray(cs.scan(view, axis=1, reverse=reverse)), scanned(x[:, 1:], axis=1, reverse=reverse))


@pytest.mark.drawn(4)
@pytest.mark.parametrize("view", UNLIKE)
@pytest.mark.parametrize("name", KERNELS)
def test_rows_that_begin_at_different_places_of_a_vector(name, view, on_emulator, monkeypatch):
    choice, length = KERNELS[name]
    force(monkeypatch, choice)
    turn = list(KERNELS).index(name) + list(UNLIKE).index(view)
    dtype, shift = (("int8", 6), ("float32", 3))[turn % 2]
    x, index = data((3, length), dtype), UNLIKE[view]
    check_within(x[index], cs.asarray(x)[index], shift, axis=1, reverse=True, exclusive=shift == 6)


@everywhere(
    "dtype, options",
    product(["int8", "float32", "int64"], [{}, {"reverse": True}, {"exclusive": True}]),
    emulator=lambda dtype, options: dtype == "float32" and "exclusive" not in options,
)
def test_in_place(place, dtype, options):
    along = {0: [(1003,), (30, 35), (200_003,), (5001, 300), (14_000_003,)], 1: [(30, 36), (300, 5001)]}
    for axis, shapes in along.items():
        for shape in place.sizes(shapes):
            x = data(shape, dtype)
            array = cs.asarray(x)
            assert cs.scan(array, axis=axis, out=array, **options) is array
            same(array, scanned(x, axis=axis, **options), f"{shape} along {axis}")


def test_in_place_in_small_tiles(place, monkeypatch):
    """Every kernel for long rows, on every machine, ragged ends included."""
    for choice in (wave(2, 1), pipeline(4, 2, 4, 1, 4, 2)):
        force(monkeypatch, choice)
        for offset in (0, 1):
            x = data(3604, "int32")[offset:]
            array = cs.asarray(data(3604, "int32"))[offset:]
            cs.scan(array, out=array)
            same(array, scanned(x))


@everywhere(
    "shape",
    [(3, 5), (1, 7), (7, 1), (130, 8), (2, 3, 4), (4, 1, 9), (1, 1, 1), (5, 6, 7, 3), (2, 1, 33, 1)],
    emulator=lambda shape: shape in ((2, 3, 4), (1, 1, 1)),
)
def test_every_axis(place, shape):
    x = data(shape, "int32")
    for axis in (*range(-len(shape), len(shape)), None):
        check_scan(x, axis=axis)
    check_scan(x, "max", axis=None, reverse=True)


def test_an_array_of_no_dimensions(place):
    for dtype in ("int32", "float16"):
        check_scan(np.array(5, numpy_dtype(dtype)), axis=None)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_rows_and_columns(shape, dtype):
    x = data(shape, dtype)
    for axis in range(len(shape)):
        check_scan(x, axis=axis)
        check_scan(x, axis=axis, reverse=True, exclusive=True)


@pytest.mark.parametrize("dtype", with_slow(["bool", "uint8", "float16", "int64"], {"bool", "float16"}))
def test_slabs_of_every_type(dtype, on_emulator, monkeypatch):
    """Tiles of 64 rows in groups of two, the last tile not whole."""
    force(monkeypatch, slabs(4, 16, 3, 2, 2))
    x = data((203, 5), dtype)
    check_scan(x, axis=0, reverse=True, exclusive=True)
    check_scan(x, axis=0, init=1)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((40, 300_007), 1),
        ((700, 17_001), 1),
        ((9, 1_000_003), 1),
        ((1_500_001, 5), 0),
        ((1_000_003, 16), 0),
        ((400_001, 37), 0),
        ((250_000, 64), 0),
        ((2, 300_002, 24), 1),
    ],
    ids=str,
)
def test_large_arrays_of_odd_rows_and_narrow_ones(shape, axis):
    """Rows of which only the ends are not whole vectors, and columns side by side, both in tiles in shared memory."""
    for dtype in ("int8", "int16", "float32", "int64"):
        x = data(shape, dtype)
        forward = np.cumsum(x, axis, dtype=x.dtype)
        backward = np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)
        same(cs.scan(cs.asarray(x), axis=axis), forward, dtype)
        same(cs.scan(cs.asarray(x), axis=axis, reverse=True, exclusive=True), backward - x, f"{dtype} in reverse")
    x = segments(shape, axis)
    wanted = (x.take([0], axis) & ~0xFFFFFFFF) | (x & 0xFFFFFFFF)
    same(cs.scan(cs.asarray(x), adjacent, axis=axis), wanted, "neighbours")


@places(
    "length, rows",
    gpu=[(length, rows) for length in (*range(2, 10), 13, 16, 17, 33, 64, 129) for rows in (8, 1000 // length)],
    emulator=[(3, 8), (8, 8)],
)
def test_short_rows_and_few_columns(place, length, rows):
    check_scan(data((rows, length), "int32"), axis=1)
    check_scan(data((length, rows), "int32"), axis=0)


@places(
    "shape, dtype, result",
    gpu=[
        ((2801, 3), "float32", "float32"),
        ((3000, 3), "int8", "int32"),
        ((9001, 4), "uint8", "uint8"),
        ((3, 4000, 2), "int16", "int32"),
        ((2101, 2), "float64", "float64"),
        ((2_100_001, 4), "int32", "int32"),
        ((3, 1_000_000, 3), "float32", "float32"),
        ((7_000_001, 3), "float16", "float16"),
    ],
    emulator=[((2801, 3), "float32", "float32")],
)
def test_few_columns_side_by_side(place, shape, dtype, result):
    """Positions of a few elements, whose vectors hold one or several; an unaligned address takes another kernel."""
    x, how = data(shape, dtype), {"axis": len(shape) - 2, "dtype": result}
    check_scan(x, **how)
    check_scan(x, **how, exclusive=True, reverse=True, init=3)
    check_scan(x, on=cs.asarray(np.concatenate([x.ravel()[:1], x.ravel()]))[1:].reshape(*shape), **how)


@places("count", gpu=[40], emulator=[2])
def test_random_shapes(place, count):
    rng = np.random.default_rng(7)
    for _ in range(count):
        shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 5)))
        check_scan(data(shape, "float32"), axis=int(rng.integers(len(shape))), reverse=bool(rng.integers(2)))
