"""The segments of a batch of ``ranges_rows``, a lane each, of which none has many vectors. Device code; all 32 lanes
call."""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...warp import LANES, broadcast, prepend_between_states, select, zeros
from ..select.chunk import VECTOR_BYTES, cells, popc
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

    def in_lanes(self, most, total) -> Boolean:
        """Whether lanes go through their own segments, which have ``most`` vectors at most, and ``total`` together:
        their turns of some vectors each are few beside those of the warp."""
        rows = self.policy.rows
        turns, tiles = (most + (rows - 1)) // rows, (total + (rows * LANES - 1)) // (rows * LANES)
        return (most <= self.policy.longest) & (turns <= self.policy.turns * tiles)

    @cute.jit
    def go_lanes(self, c: cutlass.Constexpr, number, own: Own, among: tuple, carry: tuple):
        """Go through the segments of a batch, a lane each, from the state of the segment of which elements went by.
        ``among``: the bits of the lanes whose segments have elements, and the most vectors that one has. Return the
        state of the last of these."""
        (there, most), rows, each, lane = among, self.policy.rows, self.runs.run, c.lane
        first, last = popc((there & (0 - there)) - 1), 31 - Int32(cute.arch.clz(Int32(there)))
        address = Int64(cute.arch.shuffle_sync(own.address, first))  # lanes without elements take these
        address = choose(own.count > 0, own.address, address)
        state, follows = carry[:-1], (lane == first) & (carry[-1] != 0)
        held = [self.runs.registers() for _ in range(rows)]
        for at in cutlass.range(0, most, rows, unroll=1):
            for r in cutlass.range_constexpr(rows):
                place = choose(at == 0, cutlass.min(Int32(r), cutlass.max(own.vectors - 1, 0)), at + r)
                if (at + r < own.vectors) | ((at == 0) & (r < most)):
                    self.load(held[r], address + place * VECTOR_BYTES)
            low, high = own.skew - at * each, own.skew + own.count - at * each
            whole = Boolean(False)
            if cutlass.const_expr(self.size > 1):  # as in ``go_row``
                whole = cute.arch.vote_all_sync((low <= 0) & (high >= rows * each))
            if whole:
                for r in cutlass.range_constexpr(rows):
                    found = self.runs.total(self.values_at(c, held[r], address, at + r))
                    state = prepend_between_states(follows | (at + r > 0), state, found, self.states.monoid.combine)
            else:
                for r in cutlass.range_constexpr(rows):
                    if at + r < most:
                        values = self.values_at(c, held[r], address, at + r)
                        found = self.of_vector(values, low - r * each, high - r * each)
                        found = prepend_between_states(follows | (at + r > 0), state, found, self.states.monoid.combine)
                        state = select(at + r < own.vectors, found, state)
        if own.closes & (own.count > 0):
            self.store_own(c, number + lane, state)
        return broadcast(state, last)

    def values_at(self, c: Work, registers: list, address, vector) -> list:
        """The states of the elements of a vector of a segment."""
        return self.runs.values(registers, self.position(c, address + vector * VECTOR_BYTES))

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
