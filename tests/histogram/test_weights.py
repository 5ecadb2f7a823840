"""Sums of weights and densities: exact but for the rounding that is promised, and the same whatever the order."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import STAND_FOR_ALL, data
from .kernels import KERNELS, force

N = 1503


@pytest.fixture(autouse=True)
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def same(found, wanted) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def numbers(most: int = 60) -> np.ndarray:
    return np.random.default_rng(1).integers(0, most, N)


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(t, marks=() if t in ("float32", "int64") else pytest.mark.slow)
        for t in (*STAND_FOR_ALL, "float32", "int64")
    ],
)
def test_weights_of_every_type(dtype):
    x, w = numbers(), data(N, dtype, op="max")
    same(cs.bincount(x, w), reference.bincount(x, w))
    device = cs.bincount(cs.asarray(x), cs.asarray(w), length=64)
    same(device, reference.bincount(x, w, length=64))
    y = np.random.default_rng(2).standard_normal(N)
    for one, wanted in zip(cs.histogram(y, 9, (-1, 2), weights=w), reference.histogram(y, 9, (-1, 2), weights=w)):
        same(one, wanted)


@pytest.mark.parametrize("name", [pytest.param(t, marks=pytest.mark.slow) for t in KERNELS])
def test_any_order_of_elements_gives_the_same_bits(name, monkeypatch):
    force(monkeypatch, name)
    rng, x = np.random.default_rng(3), numbers()
    w = rng.standard_normal(N) * np.exp(20 * rng.standard_normal(N))
    for bins in (x, x * 0 + 7, np.sort(x), x * 30):
        found = cs.bincount(bins, w)
        order = rng.permutation(N)
        same(cs.bincount(bins[order], w[order]), found)


def test_the_rounding_that_is_promised():
    """Each weight to a multiple of m * 2**(2k - 123); the sum of these is exact, and rounded once."""
    rng, x = np.random.default_rng(4), numbers(9)
    k = (N - 1).bit_length()
    for spread, scale in ((1, 1.0), (40, 1e-30), (200, 1.0), (1, 1e-310), (1, 5e-324), (1, 1e305)):
        w = np.exp(spread * rng.standard_normal(N)) * rng.choice([-1, 1], N) * scale
        found = cs.bincount(x, w)
        for i, one in enumerate(found):
            mine = [float(v) for v in w[x == i]]
            unit = math.ldexp(1.0, max(math.frexp(max(map(abs, mine)))[1] - 1 + 2 * k - 123, -1074))
            rounded = math.fsum(round(v / unit) * unit if abs(v) < unit * 2.0**52 else v for v in mine)
            assert one == rounded


@pytest.mark.parametrize("name", [pytest.param(t, marks=pytest.mark.slow) for t in KERNELS])
def test_short_weights_near_each_other_and_far(name, monkeypatch):
    """With one exponent for all bins, or one for each; one bin frequent; weights of 0, and the least there are."""
    force(monkeypatch, name)
    rng, x = np.random.default_rng(7), numbers()
    x[rng.random(N) < 0.5] = 7
    for spread, least in ((1, 0.0), (1, 2.0**-149), (12, 0.0)):
        w = (rng.standard_normal(N) * np.exp(spread * rng.standard_normal(N))).astype(np.float32)
        w[::5] = least
        same(cs.bincount(x, w), reference.bincount(x, w))
    same(cs.bincount(x, w * 0), np.zeros(60))


def test_weights_that_are_special():
    x, w = np.repeat(np.arange(8), 2), np.ones(16)
    w[[0, 2, 3, 4, 6, 9]] = np.nan, np.inf, np.inf, -np.inf, np.inf, 0.0
    w[7], w[10:12], w[12:14] = -np.inf, (1e308, -1e308), (1.7e308, 1.7e308)
    same(np.isnan(cs.bincount(x, w)), np.isnan(np.bincount(x, w)))
    assert np.array_equal(cs.bincount(x, w), np.bincount(x, w), equal_nan=True)
    assert np.array_equal(cs.bincount(x, -w), np.bincount(x, -w), equal_nan=True)


def test_densities():
    rng = np.random.default_rng(5)
    y, w = rng.standard_normal(N), rng.standard_normal(N).astype(np.float32)
    for bins, limits in ((10, (-2, 2)), ([-3, -1, 0, 0.25, 4], None)):
        for x in (y, cs.asarray(y)):
            found, edges = cs.histogram(x, bins, limits, density=True)
            wanted = np.histogram(y, bins, limits, density=True)
            same(found, wanted[0])
            same(edges, wanted[1].astype(np.float64))
        found = cs.histogram(y, bins, limits, True, w)[0]
        assert np.allclose(found, reference.histogram(y, bins, limits, True, w)[0], rtol=1e-12, atol=0)
    assert np.isnan(cs.histogram(y, 3, (50, 60), density=True)[0]).all()
    assert np.isnan(cs.histogram(cs.asarray(y[:0]), 3, (0, 1), density=True)[0]).all()


@pytest.mark.slow
def test_any_strides():
    rng = np.random.default_rng(6)
    x, w = rng.integers(0, 50, (6, 31, 14)).astype(np.uint8), rng.standard_normal((14, 6, 31)).astype(np.float32)
    device, weights = cs.asarray(x), cs.asarray(w)
    views = (
        (lambda v: v, lambda v: v.transpose(1, 2, 0)),
        (lambda v: v[::-1, ::3, 1:], lambda v: v.transpose(1, 2, 0)[:, ::3, :13]),
        (lambda v: v[:, 5], lambda v: v[:6, 0, ::-1][:, :14]),
    )
    for of_x, of_w in views:
        part, heavy = of_x(x), of_w(w)
        same(cs.histogram(of_x(device), 7, (3, 40))[0], np.histogram(part, 7, (3, 40))[0])
        if part.shape == heavy.shape:
            found = cs.histogram(of_x(device), 7, (3, 40), weights=of_w(weights))[0]
            same(found, reference.histogram(part, 7, (3, 40), weights=heavy)[0])
    out, edges = cs.asarray(np.full((7, 3), 9)), cs.asarray(np.zeros(16))
    cs.histogram(device, 7, (3, 40), out=(out[:, 1], edges[::-2]))
    same(np.asarray(out)[:, 1], np.histogram(x, 7, (3, 40))[0])
    assert np.asarray(out)[:, ::2].min() == 9 and np.array_equal(np.asarray(edges)[::-2], np.linspace(3, 40, 8))
    column = x[:, 3, 2]
    same(cs.bincount(device[:, 3, 2], weights[3, ::-1, 4], length=50), reference.bincount(column, w[3, ::-1, 4], 50))


def test_arguments():
    x = cs.asarray(np.arange(9))
    with pytest.raises(ArgumentValueError, match="^weights: got shape"):
        cs.bincount(x, cs.asarray(np.ones(8)), length=9)
    with pytest.raises(ArgumentValueError, match="^weights: got shape"):
        cs.histogram(x, 3, (0, 9), weights=cs.asarray(np.ones((9, 1))))
    with pytest.raises(ArgumentTypeError, match="^density"):
        cs.histogram(x, 3, (0, 9), density=1.0)
    with pytest.raises(ArgumentTypeError, match="^out: got dtype int64"):
        cs.bincount(x, cs.asarray(np.ones(9)), length=9, out=cs.asarray(np.zeros(9, np.int64)))
    with pytest.raises(ArgumentValueError, match="^bins"):
        cs.histogram(np.arange(9.0), "sqrt", weights=np.ones(9))
    same(cs.bincount(np.zeros(0, int), np.zeros(0), 3), np.zeros(3))
