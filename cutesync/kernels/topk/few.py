"""Top-k of short rows of which few results are wanted: a warp finds those of a row, which it holds in registers. Device
code.

    limit      the greatest elements of the lanes are sorted: ``wanted`` elements reach the one at place ``wanted``
    chosen     the elements that reach the limit, if they are at most one a lane; otherwise keys are divided
    ranks      each lane has one of the chosen elements, and counts those that come before it

Hardly more elements reach this limit than are wanted, so counting takes less than a sort. The warps of a block share
nothing.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...block.reduce import get, put, state_array
from ...monoid import tree
from ...sync.overlap import let_next_start
from ...warp import LANES, broadcast
from .kernel import Arguments
from .network import sort
from .pool import Limit, within
from .short import ShortTopK


class FewTopK(ShortTopK):
    """The kernel. Its parameters are those of ``TopKKernel``."""

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, axes: tuple, scratch: cute.Pointer, counters: cute.Pointer):
        candidates = state_array((self.order.type, Int32), self.threads)
        warp = cute.arch.warp_idx()
        number = cute.arch.block_idx()[0] * (self.threads // LANES) + warp
        if number < numbers[-1]:
            a = self.row_of(arrays, numbers, axes, number, (scratch, counters))
            self.find_few(candidates, a, warp * LANES, cute.arch.lane_idx())
        let_next_start()

    @cute.jit
    def find_few(self, candidates: cutlass.Constexpr, a: Arguments, first, lane):
        """Store the results of a row. The warp has the candidates from ``first`` on."""
        held = cute.make_rmem_tensor((self.each,), self.order.held)
        vectors = Boolean(a.x.toint() % (self.width * self.order.dtype.size) == 0)
        exists = self.load_pieces(held, a, lane, vectors)
        chosen, before, count = self.few(held, exists, a, lane)
        at = first + before
        while chosen != 0:
            index = self.place(lane, 31 - Int32(cute.arch.clz(chosen & -chosen)))
            put(candidates, at, (self.order.of(self.value(a, index)), index))
            chosen = chosen & (chosen - 1)
            at += 1
        cute.arch.sync_warp()
        self.give_few(candidates, a, first, count, lane)

    @cute.jit
    def few(self, held, exists, a: Arguments, lane):
        """``(chosen, before, count)``: a bit for each of a lane's candidates, and how many there are in the
        lanes before it, and in all: at most ``LANES``, and ``wanted`` or as many as exist at least."""
        greatest = self.order.key(tree([self.order.held(held[j]) for j in range(self.each)], self.order.first))
        (by_lanes,) = sort([greatest], lane, LANES)
        low, top = broadcast((by_lanes,), a.wanted - 1)[0], broadcast((by_lanes,))[0]
        chosen = self.reaching(held, exists, self.order.floor(low))
        before, count = self.counted(chosen, lane)
        if count > LANES:
            chosen, low = self.divided(held, exists, a, (low, top, count), lane)
            before, count = self.counted(chosen, lane)
        return chosen, before, count

    @cute.jit
    def give_few(self, candidates: cutlass.Constexpr, a: Arguments, first, count, lane):
        """Store a lane's result: its candidate at its rank; 0, and the index -1, where there are not enough."""
        to, place, value, types = lane, Int32(-1), self.order.dtype.cutlass(0), (self.order.type, Int32)
        if lane < count:
            key, place = get(candidates, first + lane, types)
            to, value = Int32(-1), self.value(a, place)  # it does not come after itself
            for other in cutlass.range(count, unroll=1):
                to += Int32(within(Limit(key, place), *get(candidates, first + other, types)))
        if to < a.wanted:
            self.store_result(a, to, place, value)
