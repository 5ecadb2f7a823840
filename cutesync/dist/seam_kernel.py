"""The kernel that corrects flags and differences at the edges of parts: an exchange of items."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, cute

from ..kernels.arrays import pointers_of
from ..kernels.tiled import element
from ..monoid import bound, choose
from ..neighbours import Difference, Flag
from ..warp import select
from .exchange_kernel import ExchangeKernel


class SeamMonoid:
    """The state is one item: that of the only rank which a device takes. If items are ``counted``, whether there is
    one comes behind it, and a device takes several ranks: the nearest that has one counts."""

    def __init__(self, seam: Any) -> None:
        marking, self.after, self.counted = seam.marking, seam.after, seam.counted
        self.given = marking.args
        if marking.is_flag:
            self.operator: Any = Flag(marking.op, marking.source, len(self.given))
        else:
            self.operator = Difference(marking.op, marking.source)
        self.is_flag, self.result, self.arg_count = marking.is_flag, marking.result, len(seam.args)
        self.types = (self.operator.register, Int32) if self.counted else (self.operator.register,)
        self.args: tuple = ()

    def bind(self, args) -> None:
        self.args, own = tuple(args), len(self.given)
        self.operator.args = bound(args[2 : 2 + own], self.given)

    @property
    def count(self):
        """How many items of the part count."""
        return Int64(element(self.args[-1]))

    def lift(self, item, own, index):
        return (self.operator.lift(item),)

    def combine(self, a, b):
        if not self.counted:
            return b
        return select(a[1] != 0, a, b) if self.after else select(b[1] != 0, b, a)

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
        inner, step, *_ = self.monoid.args
        own = self.monoid.operator.lift(cute.make_tensor(pointers_of(x)[1] + at, cute.make_layout((1,)))[0])
        place = Int64(at) // inner * step + Int64(at) % inner
        cute.make_tensor(out + place, cute.make_layout((1,)))[0] = self.monoid.result_of(state[0], own)


class CountedSeamKernel(ExchangeKernel):
    """``x`` is the part, contiguous; how many of its items count is in memory. A part without any sends nothing that is
    looked at, and gets no result."""

    @cute.jit
    def element(self, x, out, init, link: cutlass.Constexpr, at: Int32):
        count, inner = self.monoid.count, Int64(self.monoid.args[0])
        last = (count - 1) * inner + at
        sent, place = (Int64(at), last) if self.monoid.after else (last, Int64(at))
        if link.call.own != 0:
            item = self.monoid.types[0](0)
            if count > 0:
                item = self.item(x, sent)
            link.send(self.monoid.types, (item, choose(count > 0, Int32(1), Int32(0))), at)
        state, late = link.combined(self.monoid, at)
        link.stop_if(late)
        if (link.call.take != 0) & (count > 0):
            if state[1] != 0:
                result = self.monoid.result_of(state[0], self.item(x, place))
                cute.make_tensor(pointers_of(out)[0] + place, cute.make_layout((1,)))[0] = result

    def item(self, x, place):
        return self.monoid.operator.lift(element(pointers_of(x)[0] + place))
