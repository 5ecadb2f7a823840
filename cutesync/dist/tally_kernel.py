"""The kernel of ``tally``: one thread of each device adds the numbers of all ranks."""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ..kernels.arrays import pointers_of
from ..kernels.tiled import element
from ..monoid import choose
from .exchange_kernel import ExchangeKernel
from .link import Late, received


class Numbers:
    """The state is a number."""

    types, arg_count = (Int64,), 0

    def bind(self, args) -> None:
        """There are no run-time arguments."""


class TallyKernel(ExchangeKernel):
    """``x`` is the number of this device, ``out`` are the sum of those of lower ranks and that of all."""

    @cute.jit
    def element(self, x, out, init, link: cutlass.Constexpr, at: Int32):
        link.send(self.monoid.types, (Int64(element(pointers_of(x)[0])),), at)
        coming, late = link.coming(self.monoid.types, at), Late.none()
        before, total = Int64(0), Int64(0)
        for r in cutlass.range_constexpr(self.ranks):
            state, late = received(link, self.monoid.types, coming, r, late)
            before += choose(link.call.rank > r, state[0], Int64(0))
            total += state[0]
        link.stop_if(late)
        for pointer, number in zip(pointers_of(out), (before, total)):
            cute.make_tensor(pointer, cute.make_layout((1,)))[0] = number
