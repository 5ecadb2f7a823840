"""Operations on segments of arrays of any strides, and results at any strides."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentValueError

from .. import faults, states
from ..cases import SCHEDULES, STAND_FOR_ALL, numpy_dtype
from ..select.test_agreement import equal
from .kernels import force
from .reference import heads_of, keys_of, reduced, scanned
from .test_segmented import heads_of as heads_at, offsets_of, reduce_all

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def columns(dtype: str = "int32") -> np.ndarray:
    return (np.arange(1300) % 7).astype(numpy_dtype(dtype)).reshape(26, 50)


@pytest.mark.parametrize("rows", [slice(None), slow(slice(44, 3, -3))])
def test_by_key(small, rows):
    """Keys, values, or both are strided; results lie apart."""
    keys, x = keys_of(1300, 9).reshape(50, 26)[rows], columns().T[rows]
    k, v = cs.asarray(keys_of(1300, 9)).reshape(50, 26)[rows], cs.asarray(columns()).T[rows]
    heads = heads_of(keys.ravel())
    for own, values in ((k, v), (cs.asarray(keys.copy()), v), (k, cs.asarray(x.copy()))):
        found, sums = cs.reduce_by_key(own, values).exact()
        equal(found, keys.ravel()[heads])
        equal(sums, *reduced(heads, [x.ravel()]))
    out = np.full((keys.size, 3), 9, np.int32)
    a = cs.asarray(out)
    cs.scan_by_key(k, v, reverse=True, out=a[::-1, 1])
    out[::-1, 1] = scanned(heads, [x.ravel()], reverse=True)[0]
    equal(a, out)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", STAND_FOR_ALL)
def test_every_type(small, dtype):
    x, keys = columns(dtype).T, np.sort(columns(dtype).ravel()).reshape(26, 50)
    heads = heads_of(keys.T.ravel())
    found, most = cs.reduce_by_key(cs.asarray(keys).T, cs.asarray(columns(dtype)).T, "max").exact()
    equal(found, keys.T.ravel()[heads])
    equal(most, np.maximum.reduceat(x.ravel(), np.flatnonzero(heads)))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("segments", [300, 1500])
def test_offsets(small, segments):
    """The elements, the offsets and the results are strided."""
    x, offsets = columns("int64").T, offsets_of(1300, segments)
    a, apart = cs.asarray(columns("int64")).T, cs.asarray(np.stack([offsets, -offsets], 1))[:, 0]
    out = cs.asarray(np.full((2, segments), 5))
    for given in (cs.asarray(offsets), apart):
        cs.segmented_reduce(a, offsets=given, out=out[1, ::-1])
        equal(np.asarray(out)[1, ::-1], *reduce_all([x.ravel()], offsets))
        found = cs.segmented_scan(a, offsets=given, reverse=True)
        equal(found, *scanned(heads_at(1300, offsets), [x.ravel()], reverse=True))
    assert (np.asarray(out)[0] == 5).all()
    lengths = np.diff(np.append(0, offsets))
    two = cs.asarray(np.stack([lengths, lengths], 1))
    equal(cs.segmented_reduce(a, lengths=two[:, 1]), *reduce_all([x.ravel()], np.append(0, offsets)))


@pytest.mark.slow
def test_masks_states_and_lengths_on_the_device(small):
    case = states.CASES["matrices"]
    xs = states.data(case, (25, 28), 3)
    heads = np.random.default_rng(1).random((28, 25)) < 0.1
    begins = heads.ravel() | (np.arange(700) == 0)
    device = tuple(cs.asarray(x).T for x in xs)
    found = cs.segmented_scan(device, case.op, heads=cs.asarray(heads.T.copy()).T)
    for one, other in zip(found, scanned(begins, [x.T.ravel() for x in xs], case), strict=True):
        equal(one, other)
    x = columns()
    for n in (0, 1, 700, 5000):
        keys = keys_of(1300, 9)[:n]
        found = cs.reduce_by_key(cs.asarray(keys_of(1300, 9)), cs.asarray(x).T, n=cs.asarray(np.int64(n)), size=300)
        sums = reduced(heads_of(keys), [x.T.ravel()[:n]])[0] if n else np.zeros(0)
        equal(found.values, np.append(sums, np.zeros(300)).astype(np.int32)[:300])


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["two blocks", "three squads"])
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    keys, x, offsets = keys_of(1300, 60, "int16").reshape(26, 50), columns("int16"), offsets_of(1300, 400)
    with cs.emulate(schedules=SCHEDULES, seed=8):
        scan = cs.scan_by_key(cs.asarray(keys).T, cs.asarray(x).T, reverse=True)
        found = cs.segmented_reduce(cs.asarray(x).T, offsets=cs.asarray(offsets))
    equal(scan, *scanned(heads_of(keys.T.ravel()), [x.T.ravel()], reverse=True))
    equal(found, *reduce_all([x.T.ravel()], offsets))


def test_refused():
    x, offsets = np.arange(24), np.zeros((3, 4), np.int64)
    with cs.emulate(), pytest.raises(ArgumentValueError, match="one axis"):
        cs.segmented_reduce(cs.asarray(x), offsets=cs.asarray(offsets).T)


@functools.cache
def bench() -> faults.Bench:
    """Two filled reductions of strided arrays."""
    keys, x = keys_of(2000, 9).reshape(50, 40), np.arange(2000, dtype=np.int32).reshape(50, 40)
    heads = heads_of(keys.T.ravel())
    (sums,) = reduced(heads, [x.T.ravel()])
    wanted = np.append(sums, np.full(2100 - len(sums), 7, np.int32))
    first = np.append(keys.T.ravel()[heads], np.full(2100 - len(sums), 7, keys.dtype))

    def right() -> bool:
        arrays = cs.asarray(keys).T, cs.asarray(x).T
        found = [cs.reduce_by_key(*arrays, size=2100, fill_value=7) for _ in range(2)]
        same = (np.array_equal(s.values, wanted) and np.array_equal(s.keys, first) for s in found)
        return all(same) and all(int(s.count) == len(sums) for s in found)

    return faults.of_tiles(functools.partial(force, name="three squads"), right, schedules=3)


@pytest.mark.slow
def test_no_mutant_survives():
    harmless = [*faults.WITHOUT_COPIES, "no look at the barrier #0"]
    assert bench().survivors(faults.VARIANT, harmless) == harmless
