"""Device code of states of several values (``states.States``): traced from the user's callables inside a kernel."""

from __future__ import annotations

import functools
from typing import Any

import cutlass
from cutlass import Int64

from ..dtypes import DType
from ..monoid import Runs, binary, bound, convert, nonzero, presented, register_type, shown_state, traced_values
from .states import States


class StateMonoid(Runs):
    """The members are those of ``monoid.Monoid``. Every callable gets values in their own types: bool as a Boolean,
    16-bit floats as Float32."""

    commutative = False

    def __init__(self, states: States) -> None:
        self.states, self.sources, self.results = states, states.sources, states.results
        self.source, self.result, self.takes_index = states.sources[0], states.results[0], states.takes_index
        self.types = tuple(getattr(cutlass, name) for name in states.registers)
        self.args: tuple = ()
        self.firsts: tuple = ()  # values of the state before the first element that are in memory
        self.arg_count = len(states.args)

    @functools.cached_property
    def _named(self) -> list | None:
        """The functions of a built-in operator, for each value."""
        return None if self.states.op.fn else [binary(self.states.op, value)[1] for value in self.states.values]

    def bind(self, args) -> None:
        """Take the run-time arguments of the kernel that is traced."""
        found = bound(args, self.states.args)
        own = len(found) - len(self.states.firsts)
        self.args, self.firsts = found[:own], found[own:]

    def first_state(self, given):
        """The state before the first element; ``given`` has the values that are not in memory."""
        state = list(given)
        for place, value in zip(self.states.firsts, self.firsts):
            state[place] = self.types[place](_as_value(value, self.states.values[place]))
        return tuple(state)

    def lift(self, *given):
        """The state of the elements at one position; the last operand is the position's index."""
        *elements, index = given
        operands = [presented(dtype.cutlass(value), dtype) for value, dtype in zip(elements, self.sources)]
        if self.states.transform is None or self.states.unpacked:
            state = tuple(map(_as_value, operands, self.states.values))
            if self.states.transform is None:
                return tuple(t(value) for t, value in zip(self.types, state))
            operands = [self._shown(state)]
        if self.takes_index:
            operands.append(Int64(index))
        return self._state("transform", self.states.transform, operands)

    def combine(self, a, b):
        if self._named is not None:
            return tuple(t(fn(x, y)) for t, fn, x, y in zip(self.types, self._named, a, b))
        return self._state(f"op {self.states.op.name!r}", self.states.op.fn, (self._shown(a), self._shown(b)))

    def results_of(self, state):
        """The element to store in each output."""
        if self.states.finish is not None:
            operands = (self._shown(state),)
            state = self._values("finish", self.states.finish, operands, self.results, len(self.results) == 1)
        return tuple(dtype.cutlass(_as_value(value, dtype)) for dtype, value in zip(self.results, state))

    def nothing(self):
        """Registers of the shape of a state, with no meaning yet."""
        return tuple(t(0) for t in self.types)

    def place(self, state, base):
        """The state itself: indexes are those of the row from the beginning."""
        return tuple(state)

    def _shown(self, state):
        """A state as callables get it."""
        values = shown_state(state, self.states.values)
        return values[0] if self.states.unpacked else values

    def _state(self, what: str, fn, operands):
        found = self._values(what, fn, operands, self.states.values, self.states.unpacked)
        return tuple(t(value) for t, value in zip(self.types, found))

    def _values(self, what: str, fn, operands, dtypes: tuple[DType, ...], alone: bool) -> tuple:
        return traced_values(what, fn, (*operands, *self.args), dtypes, alone)


def _as_value(x: Any, dtype: DType):
    """An operand in the type of a state's value."""
    return nonzero(x) if dtype.kind == "b" else convert(x, register_type(dtype, wide=False))
