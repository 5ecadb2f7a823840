"""The ends of a chunk, in order: a window of 32 of them, a lane each. Device code; all 32 lanes call.

A window stays while tiles go by, and the next one is loaded while it is there. So long segments cost nothing to look
for. If a tile has more ends than that, those behind are loaded in groups, several at once.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...monoid import choose
from ...warp import LANES, zeros
from ..select.chunk import put_if
from .reduced_base import Work, clamped
from .reduced_run import TileRuns
from .spec import SegmentsSpec
from .states import SegmentStates

FAR = 0x7FFFFFFF  # where the ends of no segment lie
GROUPS = 4  # of 32 ends, that are loaded together

# A window: the number in the chunk of its first end; where a lane's segment ends and begins, counted from the chunk's
# origin; how many of its ends lie in tiles that went by; a lane's end of the next window, as it is in memory.
Window = namedtuple("Window", "first end begin used following")


class Windows:
    """The windows of chunks."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, runs: TileRuns) -> None:
        self.spec, self.states, self.runs = spec, states, runs

    @cute.jit
    def load(self, c: cutlass.Constexpr, k):
        """End ``k`` of the chunk, as it is in memory."""
        found = Int64(0)
        if k < c.chunk.ends:
            found = self.raw(c, k)
        return found

    def raw(self, c: Work, k):
        return c.ends.raw(c.chunk.segment + k)

    def place(self, c: Work, k, found):
        """The end from the origin."""
        origin, first, stop, _, ends = c.chunk
        return choose(k < ends, Int32(clamped(found, origin + first, origin + stop) - origin), Int32(FAR))

    def begins(self, c: Work, end, before):
        """Where a lane's segment begins: at the end of the one before it, of the first lane at ``before``."""
        return choose(c.lane == 0, Int32(before), Int32(cute.arch.shuffle_sync_up(end, 1)))

    def begin(self, c: Work) -> Window:
        """The first window."""
        found, following = self.load(c, c.lane), self.load(c, LANES + c.lane)
        return self.window(c, Int32(0), found, c.chunk.first, following)

    def window(self, c: Work, first, found, before, following) -> Window:
        """The window from number ``first`` on; ``before`` is the end before it."""
        end = self.place(c, first + c.lane, found)
        return Window(first, end, self.begins(c, end, before), Int32(0), following)

    def next(self, c: Work, w: Window) -> Window:
        first = w.first + LANES
        following = self.load(c, first + (LANES + c.lane))
        return self.window(c, first, w.following, cute.arch.shuffle_sync(w.end, LANES - 1), following)

    def mark_ends(self, c: Work, first, end, begin, inside) -> None:
        """Mark the ends ``inside`` the tile from ``first`` on."""
        place = end - 1 - first
        put_if(inside & (end > begin) & (place >= 0), Uint8, c.stage.marks + place, Uint8(1))

    @cute.jit
    def mark(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile from ``first`` on: the window behind them, and how many there are."""
        inside = (c.lane >= w.used) & (w.end <= first + self.runs.tile)
        self.mark_ends(c, first, w.end, w.begin, inside)
        count = Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
        w = w._replace(used=w.used + count)
        if w.used == LANES:
            w = self.next(c, w)
            inside = w.end <= first + self.runs.tile
            self.mark_ends(c, first, w.end, w.begin, inside)
            found = Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
            count += found
            w = w._replace(used=found)
            if found == LANES:
                w, found = self.mark_more(c, w, first)
                count += found
        return w, count

    def groups(self, c: Work, at, before) -> list:
        """``(end, begin)`` of some groups of ends, from number ``at`` on; ``before`` is the end before."""
        loaded, pairs = [self.load(c, at + (g * LANES + c.lane)) for g in range(GROUPS)], []
        for g, found in enumerate(loaded):
            end = self.place(c, at + (g * LANES + c.lane), found)
            pairs.append((end, self.begins(c, end, before)))
            before = cute.arch.shuffle_sync(end, LANES - 1)
        return pairs

    @cute.jit
    def mark_more(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile behind a window."""
        at, before, found = w.first + LANES, Int32(cute.arch.shuffle_sync(w.end, LANES - 1)), Int32(GROUPS * LANES)
        while found == GROUPS * LANES:
            found, last = Int32(0), before
            for end, begin in self.groups(c, at, before):
                inside = end <= first + self.runs.tile
                self.mark_ends(c, first, end, begin, inside)
                found += Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
                last = cutlass.max(last, choose(inside, end, Int32(0)))
            before = Int32(cute.arch.warp_redux_sync(last, "max"))
            at += found
        count = at - (w.first + LANES)
        own, following = self.load(c, at + c.lane), self.load(c, at + (LANES + c.lane))
        return self.window(c, at, own, before, following), count

    @cute.jit
    def emit(self, c: cutlass.Constexpr, w: Window, stop, first):
        """Store the results of the segments that end in the tile from ``first`` on; ``w`` is the window before it, and
        ``stop`` the number of the first end behind the tile. The state of the chunk's first segment is kept."""
        self.emit_ends(c, first, w.first + c.lane, w.end, w.begin, (c.lane >= w.used) & (w.first + c.lane < stop))
        if w.first + LANES < stop:
            k, end = w.first + (LANES + c.lane), self.place(c, w.first + (LANES + c.lane), w.following)
            before = Int32(cute.arch.shuffle_sync(w.end, LANES - 1))
            self.emit_ends(c, first, k, end, self.begins(c, end, before), k < stop)
            at, before = w.first + 2 * LANES, Int32(cute.arch.shuffle_sync(end, LANES - 1))
            while at < stop:
                last = before
                for g, (end, begin) in enumerate(self.groups(c, at, before)):
                    k = at + (g * LANES + c.lane)
                    self.emit_ends(c, first, k, end, begin, k < stop)
                    last = Int32(cute.arch.shuffle_sync(end, LANES - 1))
                before = last
                at += GROUPS * LANES

    @cute.jit
    def emit_ends(self, c: cutlass.Constexpr, first, k, end, begin, inside):
        """Store the results of a lane's segment ``k``, if its end is ``inside`` the tile from ``first`` on."""
        if inside:
            state, valid = zeros(self.runs.types), (end > begin) & (end > first)
            if valid:
                state = self.runs.at(c.stage, end - 1 - first)
            if k == 0:
                self.keep(c, state, valid)
            else:
                self.store(c.a, c.chunk.segment + k, state, valid)

    def keep(self, c: Work, state: tuple, valid) -> None:
        c.keep(state, valid)

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
