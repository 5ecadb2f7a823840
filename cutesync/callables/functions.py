"""Functions of ``math``, NumPy and Python on registers.

A function of real numbers makes float32 of integers of up to 32 bits, and float64 of wider ones. Functions that choose
(``minimum``, ``where``) convert their operands to one type as operators do: the wider one, a float if there is one.
"""

from __future__ import annotations

import builtins
import functools
import math as python_math
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass import Boolean, Float32, Float64, Int32, Integer, Numeric
from cutlass._mlir_helpers.arith import ArithValue

from .. import monoid
from ..monoid import choose, convert
from .paths import selects

math: Any = cute.math  # type checkers do not see its functions


def is_dynamic(value: Any) -> bool:
    """Whether it is a register or a value below one, which are not known while the callable is traced."""
    return isinstance(value, ArithValue) or (
        isinstance(value, Numeric) and not isinstance(value.value, (bool, int, float))
    )


def is_register(value: Any) -> bool:
    """Whether it is of a type of the DSL, known or not."""
    return isinstance(value, (Numeric, ArithValue))


def number(value: Any) -> Any:
    """A value as a register; Python's and NumPy's numbers as Python numbers."""
    if isinstance(value, ArithValue):
        return cutlass.as_numeric(value)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (Numeric, bool, int, float)):
        raise TypeError(f"{type(value).__name__} is not a number")
    return value


def same(*values: Any) -> list[Any]:
    """The values as registers of one type."""
    values = tuple(number(value) for value in values)
    kind: Any = functools.reduce(_wider, (type(value) for value in values if isinstance(value, Numeric)))
    if not kind.is_float and any(isinstance(value, float) for value in values):
        kind = Float64 if kind.width == 64 else Float32
    elif kind is Boolean and any(type(value) is int for value in values):
        kind = Int32
    for value in values:
        if type(value) is int and not kind.is_float and not kind.min <= value <= kind.max:
            raise OverflowError(f"the Python int {value} does not fit {kind.__name__}")
    return [convert(value, kind) for value in values]


def _wider(a: Any, b: Any) -> Any:
    if a is b:
        return a
    if a.is_float or b.is_float:
        return Float64 if max(a.width, b.width) == 64 else Float32
    if a.width == b.width:
        return b if a.signed else a
    return a if a.width > b.width else b


def real(*values: Any) -> list[Any]:
    """The values as registers of one float type."""
    values = tuple(number(value) for value in values)
    wide = any(isinstance(value, Numeric) and value.width == 64 for value in values)
    return [(Float64 if wide else Float32)(value) for value in values]


def is_true(x: Any) -> Any:
    """Whether it is not zero, as a Boolean; NaN is not zero."""
    x = number(x)
    return x if isinstance(x, Boolean) else Boolean(x != 0)


def of_real(name: str) -> Any:
    """The function of that name in ``cute.math``, of real numbers."""

    def function(*values: Any) -> Any:
        return getattr(math, name)(*real(*values))

    return function


def _rounding(name: str) -> Any:
    def function(x: Any) -> Any:
        x = number(x)
        return x if isinstance(x, Integer) else getattr(math, name)(*real(x))

    return function


floor, ceil, trunc, roundeven = map(_rounding, ("floor", "ceil", "trunc", "roundeven"))
sqrt, exp, log, log1p, copysign = map(of_real, ("sqrt", "exp", "log", "log1p", "copysign"))


def absolute(x: Any) -> Any:
    x = number(x)
    if isinstance(x, Boolean):
        return Int32(x)
    return x if isinstance(x, Integer) and not x.signed else abs(x)


def fabs(x: Any) -> Any:
    return absolute(*real(x))


def isnan(x: Any) -> Any:
    x = number(x)
    return Boolean(x != x)


def isinf(x: Any) -> Any:
    x = number(x)
    return Boolean(False) if isinstance(x, Integer) else absolute(x) == float("inf")


def isfinite(x: Any) -> Any:
    x = number(x)
    return Boolean(True) if isinstance(x, Integer) else absolute(x) < float("inf")


def logarithm(x: Any, base: Any = None) -> Any:
    return log(x) if base is None else log(x) / log(base)


def hypot(*values: Any) -> Any:
    """The root of the sum of squares, which neither overflow nor underflow; infinity if one is infinite."""
    values = tuple(absolute(x) for x in real(*values))
    largest = functools.reduce(monoid.maximum, values)
    scale = choose((largest == 0) | isinf(largest), type(largest)(1), largest)
    total = sum(((x / scale) * (x / scale) for x in values[1:]), (values[0] / scale) * (values[0] / scale))
    found = scale * sqrt(total)
    infinite = functools.reduce(lambda a, b: a | b, (isinf(x) for x in values))
    return choose(infinite, type(found)(float("inf")), found)


def where(condition: Any, a: Any, b: Any) -> Any:
    if not is_dynamic(condition):
        return a if number(condition) else b
    if not (is_register(a) or is_register(b)):
        a = Boolean(a) if type(a) is bool and type(b) is bool else _literal(a, b)
    selects()
    return choose(is_true(condition), *same(a, b))


