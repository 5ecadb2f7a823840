"""The arguments of the public collectives: states, operators on them as traced functions, block shape."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Numeric

from ..arguments import whole
from ..dtypes import BY_NAME, DType
from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ..monoid import binary, shown_state, traced_values
from ..ops import operator

_BY_DSL_NAME = {dtype.dsl: dtype for dtype in BY_NAME.values() if dtype.name != "bool"} | {"Boolean": BY_NAME["bool"]}


def element_dtype(register) -> DType:
    """The DType of a numeric DSL class (``cutlass.Float32`` and so on)."""
    if not (isinstance(register, type) and issubclass(register, Numeric)) or register.__name__ not in _BY_DSL_NAME:
        raise ArgumentTypeError(
            explain("dtype", shown(register), "one of " + ", ".join(f"cutlass.{n}" for n in sorted(_BY_DSL_NAME)))
        )
    return _BY_DSL_NAME[register.__name__]


class StateType:
    """The states of a collective: one value, or with a tuple as ``dtype`` a tuple of values.

    ``types`` are the DSL classes of the values. Collectives hold a state as a tuple of registers; ``of`` makes it of
    what a kernel gives, and ``given`` is the way back.
    """

    def __init__(self, dtype) -> None:
        self.packed = isinstance(dtype, tuple)
        self.types = tuple(dtype) if self.packed else (dtype,)
        if not self.types:
            raise ArgumentValueError(explain("dtype", "an empty tuple", "at least one type"))
        self.elements = tuple(map(element_dtype, self.types))

    @classmethod
    def of_value(cls, value) -> StateType:
        """The type of a value that a kernel gives: a register, or a tuple of registers and numbers."""
        if isinstance(value, tuple):
            return cls(tuple(type(_numeric(v)) for v in value))
        return cls(type(_numeric(value)))

    def of(self, value, argument: str) -> tuple:
        """The registers of a state that a kernel gives."""
        return tuple(register_of(v, t, argument) for v, t in zip(self.parts(value, argument), self.types))

    def parts(self, value, argument: str) -> tuple:
        """One object for each value of a state."""
        if not self.packed:
            return (value,)
        if not isinstance(value, (tuple, list)) or len(value) != len(self.types):
            came = f"{len(value)} values" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
            raise ArgumentTypeError(explain(argument, came, f"a tuple of {len(self.types)}"))
        return tuple(value)

    def given(self, state) -> Any:
        """A state as a kernel gets it."""
        return tuple(state) if self.packed else state[0]

    def combine(self, op):
        """``fn(a, b)`` on two states. A name applies to each value; a callable gets two values, or two tuples."""
        if isinstance(op, str) or not self.packed:
            functions = [scalar_operator(op, t) for t in self.types]
            return lambda a, b: tuple(fn(x, y) for fn, x, y in zip(functions, a, b))
        parsed = operator(op)
        what = f"op {parsed.name!r}"
        return lambda a, b: self.traced(what, parsed.fn, a, b)

    def identity(self, op) -> Any:
        """The identity of a named operator as a kernel gives it; None if it has none."""
        found = tuple(operator(op).identity(element) for element in self.elements)
        return None if None in found else self.given(found)

    def traced(self, what: str, fn, *states) -> tuple:
        """The state that a user's callable of states returns."""
        operands = tuple(self.given(shown_state(state, self.elements)) for state in states)
        found = traced_values(what, fn, operands, self.elements, not self.packed)
        return tuple(t(value) for t, value in zip(self.types, found))


def _numeric(value):
    """A value of a kernel as a DSL number, where it is one or a Python number."""
    try:
        return cutlass.as_numeric(value)
    except Exception:  # the DSL's; the type of the value is refused with a message of its own
        return value


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
