"""Columns of small elements whose rows begin anywhere in a word: every type, skew and direction, and in place."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.hardware import SMS
from cutesync.kernels.scan import plan, ragged_column_policy
from cutesync.kernels.scan.column_policy import ColumnPolicy, columns
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.ragged_column_policy import (
    RaggedColumnPolicy,
    across,
    ragged_columns as ragged_columns_policy,
)

from ..cases import SCHEDULES, data, matrices, matrix, same, scanned
from .kernels import force, ragged_columns

SMEM, RESERVED = 228 << 10, 1 << 10  # bytes of an SM, and those of them that each block takes for itself
SMALL = ("int8", "bool", "float16", "uint16", "bfloat16", "uint8", "int16")
WAYS = ({}, {"reverse": True, "exclusive": True}, {"init": 1})


def framed(x: np.ndarray, pitch: int, first: int):
    """``(view, whole, inside)``: an array of the values of ``x``, whose rows lie ``pitch`` elements apart, from element
    ``first`` of a larger one on; ``inside`` says which elements of this one are the view's."""
    rows, length, _ = x.shape
    steps, size = (length * pitch, pitch, 1), first + rows * length * pitch + 9
    buffer, inside = np.ones(size, x.dtype), np.zeros(size, bool)
    for base, values in ((buffer, x), (inside, True)):
        bytes_of = [step * base.itemsize for step in steps]
        np.lib.stride_tricks.as_strided(base[first:], x.shape, bytes_of)[...] = values
    whole = cs.asarray(buffer)
    return whole.as_strided(x.shape, steps, first), whole, inside


def check(x: np.ndarray, op, pitches, firsts, **options) -> None:
    """The scan from one larger array into another, and in place."""
    wanted = scanned(x, op, axis=1, **options)
    view, _, _ = framed(x, pitches[0], firsts[0])
    out, whole, inside = framed(np.zeros_like(x), pitches[1], firsts[1])
    before = np.asarray(whole)[~inside]
    assert cs.scan(view, op, axis=1, out=out, **options) is out
    same(np.asarray(out), wanted, f"{pitches} {firsts} {options}")
    same(np.asarray(whole)[~inside], before, "around the result")
    assert cs.scan(view, op, axis=1, out=view, **options) is view
    same(np.asarray(view), wanted, "in place")


def test_from_any_place_in_a_word_to_any_other(on_emulator, monkeypatch):
    """Tiles of 8 rows in groups of two, the last one not whole."""
    force(monkeypatch, ragged_columns(8, 4, 2, 2, 3))
    check(data((2, 21, 37), "int8"), "add", (37, 39), (1, 2), reverse=True, exclusive=True)


def test_groups_have_as_few_rows_as_tiles_allow(on_emulator, monkeypatch):
    """4 of up to 6 rows, and 6 with a last tile that is hardly begun; rows end with a word, or in the next lane."""
    force(monkeypatch, ragged_columns(8, 4, 6, 2, 2))
    for length, inner in ((26, 28), (49, 29)):
        check(data((2, length, inner), "int8"), "add", (inner, inner), (1, 2))


@pytest.mark.parametrize("beside", [2, 4])
@pytest.mark.parametrize(("dtype", "inner"), [("int8", 137), ("float16", 61), ("bool", 301)])
def test_warps_of_a_block_have_a_tile_each(dtype, inner, beside, on_emulator, monkeypatch):
    """There are fewer tiles than warps: those that are left over store nothing."""
    force(monkeypatch, ragged_columns(32, 1, 12, 2, 1, beside))
    for k, how in enumerate(WAYS):
        x = data((3 - k % 2, (9, 12, 10)[k], inner), dtype)
        check(x, "or" if dtype == "bool" else "add", (inner + k, inner + 2), (k, 2 * k), **how)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "float16", "uint8"])
