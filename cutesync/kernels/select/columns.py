"""Selections of arrays whose elements are neighbours in memory along the last axis but one, as in transposed arrays.

The positions along the last axis are a column. A tile has 32 neighbouring columns, a chunk of each, so warps read whole
lines. Chunks of a tile lie far apart in the result, and one that comes before another may be read after it. So it takes
two passes:

    ``ColumnCounts``   how many elements of each chunk are selected
    (a scan of these)
    ``ColumnSelect``   selects, where the number of elements before each chunk is known

``starts`` has a number for each chunk, in the order of positions. The mask, or the elements if a callable selects, are
read twice.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8

from ...dtypes import DType
from ...monoid import choose
from ...sync.tiles import DONE
from ...warp import LANES
from ..coordinates import element
from ..gather import WORDS
from .base import Arguments, SelectKernel
from .chunk import cells, nears_of, put
from .pipeline import PipelineSelect
from .policy import ColumnCountPolicy
from .spec import Selection
from .store import Part, put_long
from .tally import count_of

BANK_BYTES = 4
UNROLL = 8  # positions of a column that a lane reads together


class Columns:
    """The columns of strided arrays, and how tiles of ``chunk`` positions of 32 of them are numbered: first along the
    columns, then along positions, then along all other axes."""

    def __init__(self, a: Arguments, gather, chunk: int) -> None:
        (axes,) = gather.axes
        self.gather, self.chunk = gather, chunk
        self.across, self.down = axes.axes[-2][0], axes.axes[-1][0]
        self.steps = axes.steps
        self.groups = (Int32(self.across) + (LANES - 1)) // LANES
        self.parts = (Int32(self.down) + (chunk - 1)) // chunk  # of a column
        self.outer = axes.size // (self.across * self.down)
        self.tiles = self.outer * self.groups * self.parts
        self.count = a.count

    def place(self, tile) -> tuple:
        """``(first, part, there)`` of a tile: its first column, of all, the number of its chunks in their columns, and
        how many columns it has."""
        rest, group = tile // self.groups, tile % self.groups
        first = (rest // self.parts) * Int32(self.across) + group * LANES
        return first, rest % self.parts, cutlass.min(Int32(self.across) - group * LANES, LANES)

    def extent(self, column, part) -> tuple:
        """Where a chunk begins and where its positions stop."""
        begin, end = Int64(column) * self.down, Int64(column + 1) * self.down
        return begin + part * self.chunk, cutlass.min(end, self.count)

    def bases(self, arrays: tuple, column, part) -> tuple:
        """The addresses of the first elements of a chunk, and how many of its elements there are. A chunk that has none
        gets addresses of elements that exist."""
        first, end = self.extent(column, part)
        there = cutlass.min(cutlass.max(end - first, Int64(0)), Int64(self.chunk))
        offsets = self.gather.offsets(cutlass.min(first, cutlass.max(self.count - 1, Int64(0))))
        sizes = [array.dtype.width // 8 for array in arrays]
        return [array.toint() + offsets[k] * n for k, (array, n) in enumerate(zip(arrays, sizes))], Int32(there)


class ColumnCounts(SelectKernel):
    """The kernel that counts: a warp for each tile, a lane for each of its chunks."""

    def __init__(self, selection: Selection, policy: ColumnCountPolicy) -> None:
        super().__init__(selection, policy.warps * LANES, 0)
        self.policy = policy

    @cute.jit
    def body(self, a: Arguments):
        tile = Int32(cute.arch.block_idx()[0]) * self.policy.warps + cute.arch.thread_idx()[0] // LANES
        if tile < self.columns(a).tiles:
            self.count_tile(a, tile, cute.arch.lane_idx())

    def columns(self, a: Arguments) -> Columns:
        return Columns(a, self.gather, self.policy.chunk)

    @cute.jit
    def count_tile(self, a: Arguments, tile, lane):
        first, part, there = self.columns(a).place(tile)
        column = first + cutlass.min(lane, there - 1)
        place, count = Int64(column) * self.columns(a).parts + part, self.count(a, self.columns(a), column, part)
        if lane < there:
            put_long(a.starts, place, Int64(count))

    @cute.jit
    def count(self, a: Arguments, columns: cutlass.Constexpr, column, part):
        """How many elements of a chunk are selected."""
        bases, there = columns.bases(self.arrays(a), column, part)
        first, _ = columns.extent(column, part)
        found = Int32(0)
        for start in cutlass.range(0, there, UNROLL, unroll=1):
            places = [start + u for u in range(UNROLL)]
            loaded = [self.load(columns, bases, cutlass.min(place, there - 1)) for place in places]
            for place, values in zip(places, loaded):
                found = found + Int32(self.selects(values, first + place) & (place < there))
        return found

    def load(self, columns: Columns, bases: list, place) -> list:
        """The byte of the mask at a place of a chunk, or its elements."""
        kinds, steps = [t.cutlass for t in self.selection.sources], columns.steps
        if self.selection.kind == "mask":
            kinds, steps, bases = [Uint8], steps[-1:], bases[-1:]
        addresses = [base + Int64(place) * step * (t.width // 8) for t, base, step in zip(kinds, bases, steps)]
        return [cells(t, address, 1, cute.AddressSpace.gmem)[0] for t, address in zip(kinds, addresses)]

    def selects(self, values: list, position) -> Any:
        """Whether a position is selected of which ``load`` returned this."""
        return values[0] != Uint8(0) if self.selection.kind == "mask" else self.where.holds(values, position)


class ColumnSelect(PipelineSelect):
    """The kernel that selects: as ``pipeline``, with nothing to look ahead for."""

    looks_ahead = False

    def columns(self, a: Arguments) -> Columns:
        return Columns(a, self.gather, self.chunk)

    def tiles(self, a: Arguments):
        return self.columns(a).tiles

    def padding(self, dtype: DType) -> int:
        """Neighbouring columns begin on different banks."""
        return max(1, BANK_BYTES // dtype.size)

    def existing(self, a: Arguments, number):
        return self.columns(a).place(number)[2]

    def extent(self, a: Arguments, number, chunk) -> tuple:
        columns = self.columns(a)
        first, part, _ = columns.place(number)
        return columns.extent(first + chunk, part)

    @cute.jit
    def bring_strided(self, shared: cutlass.Constexpr, a: Arguments, team, warp):
        """A team's warp: its share of each tile of the team."""
        at = shared.tiles.first(team)
        while at.number != DONE:
            self.bring_tile(shared, a, at, warp, cute.arch.lane_idx())
            shared.gathered[at.stage].arrive_once()
            at = shared.tiles.next(at, self.teams)

    def bring_tile(self, shared, a: Arguments, at, warp, lane) -> None:
        columns = self.columns(a)
        first, part, there = columns.place(at.number)
        bases, stop = columns.bases(self.arrays(a), first + cutlass.min(lane, there - 1), part)
        begins = self.begins(shared, self.arrays(a), at.stage, lane)
        self.bring_column(columns, bases, begins, choose(lane < there, stop, Int32(0)), warp)

    @cute.jit
    def bring_column(self, columns: cutlass.Constexpr, bases: list, begins: tuple, stop, warp):
        """Bring a part of the ``stop`` elements of a chunk to shared memory, and zeros for those that there are not."""
        kinds = [WORDS[buffer.dtype.size] for buffer in self.buffers]
        for start in cutlass.range(warp * UNROLL, self.chunk, self.policy.gather_warps * UNROLL, unroll=1):
            places = [start + u for u in range(UNROLL)]
            loaded = [
                self.words_at(columns, kinds, bases, cutlass.max(cutlass.min(place, stop - 1), 0)) for place in places
            ]
            for place, words in zip(places, loaded):
                for kind, begin, word in zip(kinds, begins, words):
                    put(kind, begin + place * (kind.width // 8), choose(place < stop, word, kind(0)))

    def words_at(self, columns: Columns, kinds: list, bases: list, place) -> list:
        """The elements at a place of a chunk, of all arrays."""
        sizes = [kind.width // 8 for kind in kinds]
        addresses = [base + Int64(place) * step * n for base, step, n in zip(bases, columns.steps, sizes)]
        return [kind(cells(kind, at, 1, cute.AddressSpace.gmem)[0]) for kind, at in zip(kinds, addresses)]

    def publish_tile(self, shared, a: Arguments, at, team, lane) -> None:
        """The chunks' places in the results are known: there is nothing to publish."""

    def total(self, shared, a: Arguments, stage):
        columns = self.columns(a)
        return Int64(element(a.starts + (Int64(columns.across) * columns.outer * columns.parts - 1)))

    @cute.jit
    def store_tile(self, shared: cutlass.Constexpr, a: Arguments, at, warp, lane):
        if cutlass.const_expr(not self.selection.rejects):
            if (at.number == 0) & (warp == 0) & (lane == 0):
                put_long(a.found, 0, self.total(shared, a, at.stage))
        for chunk in cutlass.range(warp, self.existing(a, at.number), self.policy.store_warps, unroll=1):
            self.store_column(shared, a, at, chunk, lane)

    def store_column(self, shared, a: Arguments, at, chunk, lane) -> None:
        columns = self.columns(a)
        first, part, _ = columns.place(at.number)
        column, count = first + chunk, count_of(shared.tallies[at.stage * self.chunks + chunk])
        before = Int64(element(a.starts + (Int64(column) * columns.parts + part))) - count
        room = Int32(cutlass.max(cutlass.min(a.capacity - before, Int64(self.chunk)), Int64(0)))
        extent, places = columns.extent(column, part), self.places_of(shared, at.stage, chunk)
        nears = nears_of(shared.nears[at.stage * self.chunks + chunk], self.chunk)
        here = Part(before, count, room, cutlass.min(room, count), nears, *extent, *places)
        self.store_chunk(a, here, self.begins(shared, a.x, at.stage, chunk), Int64(0), lane)
