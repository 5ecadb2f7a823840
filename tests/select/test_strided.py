"""Selections and runs of arrays of any strides, coordinates of elements that are not 0, results at any strides."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentValueError

from .. import faults
from ..cases import SCHEDULES, STAND_FOR_ALL, data
from .kernels import bits_of, force
from .test_agreement import equal, slow
from .test_runs import check, heads_of, of_runs

SHAPE = (7, 9, 23)
# views of an array of that shape
VIEWS = {
    "permuted": lambda x: x.transpose(2, 0, 1),
    "every other, backwards": lambda x: x[::-1, ::2, 3::-1],
    "rows apart": lambda x: x[:, 2:, :11],
    "broadcast": lambda x: (np.broadcast_to if isinstance(x, np.ndarray) else type(x).broadcast_to)(
        x[:, None, 3:4], (7, 5, 6, 23)
    ),
    "one column": lambda x: x[:, 1, 5],
}


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def sparse(shape: tuple, dtype: str = "int32") -> np.ndarray:
    """Numbers of which two of five are 0."""
    rng = np.random.default_rng(8)
    return ((rng.random(shape) < 0.6) * rng.integers(1, 9, shape)).astype(dtype)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_selections_and_runs(small, name):
    view, x, mask = VIEWS[name], sparse(SHAPE), np.random.default_rng(2).random(SHAPE) < 0.5
    y, m, a, b = view(x), view(mask), view(cs.asarray(x)), view(cs.asarray(mask))
    found = cs.select(a, b, indices=True).exact()
    check(found, (y[m], np.flatnonzero(m)))
    equal(cs.select(a, cs.asarray(m.copy())), y[m])
    equal(cs.select(cs.asarray(y.copy()), b), y[m])
    equal(cs.select(a, cs.asarray(bits_of(m.ravel()))), y[m])
    equal(cs.select(a, lambda v, i: (v > 2) & (i < 300)), (z := y.ravel()[:300])[z > 2])
    runs = cs.unique_consecutive(a, return_index=True, return_inverse=True, return_counts=True)
    check(runs.exact(), of_runs(y.ravel(), heads_of(y.ravel())))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", STAND_FOR_ALL)
def test_every_type_and_several_arrays(small, dtype):
    x, other = data(1300, dtype).reshape(26, 50), data(1300, "int16").reshape(50, 26)
    mask = np.random.default_rng(3).random((50, 26)) < 0.5
    a, b, where = cs.asarray(x).T, cs.asarray(other), cs.asarray(mask)
    for rows in (slice(None), slice(45, None, -3)):
        (one, two), _ = cs.select((a[rows], b[rows]), where[rows])
        n = mask[rows].sum()
        equal(np.asarray(one)[:n], x.T[rows][mask[rows]])
        equal(np.asarray(two)[:n], other[rows][mask[rows]])


@pytest.mark.slow
def test_bits_and_conditions_that_lie_apart(small):
    x, mask = data(1300, "int32"), np.random.default_rng(3).random(1300) < 0.5
    bits = cs.asarray(np.stack([bits_of(mask), ~bits_of(mask)], 1))
    equal(cs.select(cs.asarray(x), bits[:, 0]), x[mask])
    equal(cs.select(cs.asarray(x).reshape(26, 50).T, bits[::, 1]), x.reshape(26, 50).T[~mask.reshape(50, 26)])
    some = cs.compress(cs.asarray(mask)[:900:3], cs.asarray(x)[::2])
    assert int(some.count) == mask[:900:3].sum()
    equal(np.asarray(some.values)[: int(some.count)], np.compress(mask[:900:3], x[::2]))


@pytest.mark.slow
def test_lengths_on_the_device_and_arrays_without_elements(small):
    x = sparse((40, 33))
    a = cs.asarray(x).T
    for n in (-3, 0, 1, 700, 9999):
        wanted = x.T.ravel()[: max(n, 0)]
        equal(cs.select(a, lambda v: v > 2, n=cs.asarray(np.int64(n))), wanted[wanted > 2])
    for empty in (a[:0], a[:, :0], a[5:5, ::-2]):
        assert int(cs.flatnonzero(empty).count) == 0
        assert int(cs.run_length_encode(empty).count) == 0


@pytest.mark.parametrize("shape", [(41, 31), slow((1300,)), slow((5, 4, 1, 13, 5))])
def test_coordinates(small, shape):
    x = sparse(shape, "float32")
    a, wanted = cs.asarray(x), np.nonzero(x)
    tell = cs.nonzero(a).exact()
    check(tell if len(shape) > 1 else (tell,), wanted)
    check(cs.nonzero(x), wanted)
    equal(cs.argwhere(a).exact(), np.argwhere(x))
    equal(cs.argwhere(x), np.argwhere(x))
    check(cs.nonzero(x.T), np.nonzero(x.T))
    equal(cs.argwhere(a.T), np.argwhere(x.T))


@pytest.mark.slow
def test_coordinates_of_a_given_size(small):
    x = sparse((41, 31))
    a, count = cs.asarray(x), np.count_nonzero(x)
    for size in (0, 50, count + 30):
        rest = np.full((count + 30, 2), -9)
        wanted = np.concatenate([np.argwhere(x), rest])[:size]
        found = cs.nonzero(a, size=size, fill_value=-9)
        assert int(found.count) == count
        check(found.values, wanted.T)
        rows = cs.argwhere(a, size=size, fill_value=-9, out=cs.asarray(np.zeros((2, size), np.int64)).T)
        equal(rows.values, wanted)
    for out in (cs.empty((5, 3), "int64"), cs.empty(5, "int64")):
        with pytest.raises(ArgumentValueError, match="out"):
            cs.argwhere(a, out=out)
    for call in (cs.nonzero, cs.argwhere):
        with pytest.raises(ArgumentValueError, match="at least one axis"):
            call(a[0, 0])


@pytest.mark.parametrize("dtype", [slow("int8")])
def test_results_that_lie_apart(small, dtype):
    """Nothing is written between their elements."""
    x, mask = data(700, dtype), np.random.default_rng(12).random(700) < 0.5
    values, places = np.full((300, 3), 7, dtype), np.full((2, 300), 7)
    a, b = cs.asarray(values), cs.asarray(places)
    cs.select(cs.asarray(x), cs.asarray(mask), indices=True, out=(a[::-1, 1], b[1]))
    values[::-1, 1], places[1] = x[mask][:300], np.flatnonzero(mask)[:300]
    cs.select(
        cs.asarray(x[:90]), cs.asarray(mask[:90]), indices=True, size=300, fill_value=1, out=(a[:, 2], b[0, ::-1])
    )
    count = mask[:90].sum()
    values[:, 2], places[0] = np.append(x[:90][mask[:90]], np.ones(300 - count, dtype)), -1
    places[0, : -count - 1 : -1] = np.flatnonzero(mask[:90])
    equal(a, values)
    equal(b, places)


@pytest.mark.parametrize("name", ["two blocks", *map(slow, ("one block", "three teams", "words"))])
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = sparse((33, 40), "int16")
    with cs.emulate(schedules=SCHEDULES, seed=3):
        values, lengths = cs.run_length_encode(cs.asarray(x).T).exact()
    wanted = of_runs(x.T.ravel(), heads_of(x.T.ravel()))
    check((values, lengths), (wanted[0], wanted[3]))


@functools.cache
def bench() -> faults.Bench:
    """Two filled selections of strided arrays."""
    x, mask = data(3000, "int32").reshape(50, 60), np.random.default_rng(4).random((60, 50)) < 0.5
    wanted = np.append(x.T[mask], np.full(3100 - mask.sum(), 7, np.int32))

    def right() -> bool:
        arrays = cs.asarray(x).T, cs.asarray(mask)
        found = [cs.select(*arrays, size=3100, fill_value=7) for _ in range(2)]
        return all(np.array_equal(s.values, wanted) and int(s.count) == mask.sum() for s in found)

    return faults.of_tiles(force, right, schedules=3)


@pytest.mark.slow
def test_no_mutant_survives():
    # without its first wait a loader asks for the next tile earlier, no more
    harmless = [*faults.WITHOUT_COPIES, "no look at the barrier #0"]
    assert bench().survivors(faults.VARIANT, harmless) == harmless