def test_every_small_type(dtype, on_emulator, monkeypatch):
    x = data((2, 21, 37), dtype)
    for k, how in enumerate(WAYS):
        force(monkeypatch, (ragged_columns(8, 4, 2, 2, 3), ragged_columns(32, 1, 24, 2, 1))[k % 2])
        check(x, "add", (37 + k, 39), (k, 2 * k), **how)


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "inner"), [*product(["uint8"], (1, 2, 3, 4, 5, 27, 28, 29, 57)), *product(["uint16"], (1, 2, 27, 56))]
)
def test_every_skew(dtype, inner, on_emulator, monkeypatch):
    """Rows of any length, from any place in a word to any other, or to words."""
    x = data((1, 9, inner), dtype)
    force(monkeypatch, ragged_columns(8, 4, 4, 2, 1))
    for pitches in ((inner, inner), (inner + 1, inner + 3), (inner, -(-inner // 4) * 4)):
        for firsts in ((0, 0), (1, 3), (3, 4), (2, 1)):
            check(x, "add", pitches, firsts, reverse=bool(firsts[0] % 2))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_order_under_hostile_schedules(reverse, monkeypatch):
    """Products of matrices, whose operands must stay in order; two blocks take tiles in turn."""
    x = matrices((61, 19), "uint16")
    force(monkeypatch, ragged_columns(8, 4, 2, 3, 2))
    with cs.emulate(schedules=SCHEDULES, seed=7):
        found = cs.scan(cs.asarray(x), matrix, axis=0, reverse=reverse)
    same(np.asarray(found), scanned(x.astype(np.int32), matrix, axis=0, reverse=reverse).astype(np.uint16))


@pytest.mark.slow
def test_first_operands_of_their_own_and_a_count(on_emulator, monkeypatch):
    x, init = data((3, 21, 30), "int16"), data((3, 29), "int16")
    force(monkeypatch, ragged_columns(8, 4, 2, 2, 3))
    view = cs.asarray(x)[:, :, :29]
    wanted = np.cumsum(x[:, :, :29], 1, dtype=np.int16) + init[:, None]
    same(np.asarray(cs.scan(view, axis=1, init=cs.asarray(init))), wanted)
    out = cs.asarray(np.zeros((3, 21, 29), np.int16))
    cs.scan(view, axis=1, init=cs.asarray(init), n=17, out=out)
    same(np.asarray(out)[:, :17], wanted[:, :17])
    assert not np.asarray(out)[:, 17:].any()


@pytest.mark.slow
def test_calls_in_place_take_another_kernel(on_emulator, monkeypatch):
    """One plan serves both; a call in place reads nothing that another block writes."""
    launched, launch = [], plan.launch
    monkeypatch.setattr(ragged_column_policy, "MIN_BYTES", 0)
    monkeypatch.setattr(plan, "launch", lambda choice, *more: launched.append(choice.policy) or launch(choice, *more))
    x = data((9, 61), "int8")
    array, out = cs.asarray(x), cs.asarray(np.zeros_like(x))
    cs.scan(array, axis=0, out=out)
    for _ in range(2):
        array = cs.asarray(x)
        cs.scan(array, axis=0, out=array)
        same(np.asarray(array), np.asarray(out))
    assert [type(policy) for policy in launched] == [RaggedColumnPolicy, ColumnPolicy]


def chosen(rows: int, length: int, inner: int, size: int, pitch: int | None = None, **more):
    more = {"apart": True, "packs": True} | more
    if pitch is not None:
        more |= {"view": "pitched", "pitches": ((pitch * length, pitch, 0), (inner * length, inner, 0))}
    problem = Problem(rows, length, inner, (size,), (size,), (0,), (0,), **more)
    return ragged_columns_policy(problem) or columns(problem)


@pytest.mark.parametrize("size", [1, 2])
def test_what_the_policy_promises(size):
    for rows, length, inner in ((1, 1 << 15, 4096), (300, 26, 24757), (2, 100, 9001), (40, 200, 1001)):
        pitch = inner + 1 if inner % 4 == 0 else None
        choice = chosen(rows, length, inner, size, pitch)
        policy = choice.policy
        assert isinstance(policy, RaggedColumnPolicy) and policy.width * size == 4
        assert policy.aligned_out == (pitch is not None) and policy.alone == (pitch is None)
        threads = policy.lanes * policy.groups * policy.beside
        held = policy.height * policy.groups * policy.beside * (policy.lanes + 1) * 4 + 8 * threads * policy.width
        assert threads % 32 == 0 and threads * policy.blocks_per_sm <= 1024
        assert policy.blocks_per_sm * (policy.stages * held + 128 + RESERVED) <= SMEM
        if policy.alone:
            problem = Problem(rows, length, inner, (size,), (size,), (0,), (0,))
            assert policy.groups * policy.height >= length
            assert choice.grid == -(-rows * across(problem, 4 // size, policy.lanes, False) // policy.beside)
        else:
            assert choice.grid <= SMS * policy.blocks_per_sm and choice.slots >= rows * choice.tiles * inner


def test_where_rows_begin_anywhere():
    assert isinstance(chosen(1, 96, 40_097, 1).policy, RaggedColumnPolicy)
    assert isinstance(chosen(1, 4096, 4096, 1, 4099).policy, RaggedColumnPolicy)
    assert isinstance(chosen(9, 20, 40_097, 1, packs=False).policy, RaggedColumnPolicy)
    assert isinstance(chosen(1, 20_000, 11_491, 1).policy, RaggedColumnPolicy)
    assert isinstance(chosen(1, 4096, 4097, 1).policy, RaggedColumnPolicy)
    assert isinstance(chosen(1, 4096, 4097, 1, packs=False).policy, RaggedColumnPolicy)
    for other in (
        chosen(1, 96, 40_096, 1),
        chosen(1, 96, 40_097, 4),
        chosen(1, 96, 40_097, 1, apart=False),
        chosen(1, 96, 4097, 1),
        chosen(1, 7, 400_097, 1),
        chosen(1, 700, 4097, 1),
        chosen(1, 1_000_000, 107, 1),
        chosen(1, 2048, 4097, 1, packs=False),
    ):
        assert not isinstance(other.policy, RaggedColumnPolicy)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SMALL)
def test_chosen_tiles_on_a_gpu(dtype):
    """Columns of a warp alone, tiles of several row groups, and rows that begin on words of an array off by one."""
    for shape in ((30, 26, 2757), (1, 300, 8099), (1, 1500, 2048)):
        x = data(shape, dtype)
        memory = cs.asarray(np.concatenate([x.ravel()[:1], x.ravel()]))
        for how in WAYS:
            wanted = scanned(x, axis=1, **how)
            same(np.asarray(cs.scan(cs.asarray(x), axis=1, **how)), wanted)
            same(np.asarray(cs.scan(memory[1:].reshape(*shape), axis=1, **how)), wanted)
