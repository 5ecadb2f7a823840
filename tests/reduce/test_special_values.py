"""NaN, infinities, signed zeros, extremes and overflow: as NumPy has them."""

from itertools import product

import numpy as np
import pytest

import cutesync as cs

from ..cases import FLOATS, INTEGERS, check, everywhere, numpy_dtype, same

SIZES = (1, 37, 2500, 70001)


@everywhere(
    "op, dtype",
    product(["min", "max"], FLOATS),
    emulator=lambda op, dtype: dtype == {"min": "float16", "max": "float64"}[op],
)
def test_one_nan_anywhere_is_the_result(place, op, dtype):
    for n in place.sizes(SIZES):
        for at in {0, n // 3, n - 1}:
            x = np.ones(n, numpy_dtype(dtype))
            x[at] = np.nan
            assert np.isnan(np.asarray(cs.reduce(cs.asarray(x), op)).astype(np.float64)), (
                f"{op} {dtype} {n} NaN at {at}"
            )


@pytest.mark.parametrize(("dtype", "name"), [("float16", "argmin"), ("float32", "argmax"), ("float64", "argmin")])
def test_the_first_nan_wins_over_every_number(place, name, dtype):
    for n in place.sizes([37, 2500, 70001]):
        x = np.zeros(n, dtype)
        x[[0, n - 1]] = np.inf if name == "argmax" else -np.inf
        x[[n // 3, n // 2]] = np.nan
        assert int(np.asarray(getattr(cs, name)(cs.asarray(x)))) == n // 3 == getattr(np, name)(x)


@everywhere("dtype", FLOATS, emulator=lambda dtype: dtype == "bfloat16")
def test_infinities(place, dtype):
    for n in place.sizes(SIZES):
        x = np.ones(n, numpy_dtype(dtype))
        x[n // 2] = np.inf
        for op in ("add", "max", "min", "mul"):
            check(x, op)
    x[0] = -np.inf
    check(x, "add")  # inf - inf is NaN


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sum_of_negative_zeros_is_negative_zero(place, dtype):
    """No positive zero sneaks in as padding or start value."""
    for n in place.sizes(SIZES):
        result = np.asarray(cs.reduce(cs.asarray(np.full(n, -0.0, dtype))))
        assert result == 0 and np.signbit(result), f"{n}: {result!r}"


@everywhere("dtype", FLOATS, emulator=lambda dtype: dtype == "float16")
def test_all_values_infinite_or_extreme_need_no_start_value(place, dtype):
    for n in place.sizes(SIZES):
        check(np.full(n, np.inf, numpy_dtype(dtype)), "min")
        check(np.full(n, -np.inf, numpy_dtype(dtype)), "max")


@everywhere("dtype", INTEGERS, emulator=lambda dtype: dtype in ("int8", "int64"))
def test_integer_extremes_and_overflow(place, dtype):
    info = np.iinfo(dtype)
    for n, value in product(place.sizes([37, 2500, 70001]), (info.min, info.max)):
        x = np.full(n, value, dtype)
        for op in ("add", "min", "max", "mul"):
            check(x, op)


def test_a_half_sum_is_rounded_once(place):
    """4096 ones and then quarters: a float16 accumulator would lose every quarter."""
    x = np.full(2500, 0.25, np.float16)
    x[0] = 2048
    same(cs.reduce(cs.asarray(x)), np.float16(2048 + 2499 * 0.25))


def test_subnormals_are_kept(place):
    x = np.full(2500, np.float32(1e-45))
    same(cs.reduce(cs.asarray(x)), np.float32(2500 * np.float64(np.float32(1e-45))))
    same(cs.reduce(cs.asarray(x), "max"), x[0])
    assert bool(np.asarray(cs.any(cs.asarray(x))))


def test_nan_is_true_and_negative_zero_is_false(place):
    same(cs.any(cs.asarray(np.full(37, np.nan, np.float32))), np.bool_(True))
    same(cs.all(cs.asarray(np.full(37, np.nan, np.float32))), np.bool_(True))
    same(cs.any(cs.asarray(np.full(37, -0.0, np.float32))), np.bool_(False))


@pytest.mark.drawn(5)
@pytest.mark.parametrize(
    "init", [0, 2, -2, True, -0.0, 0.5, float("nan"), np.float16(0), np.int8(-128), np.bool_(False), 2**70], ids=repr
)
def test_the_truth_of_init_counts_in_any_and_all(place, init):
    """Of every type, for every type of elements; not its bits, and it need not be one of theirs."""
    for dtype, op in product(("int8", "bool", "float16"), ("any", "all")):
        for fill in (0, 1):
            x = np.full((3, 5), fill, dtype)
            same(
                cs.reduce(cs.asarray(x), op, init=init),
                np.bool_(bool(init) | bool(fill) if op == "any" else bool(init) & bool(fill)),
                f"{op} of {dtype}",
            )
            same(
                np.asarray(cs.reduce(cs.asarray(x), op, axis=1, init=init, dtype=bool)),
                cs.reference.reduce(x, op, axis=1, init=init),
            )
        same(cs.reduce(cs.asarray(np.zeros(0, dtype)), op, init=init), np.bool_(init), "nothing but init")


def test_the_first_bool(place):
    """Bools are searched a word at a time: any byte that is not zero is true."""
    rng = np.random.default_rng(3)
    for share in (0, 0.002, 0.5, 0.998):
        bytes_of = np.where(rng.random((3, 2003)) < share, rng.choice([1, 2, 128, 255], (3, 2003)), 0).astype(np.uint8)
        for x in (bytes_of.view(bool), bytes_of[:, :48].copy().view(bool)):
            for name in ("argmax", "argmin"):
                found = getattr(cs, name)(x, axis=1)
                assert np.array_equal(found, getattr(np, name)(x.view(np.uint8) != 0, axis=1)), (name, share, x.shape)
