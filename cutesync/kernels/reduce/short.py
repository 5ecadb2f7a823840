"""Reduction of strided arrays along axes of few positions: a thread has several results, and all of their loads are in
flight before the first is used. With one result, threads would mostly wait for memory."""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute

from ...sync.overlap import let_next_start
from ..coordinates import moved
from .strided import StridedReduce


class ShortReduce(StridedReduce):
    """The kernel: ``results`` units of a thread, ``lanes`` apart, of up to ``unroll`` positions each."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, has_init, policy)
        self.positions, self.unroll = policy.unroll, policy.unroll * policy.results  # of a unit, of a thread

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        number, words = type(a.length), self.registers()
        first = number(block) * (self.lanes * self.policy.results) + thread
        units = [first + r * self.lanes for r in range(self.policy.results)]
        starts = [moved(a.x, a.kept.offsets(cutlass.min(unit, a.units - 1))) for unit in units]
        self.load_all_of(a, starts, words)
        let_next_start()
        for r in cutlass.range_constexpr(self.policy.results):
            states = self.states_of(a, starts[r], words, r)
            if units[r] < a.units:
                self.store(a, units[r], states)

    @cute.jit
    def load_all_of(self, a: cutlass.Constexpr, starts: cutlass.Constexpr, words: cutlass.Constexpr):
        """Load all positions of a thread's units, which begin at ``starts``."""
        number = type(a.length)
        for r in cutlass.range_constexpr(len(starts)):
            for u in cutlass.range_constexpr(self.positions):
                if u < a.length:
                    x = self.position(a, starts[r], number(u))[0]
                    self.load(x, words, r * self.positions + u, Int32(self.width))

    @cute.jit
    def states_of(self, a: cutlass.Constexpr, x: cutlass.Constexpr, words: cutlass.Constexpr, r: cutlass.Constexpr):
        """The states of the columns of a thread's unit ``r``."""
        number = type(a.length)
        states = self.lifted(words, r * self.positions, self.position(a, x, number(0))[1])
        for u in cutlass.range_constexpr(1, self.positions):
            if u < a.length:
                found = self.lifted(words, r * self.positions + u, self.position(a, x, number(u))[1])
                states = self.append(states, found)
        return tuple(self.monoid.place(state, cutlass.Int64(0)) for state in states)
