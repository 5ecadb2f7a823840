"""Rows in shared memory of blocks of a warp, which sorts: agreement with NumPy, hostile schedules, planted faults."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.topk.policy import HeldWarpPolicy, Problem, choose

from .. import faults
from ..cases import data
from ..faults import every
from .kernels import FAULTS, bench_of, hold_warp
from .test_held import agrees, agrees_on_zeros_and_nan, agrees_under_schedules


@pytest.fixture(autouse=True)
def small(monkeypatch):
    hold_warp(monkeypatch)
    with cs.emulate():
        yield


def test_policy():
    """Up to 128 results of rows of up to 2**12 elements of four bytes, fewer of few vectors."""
    for size, length, k in ((4, 1 << 11, 128), (4, 1 << 12, 100), (1, 1 << 11, 64), (8, 600, 64)):
        assert isinstance(choose(Problem(1 << 14, length, size, True, k, False)).policy, HeldWarpPolicy)
    for size, length, k in ((4, (1 << 12) + 1, 64), (4, 1 << 12, 129), (1, 1 << 11, 65), (4, 1 << 10, 64)):
        assert not isinstance(choose(Problem(1 << 14, length, size, True, k, False)).policy, HeldWarpPolicy)


TYPES = ("bool", "uint8", "float16", "float32", "float64", "int64")


@pytest.mark.parametrize("dtype", [pytest.param(t, marks=() if t == "float32" else pytest.mark.slow) for t in TYPES])
def test_every_type(dtype):
    """Also from the second element on, and of rows of a vector or less."""
    x = data((3, 704), dtype, op="max")
    agrees(x, 30)
    agrees(x[:, 1:], 100, on=cs.asarray(x)[:, 1:])
    agrees(x[:, :3], 2, on=cs.asarray(x)[:, :3])
    agrees(x, 9, n=cs.asarray(np.int64(5)))


@pytest.mark.slow
def test_zeros_nan_and_equal_elements():
    """More candidates than are sorted, or than there is room for; groups of NaN pass for better ones."""
    agrees_on_zeros_and_nan()
    rng = np.random.default_rng(0)
    agrees(rng.integers(0, 20, (3, 700)).astype(np.int32), 16)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float32", "int64"))
def test_keys_that_share_bits(dtype):
    """The candidates before each are counted where one key is far from the others."""
    x = np.random.default_rng(0).integers(0, 2000, (4, 700)).astype(dtype)
    x[[0, 1, 2], [5, 50, 500]] = np.finfo(np.float32).max if dtype == "float32" else 2**62
    x = x if dtype == "int64" else np.where(x < 2000, 1 + x * np.float32(2**-23), x).astype(dtype)
    agrees(x, 60)


@pytest.mark.parametrize("order", ["random", pytest.param("equal", marks=pytest.mark.slow)])
def test_agrees_under_hostile_schedules(order):
    x = data((5, 531), "int32")[:, 1:]
    x = x if order == "random" else x % 3
    agrees_under_schedules(x, 40)


@functools.cache
def bench() -> faults.Bench:
    """Blocks take several rows. Of random ones candidates are sorted; of the second array they are counted."""
    random = data((5, 531), "int32")
    far = random[:3] % 2000
    far[:, 7] = 2**31 - 1
    return bench_of(hold_warp, (random, far, random % 3), 40)


OWN = {"no barrier of the warp": (every(r"bar\.warp\.sync[^;]*;", ""), {"race", "uninitialised", faults.RESULT})}


@pytest.mark.slow
def test_no_mutant_survives():
    faults_of_blocks = {name: fault for name, fault in FAULTS.items() if "block" not in name}
    assert bench().survivors(faults_of_blocks) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
