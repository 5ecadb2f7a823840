"""Operators on the host: named ones and Python callables. ``monoid`` and ``neighbours`` have their device code.

An operator is associative; it need not be commutative: in ``op(a, b)``, ``a`` always comes from lower indexes than
``b``. The DSL traces a Python callable on scalars of the accumulator's type (``cutlass.Float32``, ...); the reference
runs the same callable on NumPy arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtypes import DType, register
from .errors import ArgumentTypeError, ArgumentValueError, explain, shown
from .identity import Identity, identify, name_of

NAMES = ("add", "mul", "min", "max", "and", "or", "xor", "any", "all")
COMPARISONS = ("ne", "eq", "lt", "le", "gt", "ge")  # of the flags
DIFFERENCES = ("sub", "add", "mul", "min", "max", "and", "or", "xor")  # of adjacent_difference


@dataclass(frozen=True)
class Operator:
    """An operator. ``name`` is used in messages; ``fn`` is the callable, or None for a named operator."""

    name: str
    fn: Callable | None = None
    identity_value: Any = None

    @property
    def key(self) -> str:
        """Identifies the operator in caches."""
        return self.name if self.fn is None else identify(self.fn).key

    def register(self, dtype: DType) -> str:
        """Return the name of the DSL type that the operator computes in for values of ``dtype``."""
        return register(dtype, wide=self.fn is None)

    def check(self, dtype: DType) -> None:
        """Raise ArgumentTypeError for types that the operator is not defined on."""
        if self.name in ("and", "or", "xor") and self.fn is None and dtype.kind == "f":
            raise ArgumentTypeError(
                explain(
                    f"op={self.name!r}",
                    f"dtype {dtype}",
                    "an integer type or bool",
                    "use min, max, any or all for floats",
                )
            )

    def identity(self, dtype: DType) -> Any:
        """Return the identity element as a Python number; None if the operator has none."""
        if self.fn is not None:
            return self.identity_value
        if self.name in ("add", "or", "xor", "any"):
            return 0
        if self.name in ("mul", "all"):
            return 1
        if self.name == "and":
            return 1 if dtype.kind == "b" else (-1 if dtype.kind == "i" else 2 ** (8 * dtype.size) - 1)
        return None

    def numpy(self, a: Any, b: Any, *index: Any) -> Any:
        """Apply the operator to NumPy values, element by element."""
        if self.fn is not None:
            return on_arrays(self.fn, a, b, *index)
        return UFUNCS[self.name](a, b)


def on_arrays(fn: Callable, *arrays: Any) -> Any:
    """Return what a callable of scalars returns for arrays; one that takes no arrays, as it branches on its values or
    calls functions of ``math``, is called for each element."""
    try:
        return fn(*arrays)
    except (TypeError, ValueError):
        if not any(np.ndim(array) for array in arrays):
            raise
    given = np.broadcast_arrays(*arrays)
    found = [fn(*values) for values in zip(*(array.ravel() for array in given))]
    return np.array(found).reshape(given[0].shape)


UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "any": np.logical_or,
    "all": np.logical_and,
    "ne": np.not_equal,
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "sub": np.subtract,
}
_BUILT_IN = {name: Operator(name) for name in NAMES}


def operator(op: Any, identity: Any = None) -> Operator:
    """Return the Operator that ``op`` means: a name, a callable of two values, or the Identity of one."""
    if isinstance(op, str):
        if op not in _BUILT_IN:
            raise ArgumentValueError(
                explain("op", shown(op), "one of " + ", ".join(NAMES) + ", or a callable of two values")
            )
        return _BUILT_IN[op]
    if type(op) is not Identity and not callable(op):
        raise ArgumentTypeError(explain("op", shown(op), "a name or a callable of two values"))
    return _of_callable(op, identity)


def _of_callable(op: Any, identity: Any = None) -> Operator:
    fn = op.fn if type(op) is Identity else op
    return Operator(name_of(fn), fn, identity)


def neighbour_operator(op: Any, names: tuple[str, ...]) -> Operator:
    """Return the Operator on two neighbours that ``op`` means: one of ``names``, a callable, or the Identity of one."""
    if isinstance(op, str) and op in names:
        return Operator(op)
    if isinstance(op, str) or not (type(op) is Identity or callable(op)):
        allowed = "one of " + ", ".join(names) + ", or a callable of two values"
        raise (ArgumentValueError if isinstance(op, str) else ArgumentTypeError)(explain("op", shown(op), allowed))
    return _of_callable(op)


def takes_index(fn: Callable | None, args: int = 0) -> bool:
    """Return whether a flag operator takes the index of its second operand: whether it has three parameters without a
    default, beside those of ``args`` run-time arguments."""
    return required_parameters(fn) == 3 + args


def required_parameters(fn: Callable | None) -> int:
    """Return how many positional parameters without a default a callable has: 0 for None, and for a built-in function
    without a signature."""
    try:
        parameters = inspect.signature(fn).parameters.values()  # type: ignore[arg-type]  # None is a TypeError
    except (TypeError, ValueError):
        return 0
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
