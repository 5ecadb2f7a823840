"""The operator argument of the public collectives: a name or a callable, as a traced function of two registers."""

from __future__ import annotations

from cutlass import Numeric

from ..dtypes import BY_NAME, DType
from ..errors import ArgumentTypeError, explain
from ..monoid import binary
from ..ops import operator

_BY_DSL_NAME = {dtype.dsl: dtype for dtype in BY_NAME.values() if dtype.name != "bool"} | {"Boolean": BY_NAME["bool"]}


def element_dtype(register) -> DType:
    """The DType of a numeric DSL class (``cutlass.Float32`` and so on)."""
    if not (isinstance(register, type) and issubclass(register, Numeric)) or register.__name__ not in _BY_DSL_NAME:
        raise ArgumentTypeError(explain("dtype", repr(register), "one of " + ", ".join(f"cutlass.{n}" for n in sorted(_BY_DSL_NAME))))
    return _BY_DSL_NAME[register.__name__]


def scalar_operator(op, register):
    """``fn(a, b)`` on two values of the DSL class ``register``, returning that class."""
    parsed = operator(op)
    parsed.check(element_dtype(register))
    wide, fn = binary(parsed, element_dtype(register))
    return lambda a, b: register(fn(wide(a), wide(b)))
