"""Operators: the named ones and Python callables, on the host (what they mean) and on the device (what they compute).

An operator is associative; it need not be commutative. ``combine(a, b)`` takes ``a`` from lower indexes than ``b`` always.
A Python callable is traced by the DSL on scalar values of the accumulator's type (``cutlass.Float32``, ...); NumPy runs the
same callable for the reference.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from .dtypes import DType
from .errors import ArgumentTypeError, ArgumentValueError, explain, shown

NAMES = ("add", "mul", "min", "max", "and", "or", "xor", "any", "all")
COMPARISONS = ("ne", "eq", "lt", "le", "gt", "ge")  # of the flags
DIFFERENCES = ("sub", "add", "mul", "min", "max", "and", "or", "xor")  # of adjacent_difference


@dataclass(frozen=True)
class Operator:
    """``name`` for messages, ``key`` for caches (None: not cacheable on disk), ``fn`` the callable or None for a named one."""

    name: str
    key: str | None
    fn: Callable | None = None
    identity_value: Any = None

    def check(self, dtype: DType) -> None:
        """Refuse types the operator has no meaning for."""
        if self.name in ("and", "or", "xor") and self.fn is None and dtype.kind == "f":
            raise ArgumentTypeError(explain(f"op={self.name!r}", f"dtype {dtype}", "an integer type or bool", "use min, max, any or all for floats"))

    def identity(self, dtype: DType):
        """The value that changes nothing, as a Python number; None if the operator has none."""
        if self.fn is not None:
            return self.identity_value
        if self.name in ("add", "or", "xor", "any"):
            return 0
        if self.name in ("mul", "all"):
            return 1
        if self.name == "and":
            return 1 if dtype.kind == "b" else (-1 if dtype.kind == "i" else 2 ** (8 * dtype.size) - 1)
        return None

    def numpy(self, a, b, *index):
        """The operator on NumPy values, element by element."""
        if self.fn is not None:
            return self.fn(a, b, *index)
        return _NUMPY[self.name](a, b)


_NUMPY = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "any": np.logical_or, "all": np.logical_and, "ne": np.not_equal, "eq": np.equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "sub": np.subtract,
}  # fmt: skip
_BUILT_IN = {name: Operator(name, name) for name in NAMES}


def operator(op, identity=None) -> Operator:
    """The Operator that ``op`` (a name or a callable of two values) means."""
    if isinstance(op, str):
        if op not in _BUILT_IN:
            raise ArgumentValueError(explain("op", shown(op), "one of " + ", ".join(NAMES) + ", or a callable of two values"))
        return _BUILT_IN[op]
    if not callable(op):
        raise ArgumentTypeError(explain("op", shown(op), "a name or a callable of two values"))
    return Operator(getattr(op, "__name__", type(op).__name__), source_key(op), op, identity)


def neighbour_operator(op, names: tuple[str, ...]) -> Operator:
    """The Operator on two neighbours that ``op`` (one of ``names``, or a callable) means."""
    if isinstance(op, str) and op in names:
        return Operator(op, op)
    if isinstance(op, str) or not callable(op):
        allowed = "one of " + ", ".join(names) + ", or a callable of two values"
        raise (ArgumentValueError if isinstance(op, str) else ArgumentTypeError)(explain("op", shown(op), allowed))
    return Operator(getattr(op, "__name__", type(op).__name__), source_key(op), op)


def takes_index(fn: Callable | None) -> bool:
    """Whether a flag operator wants the index of its second operand: it has three arguments without a default."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # None, or a built-in that does not say
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 3


def source_key(fn: Callable) -> str | None:
    """A digest of a callable's meaning: code, defaults and captured numbers. None if it captures anything else.

    Two callables with equal keys compute the same, so the key may name a file on disk. Globals count as captured, those of inner
    functions too: a callable that reads a global which is neither a module nor a number has no key.
    """
    code = getattr(fn, "__code__", None)
    if code is None or inspect.ismethod(fn):
        return None
    parts: list[str] = []
    names: set[str] = set()
    try:
        captured = [("", cell.cell_contents) for cell in fn.__closure__ or ()]
    except ValueError:  # a cell that is not filled yet
        return None
    if not _digest_code(code, parts, names):
        return None
    captured += [("", value) for value in fn.__defaults__ or ()] + list((fn.__kwdefaults__ or {}).items())
    captured += [(name, fn.__globals__[name]) for name in sorted(names) if name in fn.__globals__]
    for name, value in captured:
        if isinstance(value, types.ModuleType):
            parts.append(f"{name}=module {value.__name__}")
        elif isinstance(value, (bool, int, float, str, np.generic)):
            parts.append(f"{name}={type(value).__name__} {value!r}")
        else:
            return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _digest_code(code: types.CodeType, parts: list[str], names: set[str]) -> bool:
    """Add what a code object and those inside it do, and the names they look up; False if a constant cannot be told."""
    parts.append(f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_argcount}")
    names.update(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if not _digest_code(constant, parts, names):
                return False
        elif isinstance(constant, (bool, int, float, str, tuple, type(None))):
            parts.append(repr(constant))
        else:
            return False
    return True
