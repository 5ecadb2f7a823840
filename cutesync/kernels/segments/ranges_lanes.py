"""The segments of a batch of ``ranges_rows``, a lane each, none of which has more vectors than ``longest``. Device
code; all 32 lanes call."""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...warp import broadcast, prepend_between_states, select, zeros
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, popc
from .ranges_policy import RowsPolicy
from .reduced import SegmentReduction
from .reduced_base import Work

# What a lane has of a batch: its segment's ``vectors``, the address of the first one, in which ``skew`` elements come
# before its ``count`` own; whether it ends in the batch; and whether the vectors have more than the array.
Own = namedtuple("Own", "address skew count vectors closes edge")


class LanesReduction(SegmentReduction):
    """What a lane does with its own segment, and with a vector of 16 bytes."""

    policy: RowsPolicy

    @property
    def size(self) -> int:
        return self.runs.sources[0].size

    @cute.jit
    def store_empty(self, c: cutlass.Constexpr, k, closes):
        """Store the result of a segment without elements; that of the chunk's first one is not known yet."""
        if closes & (k > 0):
            self.windows.store(c.a, c.chunk.segment + k, zeros(self.types), Boolean(False))

    @cute.jit
    def own(self, c: cutlass.Constexpr, number, origin, count, closes):
        """What a lane has of the batch whose first segment has a number: ``count`` elements from ``origin`` on. Results
        of segments without elements are stored."""
        each, x = self.runs.run, c.a.x[0].toint()
        address, skew, vectors, edge = x, Int32(0), Int32(0), Boolean(False)
        if count > 0:
            address = x + origin * self.size
            skew = Int32(address % VECTOR_BYTES) // self.size
            address -= skew * self.size
            vectors = (skew + count + (each - 1)) // each
            edge = (address < x) | (address + Int64(vectors) * VECTOR_BYTES > x + c.a.whole * self.size)
        else:
            self.store_empty(c, number + c.lane, closes)
        return Own(address, skew, count, vectors, closes, edge)

    @cute.jit
    def go_lanes(self, c: cutlass.Constexpr, number, own: Own, among: tuple, carry: tuple):
        """Go through the segments of a batch, a lane each, from the state of the segment of which elements went by.
        ``among``: the bits of the lanes whose segments have elements, and the most vectors that one has. Return the
        state of the last of these."""
        (there, most), each, lane = among, self.runs.run, c.lane
        first, last = popc((there & (0 - there)) - 1), 31 - Int32(cute.arch.clz(Int32(there)))
        address = Int64(cute.arch.shuffle_sync(own.address, first))  # lanes without elements take these
        address = choose(own.count > 0, own.address, address)
        state, follows = carry[:-1], (lane == first) & (carry[-1] != 0)
        held = [self.runs.registers() for _ in range(self.policy.longest)]
        for r in cutlass.range_constexpr(self.policy.longest):
            if r < most:  # behind its last vector a lane takes that again
                self.load(held[r], address + cutlass.max(cutlass.min(own.vectors - 1, r), 0) * VECTOR_BYTES)
        for r in cutlass.range_constexpr(self.policy.longest):
            if r < most:
                values = self.runs.values(held[r], self.position(c, address + r * VECTOR_BYTES))
                found = self.of_vector(values, own.skew - r * each, own.skew + own.count - r * each)
                found = prepend_between_states(follows | (r > 0), state, found, self.states.monoid.combine)
                state = select(r < own.vectors, found, state)
        if own.closes & (own.count > 0):
            self.store_own(c, number + lane, state)
        return broadcast(state, last)

    @cute.jit
    def store_own(self, c: cutlass.Constexpr, k, state: tuple):
        """Store the result of segment ``k`` of the chunk; that of its first one is kept."""
        if k == 0:
            self.windows.keep(c, state, Boolean(True))
        else:
            self.windows.store(c.a, c.chunk.segment + k, state, Boolean(True))

    def position(self, c: Work, address):
        """Where in the array the element at an address is."""
        return (address - c.a.x[0].toint()) // self.size

    def load(self, registers: list, address) -> None:
        """Load the vector at an address."""
        words = cute.recast_tensor(registers[0], Int32)
        cute.autovec_copy(cells(Int32, address, 4, cute.AddressSpace.gmem, VECTOR_BYTES), words)

    def of_vector(self, values: list, first, stop) -> tuple:
        """The state of the elements of a vector from ``first`` up to ``stop``, at least one."""
        state = values[0]()
        for i, value in enumerate(values[1:], 1):
            after = prepend_between_states(first < i, state, value(), self.states.monoid.combine)
            state = select(stop > i, after, state)
        return state
