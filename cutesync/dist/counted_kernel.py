"""Device code of ``counted``: states that may be of no elements, whose number is their last member."""

from __future__ import annotations

import copy
from typing import Any

import cutlass
from cutlass import Int64, cute

from ..monoid import choose
from ..warp import select
from .exchange_kernel import ExchangeKernel


class CountedMonoid:
    """The members are those of the operation's monoid; no operator sees the state of no elements."""

    def __init__(self, counted: Any) -> None:
        self.own, self.divides, self.initial = counted.operation.monoid(), counted.divides, counted.initial
        self.types, self.arg_count = (*self.own.types, Int64), len(counted.args)
        self.count: Any = None

    def bind(self, args) -> None:
        *own, count = args
        self.own.bind(own)
        self.count = cute.make_tensor(count, cute.make_layout((1,)))[0]

    def lift(self, *given) -> tuple:
        return (*self.own.lift(*given), Int64(self.count))

    def combine(self, a, b):
        return _combined(a, b, self.own.combine)

    def results_of(self, state):
        own = self.own
        if self.divides:
            (less,) = own.args
            own = copy.copy(own)  # the divisor belongs to the branch in which it is made
            own.args = (cutlass.max(type(less)(state[-1]) - less, type(less)(0)),)
        return own.results_of(state[:-1])


class PresentMonoid(CountedMonoid):
    """The elements are those of a segment."""

    def bind(self, args) -> None:
        self.own.bind(args)

    def lift(self, *given) -> tuple:
        *values, begin, end, index = given
        return (*self.own.lift(*values, index), Int64(end) - Int64(begin))


@cute.jit
def _combined(a, b, combine: cutlass.Constexpr):
    state = a
    if b[-1] > 0:
        state = b
        if a[-1] > 0:
            state = (*combine(a[:-1], b[:-1]), a[-1] + b[-1])
    return state


class CountedExchangeKernel(ExchangeKernel):
    """``init`` stands in for a state of no elements, unless it is ``initial`` and comes before or after all."""

    def started(self, init, state):
        first = (*init, choose(state[-1] >= 0, Int64(1), Int64(0)))
        if self.monoid.initial:
            return self.monoid.combine(*((first, state) if self.start == "first" else (state, first)))
        return select(state[-1] > 0, state, (*init, Int64(0)))

    def alone(self, init):
        return (*init, Int64(0))
