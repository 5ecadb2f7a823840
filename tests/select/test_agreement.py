"""Selections agree with NumPy: all types, lengths and alignments, all ways to say what is selected."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import call

from ..cases import DTYPES, data
from .kernels import bits_of, force, masks

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
LENGTHS = (0, 1, 2, 31, 32, 33, 255, 256, 257, 515, 1291)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def positive(value):
    return value > 0


def above_at_even_places(value, index, bound):
    return (value > bound) & (index % 2 == 0)


def nearer(a, b):
    return a * a < b * b


def equal(found, wanted) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.drawn(4)
@pytest.mark.parametrize("dtype", [name if name in ("int16", "float64") else slow(name) for name in DTYPES])
def test_elements_of_every_type(dtype):
    rng = np.random.default_rng(5)
    for length in (33, 1291):
        x = data(length, dtype)
        for mask in masks(rng, length):
            values, count = cs.select(x, mask)
            equal(values, x[mask])
            assert count == mask.sum()


def test_every_length_and_mask():
    rng = np.random.default_rng(6)
    for length in LENGTHS:
        x = data(length, "int32")
        for mask in masks(rng, length):
            equal(cs.select(x, mask).values, x[mask])


@pytest.mark.parametrize("dtype", ["int8", slow("int16"), slow("int32"), slow("int64")])
def test_every_alignment(dtype):
    """Arrays, masks and results that begin at any element of a 16-byte vector."""
    rng = np.random.default_rng(7)
    x, mask = data(701, dtype), rng.random(701) < 0.6
    a, where = cs.asarray(x), cs.asarray(mask)
    out = cs.asarray(np.zeros(800, dtype))
    for i, j, k in [(0, 1, 3), (1, 0, 0), (2, 5, 1), (3, 3, 2), (5, 2, 7), (4, 4, 4)]:
        out = cs.asarray(np.full(800, 7, dtype))
        cs.select(a[i : i + 690], where[j : j + 690], out=out[k : k + 690])
        wanted = np.full(800, 7, dtype)
        found = x[i : i + 690][mask[j : j + 690]]
        wanted[k : k + len(found)] = found
        equal(out, wanted)


@pytest.mark.slow
def test_masks_of_other_bytes():
    """Every byte that is not 0 selects."""
    x = data(600, "int16")
    where = np.random.default_rng(8).choice(np.array([0, 0, 1, 2, 128, 255], np.uint8), 600)
    equal(cs.select(x, where).values, x[where != 0])
    equal(cs.select(x, where.view(np.int8)).values, x[where != 0])


def test_bits_and_indices():
    rng = np.random.default_rng(9)
    for length in (1, 32, 45, 1000, 1291):
        x = data(length, "float32")
        for mask in masks(rng, length):
            values, count, places = cs.select(x, bits_of(mask), indices=True)
            equal(values, x[mask])
            equal(places, np.flatnonzero(mask))
            assert count == mask.sum()


def test_bits_of_flags():
    x = np.repeat(np.arange(40, dtype=np.int32), np.random.default_rng(2).integers(1, 30, 40))
    a = cs.asarray(x)
    equal(cs.select(a, cs.flag_heads(a, dtype="bits")), np.arange(40, dtype=np.int32))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", [slow("bool"), slow("int8"), "float16", slow("int32"), slow("float64")])
def test_callables_of_the_value(dtype):
    for length in (1, 33, 1291):
        x = data(length, dtype)
        equal(cs.select(x, positive).values, x[x > 0])


def test_callables_of_the_index_and_of_arguments():
    x = data(900, "int32")
    even = np.arange(900) % 2 == 0
    for bound in (1 << 30, 7, -9):  # a new number makes no plan
        equal(cs.select(x, above_at_even_places, args=(bound,)).values, x[(x > bound) & even])
        assert len(call._plans) == 1
    a, bound = cs.asarray(x), cs.asarray(np.int32([-5]))
    equal(cs.select(a, above_at_even_places, args=(bound,)), x[(x > -5) & even])


@pytest.mark.slow
def test_several_arrays():
    rng = np.random.default_rng(10)
    x, y, z = rng.standard_normal(777, np.float32), rng.integers(-9, 9, 777), rng.integers(0, 9, 777).astype(np.int8)
    mask = rng.random(777) < 0.5
    for found, wanted in zip(cs.select((x, y, z), mask).values, (x, y, z)):
        equal(found, wanted[mask])
    (found, other), count = cs.select((x, y), nearer)
    wanted = x.astype(np.float64) ** 2 < y**2
    equal(found, x[wanted])
    equal(other, y[wanted])
    assert count == wanted.sum()


def test_names_of_numpy():
    rng = np.random.default_rng(11)
    x = rng.integers(-1, 2, 1000).astype(np.float32)
    x[::7] = np.nan
    equal(cs.flatnonzero(x.reshape(10, 100)), np.flatnonzero(x))
    (found,) = cs.nonzero(x)
    equal(found, np.flatnonzero(x))
    for length in (0, 1, 640, 1000):
        mask = rng.random(length) < 0.5
        equal(cs.compress(mask, x), np.compress(mask, x))
    equal(cs.flatnonzero(cs.asarray(x)), np.flatnonzero(x))


@pytest.mark.parametrize("length", [slow(0), 700])
def test_results_of_a_given_size(length):
    """Exactly so many; what is behind them is filled, and nothing further is written; the count is the true one."""
    x, mask = data(length, "int16"), np.random.default_rng(12).random(length) < 0.5
    a, where = cs.asarray(x), cs.asarray(mask)
    wanted = np.concatenate([x[mask], np.full(1000, -3, np.int16)])
    places = np.concatenate([np.flatnonzero(mask), np.full(1000, -1)])
    for size in (0, 63, 1000):
        memory = cs.asarray(np.full(1100, 99, np.int16))
        found = cs.select(a, where, size=size, fill_value=-3, out=memory[5 : 5 + size])
        assert int(found.count) == mask.sum()
        equal(memory, np.concatenate([np.full(5, 99), wanted[:size], np.full(1095 - size, 99)]).astype(np.int16))
        both = cs.select(x, mask, size=size, fill_value=-3, indices=True)
        equal(both.values, wanted[:size])
        equal(both.indices, places[:size])
        assert len(both) == min(mask.sum(), size)


def test_results_with_a_capacity():
    """Without a size, nothing is written beyond the selected elements, nor beyond the results."""
    x, mask = data(700, "int64"), np.random.default_rng(13).random(700) < 0.5
    for capacity in (0, 1, 100, 700):
        memory = cs.asarray(np.full(900, 99))
        found = cs.select(cs.asarray(x), cs.asarray(mask), out=memory[3 : 3 + capacity])
        some = x[mask][:capacity]
        assert int(found.count) == mask.sum()
        equal(memory, np.concatenate([np.full(3, 99), some, np.full(897 - len(some), 99)]))
        out = np.full(capacity, 98)
        equal(cs.select(x, mask, out=out).values, some)
        equal(out, np.concatenate([some, np.full(capacity - len(some), 98)]))


def test_lengths_on_the_device():
    """The count of one call is the length of the next; counts that no array has are cut off."""
    x = data(1291, "int32")
    a = cs.asarray(x)
    first = cs.select(a, positive)
    second = cs.select(first.values, above_at_even_places, n=first.count, args=(1000,))
    kept = x[x > 0]
    equal(second, kept[(kept > 1000) & (np.arange(len(kept)) % 2 == 0)])
    for n in (-5, 0, 1, 300, 1291, 5000):
        equal(cs.select(a, positive, n=cs.asarray(np.int64(n))), (y := x[: max(n, 0)])[y > 0])
    for n in (300, np.int64(300), np.array(300), 9999, -1):
        equal(cs.select(x, x > 0, n=n).values, (y := x[: max(int(n), 0)])[y > 0])


@pytest.mark.parametrize("name", ["one block", "three teams"])
def test_places_that_a_byte_does_not_hold_as_a_signed_number(name, monkeypatch):
    """Chunks of 256 and of 512 positions: indices, and lengths of runs."""
    force(monkeypatch, name)
    x = data((2600,), "int32")
    values, _, places = cs.select(x, x % 3 != 0, indices=True)
    assert np.array_equal(values, x[x % 3 != 0]) and np.array_equal(places, np.flatnonzero(x % 3 != 0))
    keys = np.repeat(np.arange(200), 13).astype(np.int32)
    assert np.array_equal(cs.run_length_encode(keys)[1], np.full(200, 13))
