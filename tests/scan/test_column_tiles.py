"""Tiles of columns: every type, alignment and direction, states of several values, and what the policy promises."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype as parse_dtype
from cutesync.kernels.hardware import SMS
from cutesync.kernels.scan import column_vectors
from cutesync.kernels.scan.column_groups import group_slots
from cutesync.kernels.scan.column_policy import (
    MIN_STRIPS,
    ColumnPolicy,
    ColumnStripPolicy,
    ColumnTilePolicy,
    columns,
)
from cutesync.kernels.scan.problem import Choice, Problem

from ..cases import STAND_FOR_ALL, check_scan, data, same, scanned
from ..compiled import dry, needed
from .kernels import column_strips, column_tiles, force

SMEM, RESERVED = 228 << 10, 1 << 10  # bytes of an SM, and those of them that each block takes for itself


QUICK = ("int16",)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "dtype", [t if t in QUICK else pytest.param(t, marks=pytest.mark.slow) for t in (*STAND_FOR_ALL, *QUICK)]
)
def test_every_type(dtype, on_emulator, monkeypatch):
    """Tiles of 12 rows in groups of two, the last tile not whole; elements that fill no word are loaded, not copied."""
    x = data((2, 43, 12), dtype)
    for width, options in ((1, {"init": 1}), (4, {}), (4, {"reverse": True, "exclusive": True})):
        force(monkeypatch, column_tiles(width, 3, 3, 4, 2, 2))
        check_scan(x, axis=1, **options)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("offset", "shift"), [(1, 0), (0, 1), (2, 2), (0, 2)])
def test_every_alignment(offset, shift, on_emulator, monkeypatch):
    """Nothing around the result is written; vectors are as wide as the input allows."""
    force(monkeypatch, column_tiles(4, 2, 4, 3, 2, 3))
    x = data((61, 20), "int16")
    whole = cs.asarray(np.concatenate([x.ravel()[:offset], x.ravel()]))
    memory = cs.asarray(np.full(x.size + 40, 77, np.int16))
    out = memory[16 + shift : 16 + shift + x.size].reshape(*x.shape)
    check_scan(x, on=whole[offset : offset + x.size].reshape(*x.shape), out=out, axis=0, reverse=bool(shift))
    assert (np.delete(np.asarray(memory), slice(16 + shift, 16 + shift + x.size)) == 77).all()


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("dtype", "skew", "width"), [("float16", 1, 2), ("float32", 1, 2), ("int32", 3, 1), ("int64", 1, 1)]
)
def test_rows_that_begin_behind_boundaries(dtype, skew, width, on_emulator, monkeypatch):
    """Vectors hold what lies beside a row, too; the last tile of a row is not full, the array ends with the last one;
    one tile has all rows; in place, elements are copied by themselves."""
    monkeypatch.setattr(column_vectors, "MIN_SKEWED_BYTES", 0)
    lanes = 32 // width
    for groups, height in ((2, 16), (2, 32)):
        force(monkeypatch, column_tiles(width, lanes, groups, height, 2, 2))
        for shape in ((2, 61, 40), (61, 72)):
            x = data(shape, dtype, "max")
            memory = cs.asarray(np.concatenate([x.ravel()[:skew], x.ravel()]))
            on = memory[skew:].reshape(*shape)
            check_scan(x, op="max", on=on, axis=-2, reverse=len(shape) > 2)
    assert cs.scan(on, "max", axis=0, out=on) is on
    same(on, scanned(x, "max", axis=0))


def test_limits_of_rows_behind_boundaries():
    """Words that fill the GPU with threads of columns are tiles in large arrays, halves with word arithmetic in small
    ones."""
    for shape, dtype, op, tiles in (
        ((32, 256, 4096), "uint32", "add", True),
        ((8, 64, 4096), "uint32", "add", False),
        ((9162, 544), "uint16", "max", True),
        ((21470, 560), "uint16", "max", False),
        ((21470, 560), "bfloat16", "add", True),
        ((65536, 256), "int8", "add", False),
    ):
        x = dry(shape, dtype, parse_dtype(dtype).size)
        (spec,) = needed(cs.scan, x, op, axis=-2, out=dry(shape, dtype, base=1 << 41))
        assert (type(spec.key[1]) is ColumnTilePolicy and spec.key[1].skew == 1) == tiles
        assert tiles or not getattr(spec.key[1], "skew", 0)


def test_in_place(on_emulator, monkeypatch):
    x = data((2, 43, 10), "int32")
    for choice in (column_tiles(2, 3, 2, 5, 2, 2), column_tiles(2, 3, 8, 6, 2, 2), column_strips(2, 3, 2, 5, 2)):
        force(monkeypatch, choice)
        array = cs.asarray(x)
        assert cs.scan(array, axis=1, out=array, reverse=True) is array
        same(array, scanned(x, axis=1, reverse=True))


@pytest.mark.parametrize("fixed", [False, True])
def test_groups_have_as_few_rows_as_tiles_allow(fixed, on_emulator, monkeypatch):
    """4 of up to 6 rows, 6 with a last tile that is hardly begun, and a last row group that has a row."""
    force(monkeypatch, column_tiles(2, 3, 4, 6, 2, 2, prefetch=True, fixed=fixed))
    for length in (19, 26, 49, 70):
        check_scan(data((2, length, 10), "int32"), axis=1, exclusive=True)
    if fixed:
        x = data((26, 10), "int32")
        same(np.asarray(cs.scan(cs.asarray(x), axis=0, n=13))[:13], scanned(x, axis=0)[:13])


def after(a, b):
    """The affine maps x -> a[0] * x + a[1]: first ``a``, then ``b``."""
    return a[0] * b[0], a[1] * b[0] + b[1]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("blocks", "reverse"), [(1, True), (3, False), (0, True), (0, False)])
def test_states_of_several_values(reverse, blocks, monkeypatch):
    """A linear recurrence from elements of two types, one of which is loaded and one copied; the index counts along the
    axis."""
    force(monkeypatch, column_tiles(1, 4, 3, 4, 2, blocks) if blocks else column_strips(1, 4, 3, 4, 3))
    factors, terms = data((2, 43, 7), "int16"), data((2, 43, 7), "int32")
    with cs.emulate(schedules=4, seed=blocks):
        found = cs.scan(
            (cs.asarray(factors), cs.asarray(terms)),
            after,
            axis=1,
            reverse=reverse,
            init=(1, 5),
            dtype=("int32", "int32"),
            transform=lambda a, b, index: (a, b + index),
            finish=lambda state: state[1],
            out_dtype="int32",
        )
    values = terms.astype(np.int64) + np.arange(43)[:, None]
    wanted, state = np.empty_like(terms), (np.ones((2, 7), np.int64), np.full((2, 7), 5))
    for i in range(42, -1, -1) if reverse else range(43):
        element = factors[:, i].astype(np.int64), values[:, i]
        state = after(element, state) if reverse else after(state, element)
        state = tuple(value.astype(np.int32).astype(np.int64) for value in state)
        wanted[:, i] = state[1]
    same(found, wanted)


def test_the_number_of_blocks_changes_no_bit(monkeypatch):
    x = np.random.default_rng(1).standard_normal((203, 9), np.float32)
    results = set()
    for blocks in (1, 5, 128):
        force(monkeypatch, column_tiles(1, 4, 3, 2, 3, blocks))
        with cs.emulate(seed=blocks):
            results.add(np.asarray(cs.scan(cs.asarray(x), axis=0)).tobytes())
    assert len(results) == 1


def chosen(rows: int, length: int, inner: int, size: int, words: int = 1, inputs: int = 1) -> Choice:
    return columns(Problem(rows, length, inner, (size,) * inputs, (size,), (0,) * inputs, (0,), words))


@pytest.mark.drawn(10)
@pytest.mark.parametrize("words", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_as_many_blocks_fit_an_sm_as_the_policy_says(size, words):
    inputs = max(1, 2 * words // size)
    for rows, length, inner in ((1, 1 << 15, 4096), (3, 20_000, 154), (1, 9716, 72), (2, 100, 5000), (1, 1 << 20, 130)):
        choice = chosen(rows, length, inner, size, words, inputs)
        policy = choice.policy
        strips = isinstance(policy, ColumnStripPolicy)
        assert strips or isinstance(policy, ColumnTilePolicy)
        threads = -(-policy.lanes * policy.groups // 32) * 32
        elements = threads * policy.width * (policy.stages * policy.height * size * inputs + 8 * words)
        assert policy.blocks_per_sm * (elements + 64 * (inputs + words) + RESERVED) <= SMEM
        assert threads <= (512 if strips else 256) and inner % policy.width == 0
        if strips:
            assert choice.grid >= MIN_STRIPS and not choice.slots
        elif not policy.alone:
            assert choice.slots == rows * inner * group_slots(choice.tiles, policy.group)
            assert choice.grid <= SMS * policy.blocks_per_sm


def test_strips_of_states_of_several_values_fill_the_gpu():
    """A line of memory each, also in slices; not of single values, nor of few columns, of short ones or of ones whose
    lines two strips would share."""
    for rows, inner, strips in ((1, 4096, 128), (4, 1024, 128), (1, 50_080, 1565)):
        choice = chosen(rows, 1 << 15, inner, 4, 2, 2)
        assert isinstance(choice.policy, ColumnStripPolicy) and choice.grid == strips
    for rows, length, inner, words in (
        (1, 1 << 15, 4096, 1),
        (1, 1 << 15, 2048, 2),
        (1, 600, 4096, 2),
        (1, 1 << 15, 5000, 2),
    ):
        assert isinstance(chosen(rows, length, inner, 4, words, words).policy, ColumnTilePolicy)


def test_few_rows_and_many_columns_need_no_tiles():
    assert isinstance(chosen(1, 32, 5000, 4).policy, ColumnPolicy)
    assert isinstance(chosen(1, 500, SMS * 240, 4).policy, ColumnPolicy)
    assert isinstance(chosen(1, 64, SMS * 240 * 16, 1).policy, ColumnPolicy)
    alone = chosen(1, 40, 5000, 4)
    assert isinstance(alone.policy, ColumnTilePolicy) and alone.policy.alone and not alone.slots


@pytest.mark.parametrize(
    ("length", "inner", "size", "group"),
    [(130_537, 289, 4, 16), (1 << 20, 64, 4, 64), (19_064, 303, 8, 16), (23_811, 44, 8, 64), (1 << 16, 1 << 12, 4, 8)],
)
def test_groups_of_few_tiles_side_by_side_have_more(length, inner, size, group):
    """Three chains and more read 4 MiB or more while the end of a group is passed on."""
    assert chosen(1, length, inner, size).policy.group == group
