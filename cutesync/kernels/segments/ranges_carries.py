"""What comes before each share of segments that begins and ends give. Device code; ``ranges`` says how the kernels work
together.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from ...block.reduce import partial_array, partial_bytes, store_partial
from ...block.warps import scan_partials
from ...warp import LANES, Maybe, combine_valid, scan_states, shift_up
from .ranges_base import Arguments, RangesKernel
from .ranges_policy import RangesPolicy
from .spec import SegmentsSpec


class CarriesKernel(RangesKernel):
    """The kernel that combines shares: a block, of which each thread has neighbouring ones."""

    name = "segment_carries"

    def __init__(self, spec: SegmentsSpec, policy: RangesPolicy) -> None:
        super().__init__(spec, policy.threads, 0)
        self.smem = partial_bytes((Int32, *self.types, Int32), policy.threads // LANES)

    @cute.jit
    def body(self, a: Arguments):
        warps, types = self.threads // LANES, (Int32, *self.types, Int32)
        partials = partial_array(types, warps)
        thread, lane, warp = cute.arch.thread_idx()[0], cute.arch.lane_idx(), cute.arch.warp_idx()
        each = (Int32(a.workers) + (self.threads - 1)) // self.threads
        first = cutlass.min(thread * each, Int32(a.workers))
        stop = cutlass.min(first + each, Int32(a.workers))
        own = (Int32(0), *self.nobody())
        for worker in cutlass.range(first, stop, 1, unroll=1):
            own = self.merge(own, self.tail(a, worker))
        inclusive = scan_states(own, self.merge, lane)
        if lane == LANES - 1:
            store_partial(partials, warp, Maybe.of(inclusive))
        cute.arch.sync_threads()
        prefix, _ = scan_partials(partials, Int32(0), warps, warp, lane, types, self.merge)
        entry, before = (Int32(0), *self.nobody()), shift_up(inclusive)
        if prefix.valid:
            entry = prefix.state
        if lane > 0:
            entry = self.merge(entry, before)
        for worker in cutlass.range(first, stop, 1, unroll=1):
            tail = self.tail(a, worker)
            self.leave(a, worker, entry[1:], tail[0])
            entry = self.merge(entry, tail)

    def tail(self, a: Arguments, worker) -> tuple:
        """The summary of a share."""
        word, values = self.kept(a, 0, worker)
        return Int32(word & 1), *values, Int32(word >> 1)

    @cute.jit
    def leave(self, a: cutlass.Constexpr, worker, packed: tuple, seen):
        """Store the result of the segment that ends first in a share, before which comes a packed state; in scans,
        leave that state for the share."""
        if cutlass.const_expr(self.spec.reduced):
            if seen != 0:
                word, values = self.kept(a, 1, worker)
                first = (*values, Int32(word & 1))
                self.store_result(a, word >> 1, combine_valid(packed, first, self.states.ordered))
        else:
            self.keep(a, 1, worker, packed[-1], packed[:-1])
