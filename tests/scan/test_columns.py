"""Scans along an axis that is not the last by threads with columns of their own, in arrays of narrow outer slices."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import column_policy, plan, row_policy
from cutesync.kernels.scan.column_policy import ColumnPolicy, ColumnTilePolicy
from cutesync.kernels.scan.policy import choose
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.row_policy import RowPolicy, ShortRowPolicy
from cutesync.kernels.scan.slice_policy import SlicePolicy
from cutesync.kernels.scan.strided_policy import StridedPolicy

from ..cases import adjacent, data, same, scanned, segments


@pytest.fixture
def launched(monkeypatch):
    """The policies of the launches of a test."""
    found = []
    launch = plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    return found


def is_flat(policy) -> bool:
    return isinstance(policy, ColumnPolicy) and policy.flat


@pytest.mark.parametrize("columns", [1, 3, 5])
@pytest.mark.parametrize("options", [{}, {"reverse": True}], ids=["forward", "reverse"])
def test_threads_are_numbered_through_narrow_slices(columns, options, on_emulator, launched):
    """Rows in groups, with an axis that runs backwards, and a last block that is not full."""
    x = segments((7, 9, 11, 6), 0)
    view = (slice(None), slice(None), slice(None, None, -1), slice(columns))
    if columns == 1:
        view = (slice(None), slice(None, None, -1), slice(None), slice(4))
    found = cs.scan(cs.asarray(x)[view], adjacent, axis=0, **options)
    same(np.asarray(found), scanned(x[view], adjacent, axis=0, **options))
    assert len(launched) == 1 and is_flat(launched[0])


@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (40, 2, 64)), ("float32", (33, 8, 16))])
def test_vectors_of_short_slices(dtype, shape, on_emulator, launched, monkeypatch):
    """Rows of a few vectors, in slices that would fit shared memory."""
    monkeypatch.setattr(column_policy, "ENOUGH_COLUMNS", 1)
    x = data(shape, dtype)
    same(np.asarray(cs.scan(cs.asarray(x), axis=1, reverse=True)), scanned(x, axis=1, reverse=True))
    assert is_flat(launched[0]) and launched[0].width == 4


SHORT = (
    ("float32", (5, 300, 3)),
    ("uint64", (4, 61, 4)),
    ("float16", (3, 640, 2)),
    ("bool", (37, 20, 16)),
    ("int8", (5, 300, 12)),
)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "shape"), SHORT)
@pytest.mark.parametrize("options", [{}, {"reverse": True, "exclusive": True}], ids=["forward", "reverse"])
def test_short_slices_of_few_columns(dtype, shape, options, on_emulator, launched, monkeypatch):
    """Some lanes have a slice in registers, or some warps; positions have several states."""
    monkeypatch.setattr(row_policy, "MIN_BYTES_OF_NUMBERS", 0)
    op = "max" if dtype == "bool" else "add"
    x = data(shape, dtype, op)
    options = {**options, "init": 0} if options and op == "max" else options
    same(np.asarray(cs.scan(cs.asarray(x), op, axis=1, **options)), scanned(x, op, axis=1, **options))
    init = data((shape[0], shape[2]), dtype)
    if not options and dtype.startswith("float"):
        same(np.asarray(cs.scan(cs.asarray(x), axis=1, init=cs.asarray(init))), scanned(x, axis=1) + init[:, None])
    assert {type(found) for found in launched} <= {RowPolicy, ShortRowPolicy}


def test_first_operands_of_their_own(on_emulator, launched):
    x, init = data((40, 6, 8), "int32"), data((40, 5), "int32")
    found = cs.scan(cs.asarray(x)[:, :, :5], axis=1, init=cs.asarray(init))
    same(np.asarray(found), np.cumsum(x[:, :, :5], 1, dtype=np.int32) + init[:, None])
    assert is_flat(launched[0])


def test_in_place_beside_what_stays(on_emulator, launched):
    x = data((30, 8, 24), "int16")
    whole = cs.asarray(x)
    part = whole[:, :, 4:20]
    assert cs.scan(part, axis=1, out=part) is part
    x[:, :, 4:20] = np.cumsum(x[:, :, 4:20], 1, dtype=np.int16)
    same(np.asarray(whole), x)
    assert is_flat(launched[0])


def chosen(rows: int, length: int, inner: int, size: int, pitch: int | None = None):
    problem = Problem(rows, length, inner, (size,), (size,), (0,), (0,))
    if pitch is not None:
        steps = ((pitch * length, pitch, 0), (inner * length, inner, 0))
        problem = Problem(rows, length, inner, (size,), (size,), (0,), (0,), view="pitched", pitches=steps)
    return problem, choose(problem)


@pytest.mark.parametrize(
    ("shape", "size", "kind"),
    [
        ((131_072, 2, 16), 4, ColumnPolicy),
        ((4096, 8, 16), 4, ColumnPolicy),
        ((4096, 8, 8), 4, ColumnPolicy),
        ((65_536, 8, 8), 4, SlicePolicy),
        ((4096, 9, 8), 4, SlicePolicy),
        ((30_462, 16, 32), 2, ColumnPolicy),
        ((64, 16, 32), 2, SlicePolicy),
        ((32_768, 20, 16), 4, SlicePolicy),
        ((1024, 512, 4), 4, RowPolicy),
        ((131, 1024, 4), 4, SlicePolicy),
        ((1024, 1028, 4), 4, SlicePolicy),
        ((512, 60, 4), 8, RowPolicy),
        ((512, 8, 3), 8, ShortRowPolicy),
        ((512, 9, 3), 8, SlicePolicy),
    ],
)
def test_short_slices_in_registers(shape, size, kind):
    """Rows of vectors of a few positions, or of enough bytes; up to 16 KiB of few columns."""
    _, found = chosen(*shape, size)
    assert type(found.policy) is kind


def test_words_of_numbers():
    """Two or three a position, in large arrays."""
    for rows, inner, kind in ((1508, 3, RowPolicy), (400, 3, SlicePolicy), (1508, 4, SlicePolicy)):
        problem = Problem(rows, 780, inner, (4,), (4,), (0,), (0,), words_of_numbers=True)
        assert type(choose(problem).policy) is kind


def test_short_slices_of_few_columns_apart():
    """Positions of up to 16 bytes; others are columns."""
    for inner, rows in ((4, True), (5, False)):
        _, found = chosen(4096, 64, inner, 4, pitch=inner)
        assert isinstance(found.policy, (RowPolicy, ShortRowPolicy)) == rows
    assert not isinstance(chosen(1846, 88, 4, 8, pitch=4)[1].policy, RowPolicy)


def test_threads_without_a_column_are_few():
    """Whole rows of threads stay where at most a quarter of the threads have no column."""
    for inner in range(1, 700):
        _, choice = chosen(40_000, 20, inner + 32, 4)
        policy = choice.policy
        assert isinstance(policy, ColumnPolicy)
        units = (inner + 32) // policy.width
        threads = -(-policy.lanes // 32) * 32 * (1 if policy.flat else choice.tiles)
        if policy.flat:
            assert choice.tiles == units and (choice.grid - 1) * 128 < 40_000 * units <= choice.grid * 128
        elif units <= column_policy.COLUMN_LANES:
            assert 4 * units > 3 * threads


@pytest.mark.parametrize(("dtype", "inner", "lanes"), [("int16", 70, 512), ("float32", 33, 512), ("int32", 62, 256)])
def test_short_columns_have_larger_blocks(dtype, inner, lanes, on_emulator, launched, monkeypatch):
    """Of several slices each, so that many blocks do not have few bytes."""
    assert not is_flat(chosen(1000, 2, 118, 4)[1].policy)
    assert is_flat(chosen(94_299, 2, 118, 4)[1].policy)
    for name in ("MIN_LARGE_BLOCKS", "ENOUGH_COLUMNS"):
        monkeypatch.setattr(column_policy, name, 1)
    x = data((41, 2, inner), dtype)
    same(np.asarray(cs.scan(cs.asarray(x), axis=1)), scanned(x, axis=1))
    assert is_flat(launched[0]) and launched[0].lanes == lanes


@pytest.mark.parametrize(("dtype", "inner", "lanes"), [("float32", 119, 512), ("int64", 101, 256)])
def test_few_words_are_not_columns_apart(dtype, inner, lanes, on_emulator, launched, monkeypatch):
    """Where most of a thread's columns would not exist. Smaller elements stay, as a thread alone moves too little."""
    size = np.dtype(dtype).itemsize
    assert is_flat(chosen(60_000, 2, inner, size)[1].policy) and not is_flat(chosen(60_000, 2, 1001, size)[1].policy)
    assert is_flat(chosen(60_000, 2, 151, 8)[1].policy) and not is_flat(chosen(60_000, 2, 215, 4)[1].policy)
    assert chosen(60_000, 3, 1001, 1)[1].policy.apart
    for name in ("MIN_LARGE_BLOCKS", "ENOUGH_COLUMNS", "FULL_THREADS"):
        monkeypatch.setattr(column_policy, name, 1)
    x = data((23, 2, inner), dtype)
    same(np.asarray(cs.scan(cs.asarray(x), axis=1, reverse=True)), scanned(x, axis=1, reverse=True))
    assert is_flat(launched[0]) and launched[0].lanes == lanes


