"""Run lengths decoded, elements repeated, and searches in sorted arrays, as in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import DTYPES, numpy_dtype
from ..select.test_agreement import equal


@pytest.fixture
def emulated():
    with cs.emulate():
        yield


def test_lengths_of_every_kind(emulated):
    """Runs of one element, long ones, empty ones between, more than a row has room for."""
    rng = np.random.default_rng(4)
    empty = np.zeros(1100, int)
    empty[[0, 70, 71, 1099]] = 5, 40, 1, 2
    for lengths in (empty[:0], empty[1:9], rng.integers(0, 3, 400), rng.integers(0, 200, 20), [1500], empty, [1] * 99):
        lengths = np.asarray(lengths, np.int32)
        x = np.arange(len(lengths), dtype=np.int32)
        wanted = np.repeat(x, lengths)
        equal(cs.repeat(x, lengths), wanted)
        for size in (7, 1600):
            found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), size=size, fill_value=-1)
            assert int(found.count) == len(wanted)
            equal(found.values, np.append(wanted, np.full(1600, -1, np.int32))[:size])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(emulated, dtype):
    x = (np.arange(50) % 7).astype(numpy_dtype(dtype))
    lengths = np.arange(50) % 5
    equal(
        cs.run_length_decode(*map(cs.asarray, (x, lengths.astype(np.uint8))), size=99).values[:99],
        np.repeat(x, lengths)[:99],
    )
    a = np.sort(x)
    for side in ("left", "right"):
        equal(cs.searchsorted(a, x.reshape(5, 10), side), np.searchsorted(a, x.reshape(5, 10), side))


def test_searches(emulated):
    rng = np.random.default_rng(3)
    a = np.append(np.sort(rng.integers(0, 30, 40)), [np.nan, np.nan]).astype(np.float32)
    v = np.append(rng.integers(-2, 33, 300), [np.nan, np.inf, -np.inf]).astype(np.float32)
    for side in ("left", "right"):
        for length in (0, 1, 40, 42):
            equal(cs.searchsorted(a[:length], v, side), np.searchsorted(a[:length], v, side))
    order = rng.permutation(42)
    sorter = np.argsort(a[order], kind="stable")
    equal(cs.searchsorted(a[order], v, "right", sorter), np.searchsorted(a, v, "right"))


def test_refused(emulated):
    x = np.arange(3)
    for call in (
        lambda: cs.repeat(x, x * 1.0),
        lambda: cs.searchsorted(x, x * 1.0),
        lambda: cs.searchsorted(x, x, "left", x[1:]),
    ):
        with pytest.raises(ArgumentTypeError):
            call()
    for call in (
        lambda: cs.repeat(x, x[1:]),
        lambda: cs.repeat(cs.asarray(x), cs.asarray(x)),
        lambda: cs.searchsorted(x.reshape(3, 1), x),
        lambda: cs.searchsorted(x, x, "middle"),
    ):
        with pytest.raises(ArgumentValueError):
            call()
