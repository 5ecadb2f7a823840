"""What Python and NumPy ask of a value, answered by registers while a callable is traced: their truth, ``round``,
``math.floor``, ufuncs. What has no answer raises a TypeError that says what to write instead."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cutlass
from cutlass import Boolean, Int32, Integer, Numeric
from cutlass._mlir_helpers.arith import ArithValue

from . import arrays, functions
from .paths import truth

_DSL = f"{Path(cutlass.__file__).parent}/"
_ABSENT = object()


def _truth_of_numeric(self: Any) -> bool:
    if not functions.is_dynamic(self) or _asked_by_dsl():
        return _plain_truth(self)
    return truth(self, lambda: functions.is_true(self))


def _truth_of_value(self: Any) -> bool:
    """Of the values below the DSL's types. The DSL asks them only whether they are there."""
    return True if _asked_by_dsl() else truth(self, lambda: functions.is_true(self))


def _asked_by_dsl() -> bool:
    return sys._getframe(2).f_code.co_filename.startswith(_DSL)


def _hash_of_numeric(self: Any) -> int:
    if functions.is_dynamic(self) and not _asked_by_dsl():
        raise TypeError(_KEY)
    return _numeric_hash(self)


def _hash_of_value(self: Any) -> int:
    if not _asked_by_dsl():
        raise TypeError(_KEY)
    return _value_hash(self)


def _not_python(kind: type, advice: str) -> Any:
    def refused(self: Any) -> Any:
        if isinstance(self, Numeric) and not functions.is_dynamic(self):
            return kind(self.value)
        raise TypeError(f"a value that is not known while the callable is traced is no Python {kind.__name__}{advice}")

    return refused


def _power(plain: Any) -> Any:
    def power(self: Any, other: Any, modulus: Any = None, **places: Any) -> Any:
        """``self ** other``. The DSL compiles none of integers: its compiler ends the process."""
        if modulus is not None:
            raise TypeError("pow with a modulus has no translation; write pow(a, b) % modulus")
        base, exponent = functions.number(self), functions.number(other)
        whole = all(isinstance(x, (int, Integer)) for x in (base, exponent))
        known = not (functions.is_dynamic(base) or functions.is_dynamic(exponent))
        return plain(self, other, **places) if known or not whole else functions.power(base, exponent)

    return power


def _round(self: Any, digits: Any = None) -> Any:
    if digits:
        raise TypeError(f"round to {digits} digits has no translation; scale the value and round that")
    return functions.roundeven(self)


_plain_truth, _numeric_hash, _value_hash = Numeric.__bool__, Numeric.__hash__, ArithValue.__hash__
_KEY = "a value that is not known while the callable is traced cannot be a key or an element of a set"
_INDEX = ", so it cannot be an index, a length or an argument of range"
_CONVERT = "; convert with cutlass.Int32(x), cutlass.Float32(x) and so on; numpy.exp(x) and the like take it as it is"
_OF_ALL: dict[str, Any] = {
    "__array_ufunc__": arrays.ufunc,
    "__array_function__": arrays.function,
    "__int__": _not_python(int, _CONVERT),
    "__float__": _not_python(float, _CONVERT),
    "__index__": _not_python(int, _INDEX),
    "__round__": _round,
    "__floor__": lambda self: functions.floor(self),
    "__ceil__": lambda self: functions.ceil(self),
    "__trunc__": lambda self: functions.trunc(self),
    "__pos__": lambda self: self,
}
_ATTRIBUTES: list[tuple[type, str, Any]] = [
    *((kind, name, method) for kind in (Numeric, ArithValue) for name, method in _OF_ALL.items()),
    (Numeric, "__bool__", _truth_of_numeric),
    (ArithValue, "__bool__", _truth_of_value),
    (Numeric, "__hash__", _hash_of_numeric),
    (ArithValue, "__hash__", _hash_of_value),
    (Numeric, "__pow__", _power(Numeric.__pow__)),
    (ArithValue, "__pow__", _power(ArithValue.__pow__)),
    (Numeric, "__rpow__", lambda self, other: cutlass.as_numeric(other) ** self),
    (Boolean, "__neg__", lambda self: -Int32(self)),
]


@contextlib.contextmanager
def python_protocols() -> Iterator[None]:
    """Make registers answer inside."""
    before = [(kind, name, vars(kind).get(name, _ABSENT)) for kind, name, _ in _ATTRIBUTES]
    for kind, name, method in _ATTRIBUTES:
        setattr(kind, name, method)
    try:
        yield
    finally:
        for kind, name, method in before:
            if method is _ABSENT:
                delattr(kind, name)
            else:
                setattr(kind, name, method)
