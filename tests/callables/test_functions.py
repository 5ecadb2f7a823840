"""Functions of ``math`` and NumPy in callables give what NumPy gives."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import cutesync as cs
from cutesync.callables import arrays, translator

from ..cases import with_slow
from .elementwise import apply

FLOATS = [
    0.0,
    -0.0,
    1,
    -1,
    0.5,
    -0.5,
    2.5,
    -2.5,
    1e-8,
    3.7,
    100,
    -88,
    1e5,
    np.inf,
    -np.inf,
    np.nan,
    1e-3,
    7,
    1e30,
    0.25,
]
INTS = [0, 1, 2, 3, 7, 100, 127]
INPUTS = {
    "float32": np.array(FLOATS, np.float32),
    "float64": np.array([*FLOATS, 1e300, 1e-310]),
    "float16": np.array([x for x in FLOATS if not 1e4 < abs(x) < np.inf], np.float16),
    "int8": np.array([*INTS, -128, -1, -7], np.int8),
    "int32": np.array([*INTS, -(2**31), -1, -7], np.int32),
    "uint32": np.array([*INTS, 2**31 + 5, 2**32 - 1], np.uint32),
    "int64": np.array([*INTS, -(2**40), -1], np.int64),
}
NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
ERROR_FUNCTIONS = {"erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc)}
MATH_OF_ONE = [
    name
    for name in translator._TRANSLATED
    if hasattr(math, name) and name not in ("pow", "atan2", "copysign", "fma", "fmod", "hypot")
]
OPERATORS = ("add", "subtract", "multiply", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
BITWISE = ("invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
OF_TWO = [name for name in arrays.UFUNCS if getattr(np, name).nin == 2 and name not in BITWISE]
OF_ONE = [name for name in arrays.UFUNCS if getattr(np, name).nin == 1 and name not in BITWISE]
KEEP_INTEGERS = ("absolute", "sign", "floor", "ceil", "trunc", "rint", "positive", "negative", "square")


def real(x: np.ndarray) -> np.ndarray:
    """The values as functions of real numbers take them."""
    return x.astype(np.float64 if x.dtype.itemsize == 8 else np.float32)


def close(found: np.ndarray, expected: np.ndarray, name: str, ulps: int = 3) -> None:
    """Equal up to a few units in the last place; NaN where NaN is expected."""
    kind = expected.dtype if expected.dtype == np.float64 else np.dtype(np.float32)
    expected = expected.astype(np.float64)
    largest = np.where(np.isfinite(expected), np.maximum(np.abs(expected), np.finfo(kind).tiny), 1)
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= ulps * np.spacing(largest.astype(kind)).astype(np.float64)
    assert (same | near).all(), f"{name}: {found[~(same | near)]}, expected {expected[~(same | near)]}"


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", with_slow(INPUTS, {"float64", "int64"}))
def test_math(dtype):
    x = INPUTS[dtype]
    rows = apply([getattr(math, name) for name in MATH_OF_ONE], x)
    for name, row in zip(MATH_OF_ONE, rows):
        meaning = ERROR_FUNCTIONS.get(name) or getattr(np, NAMES.get(name, name), None)
        with np.errstate(all="ignore"):
            exact = np.asarray(meaning(real(x).astype(np.float64))).astype(real(x).dtype)
        given = x if name in ("floor", "ceil", "trunc") and dtype[0] != "f" else exact
        close(row, given, f"math.{name} of {dtype}")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", with_slow(INPUTS, {"float64", "uint32"}))
def test_ufuncs_of_one_operand(dtype):
    x = INPUTS[dtype]
    rows = apply([getattr(np, name) for name in OF_ONE], x)
    for name, row in zip(OF_ONE, rows):
        given = x if name in KEEP_INTEGERS and dtype[0] != "f" else real(x)
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(given))
        close(row, expected, f"numpy.{name} of {dtype}", 8 if name == "logaddexp" else 3)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = INPUTS[dtype]
    return tuple(np.ascontiguousarray(part.ravel()) for part in np.meshgrid(x, x[::-1]))


@pytest.mark.parametrize("dtype", with_slow(["float32", "float64", "int32", "uint32"], {"float64", "uint32"}))
def test_ufuncs_of_two_operands(dtype):
    a, b = pairs(dtype)
    whole = ("maximum", "minimum", "fmax", "fmin", "remainder", "fmod", "floor_divide", *OPERATORS)
    if dtype[0] != "f":
        a, b = a[b != 0], b[b != 0]
        a, b = a[(a != a.min()) | (b != b.max())], b[(a != a.min()) | (b != b.max())]
    names = [name for name in OF_TWO if name != "power" or dtype[0] == "f"]  # those of integers wrap
    rows = apply([getattr(np, name) for name in names], a, b)
    for name, row in zip(names, rows):
        first, second = (a, b) if dtype[0] != "f" and name in whole else (real(a), real(b))
        with np.errstate(all="ignore"):
            close(row, np.asarray(getattr(np, name)(first, second)), f"numpy.{name} of {dtype}", 5)


def test_bitwise_ufuncs():
    a, b = pairs("int32")
    b = b & 31
    rows = apply([getattr(np, name) for name in BITWISE[1:]], a, b)
    for name, row in zip(BITWISE[1:], rows):
        close(row, getattr(np, name)(a, b).astype(float), name)
    close(apply([np.invert], a)[0], np.invert(a).astype(float), "invert")


OTHERS = {
    "atan2": (math.atan2, np.arctan2),
    "copysign": (math.copysign, np.copysign),
    "fmod": (math.fmod, np.fmod),
    "quotient rounded down": (lambda a, b: a // b, np.floor_divide),
    "of a number": (lambda a, b: 5 // b + a // 0.1, lambda a, b: np.float32(5) // b + a // np.float32(0.1)),
    "hypot of three": (lambda a, b: math.hypot(a, b, 3), lambda a, b: np.hypot(np.hypot(a, b), np.float32(3))),
    "log to a base": (lambda a, b: math.log(a, 8), lambda a, b: np.log(a) / np.log(np.float32(8))),
    "where": (lambda a, b: np.where(a > b, a, 2), lambda a, b: np.where(a > b, a, np.float32(2))),
    "where of numbers": (lambda a, b: np.where(a > b, 1, 0.5), lambda a, b: np.where(a > b, 1, 0.5)),
    "where of a number": (lambda a, b: np.where(a, b, 7), lambda a, b: np.where(a, b, np.float32(7))),
    "clip": (lambda a, b: np.clip(a, -1, 2.5), lambda a, b: np.clip(a, np.float32(-1), np.float32(2.5))),
    "clip below": (lambda a, b: np.clip(a, None, b), lambda a, b: np.minimum(a, b)),
    "round": (lambda a, b: round(a), lambda a, b: np.round(a)),
    "numpy.round": (lambda a, b: np.round(a), lambda a, b: np.round(a)),
    "fix": (lambda a, b: np.fix(a), lambda a, b: np.fix(a)),
    "nan_to_num": (lambda a, b: np.nan_to_num(a, nan=5.0), lambda a, b: np.nan_to_num(a, nan=np.float32(5))),
    "abs": (lambda a, b: abs(a), lambda a, b: np.abs(a)),
    "power": (lambda a, b: 2.0**a, lambda a, b: np.float32(2) ** a),
    "isnan": (lambda a, b: math.isnan(a) | np.isinf(b), lambda a, b: np.isnan(a) | np.isinf(b)),
    "max": (lambda a, b: max(a, b, 0.5), lambda a, b: np.vectorize(lambda a, b: max(a, b, 0.5))(a, b)),
    "min": (lambda a, b: min([b, a]), lambda a, b: np.vectorize(lambda a, b: min(b, a))(a, b)),
    "NumPy's numbers": (lambda a, b: np.float32(2) * a - np.float64(1), lambda a, b: np.float32(2) * a - np.float32(1)),
    "array": (lambda a, b: (np.array([1.0, 2.0]) * a).sum(), lambda a, b: a + 2 * a),
    "difference of comparisons": (lambda a, b: (a > b) - (a < b), lambda a, b: 1.0 * (a > b) - (a < b)),
    "comparison, negated": (lambda a, b: -(a > b), lambda a, b: -1.0 * (a > b)),
}


def test_other_functions():
    a, b = pairs("float32")
    rows = apply([fn for fn, _ in OTHERS.values()], a, b)
    for (name, (_, meaning)), row in zip(OTHERS.items(), rows):
        with np.errstate(all="ignore"):
            close(row, np.asarray(meaning(a, b)), name, 5)


def test_integers_keep_their_type_and_width():
    x = np.array([-128, -1, 0, 5, 127], np.int8)
    large = np.array([2**63 - 1, -(2**63), 3], np.int64)
    found = apply([abs, lambda v: max(v, 3), lambda v: np.where(v > 0, v, 100), np.sign], x, dtype="int8")
    assert found.tolist() == [np.abs(x).tolist(), [3, 3, 3, 5, 127], [100, 100, 100, 5, 127], [-1, -1, 0, 1, 1]]
    assert apply([lambda v: min(v, 2**62), lambda v: np.maximum(v, 0)], large, dtype="int64").tolist() == [
        [2**62, -(2**63), 3],
        [2**63 - 1, 0, 3],
    ]
    big = np.array([2**31 + 5, 7], np.uint32)
    assert apply([abs, lambda v: max(v, 2**31)], big, dtype="uint32").tolist() == [[2**31 + 5, 7], [2**31 + 5, 2**31]]


@pytest.mark.parametrize("dtype", with_slow(["int8", "uint32", "int64"], {"uint32", "int64"}))
def test_powers_of_integers(dtype):
    """They wrap, as in NumPy."""
    x = np.array([0, 1, 2, 3, 11, -1], np.int64).astype(dtype)
    powers = [lambda v: v**2, lambda v: pow(v, 13), lambda v: np.power(v, 0), lambda v: v ** (v & 7)]
    with np.errstate(over="ignore"):
        assert apply(powers, x, dtype=dtype).tolist() == [fn(x).tolist() for fn in powers]
    assert apply([lambda v: 2 ** (v & 31)], x, dtype="uint32").tolist() == [[2 ** (int(v) & 31) for v in x]]


def test_powers_of_integers_by_negative_numbers(on_emulator):
    x = np.array([-1, 1, 2, 5, 0], np.int32)
    assert apply([lambda v: v ** (v - 3)], x).tolist() == [[1, 1, 0, 25, 0]]
    assert apply([lambda v: v**v + v**2], x != 0).tolist() == [[2, 2, 2, 2, 1]]  # of Booleans
    with pytest.raises(cs.errors.OperatorError, match="an integer to the power -1"):
        cs.reduce(x, "add", transform=lambda v: v**-1)


def test_integers_of_two_types(on_emulator):
    """They become the wider type, and keep their sign; a float has no bits to combine."""
    a, b = np.array([3, -2, 100], np.int8), np.array([2, 7, 2**63], np.uint64)
    wide, second = a.astype(np.uint64), lambda p, q: q
    fns = lambda v, w: (v + w, w - v, v | w, min(v, w), w / 3)  # noqa: E731
    *found, thirds = cs.scan((a, b), second, transform=fns, dtype=("uint64",) * 4 + ("float64",))
    assert np.allclose(thirds, b / 3, rtol=1e-12)
    assert np.array_equal(found, (wide + b, b - wide, wide | b, np.minimum(wide, b)))
    (shares,) = cs.scan((a, b.astype(np.uint8) + 1), second, transform=lambda v, w: (v / w,), dtype=("float32",))
    assert np.allclose(shares, [1, -0.25, 100])
    for fn in (lambda v, w: v & w, lambda v, w: v << w):
        with pytest.raises(cs.errors.OperatorError, match="(and|lshift) of .*Float32"):
            cs.reduce((a, b.astype(np.float32)), second, transform=fn, dtype=("float32",))


def test_bool():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    fns = [np.maximum, np.logical_xor, lambda a, b: np.where(a, b, 3), lambda a, b: not a, lambda a, b: abs(a) + 1]
    assert apply(fns, a, b).tolist() == [[0, 1, 1, 1], [0, 1, 1, 0], [3, 3, 0, 1], [1, 1, 0, 0], [1, 1, 2, 2]]


def test_the_page_names_the_functions():
    page = (Path(translator.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = {row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in re.findall(r"^\| (.*?) \| (.*) \|$", page, re.M)}
    assert rows["Python"] == {*translator._BUILT_INS, "round", "sum", "pow"}
    assert rows["`math`"] == set(translator._TRANSLATED) | set(translator._OF_OBJECTS)
    assert rows["`numpy`, ufuncs"] - {"add", "less"} == set(arrays.UFUNCS) - set(arrays._OPERATORS)
    assert rows["`numpy`, others"] == set(arrays.FUNCTIONS)
