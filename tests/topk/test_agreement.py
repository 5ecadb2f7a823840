"""Top-k agrees with NumPy: all types, orders, strides and numbers of results; ties and NaN."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import DTYPES, data, same
from .kernels import KERNELS, force

TYPES = ("bool", "uint8", "int16", "bfloat16", "float32", "float64", "int64")
SLOW = {name: pytest.mark.slow for name in TYPES if name not in ("uint8", "float64")}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def agrees(x: np.ndarray, k: int, axis: int = -1, largest: bool = True, on=None, **options) -> None:
    found = cs.topk(x if on is None else on, k, axis, largest=largest, **options)
    for one, wanted in zip(found, reference.topk(x, k, axis, largest=largest, n=options.get("n"))):
        same(np.asarray(one), wanted, f"top {k} of {x.dtype}{list(x.shape)}")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", [pytest.param(name, marks=SLOW.get(name, ())) for name in TYPES])
def test_every_type(dtype):
    agrees(data(1501, dtype, op="max"), 30, largest=DTYPES.index(dtype) % 2 > 0)


def test_zeros_nan_and_ends_of_ranges():
    """Zeros of both signs are ties, NaN of both signs as well; the lowest and the highest integers are candidates."""
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.0], np.float32)
    x = rng.choice(special, 300)
    integers = rng.choice(np.array([-(2**31), 2**31 - 1, 0, -1], np.int32), 300)
    for largest in (True, False):
        agrees(x, 70, largest=largest)
        agrees(integers, 70, largest=largest)
    found = cs.topk(x, 70)
    assert found[0].tobytes() == x[found[1]].tobytes(), "the elements themselves"


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in KERNELS])
def test_every_order(name, monkeypatch):
    """Ascending order fills the pool again and again; equal elements are dropped by their indexes."""
    force(monkeypatch, name)
    x = data(2503, "int32")
    for y in (x, np.sort(x), np.sort(x)[::-1].copy(), np.zeros_like(x), (np.arange(2503) > 2400).astype(np.int32)):
        for k in (1, 40, 90):
            agrees(y, k, largest=k != 40)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_indexes_of_64_bits(name, monkeypatch):
    force(monkeypatch, name, wide=True)
    agrees(data(2503, "float32", op="max"), 50)
    agrees(data(1503, "int64"), 50)


@pytest.mark.slow
def test_rows_and_columns():
    x = data((3, 70, 2), "float32", op="max")
    for axis in (0, 1, 2):
        agrees(x, 2, axis)
    for dtype in ("int8", "float64"):
        agrees(data((5, 333), dtype), 33)


@pytest.mark.slow
def test_strides():
    x = data((3, 70, 2), "float32", op="max")
    device = cs.asarray(x)
    for part in (np.s_[:, ::-2], np.s_[::2, 3:, 1]):
        agrees(x[part], 2, 1, on=device[part])
    values, indices = cs.asarray(np.zeros((70, 3), np.float32)), cs.asarray(np.zeros((3, 70)).astype(np.int64))
    cs.topk(device[..., 0], 70, 1, out=(values.T, indices))
    wanted = reference.topk(x[..., 0], 70, 1)
    same(np.asarray(values).T, wanted[0])
    same(np.asarray(indices), wanted[1])


def test_every_length_and_alignment():
    x = data(400, "int16")
    device = cs.asarray(x)
    for first, length in ((0, 1), (3, 31), (9, 300)):
        for k in {1, length}:
            agrees(x[first : first + length], k, on=device[first : first + length])
    agrees(data((3, 37), "int16"), 37)


def test_more_results_than_a_launch_gives(monkeypatch):
    from cutesync.kernels.topk import plan

    monkeypatch.setattr(plan, "MAX_WANTED", 40)
    agrees((data(500, "int32") % 50).astype(np.int16), 101)
    agrees(data((2, 81), "int16"), 81)


@pytest.mark.slow
def test_lengths_on_the_device():
    """The first n elements count; where there are fewer than k, results behind them are 0, and their indices -1."""
    x = data((3, 500), "int32")
    device = cs.asarray(x)
    for n in (0, 7, 300):
        agrees(x, 20, on=device, n=cs.asarray(np.int64(n)))
        agrees(x, 20, on=device, n=n)
    same(np.asarray(cs.argtopk(device, 20, n=100)), reference.topk(x, 20, n=100)[1])


def test_arguments():
    x = cs.asarray(np.zeros((4, 6), np.float32))
    for k in (7, -1):
        with pytest.raises(ArgumentValueError, match="^k: got"):
            cs.topk(x, k)
    for k in (2.0, True):
        with pytest.raises(ArgumentTypeError, match="^k: got"):
            cs.topk(x, k)
    with pytest.raises(ArgumentValueError, match="^axis: got 2"):
        cs.topk(x, 1, 2)
    with pytest.raises(ArgumentTypeError, match="^axis: got None"):
        cs.topk(x, 1, None)
    with pytest.raises(ArgumentTypeError, match="^sorted"):
        cs.topk(x, 1, sorted=2)
    with pytest.raises(ArgumentTypeError, match="^largest"):
        cs.argtopk(x, 1, largest="no")
    with pytest.raises(ArgumentTypeError, match="^out"):
        cs.topk(x, 1, out=x)
    with pytest.raises(ArgumentTypeError, match="^n: got"):
        cs.topk(x, 1, n=cs.asarray(np.int32(1)))
    with pytest.raises(ArgumentValueError, match="axes"):
        cs.topk(x[0, 0], 1)
    assert [y.shape for y in cs.topk(x, 0, 0)] == [(0, 6), (0, 6)]
    assert cs.argtopk(cs.asarray(np.zeros((0, 5))), 2).shape == (0, 2)
