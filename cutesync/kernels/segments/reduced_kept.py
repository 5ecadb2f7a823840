"""The ends of a chunk whose tiles are long (``reduced_ring``). Device code; all 32 lanes call.

As ``reduced_window``, but a load takes long where many bytes of elements are on their way. So what is loaded of a
tile's ends behind two windows is kept in shared memory, two bytes an end, until results are stored. When such a tile
has been marked, the warp asks for copies of the ends of the next one (``Kept.copies``), in shared memory as well: those
from number ``begin`` up to ``stop``, both of which each lane has there. What is not copied is loaded, as many ends
together as fit into registers. Nobody but the warp reads what it copies: it waits for its copies, and meets.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint16
from cutlass.experimental import primitives

from ...monoid import choose
from ...warp import LANES
from ..select.chunk import cells, put
from .reduced_base import Work
from .reduced_run import TileRuns
from .reduced_window import GROUPS, Window, Windows
from .spec import SegmentsSpec
from .states import SegmentStates

MANY = 3 * GROUPS  # groups that are loaded together behind those first
ASKED = 23 * LANES  # ends ahead of those that are marked, that the L2 is asked for
FEW = 2 * GROUPS  # groups of which there are copies, unless a tile has about as many ends as there may be copies

# The addresses of what a warp keeps of ends, of copies, and of a lane's two numbers.
Kept = namedtuple("Kept", "places copies numbers")


class KeptWindows(Windows):
    """The windows of chunks, with copies of at most ``copied`` groups of ends."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, runs: TileRuns, copied: int) -> None:
        super().__init__(spec, states, runs)
        kind = spec.heads.offsets.cutlass if spec.heads.offsets else Int64
        self.kind, self.copied = kind, copied if kind.width >= 32 else 0  # cp.async copies 4 bytes at least

    def begin(self, c: Work) -> Window:
        if self.copied:
            self.numbers(c)[0], self.numbers(c)[1] = Int32(0), Int32(0)  # there are no copies
        return super().begin(c)

    def numbers(self, c: Work) -> Any:
        """A lane's ``begin`` and ``stop``."""
        return cells(Int32, c.stage.kept.numbers + c.lane * 8, 2)

    def copy_of(self, c: Work, k) -> Any:
        """The address of the copy number ``k``."""
        return c.stage.kept.copies + k * (self.kind.width // 8)

    @cute.jit
    def mark_more(self, c: cutlass.Constexpr, w: Window, first):
        """Mark the ends in the tile behind a window, and keep them."""
        start, before = w.first + LANES, Int32(cute.arch.shuffle_sync(w.end, LANES - 1))
        at, found, begin, stop = start, Int32(GROUPS * LANES), Int32(0), Int32(0)
        if cutlass.const_expr(self.copied > 0):
            begin, stop = self.there(c, start)
            while (found == GROUPS * LANES) & (at + GROUPS * LANES <= stop):
                loaded = [self.copied_end(c, at - begin + (g * LANES + c.lane)) for g in range(GROUPS)]
                found, before = self.mark_groups(c, (start, first), at, before, loaded)
                at += found
        if (found == GROUPS * LANES) & (at == start):
            found, before = self.mark_groups(c, (start, first), at, before, self.loaded(c, at, GROUPS))
            at += found
        if found == GROUPS * LANES:
            found = Int32(MANY * LANES)
            while found == MANY * LANES:
                found, before = self.mark_groups(c, (start, first), at, before, self.loaded(c, at, MANY))
                at += found
        own, following = Int64(0), Int64(0)
        if at + 2 * LANES <= stop:
            own, following = (self.copied_end(c, at - begin + (g * LANES + c.lane)) for g in range(2))
        else:
            own, following = self.load(c, at + c.lane), self.load(c, at + (LANES + c.lane))
        if cutlass.const_expr(self.copied > 0):
            if at + 2 * LANES < c.chunk.ends:
                self.copy(c, at + 2 * LANES, at - start)
        return self.window(c, at, own, before, following), at - start

    def loaded(self, c: Work, at, groups: int) -> list:
        """Groups of ends from number ``at`` on, as they are in memory."""
        self.ask(c, at + ASKED, groups * LANES)
        return [self.raw(c, cutlass.min(at + (g * LANES + c.lane), c.chunk.ends - 1)) for g in range(groups)]

    # Copies

    @cute.jit
    def there(self, c: cutlass.Constexpr, start):
        """Wait for the copies that were asked for. Return the number of the first one, and where they stop: at
        ``start``, if they begin behind that or end before."""
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_warp()
        begin, stop = self.numbers(c)[0], self.numbers(c)[1]
        stop = choose((begin <= start) & (start < stop), stop, start)
        return begin, stop

    def copied_end(self, c: Work, k) -> Int64:
        return Int64(cells(self.kind, self.copy_of(c, k), 1)[0])

    @cute.jit
    def copy(self, c: cutlass.Constexpr, begin, count):
        """Ask for copies of the ends from number ``begin`` on: for all there may be after a tile with about as many."""
        cute.arch.sync_warp()  # the copies of before have been read
        groups = choose(count >= self.copied * (LANES // 2), Int32(self.copied), Int32(min(FEW, self.copied)))
        self.numbers(c)[0], self.numbers(c)[1] = begin, begin + groups * LANES
        for g in cutlass.range(0, groups, GROUPS, unroll=1):
            for i in cutlass.range_constexpr(GROUPS):
                k = (g + i) * LANES + c.lane
                source = self.address(c, cutlass.min(begin + k, c.chunk.ends - 1))
                target = cute.make_ptr(
                    self.kind, self.copy_of(c, k), cute.AddressSpace.smem, assumed_align=self.kind.width // 8
                )
                primitives.cp_async_shared_global(target, source, self.kind.width // 8, "ca")
        cute.arch.cp_async_commit_group()
        self.ask(c, begin + ASKED, self.copied * LANES)

    def address(self, c: Work, k) -> Any:
        """Where end ``k`` is."""
        return c.ends.start + (c.chunk.segment + k + (0 if c.ends.form else 1))

    # Marks

    @cute.jit
    def mark_groups(self, c: cutlass.Constexpr, start: tuple, at, before, loaded: cutlass.Constexpr):
        """Mark the groups of ends that are ``loaded``, from number ``at`` on: how many lie in the tile, and the last
        one of these; ``before`` is the end before. ``start``: the number of the first end that is kept, and where the
        tile begins."""
        kept, first = start
        found, last = Int32(0), before
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
            put(Uint16, c.stage.kept.places + k * 2, Uint16(cutlass.max(end, Int32(0))))

    # Results

    @cute.jit
    def emit_more(self, c: cutlass.Constexpr, w: Window, stop, first):
        """Store the results of segments that end in the tile from ``first`` on: of those behind window ``w``, and the
        one behind that, up to number ``stop``."""
        k, end, begin = self.following(c, w)
        self.emit_ends(c, first, k, end, begin, k < stop)
        start, before = w.first + 2 * LANES, Int32(cute.arch.shuffle_sync(end, LANES - 1))
        before, at = cutlass.max(before - first, Int32(0)), start
        while (at < stop) & (at - start < self.runs.tile):
            places = [self.kept_end(c, start, at + (g * LANES + c.lane), stop) for g in range(GROUPS)]
            last = before
            for g, end in enumerate(places):
                k, begin = at + (g * LANES + c.lane), self.begins(c, end, last)
                self.emit_ends(c, first, k, end + first, begin + first, k < stop)
                last = Int32(cute.arch.shuffle_sync(end, LANES - 1))
            before = last
            at += GROUPS * LANES
        self.emit_rest(c, at, stop, first, before + first)

    @cute.jit
    def kept_end(self, c: cutlass.Constexpr, start, k, stop):
        """What is kept of end ``k``, if there is such a one before number ``stop``; ``start`` is the first one kept."""
        found = Int32(0)
        if k < stop:
            found = Int32(cells(Uint16, c.stage.kept.places + (k - start) * 2, 1)[0])
        return found
