"""Elements of one and two bytes of rows that begin anywhere are joined from aligned vectors; none is read outside of
the array, or behind the items that count."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import plan, policy, strided_policy, tile_policy
from cutesync.runtime import call

from ..cases import same
from .cases import keys


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The policies that are chosen, of arrays that count as large."""
    monkeypatch.setattr(policy, "MIN_JOINED", {1: 0, 2: 0})
    monkeypatch.setattr(policy, "MIN_JOINED_PERIODS", 0)
    monkeypatch.setattr(strided_policy, "MIN_JOINED_ROW", 0)
    monkeypatch.setattr(call, "_plans", {})
    found, spec, strided = [], plan.kernel_spec, plan.strided_spec
    monkeypatch.setattr(plan, "kernel_spec", lambda chosen, *rest: found.append(chosen) or spec(chosen, *rest))
    monkeypatch.setattr(
        plan, "strided_spec", lambda choice, *rest: found.append(choice.policy.run) or strided(choice, *rest)
    )
    return found


CASES = (  # call, type, shape, elements before the first, options
    ("flag_heads", "float16", (3000,), 1, {"dtype": "bits"}),
    ("flag_heads", "int16", (3, 1203), 0, {"dtype": "bits"}),
    ("flag_tails", "uint16", (70, 64), 3, {}),
    ("flag_heads_and_tails", "float16", (1, 2600), 5, {}),
    ("adjacent_difference", "int16", (2, 2048), 1, {}),
    ("adjacent_difference", "float16", (9, 8), 7, {"reverse": True}),
    ("adjacent_difference", "int16", (61, 21), 1, {}),
    ("flag_tails", "int16", (1, 1100), 1, {"dtype": "bits", "successor": 3}),
    ("flag_heads_and_tails", "int8", (1, 3000), 3, {}),
    ("flag_heads", "bool", (70, 32), 1, {}),
    ("flag_tails", "uint8", (3, 2064), 7, {"successor": 1}),
)


@pytest.mark.parametrize(("name", "dtype", "shape", "before", "options"), CASES)
def test_rows_that_begin_anywhere(chosen, name, dtype, shape, before, options):
    size = int(np.prod(shape))
    host = keys(size + before, dtype)
    theirs = host[before:].reshape(shape)
    found = getattr(cs, name)(cs.asarray(host)[before:].reshape(shape), **options)
    wanted = getattr(reference, name)(theirs, **options)
    for ours, each in zip(found, wanted) if isinstance(wanted, tuple) else ((found, wanted),):
        same(np.asarray(ours), each)
    assert all(each.joined for each in chosen) and chosen


JOINED = (  # bytes of an element and of a flag, rows, their length, whether vectors are joined
    (1, 1, 1, 3 << 19, True),
    (1, 1, 1, 1 << 20, False),
    (1, 1, 1 << 15, 16, True),
    (1, 1, 1 << 16, 24, False),
    (2, 1, 1, 3 << 19, True),
    (2, 1, 1, 1 << 20, False),
    (2, 1, 1 << 16, 24, True),
    (2, 1, 1 << 16, 25, False),
    (2, 2, 1 << 16, 25, True),
    (4, 1, 1, 1 << 22, False),
)


@pytest.mark.parametrize(("size", "flag", "rows", "length", "joined"), JOINED)
def test_what_is_joined(size, flag, rows, length, joined):
    """Large arrays that begin anywhere; in periods, those that end where vectors do, and differences."""
    chosen = policy.choose(policy.Problem(rows, length, length, size, flag, size, 16, words=size == 1))
    assert chosen.policy.joined is joined


@pytest.mark.parametrize("n", [2222, 777, 5])
def test_rows_that_lie_apart(chosen, n):
    """And whose first ``n`` items count."""
    host = keys((3, 2500), "uint16")
    found = cs.flag_heads(cs.asarray(host)[:, 3:2400], dtype="bits", n=n)
    wanted = reference.flag_heads(host[:, 3:2400], dtype="bits", n=n)
    words = -(-n // 32)
    assert (np.asarray(found)[:, :words] == wanted[:, :words]).all()
    assert all(each.joined for each in chosen) and chosen


BITS = (  # call, shape, axes of the transposed array, flagged axis, elements before the first
    ("flag_heads", (70, 61), (0, 1), 0, 0),
    ("flag_tails", (3, 45, 133), (0, 1, 2), 1, 1),
    ("flag_heads_and_tails", (33, 90), (0, 1), 0, 2),
    ("flag_heads", (2, 71, 35), (1, 0, 2), 0, 0),
)


@pytest.fixture
def tiles(monkeypatch) -> list:
    """The policies of tiles that join words, also in small arrays."""
    for limit in ("MIN_JOINED_THREADS", "FEWEST_THREADS", "FEW_THREADS"):
        monkeypatch.setattr(tile_policy, limit, 0)
    monkeypatch.setattr(call, "_plans", {})
    found, spec = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice.policy) or spec(choice, *rest))
    return found


APART = (  # call, memory, columns, axis, elements before the array
    ("flag_heads_and_tails", (9, 4, 75), 64, 0, 3),
    ("flag_heads", (19, 78), 64, 0, 0),
    ("flag_tails", (3, 9, 61), 36, 1, 1),
    ("adjacent_difference", (11, 3, 45), 44, 0, 0),
    ("flag_heads_and_tails", (2, 5, 160), 160, 1, 1),
)


@pytest.mark.parametrize(("name", "shape", "columns", "axis", "before"), APART)
def test_columns_of_bytes_in_rows_that_begin_anywhere(tiles, name, shape, columns, axis, before):
    """Words of flags and of differences, of elements that are joined from words."""
    for dtype in ("int8", "bool")[: 1 + (name != "adjacent_difference")]:
        host = keys(int(np.prod(shape)) + before, dtype)
        theirs = host[before:].reshape(shape)[..., :columns]
        found = getattr(cs, name)(cs.asarray(host)[before:].reshape(shape)[..., :columns], axis=axis)
        wanted = getattr(reference, name)(theirs, axis=axis)
        for ours, each in zip(found, wanted) if isinstance(wanted, tuple) else ((found, wanted),):
            same(np.asarray(ours), each)
    assert {(tile.loads, tile.columns) for tile in tiles} == {("joined", 4 if columns % 8 else 8)}


@pytest.mark.parametrize("dtype", ["int8", "bool"])
@pytest.mark.parametrize(("name", "shape", "axes", "axis", "before"), BITS)
def test_bits_of_columns_in_rows_that_begin_anywhere(tiles, name, shape, axes, axis, before, dtype):
    host = keys(int(np.prod(shape)) + before, dtype)
    theirs = host[before:].reshape(shape).transpose(axes)
    found = getattr(cs, name)(cs.asarray(host)[before:].reshape(shape).transpose(axes), axis=axis, dtype="bits")
    wanted = getattr(reference, name)(theirs, axis=axis, dtype="bits")
    for ours, each in zip(found, wanted) if isinstance(wanted, tuple) else ((found, wanted),):
        same(np.asarray(ours), each)
    assert [tile.loads for tile in tiles] == ["joined"]
