"""What the parts of a reduction of segments that offsets give share: its parameters, and how segments are cut. Device
code; ``reduced`` says how the parts work together.

The elements from where the first segment begins to where the last one ends are merged with the ends of the segments, an
end behind the last element of its segment. An end counts as ``END`` members of this list, an element as one; each warp
has a share of as many members. So a share has as much work as another, whatever the lengths of segments are.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...warp import LANES
from .offsets import offset
from .reduced_policy import END

# A launch's arguments: ``offsets`` has where each of ``segments`` segments begins in the ``whole`` elements of ``x``.
# ``nothing`` is the state of a segment without elements.
Arguments = namedtuple("Arguments", "x out offsets segments whole nothing slots counters")

# A share: the elements from ``first`` up to ``stop``, counted from ``origin``, which lies on a boundary of runs in
# memory; and the ``ends`` of segments from number ``segment`` on.
Share = namedtuple("Share", "origin first stop segment ends")


@dataclass(frozen=True)
class Ends:
    """Where the ``segments`` segments end among ``whole`` elements: ``ends[k]``, from ``low``, where the first one
    begins, to ``high``, where the last one ends. ``form``: whether the array at ``start`` has ends alone."""

    start: Any
    segments: Any
    whole: Any
    form: bool
    low: Any = None
    high: Any = None

    def bounded(self) -> Ends:
        """The same, with the lowest and the highest known."""
        low = Int64(0) if self.form else clamped(offset(self.start, Int64(0), False), Int64(0), self.whole)
        return replace(self, low=low, high=last_of(self, low))

    def raw(self, k: Any) -> Any:
        """As it is in memory."""
        return Int64(cute.make_tensor(self.start + (k if self.form else k + 1), cute.make_layout((1,)))[0])

    def __getitem__(self, k: Any) -> Any:
        return clamped(self.raw(k), self.low, self.high)


@cute.jit
def last_of(ends: cutlass.Constexpr, low):
    high = low
    if ends.segments > 0:
        high = clamped(ends.raw(ends.segments - 1), low, ends.whole)
    return high


def clamped(place, low, high):
    return cutlass.min(cutlass.max(Int64(place), low), high)


@cute.jit
def share_of(ends: cutlass.Constexpr, worker, workers, lane):
    """``(first, stop, segment, next)``: the elements of a share, and its first segment and that of the next one. Each
    half of a warp searches for an end of the share: one in 17 of the candidates a step."""
    total = ends.high - ends.low
    members = total + END * ends.segments
    size = (members + (workers - 1)) // workers
    half, index = lane // 16, lane % 16
    member = cutlass.min(size * (worker + half), members)
    low, high = Int64(0), Int64(ends.segments)
    while cute.arch.vote_any_sync(low < high):
        span = high - low
        behind = Int32(0)
        if low < high:
            probe = low + span * (index + 1) // 17
            behind = Int32(ends[probe] - ends.low + END * (probe + 1) <= member)
        found = Int32(cute.arch.popc((Int32(cute.arch.vote_ballot_sync(behind != 0)) >> (half * 16)) & 0xFFFF))
        above = low + span * (found + 1) // 17
        low = choose(found > 0, low + span * found // 17 + 1, low)
        high = choose(found < 16, above, high)
    place = total
    if low < ends.segments:
        place = cutlass.min(member - END * low, ends[low] - ends.low)
    place += ends.low
    pairs = [(Int64(cute.arch.shuffle_sync(n, 0)), Int64(cute.arch.shuffle_sync(n, LANES // 2))) for n in (place, low)]
    return (*pairs[0], *pairs[1])
