"""Operations by key agree with NumPy: all types, lengths, alignments, operators, directions, lengths on the device."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.kernels.segments import spec
from cutesync.runtime import call

from .. import states
from ..cases import DTYPES, SCHEDULES, numpy_dtype
from ..select.test_agreement import equal
from .kernels import KERNELS, force
from .reference import heads_of, keys_of, reduced, scanned, slices

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
MEANS = (1, 1.1, 3, 40, 1e9)  # of the lengths of segments


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def numbers(length: int, dtype: str = "int32", seed: int = 1) -> np.ndarray:
    return np.random.default_rng([seed, length]).integers(0, 5, length).astype(dtype)


@pytest.mark.parametrize("lengths", [(0, 193), slow((1, 2, 95, 96, 97, 191, 192, 700, 1291))])
def test_every_length(small, lengths):
    for turn, length in enumerate(lengths):
        for mean in MEANS[turn % 2 :: 2] if length > 95 else (1, 3):
            keys, x = keys_of(length, mean), numbers(length)
            heads = heads_of(keys)
            equal(cs.scan_by_key(keys, x), *scanned(heads, [x]))
            equal(
                cs.scan_by_key(keys, x, reverse=True, exclusive=True),
                *scanned(heads, [x], exclusive=True, reverse=True, init=(0,)),
            )
            found, sums = cs.reduce_by_key(keys, x)
            equal(found, keys[heads])
            equal(sums, *reduced(heads, [x]))


TYPES = [(key, DTYPES[-1 - i]) for i, key in enumerate(DTYPES)][::3]  # one type or the other


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), TYPES)
def test_every_type_and_alignment(small, key, value):
    keys, x = keys_of(1291, 4, key), np.arange(1291).astype(numpy_dtype(value))
    for a, b in ((0, 0), (1, 3)) if x.dtype.itemsize < 4 else ((2, 1),):
        length = 1291 - max(a, b)
        k, v = keys[a : a + length], x[b : b + length]
        heads = heads_of(k)
        found, most = cs.reduce_by_key(cs.asarray(keys)[a : a + length], cs.asarray(x)[b : b + length], "max").exact()
        equal(found, k[heads])
        equal(most, np.maximum.reduceat(v, np.flatnonzero(heads)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matrices"])
def test_states_that_do_not_commute(small, name):
    case = states.CASES[name]
    keys, xs = keys_of(700, 30), states.data(case, (700,), 3)
    heads, device = heads_of(keys), tuple(map(cs.asarray, xs))
    for options in ({}, {"reverse": True}, {"exclusive": True, "init": case.identity}, {"reverse": True, "init": xs}):
        if "init" in options:
            options["init"] = tuple(np.dtype(t).type(v) for t, v in zip(case.types, (2, 3, 5, 7)))
        found = cs.scan_by_key(cs.asarray(keys), device, case.op, **options)
        for one, other in zip(found, scanned(heads, xs, case, **options), strict=True):
            equal(one, other)
    _, found, _ = cs.reduce_by_key(cs.asarray(keys), device, case.op)
    for one, other in zip(found, reduced(heads, xs, case), strict=True):
        equal(np.asarray(one)[: heads.sum()], other)


def test_transform_finish_and_arguments(small):
    keys, x = keys_of(900, 9), numbers(900)
    heads = heads_of(keys)
    for bound in (1, 3):
        _, (share, first) = cs.reduce_by_key(
            keys,
            x,
            lambda p, q, t: (p[0] + q[0], p[1] + q[1], min(p[2], q[2])),
            transform=lambda v, i, t: (v > t, 1, i),
            dtype=("int32", "int32", "int64"),
            finish=lambda s, t: (s[0] / s[1], s[2]),
            out_dtype=("float32", "int64"),
            args=(bound,),
        )
        equal(
            share, np.float32([np.float32((x[p] > bound).sum()) / np.float32(p.stop - p.start) for p in slices(heads)])
        )
        equal(first, np.flatnonzero(heads))


@pytest.mark.slow
def test_keys_of_several_parts_callables_and_nan(small):
    keys, others, x = keys_of(900, 9), keys_of(900, 4, "float64", 1), numbers(900)
    heads = heads_of(keys, others)
    (one, other), sums = cs.reduce_by_key((keys, others), x)
    equal(one, keys[heads])
    equal(other, others[heads])
    equal(sums, *reduced(heads, [x]))
    within = cs.scan_by_key(keys, x, equal=lambda a, b: a // 4 == b // 4, reverse=True)
    equal(within, *scanned(heads_of(keys // 4), [x], reverse=True))
    keys = np.float32([np.nan, np.nan, 0.0, -0.0, 1, np.nan])
    equal(cs.scan_by_key(keys, np.ones(6, np.int32)), np.int32([1, 2, 1, 2, 1, 1]))
    equal(cs.scan_by_key(keys, np.ones(6, np.int32), equal_nan=False), np.int32([1, 1, 1, 2, 1, 1]))


@pytest.mark.slow
def test_capacities_and_lengths_on_the_device(small):
    """Nothing is written beyond the capacity, and the count is right all the same."""
    keys, x = keys_of(1291, 7), numbers(1291)
    a, b = cs.asarray(keys), cs.asarray(x)
    for n in (1291, 700, 1, 0):
        count = cs.asarray(np.int64(n))
        heads = heads_of(keys[:n])
        for size in (0, 5, 400):
            found = cs.reduce_by_key(a, b, size=size, fill_value=-7, n=count)
            assert int(found.count) == heads.sum()
            rest = np.full(400, -7, np.int32)
            equal(found.keys, np.append(keys[:n][heads], rest)[:size])
            equal(found.values, np.append(reduced(heads, [x[:n]])[0], rest)[:size])
        for reverse in (False, True):
            out = cs.asarray(np.full(1291, 9, np.int32))
            cs.scan_by_key(a, b, reverse=reverse, out=out, n=count)
            equal(out, np.append(scanned(heads, [x[:n]], reverse=reverse)[0], np.full(1291 - n, 9, np.int32)))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    keys, x = keys_of(1291, 60, "int16"), numbers(1291)
    heads = heads_of(keys)
    with cs.emulate(schedules=SCHEDULES, seed=8) as ran:
        found = cs.reduce_by_key(cs.asarray(keys), cs.asarray(x), size=300)
        scan = cs.scan_by_key(cs.asarray(keys), cs.asarray(x), reverse=True)
    assert ran.launches == 2 * SCHEDULES
    equal(found.values, np.append(reduced(heads, [x])[0], np.zeros(300 - heads.sum(), np.int32)))
    equal(scan, *scanned(heads, [x], reverse=True))


@pytest.mark.slow
def test_the_number_of_blocks_changes_no_bit(monkeypatch):
    keys, x = keys_of(1291, 400), np.random.default_rng(3).standard_normal(1291).astype(np.float32)
    found = []
    for blocks in (1, 2, 5):
        with monkeypatch.context() as patch, cs.emulate():
            patch.setitem(KERNELS, "here", (KERNELS["three blocks"][0], blocks))
            force(patch, "here")
            found.append(np.concatenate([cs.reduce_by_key(keys, x)[1], cs.scan_by_key(keys, x, reverse=True)]))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@pytest.mark.slow
def test_segments_of_more_tiles_than_a_group(monkeypatch):
    """A head in the group of a tile, in an earlier one, in one that is known already, in none."""
    x = np.random.default_rng(5).standard_normal(110_000).astype(np.float32)
    for lengths in ([100, 60_000, 300, 49_600], [7] * 3_000 + [24_576] + [64_424]):
        keys, found = np.repeat(np.arange(len(lengths), dtype=np.int16), lengths), []
        for name in ("three blocks", "two blocks with these tiles")[: 2 if len(lengths) == 4 else 1]:
            with monkeypatch.context() as patch, cs.emulate(sanitize=False):
                patch.setitem(KERNELS, "two blocks with these tiles", (KERNELS["three blocks"][0], 2))
                force(patch, name)
                own, sums = cs.reduce_by_key(keys, x)
                assert np.array_equal(own, np.arange(len(lengths)))
                found.append(np.append(sums, cs.scan_by_key(keys, x, reverse=True)))
        assert found[0].tobytes() == found[-1].tobytes()
        wanted = np.add.reduceat(x.astype(np.float64), np.append(0, np.cumsum(lengths)[:-1]))
        assert np.allclose(sums, wanted, atol=0.05)


def test_refused():
    keys, x = np.arange(9), np.arange(9.0)
    with cs.emulate():
        for options in ({"equal": 3}, {"equal": lambda a: a}, {"equal_nan": 2}, {"n": 1.5}, {"op": "or"}):
            with pytest.raises(ArgumentTypeError):
                cs.reduce_by_key(keys, x, **options)
        for options in ({"keys": keys[1:]}, {"keys": ()}, {"size": -1}):
            with pytest.raises(ArgumentValueError):
                cs.reduce_by_key(options.pop("keys", keys), x, **options)
        with pytest.raises(ArgumentValueError):
            cs.scan_by_key(keys, x, "max", exclusive=True)


def test_results_that_are_given(small):
    """Keys, results and the count in arrays of any strides and of less room than there are segments."""
    rng = np.random.default_rng(1)
    keys = np.repeat(rng.integers(0, 5, 200), rng.integers(1, 6, 200)).astype(np.int16)
    x = rng.integers(-9, 9, len(keys)).astype(np.int32)
    wanted = cs.reduce_by_key(keys, x)
    for room in (len(keys), 50, 0):
        ours = np.full((room, 2), 77, np.int16), np.full((room, 3), 88, np.int32), np.zeros((), np.int64)
        out = tuple(map(cs.asarray, ours))
        found = cs.reduce_by_key(cs.asarray(keys), cs.asarray(x), out=(out[0][:, 1], out[1][:, 0], out[2]))
        n = min(room, len(wanted[0]))
        ours[0][:n, 1], ours[1][:n, 0], ours[2][()] = wanted[0][:n], wanted[1][:n], len(wanted[0])
        assert found.count is out[2]
        for one, other in zip(out, ours):
            equal(one, other)
    host = np.zeros(500, np.int16), np.zeros(500, np.int32)
    for one, other in zip(cs.reduce_by_key(keys, x, out=host), wanted):
        equal(one, other)
    for wrong in (host[0], host[:1], (*host, *host), (host[0], host[1][:9]), (np.zeros(()), host[1])):
        with pytest.raises((ArgumentTypeError, ArgumentValueError)):
            cs.reduce_by_key(keys, x, out=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["keys", "heads"])
def test_segments_counted_in_64_bits(monkeypatch, where):
    """As those of more than 2**31 elements are."""
    monkeypatch.setattr(spec, "MANY", 1)
    monkeypatch.setattr(call, "_plans", {})
    rng = np.random.default_rng(1)
    x, keys = rng.integers(0, 9, 3000).astype(np.int8), (np.cumsum(rng.random(3000) < 0.2) % 100).astype(np.int8)
    heads = np.append(True, keys[1:] != keys[:-1])
    wanted = np.add.reduceat(x.astype(np.int64), np.flatnonzero(heads))
    with cs.emulate():
        if where == "keys":
            found = cs.reduce_by_key(cs.asarray(keys), cs.asarray(x), dtype="int64", size=3000, fill_value=-1)
            assert (np.asarray(found.values)[len(wanted) :] == -1).all()
        else:
            found = cs.segmented_reduce(cs.asarray(x), heads=cs.asarray(heads), dtype="int64")
        assert int(found.count) == len(wanted)
        assert np.array_equal(np.asarray(found.values)[: len(wanted)], wanted)
