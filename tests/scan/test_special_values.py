"""NaN, infinities, signed zeros, extremes, overflow and rounding: as NumPy has them."""

from itertools import product

import numpy as np
import pytest

import cutesync as cs

from ..cases import FLOATS, INTEGERS, STAND_FOR_ALL, check_scan, everywhere, numpy_dtype, same

SIZES = (1, 37, 1000, 70_001, 7_000_003)


@pytest.mark.drawn(3)
@everywhere(
    "op, dtype",
    product(["min", "max", "add"], FLOATS),
    emulator=lambda op, dtype: (op, dtype) != ("max", "float16") and dtype in STAND_FOR_ALL,
)
def test_everything_from_a_nan_on_is_nan(place, op, dtype):
    for n in place.sizes(SIZES):
        for at in {0, n // 3, n - 1}:
            x = np.ones(n, numpy_dtype(dtype))
            x[at] = np.nan
            nan = np.isnan(np.asarray(cs.scan(cs.asarray(x), op, reverse=at == 0)).astype(np.float64))
            assert nan[at:].all() and not nan[:at].any() if at else nan[0] and not nan[1:].any(), (
                f"{op} {dtype} {n} NaN at {at}"
            )


@everywhere("dtype", FLOATS, emulator=lambda dtype: dtype in STAND_FOR_ALL)
def test_infinities(place, dtype):
    for n in place.sizes(SIZES[:4]):
        x = np.ones(n, numpy_dtype(dtype))
        x[n // 2] = np.inf
        for op in ("add", "max"):
            check_scan(x, op)
    x[0] = -np.inf
    check_scan(x, "add")  # inf - inf is NaN


@pytest.mark.parametrize(("dtype", "reverse"), [("float32", False), ("float64", True)])
def test_the_sum_of_negative_zeros_is_negative_zero(place, dtype, reverse):
    """No positive zero sneaks in as padding or start value."""
    for n in place.sizes(SIZES):
        result = np.asarray(cs.scan(cs.asarray(np.full(n, -0.0, dtype)), reverse=reverse))
        assert (result == 0).all() and np.signbit(result).all(), n


@everywhere("dtype", INTEGERS, emulator=lambda dtype: dtype in STAND_FOR_ALL)
def test_integers_wrap(place, dtype):
    info = np.iinfo(dtype)
    for n, value, op in product(place.sizes([37, 1000, 70_001]), (info.min, info.max, 3), ("add", "mul")):
        check_scan(np.full(n, value, dtype), op)


def test_integer_sums_equal_numpys(place):
    """Full-range values, against NumPy's own cumsum."""
    for n, dtype in product(place.sizes([1000, 40_009, 10**7 + 19]), ("int8", "int64")):
        info = np.iinfo(dtype)
        x = np.random.default_rng(n).integers(info.min, info.max, n, dtype, endpoint=True)
        with np.errstate(over="ignore"):
            same(cs.scan(cs.asarray(x)), np.cumsum(x, dtype=dtype))
            same(cs.cumsum(cs.asarray(x)), np.cumsum(x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_result_of_16_bits_is_rounded_once(place, dtype):
    """A 16-bit running sum would lose every quarter after 2048 (512): here each result is the float32 sum, rounded."""
    element = numpy_dtype(dtype)
    for n in place.sizes([1000, 70_001]):
        x = np.full(n, 0.25, element)
        x[0] = 2048
        same(cs.scan(cs.asarray(x)), (2048 + 0.25 * np.arange(n, dtype=np.float32)).astype(element), f"{dtype} {n}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_stays_within_the_bound_of_a_tree(place, dtype):
    """Against a sum of twice the precision; a running sum's bound would be n and not a few dozen units in the last
    place."""
    wide = np.float64 if dtype == "float32" else np.longdouble
    for n in place.sizes([1000, 300_007, 2**22 + 5]):
        x = np.random.default_rng(3).standard_normal(n).astype(dtype)
        error = np.abs(np.asarray(cs.scan(cs.asarray(x))).astype(wide) - np.cumsum(x, dtype=wide))
        assert (error <= 64 * np.finfo(dtype).eps / 2 * np.cumsum(np.abs(x), dtype=wide)).all()


def test_subnormals_are_kept(place):
    tiny = np.float32(1e-45)
    same(cs.scan(cs.asarray(np.full(1000, tiny))), (np.arange(1, 1001) * np.float64(tiny)).astype(np.float32))
    same(cs.scan(cs.asarray(np.full(37, tiny)), "max"), np.full(37, tiny))


def test_init_of_negative_zero_and_nan(place):
    x = cs.asarray(np.full(37, -0.0, np.float32))
    assert (
        np.signbit(np.asarray(cs.scan(x, init=-0.0))).all() and not np.signbit(np.asarray(cs.scan(x, init=0.0))).any()
    )
    assert np.isnan(np.asarray(cs.scan(x, init=float("nan")))).all()
