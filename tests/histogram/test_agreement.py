"""Counts agree with NumPy: all types, lengths, alignments and forms of edges."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import INTEGERS, data, numpy_dtype
from .kernels import KERNELS, force

NOT_SLOW = ("uint8", "int64")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def equal(found, wanted) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "dtype", [pytest.param(t, marks=() if t in NOT_SLOW else pytest.mark.slow) for t in ("bool", *INTEGERS)]
)
def test_numbers_of_every_type(dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2 if dtype == "bool" else 60, 1503).astype(dtype)
    wanted = np.bincount(x.astype(np.int64))
    equal(cs.bincount(x), wanted)
    equal(cs.bincount(x, minlength=70), np.bincount(x.astype(np.int64), minlength=70))
    device = cs.asarray(x)
    for first, length in ((0, 0), (1, 1), (3, 40), (5, 1200)):
        part = x[first : first + length].astype(np.int64)
        equal(cs.bincount(device[first : first + length], length=64), np.bincount(part, minlength=64))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in KERNELS])
def test_one_bin_and_many(name, monkeypatch):
    """One hot bin, equal neighbours, and more bins than shared memory has room for."""
    force(monkeypatch, name)
    rng = np.random.default_rng(2)
    for x in (np.full(1500, 7), np.repeat(np.arange(50), 30), rng.integers(0, 5000, 1500), np.arange(1500) // 750 * 9):
        equal(cs.bincount(x), np.bincount(x))


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_lengths_that_only_the_device_knows(weighted):
    """An int and a count on the device give the same bits, of arrays in any order."""
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 9, (7, 33)), rng.standard_normal((7, 33))
    device, of_device = cs.asarray(x), cs.asarray(w)
    for view in (np.ravel, np.transpose, lambda a: a[::-1, ::2]):
        y, u = view(x), view(w) if weighted else None
        z, v = (
            a.reshape(-1) if view is np.ravel else a.T if view is np.transpose else view(a) for a in (device, of_device)
        )
        v = v if weighted else None
        for n in (0, 5, y.size + 9):
            one, two = y.reshape(-1)[:n], u.reshape(-1)[:n] if weighted else None
            wanted = np.histogram(one, [0, 2, 5, 8], weights=two)[0]
            found = [cs.histogram(z, [0, 2, 5, 8], weights=v, n=k)[0] for k in (n, cs.asarray(np.array(n)))]
            equal(*found)
            assert np.allclose(np.asarray(found[0]), wanted)
            if n:
                assert np.array_equal(cs.histogram(y, 5, n=n)[1], np.histogram(one, 5)[1])
            if y.ndim == 1:
                equal(cs.bincount(y, n=np.array(n)), np.bincount(one))
                assert np.allclose(cs.bincount(z, v, length=9, n=cs.asarray(np.array(n))), np.bincount(one, two, 9))


def test_elements_without_a_bin():
    x = np.array([3, -1, 2, 9, 3, 2**62, -(2**63), 2**32 + 3] * 20)
    equal(cs.bincount(cs.asarray(x), length=5), np.array([0, 0, 20, 40, 0]))
    unsigned = np.array([3, 2**64 - 1, 2**63], np.uint64)
    equal(cs.bincount(cs.asarray(unsigned), length=4), np.array([0, 0, 0, 1]))
    negative = np.array([-1, -128, 127, 5], np.int8)
    equal(cs.bincount(cs.asarray(negative), length=300), np.bincount([5, 127], minlength=300))
    y = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0, 2.0, 2.5] * 9, np.float32)
    equal(cs.histogram(y, 4, (0, 2))[0], np.histogram(y, 4, (0, 2))[0])
    equal(cs.histogram(y, [0, 1, 2, 2])[0], np.histogram(y, [0, 1, 2, 2])[0])


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(t, marks=() if t == "float32" else pytest.mark.slow)
        for t in ("int8", "uint16", "float16", "float32", "float64")
    ],
)
def test_edges_of_every_type(dtype):
    x = data((7, 101), dtype, op="max")
    if dtype in INTEGERS:
        x = (x % np.array(50).astype(x.dtype)).astype(x.dtype)
    x = x.astype(numpy_dtype(dtype))
    host = x.astype(np.float32) if dtype == "bfloat16" else x
    for bins, limits in ((10, (-1, 3)), ([-3, -1, 0, 0.25, 20, 21], None)):
        counts, edges = cs.histogram(x, bins, limits)
        wanted = np.histogram(host, bins, limits)
        equal(counts, wanted[0])
        equal(edges, wanted[1].astype(np.float64))
        for one, other in zip(cs.histogram(cs.asarray(x), bins, limits), (counts, edges)):
            equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_values_at_equal_edges_and_next_to_them(dtype):
    """Edges are rounded, so the line through them is not enough there."""
    ranges = (0.1, 0.7), (-3.3, 1e-3), (1000.1, 1090.3), (-1e4, 3e4), (0.0, 1e-5)
    for first, last in ranges if dtype != "int16" else ((-7, 9), (0, 23)):
        for bins in (1, 7, 60):
            edges = np.histogram_bin_edges(np.zeros(1, dtype), bins, (first, last))
            inside = (edges[1:] + edges[:-1]) / 2
            x = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), inside]).astype(dtype)
            equal(cs.histogram(cs.asarray(x), bins, (first, last))[0], np.histogram(x, bins, (first, last))[0])


def test_edges_that_numpy_chooses():
    x = data(500, "float32", op="max")
    for bins in (10, "sqrt"):
        counts, edges = cs.histogram(x, bins)
        wanted = np.histogram(x, bins)
        equal(counts, wanted[0])
        equal(edges, wanted[1].astype(np.float64))
    assert np.array_equal(cs.histogram(np.zeros(0, np.float32), 3)[0], [0, 0, 0])
    equal(cs.histogram(np.full(5, 2.0), 3)[0], np.histogram(np.full(5, 2.0), 3)[0])


def test_arguments():
    x = cs.asarray(np.arange(9))
    with pytest.raises(ArgumentValueError, match="^length: got none"):
        cs.bincount(x)
    with pytest.raises(ArgumentValueError, match="^length: got none"):
        cs.bincount(x, minlength=10)
    with pytest.raises(ArgumentValueError, match="^x: got the element -1"):
        cs.bincount(np.array([1, -1]))
    for y in (np.zeros(3), cs.asarray(np.zeros(3))):
        with pytest.raises(ArgumentTypeError, match="^x: got an array of float64"):
            cs.bincount(y, length=3)
    with pytest.raises(ArgumentValueError, match="one axis"):
        cs.bincount(np.zeros((2, 2), int))
    with pytest.raises(ArgumentValueError, match="^range: got"):
        cs.histogram(x, 10)
    for bins in (0, [3, 1], "no such rule"):
        with pytest.raises(ArgumentValueError, match="^bins: got"):
            cs.histogram(np.arange(9), bins)
    with pytest.raises(ArgumentValueError, match="finite"):
        cs.histogram(np.array([np.nan]), 4)
    equal(cs.bincount(np.zeros(0, np.int32)), np.zeros(0, np.int64))


def test_results_of_the_caller():
    x, out = cs.asarray(np.int32([1, 1, 3])), cs.asarray(np.full(4, 9))
    assert cs.bincount(x, length=4, out=out) is out
    equal(out, np.array([0, 2, 0, 1]))
