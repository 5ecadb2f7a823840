"""Checks of arguments that all families share. Each returns the value to use, or raises an error that names the
argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import ArgumentTypeError, ArgumentValueError, explain, shown


def exact(*values: Any) -> tuple[str, ...]:
    """Return texts that distinguish values which are equal as keys: 1, 1.0 and True, or 0.0 and -0.0."""
    try:
        return tuple(map(repr, values))
    except Exception as error:  # raised by a user's ``repr``, or for a huge int
        came = ", ".join(map(shown, values))
        raise ArgumentValueError(explain("arguments", came, "values that can be shown")) from error


def flag(value: Any, argument: str, *, numbers: bool = False) -> bool:
    """Return True or False for a bool of Python or NumPy. With ``numbers``, accept integers, as NumPy's ``keepdims``
    does."""
    if isinstance(value, (bool, np.bool_)) or (numbers and isinstance(value, (int, np.integer))):
        return bool(value)
    raise ArgumentTypeError(explain(argument, shown(value), "True or False"))


def choice(value: Any, argument: str, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of the names allowed."""
    allowed = tuple(allowed)
    if isinstance(value, str) and value in allowed:
        return value
    raise (ArgumentValueError if isinstance(value, str) else ArgumentTypeError)(
        explain(argument, shown(value), " or ".join(map(repr, allowed)))
    )


def whole(value: Any, argument: str) -> int:
    """Return an int of Python or NumPy that fits 64 bits."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except Exception:  # no int, or a user's ``__index__`` that fails
        number = None
    if number is None:
        raise ArgumentTypeError(explain(argument, shown(value), "an int"))
    if not -(1 << 63) <= number < 1 << 63:
        raise ArgumentValueError(explain(argument, shown(value), "an int of 64 bits"))
    return number


def integer(value: Any, argument: str, low: int, high: int) -> int:
    """Return an int from ``low`` to ``high``."""
    number = whole(value, argument)
    if not low <= number <= high:
        raise ArgumentValueError(explain(argument, shown(value), f"{low} to {_power(high)}"))
    return number


def _power(number: int) -> str:
    """Return a limit as text; large ones as powers of two: 2**40, 2**31 - 1."""
    for offset, text in ((0, ""), (1, " - 1")):
        exponent = (number + offset).bit_length() - 1
        if exponent >= 16 and number + offset == 1 << exponent:
            return f"2**{exponent}{text}"
    return str(number)
