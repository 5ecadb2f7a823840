"""The ends of a warp's share, in order: a window of 32 of them, a lane each. Device code; all 32 lanes call.

A window stays while tiles go by, and the next one is loaded while it is there. So long segments cost nothing to look
for, and there may be any number of ends in a tile.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...monoid import choose
from ...warp import LANES, zeros
from ..select.chunk import put_if
from .reduced_base import Ends, Share, clamped
from .reduced_run import TileRuns
from .spec import SegmentsSpec
from .states import SegmentStates

FAR = 0x7FFFFFFF  # where the ends of no segment lie

# A window: the number in the share of its first end; where a lane's segment ends and begins, counted from the share's
# origin; how many of its ends lie in tiles that went by; a lane's end of the next window, as it is in memory.
Window = namedtuple("Window", "first end begin used following")


class Windows:
    """The windows of shares."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, runs: TileRuns) -> None:
        self.spec, self.states, self.runs = spec, states, runs

    @cute.jit
    def load(self, ends: cutlass.Constexpr, share: Share, k):
        """End ``k`` of the share, as it is in memory."""
        found = Int64(0)
        if k < share.ends:
            found = ends.raw(share.segment + k)
        return found

    def place(self, share: Share, k, found):
        """The end from the origin."""
        place = Int32(clamped(found, share.origin + share.first, share.origin + share.stop) - share.origin)
        return choose(k < share.ends, place, Int32(FAR))

    def begin(self, ends: Ends, share: Share, lane) -> Window:
        """The first window."""
        found, following = self.load(ends, share, lane), self.load(ends, share, LANES + lane)
        return self.window(share, Int32(0), found, share.first, following, lane)

    def window(self, share: Share, first, found, before, following, lane) -> Window:
        """The window from number ``first`` on; ``before`` is the end before it."""
        end = self.place(share, first + lane, found)
        begin = choose(lane == 0, Int32(before), Int32(cute.arch.shuffle_sync_up(end, 1)))
        return Window(first, end, begin, Int32(0), following)

    def next(self, ends: Ends, share: Share, w: Window, lane) -> Window:
        first = w.first + LANES
        following = self.load(ends, share, first + (LANES + lane))
        before = cute.arch.shuffle_sync(w.end, LANES - 1)
        return self.window(share, first, w.following, before, following, lane)

    def inside(self, w: Window, limit, lane) -> Any:
        """Whether a lane's end comes up to ``limit``, and in no tile that went by."""
        return (lane >= w.used) & (w.end <= limit)

    @cute.jit
    def mark(self, ends: cutlass.Constexpr, share: cutlass.Constexpr, stage: cutlass.Constexpr, w: Window, first, lane):
        """Mark the ends in the tile from ``first`` on: the window behind them, how many there are, and the end of the
        last one or less."""
        count, more = Int32(0), Int32(1)
        while more != 0:
            inside = self.inside(w, first + self.runs.tile, lane)
            place = w.end - 1 - first
            put_if(inside & (w.end > w.begin) & (place >= 0), Uint8, stage.marks + place, Uint8(1))
            found = Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
            count += found
            w = w._replace(used=w.used + found)
            more = Int32(w.used == LANES)
            if more != 0:
                w = self.next(ends, share, w, lane)
        return w, count

    @cute.jit
    def emit(
        self,
        a: cutlass.Constexpr,
        ends: cutlass.Constexpr,
        share: cutlass.Constexpr,
        stage: cutlass.Constexpr,
        keep: cutlass.Constexpr,
        w: Window,
        stop,
        first,
        lane,
    ):
        """Store the results of the segments that end in the tile from ``first`` on; ``w`` is the window before it, and
        ``stop`` the number in the share of the first end behind the tile. The first of the share is kept."""
        more = Int32(1)
        while more != 0:
            k = w.first + lane
            if self.inside(w, first + self.runs.tile, lane):
                state, valid = zeros(self.runs.types), (w.end > w.begin) & (w.end > first)
                if valid:
                    state = self.runs.at(stage, w.end - 1 - first)
                if k == 0:
                    keep(state, valid)
                else:
                    self.store(a, share.segment + k, state, valid)
            more = Int32(w.first + LANES < stop)
            if more != 0:
                w = self.next(ends, share, w, lane)

    @cute.jit
    def store(self, a: cutlass.Constexpr, segment, state: tuple, valid):
        """Store the result of a segment whose state is ``valid``, or has no elements."""
        found = a.nothing
        if valid:
            found = state
            if cutlass.const_expr(self.states.start is not None):
                found = self.states.monoid.combine(self.states.start, state)
        for out, value in zip(a.out, self.states.monoid.results_of(found)):
            cute.make_tensor(out + segment, cute.make_layout((1,)))[0] = value
