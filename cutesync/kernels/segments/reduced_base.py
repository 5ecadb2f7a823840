"""What the parts of a reduction of segments that offsets give share: its parameters, and how segments are cut. Device
code; ``reduced`` says how the parts work together.

The elements from where the first segment begins to where the last one ends are merged with the ends of the segments, an
end behind the last element of its segment. An end counts as ``weight`` members of this list, an element as one; all
chunks have as many members. So a chunk has as much work as another, whatever the lengths of segments are.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float64, Int32, Int64, Uint32

from ...monoid import choose
from .offsets import offset

HALF, GROUP = 16, 4  # lanes that search for the cut of a block, or of a chunk

# A launch's arguments: ``offsets`` has where each of ``segments`` segments begins in the ``whole`` elements of ``x``;
# ``rounds`` chunks have each warp. ``nothing`` is the state of a segment without elements. Of ``ranges_rows`` alone:
# ``begins`` has where segments begin, and ``offsets`` where they would end if they were put one after the other.
Arguments = namedtuple(
    "Arguments", "x out offsets segments whole rounds nothing slots counters begins", defaults=(None,)
)

# A chunk: the elements from ``first`` up to ``stop``, counted from ``origin``, which lies on a boundary of runs in
# memory; and the ``ends`` of segments from number ``segment`` on. Runs that begin from ``low`` up to ``high`` lie
# in the array.
Chunk = namedtuple("Chunk", "origin first stop segment ends low high")

# What a warp works with: the arguments, the ends, its chunk and its shared memory; ``keep`` takes the state of the
# chunk's first segment.
Work = namedtuple("Work", "a ends chunk stage keep lane")


@dataclass(frozen=True)
class Ends:
    """Where the ``segments`` segments end among ``whole`` elements: ``ends[k]``, from ``low``, where the first one
    begins, to ``high``, where the last one ends. ``form``: whether the array at ``start`` has ends alone. An end
    counts as ``weight`` members of the merged list."""

    start: Any
    segments: Any
    whole: Any
    form: bool
    weight: int
    low: Any = None
    high: Any = None

    def bounded(self) -> Ends:
        """The same, with the lowest and the highest known."""
        low = Int64(0) if self.form else clamped(offset(self.start, Int64(0), False), Int64(0), self.whole)
        return replace(self, low=low, high=last_of(self, low))

    def members(self) -> Any:
        """How many members the merged list has."""
        return self.high - self.low + self.weight * self.segments

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
def near_share(ends: cutlass.Constexpr, member, lanes: cutlass.Constexpr, lane):
    """``(low, high)`` for ``search``, in one step: a group of ``lanes`` looks around the segment that would be the one,
    if all were as long. Where they are, this takes the place of most steps."""
    low, high = Int64(0), Int64(ends.segments)
    if ends.segments > 0:
        index, first = lane % lanes, lane // lanes * lanes
        share = Float64(member) / Float64(cutlass.max(ends.members(), Int64(1)))
        place = Int64(share * Float64(ends.segments))
        probe = around(place, index, lanes, ends.segments)
        behind = Int32(ends[probe] - ends.low + ends.weight * (probe + 1) <= member)
        bits = Int32(Uint32(cute.arch.vote_ballot_sync(behind != 0)) >> Uint32(first))
        found = Int32(cute.arch.popc(bits & ((1 << lanes) - 1)))
        low = choose(found > 0, around(place, found - 1, lanes, ends.segments) + 1, low)
        high = choose(found < lanes, around(place, found, lanes, ends.segments), high)
    return low, high


def around(place, index, lanes: int, segments) -> Any:
    """Number ``index`` of ``lanes`` segments around one, in order, 1, 8, 64 and so on from it."""
    half = lanes // 2
    before, behind = cutlass.max(half - 1 - index, 0), cutlass.max(index - half, 0)
    step = choose(index < half, -(Int64(1) << Int64(3 * before)), Int64(1) << Int64(3 * behind))
    return clamped(place + step, Int64(0), segments - 1)


@cute.jit
def search(ends: cutlass.Constexpr, member, low, high, lanes: cutlass.Constexpr, lane):
    """Where the merged list is cut before a member, which a group of ``lanes`` shares: ``(place, segment)``, the first
    element behind the cut, and the first segment that ends behind it, which is among ``low`` to ``high``. A step looks
    at as many candidates as lanes."""
    index, first = lane % lanes, lane // lanes * lanes
    while cute.arch.vote_any_sync(low < high):
        span, behind = high - low, Int32(0)
        if low < high:
            probe = low + span * (index + 1) // (lanes + 1)
            behind = Int32(ends[probe] - ends.low + ends.weight * (probe + 1) <= member)
        bits = Int32(Uint32(cute.arch.vote_ballot_sync(behind != 0)) >> Uint32(first))
        found = Int32(cute.arch.popc(bits & ((1 << lanes) - 1)))
        above = choose(found < lanes, low + span * (found + 1) // (lanes + 1), high)
        low = choose(found > 0, low + span * found // (lanes + 1) + 1, low)
        high = above
    place = member - ends.weight * low
    if low < ends.segments:  # a cut between the members of an end comes before it
        place = cutlass.min(place, ends[low] - ends.low)
    return place + ends.low, low
