"""The ends of a chunk, in order: a window of 32 of them, a lane each. Device code; all 32 lanes call.

A window stays while tiles go by, and the next one is loaded while it is there. So long segments cost nothing to look
for. If a tile has more ends than that, those behind are loaded in groups, several at once.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8

from ...monoid import choose
from ...sizes import ceil_div
from ...sync.overlap import LINE_BYTES, ask_for_line
from ...warp import LANES, select, zeros
from ..select.chunk import put_if
from .reduced_base import Work, clamped
from .reduced_run import TileRuns
from .spec import SegmentsSpec
from .states import SegmentStates

FAR = 0x7FFFFFFF  # where the ends of no segment lie
GROUPS = 4  # of 32 ends, that are loaded together
ASKED = 8 * LANES  # ends ahead of those that the L2 is asked for

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
        chunk = c.chunk
        low, high = chunk.origin + chunk.first, chunk.origin + chunk.stop
        return choose(k < chunk.ends, Int32(clamped(found, low, high) - chunk.origin), Int32(FAR))

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

    @cute.jit
    def mark_ends(self, c: cutlass.Constexpr, first, end, begin, inside):
        """Mark the ends ``inside`` the tile from ``first`` on, one by one."""
        place = end - 1 - first
        put_if(inside & (end > begin) & (place >= 0), Uint8, c.stage.marks + place, Uint8(1))

    @cute.jit
    def mark_runs(self, c: cutlass.Constexpr, first, end, begin, inside):
        """Mark the ends ``inside`` the tile from ``first`` on, in their runs. Return whether the lane's segment lies in
        one run, behind another end, which is marked."""
        place, live = end - 1 - first, inside & (end > begin)
        several = self.runs.same(begin - 1 - first, place)
        if live & cutlass.not_(several) & (place >= 0):
            self.runs.mark(c.stage, place)
        return live & several

    @cute.jit
    def mark(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile from ``first`` on, in their runs: the window behind them, how many there are, and
        whether runs have several, which ``mark_again`` marks."""
        inside = (c.lane >= w.used) & (w.end <= first + self.runs.tile)
        several = self.mark_runs(c, first, w.end, w.begin, inside)
        count = Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
        w = w._replace(used=w.used + count)
        if w.used == LANES:
            w = self.next(c, w)
            inside = w.end <= first + self.runs.tile
            several = several | self.mark_runs(c, first, w.end, w.begin, inside)
            found = Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
            count += found
            w = w._replace(used=found)
            if found == LANES:
                w, found = self.mark_more(c, w, first)
                count += found
                several = Boolean(True)
        return w, count, Int32(cute.arch.vote_any_sync(several))

    @cute.jit
    def mark_again(self, c: cutlass.Constexpr, w: Window, stop, first):
        """Mark the ends that ``mark`` has marked in their runs one by one; ``w`` is the window before the tile, and
        ``stop`` the number of the first end behind it."""
        self.mark_ends(c, first, w.end, w.begin, (c.lane >= w.used) & (w.first + c.lane < stop))
        if w.first + LANES < stop:
            at, end, begin = self.following(c, w)
            self.mark_ends(c, first, end, begin, at < stop)

    def following(self, c: Work, w: Window) -> tuple:
        """``(number, end, begin)`` of a lane's segment of the next window."""
        at, last = w.first + (LANES + c.lane), cute.arch.shuffle_sync(w.end, LANES - 1)
        end = self.place(c, at, w.following)
        return at, end, self.begins(c, end, last)

    def groups(self, c: Work, at, before) -> list:
        """``(end, begin)`` of some groups of ends, from number ``at`` on; ``before`` is the end before."""
        loaded, pairs = [self.load(c, at + (g * LANES + c.lane)) for g in range(GROUPS)], []
        for g, found in enumerate(loaded):
            end = self.place(c, at + (g * LANES + c.lane), found)
            pairs.append((end, self.begins(c, end, before)))
            before = cute.arch.shuffle_sync(end, LANES - 1)
        return pairs

    @cute.jit
    def ask(self, c: cutlass.Constexpr, k, most: cutlass.Constexpr):
        """Ask the L2 for ``most`` ends from number ``k`` on, a line a lane, or as many as there are lanes."""
        each = LINE_BYTES * 8 // c.a.offsets.dtype.width
        k += c.lane * each
        if (c.lane < ceil_div(most, each)) & (k < c.chunk.ends):
            ask_for_line(c.ends.start + (c.chunk.segment + k))

    @cute.jit
    def mark_more(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile behind a window."""
        self.ask(c, w.first + ASKED, LANES * LINE_BYTES)
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

    # States of segments: a lane keeps that of its segment of the window

    @cute.jit
    def take(self, c: cutlass.Constexpr, earlier: Window, w: Window, result: tuple, found: tuple, several, first):
        """``result``, with the states at the ends in the tile from ``first`` on: those that lanes have ``found``, or
        those in shared memory, if runs have ``several``. ``earlier`` is the window before the tile, and ``w`` the one
        behind it; results of windows that went by are stored."""
        inside = (c.lane >= earlier.used) & (earlier.end <= first + self.runs.tile)
        result = self.taken(c, (earlier.end, earlier.begin, inside), result, found, several, first)
        if w.first != earlier.first:
            self.emit(c, earlier, result, LANES)
            if w.first == earlier.first + LANES:
                result = self.taken(c, (w.end, w.begin, c.lane < w.used), result, found, several, first)
            else:
                self.emit_more(c, earlier, w.first, first)
        return result

    @cute.jit
    def taken(self, c: cutlass.Constexpr, segment: tuple, result: tuple, found: tuple, several, first):
        """The state at the end of a lane's segment ``(end, begin, inside)``, if it lies inside the tile; else
        ``result``."""
        end, begin, inside = segment
        place = end - 1 - first
        live, other = inside & (end > begin) & (place >= 0), self.runs.of_runs(found, place)
        if several == 0:
            result = select(live, other, result)
        elif live:
            result = self.runs.at(c.stage, place)
        return result

    @cute.jit
    def emit(self, c: cutlass.Constexpr, w: Window, result: tuple, count):
        """Store the results of the first ``count`` segments of a window. That of the chunk's first one is kept."""
        if c.lane < count:
            k, valid = w.first + c.lane, w.end > w.begin
            if k == 0:
                self.keep(c, result, valid)
            else:
                self.store(c.a, c.chunk.segment + k, result, valid)

    def keep(self, c: Work, state: tuple, valid) -> None:
        c.keep(state, valid)

    @cute.jit
    def emit_more(self, c: cutlass.Constexpr, w: Window, stop, first):
        """Store the results of segments that end in the tile from ``first`` on: of those behind window ``w``, and the
        one behind that, up to number ``stop``."""
        k, end, begin = self.following(c, w)
        self.emit_ends(c, first, k, end, begin, k < stop)
        self.emit_rest(c, w.first + 2 * LANES, stop, first, Int32(cute.arch.shuffle_sync(end, LANES - 1)))

    @cute.jit
    def emit_rest(self, c: cutlass.Constexpr, at, stop, first, before):
        """The same from number ``at`` on, whose ends are loaded again; ``before`` is the end before."""
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
        """Store the result of a lane's segment ``k``, if its end is ``inside`` the tile from ``first`` on."""
        if inside:
            state, valid = zeros(self.runs.types), (end > begin) & (end > first)
            if valid:
                state = self.runs.at(c.stage, end - 1 - first)
            self.store(c.a, c.chunk.segment + k, state, valid)

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