@pytest.mark.parametrize(("dtype", "inner", "lanes"), [("int8", 51, 256), ("float16", 25, 256)])
def test_few_small_columns_are_not_apart(dtype, inner, lanes, on_emulator, launched, monkeypatch):
    """The same of small elements in slices with gaps; blocks are smaller where threads are few."""
    size = np.dtype(dtype).itemsize
    assert is_flat(chosen(60_000, 6, inner, size, 60)[1].policy) and not is_flat(chosen(60_000, 3, 333, size)[1].policy)
    assert chosen(8_000, 4, 25, size, 32)[1].policy.lanes == 256
    for name in ("MIN_LARGE_BLOCKS", "ENOUGH_COLUMNS", "FULL_THREADS"):
        monkeypatch.setattr(column_policy, name, 1)
    x = data((23, 3, inner + 2), dtype)
    same(np.asarray(cs.scan(cs.asarray(x)[:, :, 1:-1], axis=1)), scanned(x[:, :, 1:-1], axis=1))
    assert is_flat(launched[0]) and launched[0].lanes == lanes


def test_long_narrow_columns_of_views_are_not_tiles(on_emulator, launched):
    """A tile would touch a line for every position."""
    assert not column_policy.suits(chosen(100, 600, 4, 2, 6)[0])
    assert column_policy.suits(chosen(100, 600, 8, 2, 12)[0]) and column_policy.suits(chosen(10**5, 60, 16, 2, 18)[0])
    assert not column_policy.suits(chosen(10**5, 60, 4, 2, 6)[0])
    x = data((3, 600, 6), "int16")
    same(np.asarray(cs.scan(cs.asarray(x)[:, :, :4], axis=1)), np.cumsum(x[:, :, :4], 1, dtype=np.int16))
    assert isinstance(launched[0], StridedPolicy)


