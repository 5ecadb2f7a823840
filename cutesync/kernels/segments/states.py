"""States of runs of positions that may hold several segments. Device code.

A state is ``(heads, *values)``: how many segments begin in the run, and the state of the operation on the elements of
the last segment that the run touches. Two runs are combined by

    (a, u) then (b, v)  =  (a + b, v)          if b > 0: a segment begins in the second run
                           (a, op(u, v))       else

which is associative if ``op`` is. ``op`` always gets the lower index first, in both directions.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Boolean, Uint8

from ...warp import prepend, prepend_between_states, select
from ..select.where import Where
from .spec import SegmentsSpec


class SegmentStates:
    """The states of a call. ``start`` has the state before each segment while a kernel is traced; None: there is
    none."""

    def __init__(self, spec: SegmentsSpec) -> None:
        self.spec, self.reverse, self.monoid = spec, spec.reverse, spec.operation.monoid()
        self.where = Where(spec.heads)
        self.types = (getattr(cutlass, spec.counter), *self.monoid.types)
        self.start: Any = None

    def bind(self, init, args) -> None:
        """Take the first state and the run-time arguments of the kernel that is traced."""
        self.monoid.bind(args)
        self.start = None if self.spec.start is None else self.monoid.first_state(init)

    def bind_last(self, numbers) -> tuple:
        """Take the same from a kernel's ``numbers``, where results of an empty segment lie between. Return these, or
        the first state if there is one."""
        values = len(self.monoid.types)
        self.bind(numbers[:values], numbers[2 * values :])
        return tuple(numbers[values : 2 * values] if self.start is None else self.start)

    def ordered(self, a, b):
        """Combine values, of which ``a`` comes earlier in scan order."""
        return self.monoid.combine(b, a) if self.reverse else self.monoid.combine(a, b)

    def combine(self, a, b):
        """Combine the states of two runs, of which ``a`` comes earlier in scan order."""
        return (a[0] + b[0], *prepend(b[0] == 0, a[1:], b[1:], self.ordered))

    def begins(self, before, elements) -> Boolean:
        """Whether a position begins a segment in scan order; ``before`` are the elements at the one before it."""
        if self.spec.heads.kind == "mask":
            return (before if self.reverse else elements)[0] != Uint8(0)
        return self.where.differ(elements, before) if self.reverse else self.where.differ(before, elements)

    def lift(self, elements, index):
        return self.monoid.lift(*elements, index)

    def begin(self, head: Boolean, value):
        """The values behind a position before which there are none."""
        return value if self.start is None else prepend(head, self.start, value, self.ordered)

    def follow(self, values, head: Boolean, value):
        """The values behind a position; ``values`` are those before it."""
        if self.start is None:
            goes_on: Any = cutlass.not_(head)
            return prepend_between_states(goes_on, values, value, self.ordered)
        return self.ordered(select(head, self.start, values), value)
