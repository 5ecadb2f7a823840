"""Selections and runs by rows: each row to its own start, or packed behind the row before; partitions."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.kernels.select.policy import Problem, choose
from cutesync.kernels.select.shared import Control
from cutesync.sync.roles import MOST_WARPS

from .. import faults
from ..cases import SCHEDULES, data
from .kernels import KERNELS, bits_of, force
from .test_agreement import equal, slow
from .test_runs import check, heads_of, of_runs

# shapes and axes: rows of one tile and of several, rows that are strided, no rows, rows of no elements
SHAPES = [((5, 700), -1), ((3, 70, 5), 1), ((40, 7), 0), ((2, 1291), -1), ((6, 512), 1), ((0, 5), 1), ((5, 0), 1)]


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def rows_of(x: np.ndarray, axis: int) -> np.ndarray:
    moved = np.moveaxis(x, axis, -1)
    return moved.reshape(int(np.prod(moved.shape[:-1])), moved.shape[-1])


def offsets_of(parts) -> np.ndarray:
    return np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64)


def joined(parts: list, dtype) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts])


def sample(shape: tuple, dtype: str) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 3, shape).astype(dtype)


@pytest.mark.parametrize("shapes", [SHAPES[:1], slow(SHAPES[1:])])
@pytest.mark.parametrize("dtype", [slow("int32"), "int8"])
def test_selections(small, shapes, dtype):
    for shape, axis in shapes:
        x, mask = sample(shape, dtype), np.random.default_rng(2).random(shape) < 0.5
        a, rows, kept = cs.asarray(x), rows_of(x, axis), rows_of(mask, axis)
        found = cs.select(a, cs.asarray(mask), indices=True, axis=axis)
        values, places = found.exact()
        assert len(values) == len(rows) and found.count.shape == np.moveaxis(x, axis, -1).shape[:-1]
        for value, place, row, m in zip(values, places, rows, kept):
            check((value, place), (row[m], np.flatnonzero(m)))
        wanted = (rows > 0) & (np.arange(rows.shape[1]) > 2)
        packed = cs.select(a, lambda v, i: (v > 0) & (i > 2), axis=axis, packed=True, indices=True)
        starts = offsets_of([row[m] for row, m in zip(rows, wanted)])
        check(packed.exact(), (rows[wanted], np.nonzero(wanted)[1], starts))


@pytest.mark.parametrize("shapes", [SHAPES[:1], slow(SHAPES[1:])])
@pytest.mark.parametrize("packed", [slow(False), True])
def test_runs(small, shapes, packed):
    for shape, axis in shapes:
        x = sample(shape, "int16")
        rows = rows_of(x, axis)
        options = {"return_index": True, "return_inverse": True, "return_counts": True}
        found = cs.unique_consecutive(cs.asarray(x), axis=axis, packed=packed, **options)
        parts = [of_runs(row, heads_of(row)) for row in rows]
        starts = offsets_of([part[0] for part in parts])
        values, index, inverse, lengths = ([part[k] for part in parts] for k in range(4))
        inverse = np.asarray(inverse, np.int64).reshape(found.inverse.shape)
        if packed:
            inverse = inverse + starts[:-1].reshape(*inverse.shape[:-1], 1)
            joint = joined(values, "int16"), joined(index, np.int64), inverse, joined(lengths, np.int64), starts
            check(found.exact(), joint)
            assert int(found.count) == starts[-1]
        else:
            equal(found.inverse, inverse)
            for many, part in zip(found.exact()[:2] + found.exact()[3:], (values, index, lengths)):
                assert len(many) == len(part)
                check(many, part)


@pytest.mark.parametrize("n", [slow(700), 30, slow(0)])
def test_results_of_a_given_size(small, n):
    """Nothing is written beyond a row of the results, and the counts are the true ones."""
    x, mask = data(5 * 300, "int16").reshape(5, 300), np.random.default_rng(1).random((5, 300)) < 0.5
    found = cs.select(cs.asarray(x), cs.asarray(mask), axis=1, size=20, fill_value=9, n=cs.asarray(np.int64(n)))
    for value, count, row, m in zip(np.asarray(found.values), np.asarray(found.count), x[:, :n], mask[:, :n]):
        equal(value, np.append(row[m], np.full(20, 9, np.int16))[:20])
        assert count == m.sum()
    packed = cs.select(cs.asarray(x), cs.asarray(mask), axis=1, packed=True, size=500, fill_value=9, n=n)
    equal(packed.values, np.append(x[:, :n][mask[:, :n]], np.full(500, 9, np.int16))[:500])
    equal(packed.offsets, np.append(0, np.cumsum(mask[:, :n].sum(1))))


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "shape, axis", [slow((5, 70), 1), slow((5, 70), 0), slow((3, 50, 4), 1), slow((0, 5), 1), slow((5, 0), 1)]
)
def test_bits(small, shape, axis):
    """Rows of bits, as flags along the axis are."""
    x, mask = sample(shape, "int16"), np.random.default_rng(2).random(shape) < 0.5
    of_device = cs.asarray(mask.view(np.uint8))
    bits = cs.flag_heads(of_device, lambda a, b: b != 0, predecessor=0, dtype="bits", axis=axis)
    for packed in (False, True):
        found, wanted = (cs.select(cs.asarray(x), m, axis=axis, packed=packed) for m in (bits, cs.asarray(mask)))
        for one, other in zip(found.exact(), wanted.exact()):
            equal(one, other)


@pytest.mark.parametrize("shape, axis", [slow((5, 70), 1), slow((70,), 0), ((3, 50, 4), 1)])
def test_results_that_are_given(small, shape, axis):
    """Results and counts of any strides; what lies between and behind them stays as it is."""
    x, mask = sample(shape, "int16"), np.random.default_rng(2).random(shape) < 0.5
    outer, room = np.moveaxis(x, axis, -1).shape[:-1], 20
    values, places = np.full((*outer, room, 3), 77, np.int16), np.full((room, *outer), 55)
    counts, first = np.zeros((*outer, 2), np.int64), range(1, len(outer) + 1)
    held = [cs.asarray(a) for a in (values, places, counts)]
    cs.select(
        cs.asarray(x),
        cs.asarray(mask),
        axis=axis,
        indices=True,
        out=(held[0][..., 1], held[1].transpose(*first, 0), held[2][..., 0]),
    )
    host = np.full((room, *outer), 77, np.int16)
    cs.select(x, mask, axis=axis, out=host.transpose(*first, 0))
    for i, (row, m) in zip(np.ndindex(outer), zip(rows_of(x, axis), rows_of(mask, axis))):
        n = min(m.sum(), room)
        values[i][:n, 1], places[(slice(n), *i)], counts[(*i, 0)] = row[m][:n], np.flatnonzero(m)[:n], m.sum()
    for found, wanted in zip((*held, host), (values, places, counts, np.moveaxis(values[..., 1], -1, 0))):
        equal(found, wanted)


@pytest.mark.parametrize("packed", [slow(False), True])
def test_runs_that_are_given(small, packed):
    x, asked = sample((4, 3, 60), "int16"), {"return_index": True, "return_inverse": True, "return_counts": True}
    room = (x.size,) if packed else x.shape

    def apart(shape, dtype=np.int64):
        return cs.asarray(np.zeros((*shape, 2), dtype))[..., 0]

    out = apart(room, np.int16), apart(room), apart(x.shape), apart(room), *([apart((13,))] if packed else [])
    found = cs.unique_consecutive(cs.asarray(x), axis=2, packed=packed, out=out, **asked)
    wanted = cs.unique_consecutive(cs.asarray(x), axis=2, packed=packed, **asked)
    assert found.values is out[0]
    for one, other in zip(found.exact(), wanted.exact()):
        check(one, other) if isinstance(one, list) else equal(one, other)
    lengths = np.zeros(x.size, int), np.zeros((), int)
    encoded = cs.run_length_encode(x, out=(np.zeros(x.size, np.int16), *lengths))
    check(encoded, cs.run_length_encode(x))
    assert lengths[1] == len(encoded[0])


def test_every_length_of_rows_fits_a_block():
    """The kernels that are chosen for rows of any length, as they are: no more warps than a block has."""
    for length, strided, heads in itertools.product((1, 128, 129, 513, 2048, 2049, 9000), (False, True), (False, True)):
        policy = choose(Problem(length, (4,), strided=strided, heads=heads, rows=3)).policy
        each = len(Control) + policy.compact_warps + policy.store_warps + policy.gather_warps * strided
        assert policy.teams * each <= MOST_WARPS and policy.stages >= policy.teams
    with cs.emulate():
        x, out = sample((600, 2, 2), "int8"), cs.empty((2, 2, 600), "int8").transpose(1, 0, 2)
        values = cs.select(cs.asarray(x), lambda v: v > 1, axis=0, out=out).exact()  # rows that are no rows of a matrix
        check(tuple(values), tuple(column[column > 1] for column in x.reshape(600, 4).T))


@pytest.mark.slow
def test_numpy_arrays_and_segments(small):
    """The offsets of packed rows are those of ``segmented_reduce``."""
    x = sample((6, 90), "int32")
    found = cs.select(x, x > 0, axis=1, fill_value=-1)
    assert [row[row >= 0].tolist() for row in found.values] == [row[row > 0].tolist() for row in x]
    packed = cs.select(cs.asarray(x), lambda v: v > 0, axis=1, packed=True, size=x.size)
    equal(cs.segmented_reduce(packed.values, offsets=packed.offsets), (x * (x > 0)).sum(1, dtype=np.int32))


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = sample((5, 291), "int16")
    parts = [of_runs(row, heads_of(row)) for row in x]
    with cs.emulate(schedules=SCHEDULES, seed=3):
        packed = cs.run_length_encode(cs.asarray(x), axis=1, packed=True).exact()
        apart = cs.run_length_encode(cs.asarray(x), axis=1, size=200, fill_value=7)
    values, lengths = ([part[k] for part in parts] for k in (0, 3))
    check(packed, (joined(values, "int16"), joined(lengths, np.int64), offsets_of(values)))
    for row, value, length in zip(range(5), values, lengths):
        equal(apart.values[row], np.append(value, np.full(200, 7, np.int16))[:200])
        equal(apart.lengths[row], np.append(length, np.zeros(200, np.int64))[:200])


def partitioned(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.concatenate([x[mask], x[~mask]])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", slow("int64")])
def test_partitions(small, dtype):
    for length in (0, 1, 700):
        x, mask = data(length, dtype), np.random.default_rng(3).random(length) < 0.4
        found = cs.partition(cs.asarray(x), cs.asarray(mask), indices=True)
        equal(found.values, partitioned(x, mask))
        equal(found.indices, partitioned(np.arange(length), mask))
        equal(found.exact()[0], x[mask])
        assert int(found.count) == mask.sum()
    equal(cs.partition(x, bits_of(mask)).values, partitioned(x, mask))
    equal(cs.partition(x, lambda v: v > 0).values, partitioned(x, x > 0))


@pytest.mark.slow
def test_partitions_of_strided_and_several_arrays(small):
    x, mask = data(1290, "int32").reshape(43, 30), np.random.default_rng(3).random((30, 43)) < 0.4
    (one, two), _ = cs.partition((cs.asarray(x).T, cs.asarray(x.T.astype(np.int8))), cs.asarray(mask))
    equal(one, partitioned(x.T[:], mask))
    equal(two, partitioned(x.T.astype(np.int8), mask))
    equal(cs.partition(cs.asarray(x).T, cs.asarray(mask.ravel())).values, partitioned(x.T, mask))
    out, flat = cs.asarray(np.zeros((1300, 2), np.int32)), x.T.ravel()[:500]
    cs.partition(cs.asarray(x).T, lambda v, i: (v > 0) & (i > 30), n=cs.asarray(np.int64(500)), out=out[:, 1])
    wanted = np.zeros((1300, 2), np.int32)
    wanted[:500, 1] = partitioned(flat, (flat > 0) & (np.arange(500) > 30))
    equal(out, wanted)
    host = np.zeros(1290, np.int32)
    cs.partition(x.ravel(), mask.ravel(), out=host, n=500)
    equal(host[:500], partitioned(x.ravel()[:500], mask.ravel()[:500]))
    bits = cs.asarray(np.repeat(bits_of(mask.ravel()), 2))[::2]
    equal(cs.partition(cs.asarray(x), bits).values, partitioned(x, mask.reshape(x.shape)))


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_partitions_agree_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x, mask = data(1291, "int16"), np.random.default_rng(3).random(1291) < 0.4
    with cs.emulate(schedules=SCHEDULES, seed=3):
        found = cs.partition(cs.asarray(x), cs.asarray(mask), indices=True)
    equal(found.values, partitioned(x, mask))
    equal(found.indices, partitioned(np.arange(1291), mask))


def test_refused():
    x = np.zeros((4, 5), np.int32)
    with cs.emulate():
        for options, error in (
            ({"axis": 2}, ArgumentValueError),
            ({"axis": 1.5}, ArgumentTypeError),
            ({"packed": True}, ArgumentValueError),
            ({"axis": 1, "packed": 3}, ArgumentTypeError),
            ({"axis": 1, "out": x[:3]}, ArgumentValueError),
            ({"axis": 1, "out": x[0]}, ArgumentValueError),
            ({"axis": 1, "where": np.zeros(20, bool)}, ArgumentValueError),
            ({"axis": 1, "where": np.zeros((4, 5), np.uint32)}, ArgumentValueError),
        ):
            with pytest.raises(error):
                cs.select(x, **{"where": x > 0} | options)
        with pytest.raises(ArgumentValueError, match="axis"):
            cs.unique_consecutive(x, axis=-3)
        with pytest.raises(ArgumentValueError, match="20, as x has"):
            cs.partition(cs.asarray(x), cs.asarray(x > 0), out=cs.empty(19, "int32"))
        with pytest.raises(ArgumentTypeError, match="one length"):
            len(cs.select(cs.asarray(x), lambda v: v > 0, axis=0))


@functools.cache
def bench() -> faults.Bench:
    """Two filled encodings by rows."""
    x = sample((9, 301), "int32")
    parts = [of_runs(row, heads_of(row)) for row in x]
    values = np.stack([np.append(part[0], np.full(320 - len(part[0]), 7, np.int32)) for part in parts])
    counts = [len(part[0]) for part in parts]

    def right() -> bool:
        found = [cs.run_length_encode(cs.asarray(x), axis=1, size=320, fill_value=7) for _ in range(2)]
        lengths = all(
            np.array_equal(row[:count], part[3])
            for s in found
            for row, count, part in zip(np.asarray(s.lengths), counts, parts)
        )
        return lengths and all(np.array_equal(s.values, values) and np.array_equal(s.count, counts) for s in found)

    return faults.of_tiles(force, right, schedules=4)


@pytest.mark.slow
def test_no_mutant_survives():
    harmless = ["no look at the barrier #0"]
    assert bench().survivors(faults.VARIANT, harmless) == harmless
