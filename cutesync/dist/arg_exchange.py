"""argmin and argmax across devices: device code. The states are (value, index in the part)."""

from __future__ import annotations

from typing import Any

from ..kernels.named import Named
from ..kernels.named_monoids import PlaceMonoid
from ..monoid import choose


class ArgExchange(PlaceMonoid):
    """The run-time arguments are the number of elements that one step along the axes before the sharded one counts, in
    the part and in the whole array, and the number of elements of the whole array before the part."""

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.largest = states.op.name == "argmax"

    def stored(self, values, index) -> tuple[Any, Any]:
        value, place = super(PlaceMonoid, self).stored(values, index)
        step, whole, before = self.args
        return value, place // step * whole + place % step + before

    def combine(self, a, b) -> tuple:
        """The better of two states; the lower index if they are equal, as parts may interleave."""
        first = self._beats(b[0], a[0]) | (~self._beats(a[0], b[0]) & (b[1] < a[1]))
        return tuple(choose(first, y, x) for x, y in zip(a, b))

    def _beats(self, x, y) -> Any:
        """Whether ``x`` comes before ``y``, whatever their indexes."""
        if self.source.kind != "f":
            return x > y if self.largest else x < y
        no = x <= y if self.largest else x >= y
        return ~no & (y == y)
