"""Operations of registers in user callables that differ from the DSL's.

If a register cannot hold a Python int, the DSL uses its low bits, and at most warns. In a callable this is an error.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator

_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
# Their low bits depend only on the low bits of their operands.
_WRAPPING = (operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor)
_DIVISIONS = (operator.floordiv, operator.mod)
_OF_BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)


@contextlib.contextmanager
def exact_integers() -> Iterator[None]:
    """Raise OverflowError for each Python int that would lose bits in a DSL register inside. A DSL that makes its
    operators or warns in another way is left unchanged. A difference of two Booleans is an Int32 inside, signed
    integers keep their sign beside wider unsigned ones, and ``//`` of floats is exact."""
    from cutlass import Boolean, Int32, Integer
    from cutlass.base_dsl import diagnostics, typing

    from .functions import floor_divide, real

    built, warned = getattr(typing, "_binary_op", None), getattr(diagnostics, "report_warning", None)
    if built is None or warned is None:
        yield
        return

    def binary_op(op, *arguments, **options):
        plain = built(op, *arguments, **options)

        def checked(lhs, rhs, **places):
            if type(rhs) is int and not _fits(op, lhs, rhs):
                raise OverflowError(f"the Python int {rhs} does not fit {type(lhs).__name__}")
            if op is operator.sub and isinstance(lhs, Boolean) and isinstance(rhs, (Boolean, bool)):
                lhs = Int32(lhs)
            if op in _OF_BITS and (_is_float(lhs) or _is_float(rhs)):
                raise TypeError(f"{op.__name__.strip('_')} of {type(lhs).__name__} and {type(rhs).__name__}")
            if op is operator.truediv and isinstance(lhs, Integer) and isinstance(rhs, (Integer, int)):
                lhs, rhs = real(lhs, rhs)
            if op is operator.floordiv and (_is_float(lhs) or _is_float(rhs)):
                return floor_divide(rhs, lhs) if options.get("flip") else floor_divide(lhs, rhs)
            lhs, rhs = _extended(lhs, rhs), _extended(rhs, lhs)
            if op in _DIVISIONS:
                lhs, rhs = (_divisor(lhs, rhs), rhs) if options.get("flip") else (lhs, _divisor(rhs, lhs))
            return plain(lhs, rhs, **places)

        return checked

    def warn(kind, **fields):
        if getattr(kind, "name", "") == "TYPE_INT_LITERAL_OUT_OF_RANGE":
            raise OverflowError(f"the Python int {fields['value']} does not fit {fields['type']}")
        return warned(kind, **fields, stacklevel=fields.pop("stacklevel", 2) + 1)

    typing._binary_op, diagnostics.report_warning = binary_op, warn  # type: ignore[assignment]
    try:
        yield
    finally:
        typing._binary_op, diagnostics.report_warning = built, warned


def _fits(op, register, value: int) -> bool:
    """Return whether the DSL computes ``op`` on a register and a Python int correctly. The DSL converts the int to
    Int32, or else to Int64, and both operands to the wider type. Sums, products and bitwise operations that wrap as the
    register does are correct, too."""
    from cutlass import Int32, Int64, Integer

    kind = type(register)
    taken = Int32 if Int32.min <= value <= Int32.max else Int64
    if not isinstance(register, Integer) or kind.width == 1:
        return Int64.min <= value <= Int64.max
    if op in _WRAPPING:
        return -(1 << kind.width - 1) <= value < 1 << kind.width
    common = kind if kind.width >= taken.width else taken
    if op in _COMPARISONS or common is kind:
        return common.min <= value <= common.max
    return -(1 << kind.width - 1) <= value < 1 << kind.width


def _is_float(value) -> bool:
    from cutlass import Numeric

    return isinstance(value, float) or (isinstance(value, Numeric) and type(value).is_float)


def _extended(value, other):
    """A signed integer beside a wider unsigned one in the type of that, by its sign: the DSL fills it up with zeros."""
    from cutlass import Integer

    from ..monoid import convert

    if not isinstance(value, Integer) or not isinstance(other, Integer):
        return value
    kind = type(other)
    return convert(value, kind) if value.signed and not kind.signed and 1 < value.width < kind.width else value


def _divisor(divisor, dividend):
    """Return the divisor of a division. Of a division of integers whose result may be thrown away, 1 replaces zero:
    a division by zero has no meaning even where its result is not used, so the compiler would take the divisor for
    nonzero everywhere."""
    from cutlass import Boolean, Integer

    from ..monoid import choose
    from .functions import is_dynamic
    from .paths import may_divide_by_zero

    whole = isinstance(divisor, Integer) and is_dynamic(divisor) and not isinstance(divisor, Boolean)
    if not whole or not isinstance(dividend, (Integer, int)) or not may_divide_by_zero():
        return divisor
    return choose(divisor == 0, type(divisor)(1), divisor)
