"""Selections of 1- and 2-byte elements, of which a lane has neighbours in words, agree with NumPy: at the borders of
lanes, chunks and tiles, where all or hardly any are kept, and of arrays that begin inside a word."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs

from ..cases import data, numpy_dtype
from .kernels import bits_of, force
from .test_agreement import equal, positive
from .test_runs import heads_of, of_runs

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
TYPES = [slow("bool"), "int8", slow("int16"), slow("bfloat16")]
LENGTHS = (1023, 2048, 2049, 4096 + 31, 8192 + 5)  # chunks of 1024, of bytes 2048 unless places are kept; tiles of two
SHARES = (0.0, 0.02, 0.5, 1.0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    force(monkeypatch, "words")
    with cs.emulate():
        yield


def of_shares(length: int, seed: int = 0) -> np.ndarray:
    """A mask of stretches of some 100 positions, in each of which another share is selected."""
    rng = np.random.default_rng([seed, length])
    shares = np.repeat(rng.choice(SHARES, length // 100 + 1), 100)[:length]
    return rng.random(length) < shares


@pytest.mark.parametrize("dtype", TYPES)
def test_masks_bits_and_callables(dtype):
    for length in LENGTHS:
        x, mask = data(length, dtype), of_shares(length)
        equal(cs.select(x, mask).values, x[mask])
        equal(cs.select(x, positive).values, x[x > 0])
        values, _, places = cs.select(x, bits_of(mask), indices=True)
        equal(values, x[mask])
        equal(places, np.flatnonzero(mask))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_runs_and_their_lengths(dtype):
    for length in LENGTHS:
        x = np.cumsum(of_shares(length, 1)).astype(numpy_dtype(dtype))
        values, index, inverse, lengths = of_runs(x, heads_of(x))
        equal(cs.unique_consecutive(x), values)
        for found, wanted in zip(cs.run_length_encode(x), (values, lengths)):
            equal(found, wanted)
        for found, wanted in zip(cs.unique_consecutive(x, return_index=True), (values, index)):
            equal(found, wanted)
        equal(cs.unique_consecutive(x, return_inverse=True)[1], inverse)


@pytest.mark.parametrize("share", SHARES)
def test_all_of_one_share(share):
    """Also of heads: a chunk whose elements are all kept leaves its last one alone, as its neighbour compares it."""
    x, mask = np.arange(4300).astype(np.int8), np.random.default_rng(3).random(4300) < share
    equal(cs.select(x, mask).values, x[mask])
    equal(cs.unique_consecutive(np.where(mask, x, 0).astype(np.int8)), (y := np.where(mask, x, 0))[heads_of(y)])


@pytest.mark.parametrize("dtype", ["int8", slow("float16")])
def test_arrays_that_begin_inside_a_word(dtype):
    """Elements, masks and results; chunks that begin so are compacted by rows."""
    x, mask = data(2300, dtype), of_shares(2300, 2)
    a, where = cs.asarray(x), cs.asarray(mask)
    for i, j, k in [(0, 0, 1), (1, 0, 3), (16, 32, 5), (3, 2, 2)]:
        out = cs.asarray(np.full(2400, 7, a.dtype.numpy))
        cs.select(a[i : i + 2200], where[j : j + 2200], out=out[k : k + 2200])
        found = x[i : i + 2200][mask[j : j + 2200]]
        equal(out, np.concatenate([np.full(k, 7), found, np.full(2400 - k - len(found), 7)]).astype(found.dtype))
        values, _, _, lengths = of_runs(x[i:], heads_of(x[i:]))
        for one, wanted in zip(cs.run_length_encode(a[i:]).exact(), (values, lengths)):
            equal(one, wanted)


def test_arrays_of_both_sizes():
    x, y, mask = data(2300, "int8"), data(2300, "int16"), of_shares(2300, 3)
    for found, wanted in zip(cs.select((x, y), mask).values, (x, y)):
        equal(found, wanted[mask])
    (found, other), _ = cs.select((x, y), lambda a, b: a < b)
    equal(found, x[x < y])
    equal(other, y[x < y])
