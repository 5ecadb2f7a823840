"""Reduction of columns that begin anywhere, of which a thread has several: neighbouring threads store whole vectors.

Results of a row that is no whole vectors begin anywhere, too. A thread's results are as long as the vector that it
stores: this begins up to so many bytes before them, with the last results of the thread before, which a shuffle brings.
Where a row begins or ends, and at the first and the last lane of a warp, results are stored one by one.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...sync.overlap import let_next_start
from ...warp import LANES, select, shift_up
from ..coordinates import store
from ..words import earlier
from .strided import StridedReduce
from .strided_base import Arguments, Member


class JoinedReduce(StridedReduce):
    """The kernel: each thread has all positions of its columns."""

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        thread, number = cute.arch.thread_idx()[0], type(a.length)
        unit = number(cute.arch.block_idx()[0]) * self.lanes + thread
        me = Member(thread, thread, Int32(0), cutlass.min(unit, a.units - 1), unit < a.units)
        states = self.own_states(a, me, number(0), a.length)
        let_next_start()
        if cutlass.const_expr(self.policy.copied):
            if me.inside:
                self.store(a, me.unit, states)
        else:
            self.store_joined(a, me, states)

    def store_joined(self, a: Arguments, me: Member, states) -> None:
        """Store the results of a unit, with those of its neighbours in the warp."""
        offsets = a.kept.offsets(me.unit)[len(a.x) :]
        left = Int32(cutlass.min(a.extent - offsets[-1], Int64(2 * self.width)))  # of the row, from the unit's first on
        left = select(me.inside, (left,), (Int32(0),))[0]
        rows = [self.monoid.results_of(self.total(a, state)) for state in states]
        for k in range(len(a.out)):
            self.join(a.out[k] + offsets[k], k, [row[k] for row in rows], me.thread % LANES, offsets[-1] > 0, left)

    @cute.jit
    def join(self, start, k: cutlass.Constexpr, values: cutlass.Constexpr, lane: Int32, inner, left: Int32):
        """Store a unit's results in output ``k``, from ``start`` on; ``inner``: its row has others before them."""
        dtype = self.monoid.results[k]
        size = dtype.size
        held = cute.make_rmem_tensor((self.width,), dtype.cutlass)
        for c in cutlass.range_constexpr(self.width):
            held[c] = values[c]
        words = cute.recast_tensor(held, Int32)
        count = self.width * size // 4
        own = tuple(Uint32(words[i]) for i in range(count))
        both = [*shift_up(own), *own]
        address: Any = start.toint()
        skew = Int32(address & (4 * count - 1))
        first = self.width - skew // size  # so many are in the vector that begins with the neighbour's
        here = (lane > 0) & inner & (left >= first)
        behind = (lane < LANES - 1) & (left - self.width >= first)  # the others are in the next thread's
        if here:
            vector = cute.make_rmem_tensor((count,), Int32)
            for i, word in enumerate(earlier(both, skew, size)):
                vector[i] = Int32(word)
            at = cute.make_ptr(Int32, address - skew, cute.AddressSpace.gmem, assumed_align=4 * count)
            cute.autovec_copy(vector, cute.make_tensor(at, cute.make_layout((count,))))
        begin = cutlass.select_(here, first, Int32(0))
        end = cutlass.select_(behind, first, cutlass.min(left, Int32(self.width)))
        if begin < end:
            for c in cutlass.range_constexpr(self.width):
                if (c >= begin) & (c < end):
                    store(start + c, values[c])
