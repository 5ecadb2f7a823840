"""``div rcp sqrt`` with IEEE rounding, and the ``.approx`` functions (PTX ISA 9.7.3, "Floating Point Instructions").

    function = operation("ex2.approx.ftz.f32")
    destination = function(a)

Operands and results are raw bits, as in ``arithmetic``. The ``.approx`` functions are computed in float64 and rounded
once to nearest, so they are at least as good as the hardware's; compare the two with the tolerances in ``TOLERANCE``,
which are the PTX ISA's own bounds. f16 and bf16 forms round the same float64 value to their type.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from math import isqrt

import numpy as np

from ..formats import BF16, F32, F64, Format, canonical, decode, encode, flush_subnormals, require, round_to_odd_sum
from .arithmetic import Operation, finish, on_pairs, round_fraction, spelling

TOLERANCE = {
    "div.approx.f32": "2 ulp for 2**-126 <= |b| <= 2**126",
    "div.full.f32": "2 ulp",
    "rcp.approx.f32": "1 ulp",
    "sqrt.approx.f32": "relative 2**-23",
    "rsqrt.approx.f32": "relative 2**-22.9",
    "ex2.approx.f32": "2 ulp",
    "lg2.approx.f32": "absolute 2**-22 for 0.5 <= a <= 2, relative 2**-22.6 elsewhere",
    "sin.approx.f32": "absolute 2**-20.5 for |a| <= 2 pi",
    "cos.approx.f32": "absolute 2**-20.5 for |a| <= 2 pi",
    "tanh.approx.f32": "relative 2**-11",
    "tanh.approx.f16": "absolute 2**-10.987",
    "tanh.approx.bf16": "absolute 2**-8",
    "ex2.approx.f16": "relative 2**-9.9",
    "ex2.approx.bf16": "relative 2**-7",
    "rcp.approx.ftz.f64": "20 bits; the low word of the result is zero",
    "rsqrt.approx.f64": "20 bits; with .ftz the low word of the result is zero",
}
"""Largest difference from the hardware that the PTX ISA allows, by instruction."""

APPROXIMATE: dict[str, Callable[..., np.ndarray]] = {
    "div": np.divide,  # .full; .approx is _fast_division
    "rcp": lambda a: 1.0 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
HALF_FORMS = ("ex2", "tanh")
DOUBLE_FORMS = ("rcp", "rsqrt")


@cache
def operation(opcode: str) -> Operation:
    """The function that carries out ``opcode`` (see the module's docstring)."""
    name, mode, flags, fmt = spelling(opcode, APPROXIMATE, ("approx", "full", "ftz"))
    body: Operation
    if mode:
        fine = name in ("div", "rcp", "sqrt") and fmt in (F32, F64)
        require(fine, "rounded instruction", repr(opcode), "div, rcp or sqrt on f32 or f64")
        body = partial(_rounded, name, fmt, mode)
    elif fmt is F64:
        fine = name in DOUBLE_FORMS
        require(fine, "approximate instruction", repr(opcode), "rcp.approx.ftz.f64 or rsqrt.approx.f64")
        body = partial(_approximate_f64, name, "ftz" in flags)
    else:
        require(fmt is F32 or name in HALF_FORMS, "half instruction", repr(opcode), "ex2.approx or tanh.approx")
        function = _fast_division if name == "div" and "approx" in flags else APPROXIMATE[name]
        body = partial(_approximate, function, fmt)
    return on_pairs(opcode, finish(fmt, flags & {"ftz"} if fmt in (F32, BF16) else frozenset(), body))


def _approximate(function: Callable[..., np.ndarray], fmt: Format, *sources: np.ndarray) -> np.ndarray:
    return encode(fmt, function(*(decode(fmt, s) for s in sources)))


def _fast_division(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``div.approx``: the reciprocal of a divisor above 2**126 is flushed: zero, or NaN for an infinite dividend."""
    huge = (np.abs(y) > 2.0**126) & np.isfinite(y)
    return np.where(huge, x * np.copysign(0.0, y), x / y)


def _approximate_f64(name: str, ftz: bool, a: np.ndarray) -> np.ndarray:
    """With ``.ftz`` only upper words count: subnormal numbers are zero, the low word of the result too; one NaN."""
    if not ftz:
        return canonical(F64, APPROXIMATE[name](a.view(np.float64)), a)
    upper = np.uint64(0xFFFFFFFF00000000)
    values = APPROXIMATE[name](flush_subnormals(F64, a & upper).view(np.float64))
    return np.where(
        np.isnan(values), np.uint64(0x7FFFFFFF00000000), flush_subnormals(F64, values.view(np.uint64)) & upper
    )


# --- IEEE rounding ----------------------------------------------------------------------------------------------------


def _rounded(name: str, fmt: Format, mode: str, *sources: np.ndarray) -> np.ndarray:
    """Nearest is numpy's own; directed modes step from it to the neighbour when the exact remainder says so."""
    values = [s.view(fmt.real) for s in sources]
    if name == "rcp":
        values = [np.ones_like(values[0]), *values]
    nearest = np.sqrt(values[0]) if name == "sqrt" else values[0] / values[1]
    if mode == "rn":
        return canonical(fmt, nearest, *reversed(sources))
    if fmt is F64:
        return canonical(F64, _directed_f64(name, mode, values, nearest), *reversed(sources))
    return encode(F32, _odd_root(*values) if name == "sqrt" else _odd_quotient(*values), mode)


def _directed_f64(name: str, mode: str, values: list[np.ndarray], nearest: np.ndarray) -> np.ndarray:
    """Lane by lane on fractions; ``nearest`` decides zeros, infinities and NaNs."""
    result = nearest.copy()
    for lane in np.ndindex(result.shape):
        operands = [float(v[lane]) for v in values]
        if np.isfinite(operands).all() and all(operands) and not np.isnan(nearest[lane]):
            first, *second = map(Fraction, operands)
            exact = _tight_root(first) if name == "sqrt" else first / second[0]
            result[lane] = round_fraction(exact, mode)
    return result


def _tight_root(value: Fraction) -> Fraction:
    """The root exactly where it is rational, else a number on the same side of every float64."""
    scale = 1 << 2200
    scaled = value.numerator * scale * scale // value.denominator
    root = isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled), 2 * scale)


def _odd_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 a / b as a float64 rounded to odd, from a quotient of 26 bits and its exact remainder."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    quotient = _short(x / y)
    remainder = x - quotient * y
    return _nudged(quotient, np.sign(remainder) * np.sign(y))


def _odd_root(a: np.ndarray) -> np.ndarray:
    x = a.astype(np.float64)
    root = _short(np.sqrt(x))
    return _nudged(root, np.sign(x - root * root))


def _short(values: np.ndarray) -> np.ndarray:
    """The upper 26 bits of the significand, so that products with 24-bit numbers are exact in float64."""
    return (values.view(np.uint64) & ~np.uint64((1 << 27) - 1)).view(np.float64)


def _nudged(values: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """``values`` moved by less than any bit that counts, towards ``direction``; special values as they are."""
    tiny = np.abs(values) * 2.0**-40 * direction
    return np.where(np.isfinite(values) & (values != 0) & (direction != 0), round_to_odd_sum(values, tiny), values)
