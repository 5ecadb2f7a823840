"""The state before a tile, from what all tiles publish. Device code; all 32 lanes of a warp that looks ahead call.

Tiles are combined in groups of ``sync.lookback`` by their numbers, so the result does not depend on timing. What comes
before the last head does not matter to values: where the group of a tile has a head before it, no earlier group is
combined; otherwise those from the last group with a head on are. How many segments begin before a tile is a sum, whose
order does not matter: a lane adds up the numbers of some tiles of each group.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...sync.gather import Slots, words
from ...sync.lookback import EACH, GROUP, read_group, reduce_group
from ...warp import LANES, Maybe, broadcast, reduce_commutative
from .states import SegmentStates

BATCH = 4  # groups whose numbers of heads are read together

EARLY_WORDS = 4  # states of at most so many are read before they are needed: more of them take too many registers
IDLE = 7  # times that no group with a head is looked for after there was none

# What a warp knows: the state ``carry`` (``Maybe``) of the ``known`` first groups; a lane's part of the ``heads`` of
# the ``counted`` first groups; how often a group with a head is not looked for (``idle``).
Progress = namedtuple("Progress", "carry known heads counted idle")


class LookAhead:
    """The states before tiles whose numbers rise. ``counted``: how many segments begin before them, too."""

    def __init__(self, states: SegmentStates, counted: bool) -> None:
        self.states, self.counted, self.combine = states, counted, states.combine
        self.early = words(states.types) <= EARLY_WORDS

    def start(self) -> Progress:
        return Progress(Maybe.none(self.states.types), Int32(0), self.states.types[0](0), Int32(0), Int32(0))

    @cute.jit
    def before(self, slots: cutlass.Constexpr, at: Progress, tile, lane):
        """``(prefix, progress)``: the state (``Maybe``) before a tile, and what is known then."""
        group, rest = tile // GROUP, tile % GROUP
        reads = self.read_early(slots, group, lane)
        heads, counted = at.heads, at.counted
        if cutlass.const_expr(self.counted):
            while counted < group:
                heads = heads + self.heads_of_some(slots, counted, group, lane)
                counted = cutlass.min(counted + BATCH, group)
        prefix = Maybe.none(self.states.types)
        if rest > 0:
            prefix = self.total(slots, group, reads, rest, lane)
        own = choose(prefix.valid, prefix.state[0], self.states.types[0](0))
        carry, known, idle = at.carry, at.known, at.idle
        if own <= 0:
            carry, idle = self.advance(slots, at, group, lane)
            known = group
            prefix = carry.then(prefix, self.combine)
        if cutlass.const_expr(self.counted):
            (before,) = reduce_commutative((heads,), lambda a, b: (a[0] + b[0],))
            prefix = Maybe((before + own, *prefix.state[1:]), prefix.valid)
        return prefix, Progress(carry, known, heads, counted, idle)

    @cute.jit
    def advance(self, slots: cutlass.Constexpr, at: Progress, group, lane):
        """``(carry, idle)``: the state of the groups before ``group``."""
        carry, first, idle = at.carry, at.known, at.idle
        if idle == 0:  # look for the last group with a head: no earlier one matters
            last, found = group, Int32(0)
            while (last > at.known) & (found == 0):
                last -= 1
                heads = self.heads_of(slots, last, self.read_heads(slots, last, lane), last + 1, lane)
                found = Int32(cute.arch.vote_any_sync(heads > 0))
            if found != 0:
                first = last
                carry = Maybe.none(self.states.types)
            idle = choose((found == 0) & (group > at.known), Int32(IDLE), Int32(0))
        else:
            idle -= 1
        reads = self.read_early(slots, first, lane)
        while first < group:
            following = self.read_early(slots, first + 1, lane)
            carry = carry.then(self.total(slots, first, reads, Int32(GROUP), lane), self.combine)
            reads = following
            first += 1
        return carry, idle

    def read_early(self, slots: Slots, group, lane) -> tuple:
        """The words of a group, published or not."""
        return read_group(slots, Int64(group) * GROUP, lane) if self.early else ()

    def total(self, slots: Slots, group, reads, count, lane) -> Maybe:
        """The state of the first ``count`` tiles of a group, in every lane."""
        first = Int64(group) * GROUP
        reads = reads if self.early else read_group(slots, first, lane)
        return Maybe.of(broadcast(reduce_group(slots, first, reads, count, self.combine, lane)))

    def numbers(self, slots: Slots) -> Slots:
        """The numbers of heads that tiles publish: the first member of their states."""
        return replace(slots, types=slots.types[:1])

    def read_heads(self, slots: Slots, group, lane):
        return read_group(self.numbers(slots), Int64(group) * GROUP, lane)

    @cute.jit
    def heads_of(self, slots: cutlass.Constexpr, first, reads, stop, lane):
        """How many segments begin in a lane's tiles of the groups that ``reads`` are of, from group ``first`` on and
        before ``stop``; waits for them."""
        numbers, none = self.numbers(slots), self.states.types[0](0)
        each, count = words(self.states.types[:1]), none
        tiles = [(k, j) for k in range(len(reads) // (each * EACH)) for j in range(EACH)]
        places = [Int64(cutlass.min(first + k, stop - 1)) * GROUP + (j * LANES + lane) for k, j in tiles]
        reads = numbers.wait_together(places, reads, [first + k < stop for k, _ in tiles])
        for t, (k, _) in enumerate(tiles):
            (found,) = numbers.join(reads[t * each : (t + 1) * each])
            count = count + choose(first + k < stop, cutlass.max(found, none), none)
        return count

    def heads_of_some(self, slots: Slots, first, stop, lane):
        """The same of up to ``BATCH`` groups before ``stop``, which are read together."""
        groups = [cutlass.min(first + k, stop - 1) for k in range(BATCH)]
        reads = tuple(word for group in groups for word in self.read_heads(slots, group, lane))
        return self.heads_of(slots, first, reads, stop, lane)
