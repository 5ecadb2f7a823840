"""argmin and argmax of elements that are combined in any order. Device code."""

from __future__ import annotations

import cutlass

from ...monoid import ArgMonoid, choose


class AnyOrder(ArgMonoid):
    """As ``ArgMonoid``, but of equal values (or NaNs) that of the lower index wins, on whichever side it comes."""

    def __init__(self, of: ArgMonoid) -> None:
        super().__init__(of.largest, of.source, of.result)

    def combine(self, a, b):
        wins, loses = self.beats(b[0], a[0]), self.beats(a[0], b[0])
        wins = wins | (cutlass.not_(loses) & (b[1] < a[1]))
        return tuple(choose(wins, y, x) for x, y in zip(a, b))

    def beats(self, x, y):
        """Whether value ``x`` comes before ``y`` whatever their indexes."""
        if self.source.kind == "f":  # not (x <= y) also holds where one is NaN
            return cutlass.not_(x <= y if self.largest else x >= y) & (y == y)
        return x > y if self.largest else x < y
