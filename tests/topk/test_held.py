"""Rows in shared memory: agreement with NumPy, hostile schedules, planted faults."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.topk.policy import HeldPolicy, Problem, choose

from .. import faults
from ..cases import DTYPES, SCHEDULES, data, same
from ..faults import each, every
from .kernels import FAULTS, bench_of, hold


@pytest.fixture(autouse=True)
def small(monkeypatch):
    hold(monkeypatch)
    with cs.emulate():
        yield


def agrees(x: np.ndarray, k: int, on=None, orders=(True, False), **options) -> None:
    for largest in orders:
        found = cs.topk(cs.asarray(x) if on is None else on, k, largest=largest, **options)
        for one, wanted in zip(found, reference.topk(x, k, largest=largest, n=options.get("n"))):
            same(np.asarray(one), wanted, f"top {k} of {x.dtype}{list(x.shape)}, largest={largest}")


def agrees_on_zeros_and_nan() -> None:
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.0], np.float32)
    agrees(rng.choice(special, (2, 700)), 60)
    sparse = np.full((2, 700), np.nan, np.float32)
    sparse[:, ::90] = 1
    agrees(sparse, 40)


def agrees_under_schedules(x: np.ndarray, k: int) -> None:
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.topk(cs.asarray(x), k)
    assert ran.launches == SCHEDULES
    for one, wanted in zip(found, reference.topk(x, k)):
        assert np.array_equal(one, wanted)


def test_policy():
    """Rows of up to 64 KiB are held if there are enough of them, and enough vectors for the results."""
    rows = 1 << 14
    found = choose(Problem(rows, 1 << 14, 4, True, 64, False))
    assert isinstance(found.policy, HeldPolicy) and found.grid < rows
    others = [Problem(rows, (1 << 14) + 1, 4, True, 64, False), Problem(rows, 1 << 14, 4, False, 64, False)]
    others += [Problem(rows, 1 << 14, 4, True, 64, True), Problem(10, 1 << 14, 4, True, 64, False)]
    others += [Problem(rows, 100, 4, True, 64, False), Problem(rows, 1 << 14, 4, True, 2048, False)]
    assert not any(isinstance(choose(other).policy, HeldPolicy) for other in others)


TYPES = ("bool", "uint8", "uint16", "float32", "float64")
SLOW = {name: pytest.mark.slow for name in TYPES if name not in ("uint8", "float32")}


@pytest.mark.parametrize("dtype", [pytest.param(name, marks=SLOW.get(name, ())) for name in TYPES])
def test_every_type(dtype):
    """Also from the second element on, and where many elements are equal."""
    x = data((3, 704), dtype, op="max")
    orders = (True, False) if dtype in ("float32", "uint16") else (DTYPES.index(dtype) % 2 > 0,)
    agrees(x, 30, orders=orders)
    agrees(x[:, 1:], 30, on=cs.asarray(x)[:, 1:], orders=orders)
    x = (x % np.array(2, x.dtype)).astype(x.dtype) if dtype != "bool" else x
    agrees(x, 40, orders=orders)


@pytest.mark.slow
def test_zeros_nan_and_equal_elements():
    """Groups of NaN pass for better ones among the smallest; of equal elements, some fit and some do not."""
    agrees_on_zeros_and_nan()
    agrees(
        np.stack([np.full(700, np.inf, np.float32), np.full(700, -np.inf, np.float32), np.zeros(700, np.float32)]), 64
    )
    agrees((np.arange(700) > 650).astype(np.int32)[None] + np.zeros((2, 1), np.int32), 60)


@pytest.mark.slow
def test_every_length():
    """Rows with and without whole rounds, of a vector or less; counts on the device, zero included."""
    x = data((3, 704), "int16")
    device_x = cs.asarray(x)
    for length in (1, 5, 8, 130, 513):
        agrees(x[:, 3 : 3 + length], min(length, 20), on=device_x[:, 3 : 3 + length], orders=(True,))
    for n in (0, 7, 600):
        agrees(x, 20, on=device_x, orders=(False,), n=cs.asarray(np.int64(n)))
    same(np.asarray(cs.argtopk(device_x, 20, n=100)), reference.topk(x, 20, n=100)[1])


@pytest.mark.slow
def test_strides_of_rows_and_results():
    x = data((4, 2, 704), "float32", op="max")
    agrees(x[::2, :, :-5], 33, on=cs.asarray(x)[::2, :, :-5])
    values, indices = cs.asarray(np.zeros((5, 4), np.float32)), cs.asarray(np.zeros((4, 5), np.int64))
    cs.topk(cs.asarray(x)[:, 1], 5, out=(values.T, indices))
    wanted = reference.topk(x[:, 1], 5)
    same(np.asarray(values).T, wanted[0])
    same(np.asarray(indices), wanted[1])


@pytest.mark.parametrize("order", ["random", pytest.param("equal", marks=pytest.mark.slow)])
def test_agrees_under_hostile_schedules(order):
    x = data((5, 531), "int16")[:, 1:]
    x = x if order == "random" else x % 3
    agrees_under_schedules(x, 40)


@functools.cache
def bench() -> faults.Bench:
    """Blocks take several rows. Of sorted ones more elements reach the first limit than there is room for; of others
    some of many equal elements have to be chosen."""
    random = data((5, 531), "int16")
    arrays = random, np.sort(random[:3]), np.where(np.arange(531) % 37 == 0, random, random % 3)
    return bench_of(hold, arrays, 40)


OWN = {
    "a row overwritten while it is read": (every(r"fence\.proxy\.async[^;]*;", ""), {"proxy", "race"}),
    "candidates not counted by an atomic": (
        every(r"(atom\.shared)\.cta\.add\.u32 (\t?%r\d+), \[(%r\d+)\], 1;", r"mov.b32 \2, 0;"),
        {"race", faults.RESULT, "uninitialised", "deadlock", "livelock", "barrier"},
    ),
    "bytes that are not waited for": (
        each(r"(mbarrier\.arrive\.expect_tx\S* +_?[^;]*,) *%r\d+;", r"\1 0;"),
        {"race", "mbarrier", "uninitialised", faults.RESULT, "deadlock"},
    ),
}


@pytest.mark.slow
def test_no_mutant_survives():
    assert bench().survivors(FAULTS) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
