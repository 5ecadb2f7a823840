"""Checks of arguments that every family shares. Each returns the value to use, or raises an error that names the argument."""

from __future__ import annotations

import operator
from typing import Iterable

import numpy as np

from .errors import ArgumentTypeError, ArgumentValueError, explain, shown


def flag(value, argument: str, *, numbers: bool = False) -> bool:
    """True or False, of Python or NumPy. ``numbers``: an integer will do, as in NumPy's ``keepdims``."""
    if isinstance(value, (bool, np.bool_)) or (numbers and isinstance(value, (int, np.integer))):
        return bool(value)
    raise ArgumentTypeError(explain(argument, shown(value), "True or False"))


def choice(value, argument: str, allowed: Iterable[str]) -> str:
    """One of the names allowed."""
    allowed = tuple(allowed)
    if isinstance(value, str) and value in allowed:
        return value
    raise (ArgumentValueError if isinstance(value, str) else ArgumentTypeError)(explain(argument, shown(value), " or ".join(map(repr, allowed))))


def integer(value, argument: str, low: int, high: int, what: str = "") -> int:
    """An int from ``low`` to ``high``, of Python or NumPy; ``what`` says what it counts."""
    allowed = f"{low} to {_power(high)}{what and ' '}{what}"
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
        raise ArgumentTypeError(explain(argument, shown(value), f"an int from {allowed}"))
    try:
        number = operator.index(value)
    except TypeError as error:  # a NumPy array of several elements
        raise ArgumentTypeError(explain(argument, shown(value), f"an int from {allowed}")) from error
    if not low <= number <= high:
        raise ArgumentValueError(explain(argument, shown(value), allowed))
    return number


def _power(number: int) -> str:
    """Large limits as they are meant: 2**40, 2**31 - 1."""
    for offset, text in ((0, ""), (1, " - 1")):
        exponent = (number + offset).bit_length() - 1
        if exponent >= 16 and number + offset == 1 << exponent:
            return f"2**{exponent}{text}"
    return str(number)
