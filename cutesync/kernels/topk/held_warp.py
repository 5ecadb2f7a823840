"""Top-k of rows in shared memory that a warp has alone: it sorts in registers. Device code.

The limit is the middle of the greatest elements of groups. Candidates are sorted as words; if there are too many, or
keys that differ have the same bits, the candidates that come before each are counted as in larger blocks.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import tree
from ...warp import LANES
from ..coordinates import element
from .held import Candidates, HeldTopK
from .kernel import Arguments
from .network import middle
from .policy import HeldWarpPolicy
from .pool import COUNT, Limit
from .spec import TopK
from .words import Words


class HeldWarpTopK(HeldTopK):
    """The kernel. Its parameters are those of ``TopKKernel``."""

    policy: HeldWarpPolicy

    def __init__(self, operation: TopK, policy: HeldWarpPolicy) -> None:
        super().__init__(operation, policy)
        self.words = Words(self.order, LANES, policy.slots, policy.elements)

    @cute.jit
    def limit(self, pool, greatest, wanted, thread):
        """A limit that ``wanted`` groups reach. Then the pool is empty."""
        each = [range(slot, self.policy.groups, self.policy.slots) for slot in range(self.policy.slots)]
        values = [tree([self.order.type(greatest[group]) for group in groups], cutlass.max) for groups in each]
        _, key = middle(values, thread, LANES)
        cute.arch.sync_warp()  # all have read the number of candidates of the last row
        if thread == 0:
            pool.words[COUNT] = Int32(0)  # ``append`` waits for the warp before it counts
        return Limit(key, self.index(int(self.index.max)))

    @cute.jit
    def give(self, candidates: Candidates, a: Arguments, count, thread):
        """Store the results; 0, and the index -1, where there are not enough."""
        given = Boolean(False)
        if count <= self.policy.slots * LANES:
            given = self.give_sorted(candidates, a, count, thread)
        if cutlass.not_(given):
            HeldTopK.give(self, candidates, a, count, thread)

    @cute.jit
    def give_sorted(self, candidates: Candidates, a: Arguments, count, thread):
        """Store the results, if words say which they are; whether that is so."""
        keys, places = [], []
        for c in cutlass.range_constexpr(self.policy.slots):
            key, place, slot = self.order.type(self.order.lowest), Int32(-1), c * LANES + thread
            if slot < count:
                ranked = Int64(candidates.ranked[slot])
                if cutlass.const_expr(self.packed):
                    key, place = Int32(ranked >> 32), ~Int32(ranked & 0xFFFFFFFF)
                else:
                    key, place = ranked, Int32(candidates.places[slot])
            keys.append(key)
            places.append(place)
        found = self.words.candidates(keys, places)
        words, exact = self.words.sorted(found, thread, lambda index: self.order.of(self.value(a, index)))
        if exact:
            cute.arch.sync_warp()  # candidates have been read
            address = candidates.ranked.iterator.toint()
            self.words.stage(words, address, thread)
            for c in cutlass.range_constexpr(self.policy.slots):
                if c * LANES + thread < a.wanted:
                    self.give_word(a, address, c * LANES + thread)
        return exact

    @cute.jit
    def give_word(self, a: Arguments, address, to):
        """Store result ``to``: the element of a word."""
        word, place, value = self.words.at(address, to), Int32(-1), self.operation.dtype.cutlass(0)
        if word != 0:
            place = self.words.index(word)
            value = self.value(a, place)
        self.store_result(a, to, Int64(place), value)

    def value(self, a: Arguments, index):
        """An element of the row in global memory: the next row comes to shared memory meanwhile."""
        return self.operation.dtype.cutlass(element(a.x + index))
