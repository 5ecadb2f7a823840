"""The kernel of ``resume``: no thread waits for another."""

from __future__ import annotations

import cutlass
from cutlass import Int64, cute

from ..kernels.arrays import pointers_of, together
from ..kernels.plain import PlainKernel
from ..sync.overlap import let_next_start


class Resume(PlainKernel):
    """Arrays are seen as (rows, length, inner); ``carry`` is (rows, inner). The result at a position combines the carry
    with the state there; if ``exclusive``, with that of the position before, in ``reverse`` of the one behind."""

    name, threads = "resume", 256

    def __init__(self, monoid, exclusive: bool, reverse: bool) -> None:
        self.monoid, self.exclusive, self.reverse = monoid, exclusive, reverse

    @cute.jit
    def main(self, x: tuple, carry: tuple, out: tuple, numbers: tuple):
        """``numbers``: how many elements, length, inner, then the run-time arguments of callables."""
        let_next_start()
        count, length, inner, *args = numbers
        self.monoid.bind(args)
        place = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if place < count:
            self.element(together(x), together(carry), together(out), place, length, inner)

    @cute.jit
    def element(self, x, carry, out, place: Int64, length: Int64, inner: Int64):
        line, column = place // inner, place % inner
        row, position = line // length, line % length
        state = self.load(carry, row * inner + column)
        if cutlass.const_expr(not self.exclusive):
            state = self.joined(state, self.load(x, place))
        elif cutlass.const_expr(self.reverse):
            if position < length - 1:
                state = self.joined(state, self.load(x, place + inner))
        else:
            if position > 0:
                state = self.joined(state, self.load(x, place - inner))
        for pointer, result in zip(pointers_of(out), self.monoid.results_of(state)):
            cute.make_tensor(pointer + place, cute.make_layout((1,)))[0] = result

    def load(self, place, at):
        elements = [cute.make_tensor(pointer + at, cute.make_layout((1,)))[0] for pointer in pointers_of(place)]
        return tuple(self.monoid.lift(*elements, Int64(1)))

    def joined(self, carry, state):
        return tuple(self.monoid.combine(state, carry) if self.reverse else self.monoid.combine(carry, state))