def _literal(a: Any, b: Any) -> Any:
    """The first of two Python numbers, as a register of a type that holds both."""
    if isinstance(number(a), float) or isinstance(number(b), float):
        return Float32(number(a))
    return _wider(type(cutlass.as_numeric(number(a))), type(cutlass.as_numeric(number(b))))(number(a))


def maximum(a: Any, b: Any) -> Any:
    """NaN if one is NaN, as NumPy's."""
    a, b = same(a, b)
    return a | b if isinstance(a, Boolean) else monoid.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    a, b = same(a, b)
    return a & b if isinstance(a, Boolean) else monoid.minimum(a, b)


def fmax(a: Any, b: Any) -> Any:
    """The other one if one is NaN."""
    a, b = same(a, b)
    return choose((a >= b) | (b != b), a, b)


def fmin(a: Any, b: Any) -> Any:
    a, b = same(a, b)
    return choose((a <= b) | (b != b), a, b)


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def sign(x: Any) -> Any:
    x = number(x)
    kind = type(x)
    if isinstance(x, Integer) and not x.signed:
        return choose(x != 0, kind(1), kind(0))
    found = choose(x > 0, kind(1), choose(x < 0, kind(-1), kind(0)))
    return choose(x != x, x, found) if kind.is_float else found


def remainder(a: Any, b: Any) -> Any:
    """With the sign of the divisor, as Python's ``%``."""
    a, b = same(a, b)
    found = math.rem(a, b) if type(a).is_float else a % b
    if isinstance(a, Integer) and not a.signed:
        return found
    return choose((found != 0) & ((found < 0) != (b < 0)), found + b, found)


def floor_divide(a: Any, b: Any) -> Any:
    """``a // b``; of floats by way of the remainder, as in Python and NumPy: the quotient itself is rounded, perhaps up
    to the next integer."""
    a, b = same(a, b)
    if not type(a).is_float:
        return a // b
    rest = math.rem(a, b)
    quotient = (a - rest) / b - choose((rest != 0) & ((rest < 0) != (b < 0)), type(a)(1), type(a)(0))
    whole = floor(quotient)
    whole = choose(quotient - whole > 0.5, whole + 1, whole)
    found = choose(quotient == 0, copysign(type(a)(0), a / b), whole)
    return choose(b == 0, a / b, found)


def fmod(a: Any, b: Any) -> Any:
    """With the sign of the dividend, as in C."""
    a, b = same(a, b)
    return math.rem(a, b) if type(a).is_float else a % b


def power(a: Any, b: Any) -> Any:
    """A power of integers, by products that wrap. A negative power is 0, except of 1 and -1."""
    a, b = (Int32(x) if isinstance(x, (bool, Boolean)) else x for x in (a, b))
    if is_dynamic(b):
        return _unknown_power(same(a, b)[0], b)
    exponent = b.value if isinstance(b, Integer) else b
    if exponent < 0:
        raise TypeError(f"an integer to the power {exponent}; the power of a float has a fraction")
    found = type(a)(1)
    for bit in f"{exponent:b}":
        found = found * found * a if bit == "1" else found * found
    return found


def _unknown_power(a: Any, b: Any) -> Any:
    kind: Any = type(a)
    found, square = kind(1), choose(b != 0, a, kind(1))  # a register, as the DSL refuses Python ints that wrap
    for bit in range(b.width):
        found = choose((b >> bit) & 1 != 0, kind(found * square), found)
        square = kind(square * square)
    if not b.signed:
        return found
    vanishes = (b < 0) & (a != 1)
    return choose(vanishes & (a != -1) if kind.signed else vanishes, kind(0), found)


def logaddexp(a: Any, b: Any) -> Any:
    a, b = real(a, b)
    distant = maximum(a, b) + log1p(exp(-absolute(a - b)))
    return choose(a == b, a + python_math.log(2), distant)


def nan_to_num(x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = number(x)
    if isinstance(x, Integer):
        return x
    info = np.finfo(np.float64 if x.width == 64 else np.float32)
    x = where(x == float("inf"), float(info.max) if posinf is None else posinf, x)
    x = where(x == -float("inf"), float(info.min) if neginf is None else neginf, x)
    return where(isnan(x), nan, x)


def _first(better: Any, built_in: Any) -> Any:
    """Python's ``min`` or ``max``: an operand replaces those before it where it is better, so NaN never does."""

    def function(*given: Any, **options: Any) -> Any:
        values = tuple(given[0]) if len(given) == 1 else given
        if options or not all(isinstance(x, (int, float, np.generic)) or is_register(x) for x in values):
            return built_in(values, **options)
        if not any(map(is_dynamic, values)):
            return built_in(values)
        return functools.reduce(lambda a, b: choose(better(b, a), b, a), same(*values))

    return function


first_min = _first(lambda b, a: b < a, builtins.min)
first_max = _first(lambda b, a: b > a, builtins.max)
