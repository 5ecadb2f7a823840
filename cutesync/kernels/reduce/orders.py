"""argmin and argmax of elements that are combined in any order. Device code."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int64

from ...monoid import ArgMonoid, choose


class AnyOrder(ArgMonoid):
    """As ``ArgMonoid``, but of equal values (or NaNs) that of the lower index wins, on whichever side it comes. Indexes
    that are placed are of type ``index``."""

    def __init__(self, of: ArgMonoid, index: Any = Int64) -> None:
        super().__init__(of.largest, of.source, of.result, of.flipped)
        self.types = (self.types[0], index)

    def combine(self, a, b):
        wins, loses = self.beats(b[0], a[0]), self.beats(a[0], b[0])
        earlier = b[1] > a[1] if self.flipped else b[1] < a[1]
        wins = wins | (cutlass.not_(loses) & earlier)
        return tuple(choose(wins, y, x) for x, y in zip(a, b))

    def place(self, state, base):
        return (state[0], self.types[1](base) + self.types[1](state[1]))

    def beats(self, x, y):
        """Whether value ``x`` comes before ``y`` whatever their indexes."""
        if self.source.kind == "f":  # not (x <= y) also holds where one is NaN
            return cutlass.not_(x <= y if self.largest else x >= y) & (y == y)
        return x > y if self.largest else x < y
