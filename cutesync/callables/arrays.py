"""NumPy's functions of scalars on registers: the answers to ``__array_ufunc__`` and ``__array_function__``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from . import functions
from .functions import is_register, of_real

_RENAMED = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "arctan2": "atan2",
}
_REAL = "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh copysign"
_SAME = (
    "absolute fabs floor ceil trunc isnan isinf isfinite sign maximum minimum fmax fmin"
    " floor_divide remainder fmod hypot logaddexp"
)
_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "true_divide": "truediv",
    "power": "pow",
    "negative": "neg",
    "bitwise_and": "and_",
    "bitwise_or": "or_",
    "bitwise_xor": "xor",
    "invert": "invert",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
_DEGREE = np.pi / 180
UFUNCS: dict[str, Any] = {
    **{name: of_real(name) for name in _REAL.split()},
    **{name: of_real(other) for name, other in _RENAMED.items()},
    **{name: getattr(operator, other) for name, other in _OPERATORS.items()},
    **{name: getattr(functions, name) for name in _SAME.split()},
    "rint": functions.roundeven,
    "positive": lambda x: x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / functions.real(x)[0],
    "signbit": lambda x: functions.copysign(1.0, x) < 0,
    "deg2rad": lambda x: functions.real(x)[0] * _DEGREE,
    "radians": lambda x: functions.real(x)[0] * _DEGREE,
    "rad2deg": lambda x: functions.real(x)[0] / _DEGREE,
    "degrees": lambda x: functions.real(x)[0] / _DEGREE,
    "heaviside": lambda x, zero: functions.where(
        functions.isnan(x), x, functions.where(x == 0, zero, functions.where(x < 0, 0.0, 1.0))
    ),
    "logical_and": lambda a, b: functions.is_true(a) & functions.is_true(b),
    "logical_or": lambda a, b: functions.is_true(a) | functions.is_true(b),
    "logical_xor": lambda a, b: functions.is_true(a) ^ functions.is_true(b),
    "logical_not": lambda a: ~functions.is_true(a),
}


def _clip(x: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Any:
    return functions.clip(x, min if a_min is None else a_min, max if a_max is None else a_max)


def _round(x: Any, decimals: int = 0) -> Any:
    return round(functions.number(x), decimals)


FUNCTIONS: dict[str, Any] = {
    "where": functions.where,
    "clip": _clip,
    "round": _round,
    "around": _round,
    "fix": functions.trunc,
    "nan_to_num": functions.nan_to_num,
}


def ufunc(self: Any, called: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    if any(isinstance(x, np.ndarray) and x.ndim for x in inputs):
        return getattr(called, method)(*map(_boxed, inputs), **options)
    found = UFUNCS.get(called.__name__)
    if found is None or method != "__call__" or options:
        name = called.__name__ if method == "__call__" else f"{called.__name__}.{method}"
        raise _untranslated(name + (f" with {', '.join(options)}=" if options else ""))
    return found(*(x if is_register(x) else functions.number(_scalar(x)) for x in inputs))


def function(self: Any, called: Any, types: Any, arguments: tuple, options: dict) -> Any:
    found = FUNCTIONS.get(called.__name__)
    if found is None:
        raise _untranslated(called.__name__)
    return found(*map(_scalar, arguments), **{name: _scalar(value) for name, value in options.items()})


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _boxed(value: Any) -> Any:
    """A register as an array of one object, with which NumPy calls the operators of the elements."""
    if not is_register(value):
        return value
    box = np.empty((), object)
    box[()] = value
    return box


def _untranslated(name: str) -> Exception:
    return TypeError(f"numpy.{name} has no translation for values of a callable")
