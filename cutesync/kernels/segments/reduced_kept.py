"""The ends of a chunk whose tiles are long (``reduced_ring``). Device code; all 32 lanes call.

As ``reduced_window``, but what is loaded of a tile's ends behind two windows is kept in shared memory, two bytes an
end, until results are stored: a load takes long where many bytes of elements are on their way. So each end is loaded
once, and as many together as fit into registers, once a tile is known to have many.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint16

from ...monoid import choose
from ...warp import LANES
from ..select.chunk import cells, put
from .reduced_window import GROUPS, Window, Windows

MANY = 3 * GROUPS  # groups that are loaded together behind those first
ASKED = 23 * LANES  # ends ahead of those that are marked, that the L2 is asked for


class KeptWindows(Windows):
    """The windows of chunks. Lane ``k % 32`` keeps the place of end ``k`` of a tile."""

    @cute.jit
    def mark_more(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile behind a window, and keep them."""
        at, before = w.first + LANES, Int32(cute.arch.shuffle_sync(w.end, LANES - 1))
        found, before = self.mark_groups(c, (w.first + LANES, first), at, before, GROUPS)
        at += found
        if found == GROUPS * LANES:
            found = Int32(MANY * LANES)
            while found == MANY * LANES:
                found, before = self.mark_groups(c, (w.first + LANES, first), at, before, MANY)
                at += found
        own, following = self.load(c, at + c.lane), self.load(c, at + (LANES + c.lane))
        return self.window(c, at, own, before, following), at - (w.first + LANES)

    @cute.jit
    def mark_groups(self, c: cutlass.Constexpr, start: tuple, at, before, groups: cutlass.Constexpr):
        """Mark as many groups of ends from number ``at`` on: how many lie in the tile, and the last one of these;
        ``before`` is the end before. ``start``: the number of the first end that is kept, and where the tile begins."""
        kept, first = start
        self.ask(c, at + ASKED, groups * LANES)
        most, found, last = c.chunk.ends - 1, Int32(0), before
        loaded = [self.raw(c, cutlass.min(at + (g * LANES + c.lane), most)) for g in range(groups)]
        for g, raw in enumerate(loaded):
            k = at + (g * LANES + c.lane)
            end = self.place(c, k, raw)
            begin = self.begins(c, end, before)
            inside = end <= first + self.runs.tile
            self.mark_ends(c, first, end, begin, inside)
            self.keep_end(c, k - kept, end - first, inside)
            found += Int32(cute.arch.popc(cute.arch.vote_ballot_sync(inside)))
            last = cutlass.max(last, choose(inside, end, Int32(0)))
            before = cute.arch.shuffle_sync(end, LANES - 1)
        return found, Int32(cute.arch.warp_redux_sync(last, "max"))

    @cute.jit
    def keep_end(self, c: cutlass.Constexpr, k, end, inside):
        """Keep end number ``k`` of those that are kept, counted from the tile, if there is room."""
        if inside & (k < self.runs.tile):
            put(Uint16, c.stage.kept + k * 2, Uint16(cutlass.max(end, Int32(0))))

    @cute.jit
    def emit_rest(self, c: cutlass.Constexpr, at, stop, first, before):
        """Store the results of segments that end in the tile from ``first`` on, from number ``at`` to ``stop``: of
        those whose ends are kept, then of others; ``before`` is the end before."""
        start, before = at, cutlass.max(before - first, Int32(0))
        while (at < stop) & (at - start < self.runs.tile):
            places = [self.kept_end(c, start, at + (g * LANES + c.lane), stop) for g in range(GROUPS)]
            last = before
            for g, end in enumerate(places):
                k, begin = at + (g * LANES + c.lane), self.begins(c, end, last)
                self.emit_ends(c, first, k, end + first, begin + first, k < stop)
                last = Int32(cute.arch.shuffle_sync(end, LANES - 1))
            before = last
            at += GROUPS * LANES
        Windows.emit_rest(self, c, at, stop, first, before + first)

    @cute.jit
    def kept_end(self, c: cutlass.Constexpr, start, k, stop):
        """What is kept of end ``k``, if there is such a one before number ``stop``; ``start`` is the first one kept."""
        found = Int32(0)
        if k < stop:
            found = Int32(cells(Uint16, c.stage.kept + (k - start) * 2, 1)[0])
        return found
