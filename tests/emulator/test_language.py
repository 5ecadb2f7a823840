"""What the DSL makes of ordinary expressions runs and agrees with NumPy: mathematics, narrow types, conversions,
printing, assertions.
"""

import math

import numpy as np
import pytest
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, Float64, Int8, Int32, Int64, cute, select_

from cutesync import emulator

from . import kernels_basic as basic
from .support import reported

ml_dtypes = pytest.importorskip("ml_dtypes")

POSITIVE = np.linspace(0.05, 3, 32)
INTEGERS = np.arange(-16, 16).astype(np.int32)
FUNCTIONS = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "atan": np.arctan,
    "erf": np.vectorize(math.erf),
}


def apply(x: np.ndarray, op, dtype) -> np.ndarray:
    y = np.zeros(32, dtype)
    emulator.check(basic.apply, x, y, op, schedules=1)
    return y


@pytest.mark.drawn(16)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "dtype, fast, tolerance", ((np.float32, False, 2e-6), (np.float32, True, 1e-4), (np.float64, False, 1e-14))
)
def test_mathematics(name, dtype, fast, tolerance):
    if name == "rsqrt":
        tolerance = max(tolerance, 1e-6)  # the instruction has about 20 good bits in double precision
    x = POSITIVE.astype(dtype)
    got = apply(x, lambda v: getattr(cute.math, name)(v, fastmath=fast), dtype)
    np.testing.assert_allclose(got, FUNCTIONS[name](x.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", (np.float16, ml_dtypes.bfloat16))
def test_half_precision_is_rounded_as_its_type_says(dtype):
    x = POSITIVE.astype(dtype)
    wide = x.astype(np.float32)
    assert np.array_equal(apply(x, lambda v: v * v, dtype), (wide * wide).astype(dtype))
    assert np.array_equal(apply(x, lambda v: v + v.to(Float32).to(type(v)), dtype), (wide + wide).astype(dtype))
    assert np.array_equal(apply(x, lambda v: v.to(Float32), np.float32), x.astype(np.float32))
    assert np.array_equal(
        apply(x, lambda v: select_(v > v * v, Int32(1), Int32(0)), np.int32), (x > x * x).astype(np.int32)
    )


CONVERSIONS = {
    "float to int truncates": (
        POSITIVE.astype(np.float32) * 10,
        lambda v: v.to(Int32),
        lambda x: np.trunc(x).astype(np.int32),
    ),
    "double to long": (POSITIVE * 1e12, lambda v: v.to(Int64), lambda x: np.trunc(x).astype(np.int64)),
    "int to float": (INTEGERS, lambda v: v.to(Float32), lambda x: x.astype(np.float32)),
    "long to float": (np.arange(32) * 123456789012, lambda v: v.to(Float32), lambda x: x.astype(np.float32)),
    "float to double": (POSITIVE.astype(np.float32), lambda v: v.to(Float64), lambda x: x.astype(np.float64)),
    "float to half": (POSITIVE.astype(np.float32), lambda v: v.to(Float16), lambda x: x.astype(np.float16)),
    "float to bfloat16": (
        POSITIVE.astype(np.float32),
        lambda v: v.to(BFloat16),
        lambda x: x.astype(ml_dtypes.bfloat16),
    ),
    "float to e4m3": (
        POSITIVE.astype(np.float32),
        lambda v: v.to(Float8E4M3FN),
        lambda x: x.astype(ml_dtypes.float8_e4m3fn),
    ),
    "bytes wrap": (np.arange(-16, 16).astype(np.int8), lambda v: v * Int8(20), lambda x: x * np.int8(20)),
    "division rounds down": (INTEGERS, lambda v: v // 3, lambda x: x // 3),
    "bits are counted": (
        INTEGERS,
        lambda v: cute.arch.popc(v),
        lambda x: np.array([bin(v & 0xFFFFFFFF).count("1") for v in x.tolist()], np.int32),
    ),
    "a warp adds up": (
        INTEGERS,
        lambda v: cute.arch.warp_redux_sync(v, "add"),
        lambda x: np.full(32, x.sum(), np.int32),
    ),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_and_integers(name):
    x, op, expected = CONVERSIONS[name]
    want = expected(x)
    got = apply(x, op, want.dtype)
    assert np.array_equal(got.view(np.uint8), want.view(np.uint8))


def test_printing_and_assertions(capsys):
    x = np.arange(32, dtype=np.float32)
    how = {"schedules": 1, "options": "--enable-assertions"}
    assert "lane 31" in reported("trap", "too large", emulator.check, basic.print_and_assert, x, **how)
    printed = capsys.readouterr().out
    assert "lane 0 has 0.000000" in printed and "lane 1 has 1.000000" in printed
