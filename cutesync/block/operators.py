"""The arguments of the public collectives: the operator as a traced function of two registers, values, block shape."""

from __future__ import annotations

from cutlass import Numeric

from ..arguments import whole
from ..dtypes import BY_NAME, DType
from ..errors import ArgumentTypeError, explain, shown
from ..monoid import binary
from ..ops import operator

_BY_DSL_NAME = {dtype.dsl: dtype for dtype in BY_NAME.values() if dtype.name != "bool"} | {"Boolean": BY_NAME["bool"]}


def element_dtype(register) -> DType:
    """The DType of a numeric DSL class (``cutlass.Float32`` and so on)."""
    if not (isinstance(register, type) and issubclass(register, Numeric)) or register.__name__ not in _BY_DSL_NAME:
        raise ArgumentTypeError(
            explain("dtype", shown(register), "one of " + ", ".join(f"cutlass.{n}" for n in sorted(_BY_DSL_NAME)))
        )
    return _BY_DSL_NAME[register.__name__]


def scalar_operator(op, register):
    """``fn(a, b)`` on two values of the DSL class ``register``, returning that class."""
    parsed = operator(op)
    parsed.check(element_dtype(register))
    wide, fn = binary(parsed, element_dtype(register))
    return lambda a, b: register(fn(wide(a), wide(b)))


def register_of(value, register, argument: str):
    """A value that a kernel gives, a number or a register, as the DSL class ``register``."""
    try:
        return register(value)
    except Exception as error:  # the DSL's, with its colours and advice
        raise ArgumentTypeError(
            explain(argument, f"a {type(value).__name__}", f"a number that {register.__name__} holds")
        ) from error


def block_shape(block_dim) -> tuple[int, ...]:
    """Up to three extents, as ints."""
    if not isinstance(block_dim, (tuple, list)) or not 1 <= len(block_dim) <= 3:
        raise ArgumentTypeError(explain("block_dim", shown(block_dim), "a tuple of up to three ints"))
    return tuple(whole(extent, "block_dim") for extent in block_dim)
