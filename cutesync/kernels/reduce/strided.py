"""Reduction of arrays of any strides: every load finds its offset from the coordinates of its position.

Groups take positions in turn if the operator commutes, else each takes a contiguous run.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from ...block.split import share
from ...monoid import ArgMonoid, tree
from ...warp import Maybe
from .chunk import WORDS, aligned_words
from .coordinates import moved
from .strided_base import Member, StridedKernel


class StridedReduce(StridedKernel):
    """The kernel: ``unroll`` positions of a thread are in flight."""

    def combine_own(self, states, storage, me: Member, count):
        """Combine the states of the block's groups, which share ``count`` positions."""
        return self.reduce_groups(states, storage, me, self.used(count))

    @cute.jit
    def own_states(self, a: cutlass.Constexpr, me: Member, begin, end):
        """The states of this thread's columns over its share of the positions from ``begin`` to ``end``."""
        x = moved(a.x, a.kept.offsets(me.unit))
        number = type(a.length)
        if cutlass.const_expr(self.policy.in_turn):
            at = begin + me.group
            step = self.groups
            count = (end - at + (self.groups - 1)) // self.groups
        else:
            first, stop = share(end - begin, number(me.group), number(self.groups))
            at = begin + first
            step = 1
            count = stop - first
        nothing = tuple(self.nothing(number) for _ in range(self.width))
        partial = Maybe(nothing, Boolean(False))
        words = self.registers()
        while count >= self.unroll:
            for u in cutlass.range_constexpr(self.unroll):
                self.load(moved(x, a.reduced.offsets(at + u * step)), words, u)
            partial = partial.append(self.aggregate(words, at, step), self.append)
            at += self.unroll * step
            count -= self.unroll
        if count > 0:
            for u in cutlass.range_constexpr(self.unroll - 1):
                if u < count:
                    self.load(moved(x, a.reduced.offsets(at + u * step)), words, u)
            for u in cutlass.range_constexpr(self.unroll - 1):
                if u < count:
                    partial = partial.append(self.lifted(words, u, at + u * step), self.append)
        return tuple(self.monoid.place(state, Int64(0)) for state in partial.state)

    def nothing(self, number) -> tuple:
        """Registers of the shape of a state whose index, if it has one, is a ``number``."""
        return (self.monoid.types[0](0), number(0)) if isinstance(self.monoid, ArgMonoid) else self.monoid.nothing()

    def registers(self) -> tuple:
        """Registers of ``unroll`` loads, a tensor for each input."""
        shape = (WORDS if self.policy.vectors else 1, self.unroll)
        types = [Int32 if self.policy.vectors else dtype.cutlass for dtype in self.monoid.sources]
        return tuple(cute.make_rmem_tensor(shape, t) for t in types)

    def load(self, pointers, words, u: int) -> None:
        """Load what a thread has of one position: a vector as words, or one element of each input."""
        for pointer, target in zip(pointers, words):
            start = aligned_words(pointer) if self.policy.vectors else pointer
            layout = cute.make_layout((WORDS if self.policy.vectors else 1,))
            cute.autovec_copy(cute.make_tensor(start, layout), target[(None, u)])

    def aggregate(self, words, index, step: int):
        """The aggregate of each column over ``unroll`` loaded positions."""
        if isinstance(self.monoid, ArgMonoid):  # inside these positions, indexes are known to the compiler
            states = tree([self.lifted(words, u, Int32(u * step)) for u in range(self.unroll)], self.append)
            return tuple((value, index + type(index)(place)) for value, place in states)
        if len(words) > 1 or (self.policy.in_turn and self.monoid.takes_index):
            return tree([self.lifted(words, u, index + u * step) for u in range(self.unroll)], self.append)
        rows = [self.elements(words, u)[0] for u in range(self.unroll)]
        return tuple(self.monoid.run([row[c] for row in rows], index) for c in range(self.width))

    def append(self, a, b):
        """The states of columns, where all positions of ``b`` come behind those of ``a``."""
        return tuple(self.ordered.combine(x, y) for x, y in zip(a, b))

    def elements(self, words, u: int):
        """What a thread has of load ``u``, a tensor for each input."""
        rows = [row[(None, u)] for row in words]
        return [cute.recast_tensor(rows[0], self.monoid.source.cutlass)] if self.policy.vectors else rows

    def lifted(self, words, u: int, index):
        rows = self.elements(words, u)
        return tuple(self.monoid.lift(*(row[c] for row in rows), index) for c in range(self.width))
