"""Callables of one integer whose low bits depend on nothing but the low bits of that integer: traced on registers of 32
bits, they need no instructions that cut or extend values in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutlass import Uint32

MAX_CONSTANT = 127  # fits every type of the DSL


class _LowBits:
    """A register of which the low bits count. It has only operations that keep to them; any other use is an error."""

    def __init__(self, register: Any) -> None:
        self.register = register

    def __eq__(self, other: object) -> bool:
        raise TypeError("not an operation of low bits")

    __ne__ = __bool__ = __eq__

    def __neg__(self) -> _LowBits:
        return _LowBits(Uint32(0) - self.register)

    def __invert__(self) -> _LowBits:
        return _LowBits(self.register ^ Uint32(0xFFFFFFFF))


def _operation(plain: Callable[[Any, Any], Any], turned: bool = False) -> Callable[[Any, Any], Any]:
    def operation(self: _LowBits, other: Any) -> Any:
        if type(other) is int and 0 <= other <= MAX_CONSTANT:
            other = _LowBits(Uint32(other))
        if type(other) is not _LowBits:
            return NotImplemented
        a, b = (other, self) if turned else (self, other)
        return _LowBits(plain(a.register, b.register))

    return operation


for _name, _plain in {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}.items():
    setattr(_LowBits, f"__{_name}__", _operation(_plain))
    setattr(_LowBits, f"__r{_name}__", _operation(_plain, True))


def of_low_bits(fn: Callable, register: Any) -> Any:
    """Return ``fn`` of a Uint32, of whose low bits those of the result are made; None if it does anything else."""
    try:
        found = fn(_LowBits(register))
    except Exception:  # of the user's own code, too; it is traced in another way then, which reports errors
        return None
    return found.register if type(found) is _LowBits else None
