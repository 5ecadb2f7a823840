"""Short rows, a warp each: agreement with NumPy, hostile schedules, planted faults."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator, reference
from cutesync.kernels.topk.policy import Problem, ShortPolicy, choose
from cutesync.runtime import device

from .. import faults
from ..cases import DTYPES, data, same
from ..faults import each, every


@pytest.fixture(autouse=True)
def emulated():
    with cs.emulate():
        yield


def agrees(x: np.ndarray, k: int, axis: int = -1, on=None, **options) -> None:
    for largest in (True, False):
        found = cs.topk(cs.asarray(x) if on is None else on, k, axis, largest=largest, **options)
        for one, wanted in zip(found, reference.topk(x, k, axis, largest=largest, n=options.get("n"))):
            same(np.asarray(one), wanted, f"top {k} of {x.dtype}{list(x.shape)}, largest={largest}")


def test_policy():
    """Up to 16 results of up to 1024 elements of at most 4 bytes are found by a warp; widths divide loads evenly."""
    assert isinstance(choose(Problem(5, 1024, 4, True, 16, False)).policy, ShortPolicy)
    assert isinstance(choose(Problem(5, 512, 8, False, 1, False)).policy, ShortPolicy)
    for longer in (Problem(5, 1025, 4, True, 16, False), Problem(5, 513, 8, True, 1, False)):
        assert not isinstance(choose(longer).policy, ShortPolicy)
    for more in (Problem(5, 100, 4, True, 17, False), Problem(5, 100, 4, True, 16, True)):
        assert not isinstance(choose(more).policy, ShortPolicy)


SLOW = {name: pytest.mark.slow for name in DTYPES if name != "float32"}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("dtype", [pytest.param(name, marks=SLOW.get(name, ())) for name in DTYPES])
def test_every_type(dtype):
    agrees(data((9, 100), dtype, op="max"), 16)


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed):
    rng = np.random.default_rng(seed)
    dtype = rng.choice(["int8", "float16", "float32", "uint32", "float64", "int64"])
    length = int(rng.integers(1, 513 if dtype in ("float64", "int64") else 1025))
    k = int(rng.integers(1, min(16, length) + 1))
    x = data((int(rng.integers(1, 20)), length + 3), str(dtype), op="max", seed=seed)
    if seed % 2:
        x = (x % 7).astype(dtype)
    skip = int(rng.integers(0, 4))
    agrees(x[:, skip : skip + length], k, on=cs.asarray(x)[:, skip : skip + length])


@pytest.mark.slow
def test_equal_elements_zeros_and_nan():
    """More than 32 elements reach the first limit: keys, then indexes are divided. Zeros of both signs are ties."""
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0], np.float32)
    agrees(rng.choice(special, (3, 200)), 16)
    agrees(np.sort(rng.integers(-3, 3, (2, 200)).astype(np.int32), axis=1), 11)
    agrees(np.full((1, 200), -(2**31), np.int32), 16)


@pytest.mark.slow
def test_strides_axes_and_lengths_on_the_device():
    x = data((3, 70, 2), "float32", op="max")
    for axis in range(3):
        agrees(x, 2, axis)
    row = cs.asarray(x)[:, 1:, 0]
    for n in (0, 1, 40):
        agrees(x[:, 1:, 0], 5, on=row, n=n)
        agrees(x[:, 1:, 0], 5, on=row, n=cs.asarray(np.int64(n)))
    values, indices = cs.asarray(np.zeros((5, 3), np.float32)), cs.asarray(np.zeros((3, 5), np.int64))
    cs.topk(row, 5, out=(values.T, indices))
    wanted = reference.topk(x[:, 1:, 0], 5)
    same(np.asarray(values).T, wanted[0])
    same(np.asarray(indices), wanted[1])


def test_agrees_under_hostile_schedules():
    x = data((11, 77), "int32") % 9
    with cs.emulate(schedules=8, seed=3) as ran:
        found = cs.topk(cs.asarray(x), 9)
    assert ran.launches == 8
    for one, wanted in zip(found, reference.topk(x, 9)):
        assert np.array_equal(one, wanted)


@functools.cache
def bench() -> faults.Bench:
    arrays = data((9, 77), "int32") % 50, np.zeros((3, 90), np.int32)

    def right() -> bool:
        with device.forced("emulator"), cs.emulate(), emulator.emulate(schedules=4, seed=3, resident=2):
            found = [cs.topk(cs.asarray(x), 16) for x in arrays]
            wanted = [reference.topk(x, 16) for x in arrays]
            return all(np.array_equal(*pair) for both in zip(found, wanted) for pair in zip(*both))

    return faults.Bench(right)


TABLE = {name: faults.TABLE[name] for name in ("no wait for the launch before", "no store")}
TABLE = {name: (edit, {*kinds, "mismatch", faults.RESULT}) for name, (edit, kinds) in TABLE.items()}
OWN = {
    "candidates read before they are written": (
        each(r"bar\.warp\.sync[^;]*;", ""),
        {"race", "uninitialised", faults.RESULT},
    ),
    "ranks not counted": (
        every(r"(ld\.shared\.[a-z0-9]+) \t?(%r\d+), [^;]*;", r"mov.b32 \2, 0;"),
        {"race", faults.RESULT},
    ),
}


@pytest.mark.slow
def test_no_mutant_survives():
    assert bench().survivors(TABLE) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
