"""The kernel that corrects flags and differences at the edges of parts: an exchange of items."""

from __future__ import annotations

from typing import Any

from cutlass import Int32, Int64, cute

from ..kernels.arrays import pointers_of
from ..neighbours import Difference, Flag
from .exchange_kernel import ExchangeKernel


class SeamMonoid:
    """The state is one item: that of the only rank which a device takes."""

    arg_count = 2

    def __init__(self, seam: Any) -> None:
        marking, self.after = seam.marking, seam.after
        self.operator: Any = (Flag if marking.is_flag else Difference)(marking.op, marking.source)
        self.is_flag, self.result = marking.is_flag, marking.result
        self.types = (self.operator.register,)
        self.args: tuple = ()

    def bind(self, args) -> None:
        self.args = tuple(args)

    def lift(self, item, own, index):
        return (self.operator.lift(item),)

    def combine(self, a, b):
        return b

    def result_of(self, other, own):
        """The result at an edge item of this part; ``other`` is its neighbour."""
        if self.is_flag:
            first, second = (own, other) if self.after else (other, own)
            return self.result.cutlass(self.operator.compare(first, second, Int64(0)))
        return self.operator.lower(self.operator.combine(own, other))


class SeamKernel(ExchangeKernel):
    """``x`` has the items to send, and the own ones at the edge where the results are stored."""

    @cute.jit
    def save(self, x, out, at: Int32, state):
        inner, step = self.monoid.args
        own = self.monoid.operator.lift(cute.make_tensor(pointers_of(x)[1] + at, cute.make_layout((1,)))[0])
        place = Int64(at) // inner * step + Int64(at) % inner
        cute.make_tensor(out + place, cute.make_layout((1,)))[0] = self.monoid.result_of(state[0], own)
