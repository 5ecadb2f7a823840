"""The state before a tile, from what all tiles publish. Device code; all 32 lanes of a warp that looks ahead call.

Tiles are combined in groups of ``sync.lookback`` by their numbers, so the result does not depend on timing. A warp
carries the state of all groups before that of its tile along. The groups that came since its tile before, some two if
two warps take turns, are read and reduced together with the tile's own: one trip to memory, and shuffles that do not
wait for each other. This bounds how fast tiles follow each other: with one group after the other a warp took 4100
cycles a tile (H200, ``segmented_scan`` of 2**28 float32).
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from ...sync.gather import Slots, words
from ...sync.lookback import GROUP, places_before, reduce_before
from ...warp import Maybe, prepend, zeros
from .states import SegmentStates

# Words of the states that a lane reads together: more of them take too many registers, of which the blocks that gather
# strided arrays have fewer.
TOGETHER_WORDS, TOGETHER_GATHERED = 6, 4

Progress = namedtuple("Progress", "carry known")  # in lane 0 the state of the ``known`` first groups, if there are any


class LookAhead:
    """The states before tiles whose numbers rise; up to ``most`` groups are read together."""

    def __init__(self, states: SegmentStates, most: int = TOGETHER_WORDS) -> None:
        self.types, self.combine = states.types, states.combine
        held = TOGETHER_WORDS if states.spec.strided is None else TOGETHER_GATHERED
        self.together = max(min(held // words(states.types), most), 1)

    def start(self) -> Progress:
        return Progress(zeros(self.types), Int32(0))

    @cute.jit
    def before(self, slots: cutlass.Constexpr, at: Progress, tile, lane):
        """``(prefix, progress)``: in lane 0 the state (``Maybe``) before a tile, and what is known then."""
        carry, known = at.carry, at.known
        prefix = carry
        while known * GROUP < tile:
            carry, prefix = self.extend(slots, carry, known, tile, lane)
            known += self.together
        return Maybe(prefix, Boolean(tile > 0)), Progress(carry, tile // GROUP)

    @cute.jit
    def extend(self, slots: Slots, carry, known, tile, lane):
        """``(carry, prefix)``: the state of the whole groups among those from ``known`` on that are reduced together
        and those before, and the state of their tiles before ``tile``."""
        groups = [known + k for k in range(self.together)]
        counts = [cutlass.min(tile - group * GROUP, GROUP) for group in groups]
        places = [places_before(group, tile, lane) for group in groups]
        prefix = carry
        for group, count, total in zip(groups, counts, reduce_before(slots, places, counts, self.combine, lane)):
            if count > 0:
                prefix = prepend(group > 0, prefix, total, self.combine)
            if count == GROUP:
                carry = prefix
        return carry, prefix
