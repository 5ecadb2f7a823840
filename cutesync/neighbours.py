"""Device code of flags and differences: what they compute from two neighbours. The counterpart of ``monoid``.

Everything here is plain Python that the DSL traces inside a kernel.
"""

from __future__ import annotations

import operator as python

from cutlass import Boolean

from .dtypes import BOOL, DType
from .errors import ArgumentTypeError, explain
from .monoid import binary, nonzero, register_type, traced
from .ops import takes_index


class Flag:
    """A flag operator on ``dtype``: ``compare(a, b, index)`` is 1 (Int32) where a and b are discontinuous.

    ``op`` is an Operator. A callable gets 16-bit floats as Float32, bool as Boolean, and ``index`` only if it has three
    arguments. Behind them it gets ``args``, of which it has ``arg_count``.
    """

    def __init__(self, op, dtype: DType, arg_count: int = 0) -> None:
        self.op, self.dtype, self.indexed = op, dtype, takes_index(op.fn, arg_count)
        self.args: tuple = ()
        self.register = register_type(dtype, wide=False)

    def lift(self, value):
        """A loaded element as the register that operators take. A tensor forgets whether its integers are signed."""
        value = self.dtype.cutlass(value)
        return nonzero(value) if self.dtype.kind == "b" else self.register(value)

    def compare(self, a, b, index):
        if self.op.fn is None:
            return nonzero(getattr(python, self.op.name)(a, b))
        if self.dtype.kind == "b":
            a, b = Boolean(a), Boolean(b)
        operands = (a, b, index, *self.args) if self.indexed else (a, b, *self.args)
        return traced(f"op {self.op.name!r}", self.op.fn, operands, None, BOOL)


class Difference:
    """An operator of ``adjacent_difference`` on ``dtype``: ``combine(item, neighbour)`` in the element's register. A
    callable gets ``args`` behind them."""

    def __init__(self, op, dtype: DType) -> None:
        self.op, self.dtype = op, dtype
        self.args: tuple = ()
        if op.fn is not None:
            self.register, self.combine = register_type(dtype, wide=False), self._called
        elif op.name == "sub":
            if dtype.kind == "b":
                raise ArgumentTypeError(explain("op='sub'", "dtype bool", "a number type", "use op='xor' for bool"))
            self.register, self.combine = register_type(dtype), python.sub
        else:
            op.check(dtype)
            self.register, self.combine = binary(op, dtype)

    def _called(self, a, b):
        if self.dtype.kind == "b":
            a, b = Boolean(a), Boolean(b)
        return traced(f"op {self.op.name!r}", self.op.fn, (a, b, *self.args), self.register, self.dtype)

    def lift(self, value):
        value = self.dtype.cutlass(value)
        return nonzero(value) if self.dtype.kind == "b" else self.register(value)

    def lower(self, value):
        """The element to store, rounded once."""
        return self.dtype.cutlass(value)
