"""Short rows, which lanes of a warp have: agreement with NumPy, hostile schedules, planted faults."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator, reference
from cutesync.kernels.topk.policy import FewPolicy, Problem, ShortPolicy, choose
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
    """Results of up to 1024 elements of at most 4 bytes, and of 512 of 8, are found by a warp or a part of one."""
    cases = {
        Problem(5, 1024, 4, True, 16, False): (32, 1),
        Problem(5, 1000, 4, True, 128, False): (32, 8),
        Problem(5, 1024, 1, True, 64, False): (32, 4),
        Problem(5, 1024, 4, True, 256, False): (32, 16),
        Problem(5, 1000, 2, True, 1000, False): (32, 32),
        Problem(5, 512, 8, True, 512, False): (32, 16),
        Problem(5, 512, 8, False, 1, False): (32, 1),
        Problem(5, 512, 4, True, 64, False): (16, 8),
        Problem(5, 512, 4, True, 128, False): (32, 8),
        Problem(5, 256, 4, True, 256, False): (32, 8),
        Problem(5, 128, 4, True, 8, False): (4, 4),
        Problem(5, 64, 4, True, 8, False): (4, 4),
        Problem(5, 32, 4, True, 32, False): (8, 4),
        Problem(5, 16, 4, True, 16, False): (4, 4),
        Problem(5, 16, 4, True, 4, False): (2, 8),
        Problem(5, 16, 8, True, 16, False): (8, 2),
        Problem(5, 64, 1, True, 8, False): (2, 8),
        Problem(5, 256, 2, True, 128, False): (16, 16),
        Problem(5, 250, 1, True, 8, False, False): (16, 1),
        Problem(5, 1, 2, True, 1, False): (2, 1),
    }
    for problem, (lanes, slots) in cases.items():
        policy = choose(problem).policy
        assert (policy.lanes, policy.slots) == (lanes, slots), problem
    few = Problem(5, 1000, 4, True, 8, False), Problem(5, 512, 8, True, 1, False)
    assert all(isinstance(choose(problem).policy, FewPolicy) for problem in few)
    more = Problem(5, 1024, 4, True, 9, False), Problem(5, 999, 4, True, 8, False, False)
    more = *more, Problem(5, 1024, 2, True, 1, False), Problem(5, 256, 8, True, 1, False)
    assert not any(isinstance(choose(problem).policy, FewPolicy) for problem in more)
    longer = Problem(5, 1025, 4, True, 16, False), Problem(5, 513, 8, True, 1, False)
    after = Problem(5, 100, 4, True, 16, True)
    assert not any(isinstance(choose(problem).policy, ShortPolicy) for problem in (*longer, after))


def wanted_of(rng, length: int) -> int:
    """A number of results that short rows have, small ones more often."""
    return min(length, 1 << int(rng.integers(0, length.bit_length())) | int(rng.integers(0, 2)))


SLOW = {name: pytest.mark.slow for name in DTYPES if name != "float32"}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("dtype", [pytest.param(name, marks=SLOW.get(name, ())) for name in DTYPES])
def test_every_type(dtype):
    agrees(data((9, 100), dtype, op="max"), 16)
    agrees(data((5, 250), dtype, op="max"), 50)
    agrees(data((9, 30), dtype, op="max"), 30)


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed):
    rng = np.random.default_rng(seed)
    dtype = rng.choice(["int8", "float16", "float32", "uint32", "float64", "int64"])
    length = int(rng.integers(1, 513 if dtype in ("float64", "int64") else 1025))
    k = wanted_of(rng, length)
    x = data((int(rng.integers(1, 20)), length + 3), str(dtype), op="max", seed=seed)
    if seed % 2:
        x = (x % 7).astype(dtype)
    skip = int(rng.integers(0, 4))
    agrees(x[:, skip : skip + length], k, on=cs.asarray(x)[:, skip : skip + length])


SPECIAL = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0], np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("k", (11, 16, 60))
def test_equal_elements_zeros_and_nan(k):
    """More elements reach the first limit than there is room for: keys are divided, or the first of equal ones are
    taken. Zeros of both signs are ties."""
    rng = np.random.default_rng(0)
    agrees(rng.choice(SPECIAL, (3, 200)), k)
    agrees(rng.choice(SPECIAL[:2], (3, 200)), k)
    agrees(np.where(rng.random((3, 500)) < 0.02, rng.random((3, 500)), 0).astype(np.float32), k)
    agrees(np.sort(rng.integers(-3, 3, (2, 200)).astype(np.int32), axis=1), k)
    agrees(np.full((1, 200), -(2**31), np.int32), k)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", (4, 16, 32))
def test_great_elements_in_few_groups(lanes):
    """A lane has most of the greatest elements, so the first limit is low, and many others reach it."""
    x = data((4, {4: 64, 16: 256, 32: 512}[lanes]), "float32", op="max")
    x[:, 4::64] += 100
    x[:, : lanes * 4 : 2] -= 100
    x[1] = x[1, 0]
    agrees(x, 8)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float32", "int64", "float64", "uint32"))
@pytest.mark.parametrize(("length", "k"), ((64, 8), (64, 64), (512, 60), (500, 300)))
def test_keys_that_share_bits(dtype, length, k):
    """A word has no room for the lowest bits of keys where one is far from the others: words of a few such keys change
    places, of many their ranks are counted. Equal keys need neither."""
    rng = np.random.default_rng(k)
    low = rng.integers(0, 200, (5, length))
    x = low.astype(dtype) if dtype != "float32" else (low + (1 << 30)).astype(np.int32).view(np.float32)
    top = np.finfo(dtype).max if dtype.startswith("f") else np.iinfo(dtype).max
    x[[0, 1, 3], [5, 20, 40]] = top
    x[3] = np.where(x[3] == top, top, x[3, 0])
    agrees(x, k)
    spread = np.arange(length) // rng.integers(2, 6, length) * (1 << 20) + low[0] % 9
    agrees(np.stack([spread, rng.permutation(spread)]).astype(dtype), k)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float32", "int32", "uint32", "int64", "float64"))
def test_few_of_rows_of_4_kib(dtype):
    """Ranks of few elements are counted. Of equal ones, and where lanes with many great ones are few, more than 32
    reach the first limit."""
    length, rng = (512, np.random.default_rng(4)) if dtype.endswith("64") else (1024, np.random.default_rng(5))
    agrees(data((9, length), dtype, op="max"), 8)
    agrees(data((3, length - 24), dtype, op="max") % 7, 1)
    x = rng.integers(0, 5, (4, length)).astype(dtype)
    x[1], x[2, 4::64] = 3, 9
    agrees(x, 5)
    for n in (0, 3, 200):
        agrees(x, 8, n=n)
        agrees(x, 8, n=cs.asarray(np.int64(n)))


@pytest.mark.slow
def test_few_of_special_elements():
    x = np.random.default_rng(1).choice(SPECIAL, (4, 1024))
    x[1], x[2, 1:] = np.nan, -0.0
    agrees(x, 8)


@pytest.mark.slow
def test_strides_axes_and_lengths_on_the_device():
    x = data((3, 70, 2), "float32", op="max")
    for axis in range(3):
        agrees(x, 2, axis)
    row = cs.asarray(x)[:, 1:, 0]
    for n in (0, 1, 40):
        agrees(x[:, 1:, 0], 5, on=row, n=n)
        agrees(x[:, 1:, 0], 5, on=row, n=cs.asarray(np.int64(n)))
        agrees(x[:, 1:, 0], 69, on=row, n=n)
    values, indices = cs.asarray(np.zeros((5, 3), np.float32)), cs.asarray(np.zeros((3, 5), np.int64))
    cs.topk(row, 5, out=(values.T, indices))
    wanted = reference.topk(x[:, 1:, 0], 5)
    same(np.asarray(values).T, wanted[0])
    same(np.asarray(indices), wanted[1])


# name: (rows of words that share bits of keys, of equal elements, of one far from others; results)
KINDS = {"sorted words": ((9, 77), (3, 90), (3, 90), 16), "ranks of few": ((5, 1000), (1, 1024), (3, 1024), 5)}


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_under_hostile_schedules(kind):
    shape, *_, k = KINDS[kind]
    x = data((11, shape[1]), "int32") % 9
    x[1, 7] = 2**31 - 1
    with cs.emulate(schedules=8, seed=3) as ran:
        found = cs.topk(cs.asarray(x), k)
    assert ran.launches == 8
    for one, wanted in zip(found, reference.topk(x, k)):
        assert np.array_equal(one, wanted)


@functools.cache
def bench(kind: str) -> faults.Bench:
    shape, equal, rows, k = KINDS[kind]
    far = np.arange(rows[0] * rows[1], dtype=np.int32).reshape(rows) % 67
    far[:, 5] = 2**31 - 1
    arrays = data(shape, "int32") % 50, np.zeros(equal, np.int32), far

    def right() -> bool:
        with device.forced("emulator"), cs.emulate(), emulator.emulate(schedules=4, seed=3, resident=2):
            found = [cs.topk(cs.asarray(x), k) for x in arrays]
            wanted = [reference.topk(x, k) for x in arrays]
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
@pytest.mark.parametrize("kind", KINDS)
def test_no_mutant_survives(kind):
    assert bench(kind).survivors(TABLE) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault, kind):
    bench(kind).check(*OWN[fault])