@pytest.mark.parametrize("dtype", ["int8", pytest.param("bool", marks=pytest.mark.slow)])
def test_columns_of_a_thread_lie_apart(dtype, on_emulator, launched, monkeypatch):
    """Elements that no words hold whole: more columns, for bytes in flight."""
    monkeypatch.setattr(column_policy, "FULL_THREADS", 100)
    monkeypatch.setattr(column_policy, "ENOUGH_COLUMNS", 1)
    for length, inner in ((3, 1501), (9, 301)):
        x = data((2, length, inner), dtype)
        init = data((2, inner), dtype)
        same(np.asarray(cs.scan(cs.asarray(x), "or", axis=1, reverse=True)), scanned(x, "or", axis=1, reverse=True))
        found = cs.scan(cs.asarray(x), "xor", axis=1, init=cs.asarray(init), exclusive=True)
        with_init = np.concatenate([init[:, None], x[:, :-1]], 1)
        same(np.asarray(found), np.bitwise_xor.accumulate(with_init, 1))
        place = cs.asarray(x)
        cs.scan(place, "or", axis=1, out=place)
        same(np.asarray(place), scanned(x, "or", axis=1))
    assert [policy.width for policy in launched if policy.apart] == [8, 8, 8, 2, 2, 2]


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("float16", marks=pytest.mark.slow)])
def test_vectors_behind_boundaries(dtype, on_emulator, launched, monkeypatch):
    """Rows that begin as many elements behind a boundary; what lies before the first one is read, what lies behind the
    last one is not, and scans in place read neither."""
    monkeypatch.setattr(column_policy, "ENOUGH_COLUMNS", 1)
    for skew, options in ((1, {}), (3, {"reverse": True, "exclusive": True})):
        x = data((2, 5, 1600), dtype)
        view = cs.asarray(np.concatenate([np.ones(skew, dtype), x.ravel()]))[skew:].reshape(*x.shape)
        same(np.asarray(cs.scan(view, axis=1, **options)), scanned(x, axis=1, **options))
        cs.scan(view, axis=1, out=view, **options)
        same(np.asarray(view), scanned(x, axis=1, **options), "in place")
    assert [policy.skew for policy in launched] == [1, 0, 3, 0]


def test_where_columns_lie_apart():
    _, choice = chosen(9, 3, 551_011, 1)
    assert choice.policy.apart and choice.policy.width == 8 and choice.grid == 9 * -(-551_011 // 1024)
    assert not chosen(9, 3, 551_012, 1)[1].policy.apart  # words of four columns
    assert not chosen(9, 40, 551_011, 1)[1].policy.apart  # enough bytes in flight
    assert not chosen(1, 3, 100_001, 1)[1].policy.apart  # too few threads


@pytest.mark.parametrize("reverse", [False, True])
def test_a_few_tiles_are_narrower(reverse, on_emulator, launched):
    """A thread has fewer rows then, and a column more threads."""
    x = segments((120, 32), 0)
    same(
        np.asarray(cs.scan(cs.asarray(x), adjacent, axis=0, reverse=reverse)),
        scanned(x, adjacent, axis=0, reverse=reverse),
    )
    (policy,) = launched
    assert isinstance(policy, ColumnTilePolicy) and policy.alone
    assert (policy.lanes, policy.groups, policy.height) == (16, 16, 8)
