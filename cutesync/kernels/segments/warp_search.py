"""A search by the lanes of a warp. Device code."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute

from ...warp import LANES


@cute.jit
def search_by_warp(load: cutlass.Constexpr, position, low, high, lane):
    """How many of ``high`` numbers ``load(place)``, which do not fall, are ``position`` or less; the first ``low`` are.
    Places are numbers of the type of ``low`` and ``high``. Each step looks at 32. All lanes call."""
    number = type(low)
    while low < high:
        step = (high - low + LANES - 1) // LANES
        probe = cutlass.min(low + lane * step + (step - 1), high - 1)
        before = cute.arch.popc(cute.arch.vote_ballot_sync(load(probe) <= position))
        after = number(cute.arch.shuffle_sync(probe, cutlass.min(before, LANES - 1)))
        low = cutlass.min(low + before * step, high)
        if before < LANES:
            high = after
        else:
            low = high
    return low
