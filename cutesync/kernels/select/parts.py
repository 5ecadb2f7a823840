"""The kernels of partitions in three parts. Device code.

    count    a warp counts how many positions of its chunk belong to each part
    move     it goes through the chunk again, and puts each element behind those of its part that come before it

The counts of a part lie side by side, one for each chunk, and those of the parts one behind the other. An exclusive
scan between the launches makes of each the place where the chunk's elements of the part begin. No warp waits for
another.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint32

from ...monoid import choose
from ...warp import LANES
from ..coordinates import element, store
from ..gather import At, Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .three import PARTS, CountPolicy, Parting
from .where import Where, below

UNROLL = 4  # rows whose elements are loaded together

# A launch's arguments: arrays of elements and of conditions, results, and where the results' counts are stored. Of
# ``chunks``, ``tallies`` has a number for each part. ``count`` positions exist.
Arguments = namedtuple("Arguments", "x masks out places counts tallies count chunks")


class Parts(PlainKernel):
    """What both kernels share: a warp and its chunk. A subclass defines ``visit``."""

    name = "partition3"
    visit: Any

    def __init__(self, parting: Parting, policy: CountPolicy) -> None:
        super().__init__(policy.warps * LANES)
        self.parting, self.warps, self.chunk = parting, policy.warps, policy.rows * LANES
        self.gather: Any = None if parting.strided is None else Gather(parting.strided.layout)
        self.conditions = [Where(one) for one in parting.conditions]

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        parting, sources = self.parting, len(self.parting.sources)
        x, masks, out = arrays[:sources], arrays[sources : sources + 2], arrays[sources + 2 : 2 * sources + 2]
        places, counts, n, tallies = arrays[2 * sources + 2 :]
        length, chunks, *rest = numbers
        steps, rest = rest[: sources + parting.indices + 1], rest[sources + parting.indices + 1 :]
        if self.gather is not None:
            rest = self.gather.bind(rest)
            x = tuple(At(self.gather, k, array) for k, array in enumerate(x))
            found = iter(range(sources, sources + 2))
            given = [one.kind != "callable" for one in parting.conditions]
            masks = tuple(At(self.gather, next(found), m) if there else m for m, there in zip(masks, given))
        for one in self.conditions:
            one.bind(rest)
        count = positions(length, n) if parting.counted else length
        outs = tuple(map(Stepped, out, steps))
        places, counts = Stepped(places, steps[-2]), Stepped(counts, steps[-1])
        return Arguments(x, masks, outs, places, counts, tallies, count, chunks)

    @cute.jit
    def body(self, a: Arguments):
        lane = cute.arch.lane_idx()
        chunk = Int64(cute.arch.block_idx()[0]) * self.warps + cute.arch.warp_idx()
        if chunk < a.chunks:
            self.visit(a, chunk, lane)

    def rows(self, a: Arguments, start, row, lane) -> list:
        """Of ``UNROLL`` rows: ``(position, exists, elements, parts)``; ``parts`` are the ballots of the first two."""
        places = [start + (row + u) * LANES + lane for u in range(UNROLL)]
        exist = [place < a.count for place in places]
        safe = [cutlass.min(place, a.count - 1) for place in places]
        elements = [[element(array + place) for array in a.x] for place in safe]
        found = []
        for place, exists, at, values in zip(places, exist, safe, elements):
            one, two = (self.holds(a, k, at, values) for k in range(2))
            first = Uint32(cute.arch.vote_ballot_sync(exists & one))
            second = Uint32(cute.arch.vote_ballot_sync(exists & two & cutlass.not_(one)))
            found.append((place, exists, values, (first, second)))
        return found

    def holds(self, a: Arguments, k: int, position, values) -> Boolean:
        """Whether a condition selects a position that has these elements."""
        kind = self.parting.conditions[k].kind
        if kind == "callable":
            return Boolean(self.conditions[k].holds(values, position))
        if kind == "mask":
            return Boolean(element(a.masks[k] + position) != 0)
        word = Uint32(element(a.masks[k] + position // LANES))
        return Boolean(((word >> Uint32(Int32(position % LANES))) & Uint32(1)) != Uint32(0))


class CountParts(Parts):
    """Count the positions of each part in each chunk."""

    @cute.jit
    def visit(self, a: Arguments, chunk, lane):
        start = chunk * self.chunk
        stop = Int32(cutlass.max(cutlass.min(a.count - start, Int64(self.chunk)), Int64(0)))
        first, second = Int32(0), Int32(0)
        for row in cutlass.range(0, (stop + LANES - 1) // LANES, UNROLL, unroll=1):
            for _, _, _, ballots in self.rows(a, start, row, lane):
                first += Int32(cute.arch.popc(Int32(ballots[0])))
                second += Int32(cute.arch.popc(Int32(ballots[1])))
        if lane < PARTS:
            own = choose(lane == 0, first, choose(lane == 1, second, stop - first - second))
            store(a.tallies + (lane * a.chunks + chunk), Int64(own))


class MoveParts(Parts):
    """Move the elements of each chunk to where its parts begin."""

    @cute.jit
    def visit(self, a: Arguments, chunk, lane):
        start = chunk * self.chunk
        stop = Int32(cutlass.max(cutlass.min(a.count - start, Int64(self.chunk)), Int64(0)))
        begins = [Int64(element(a.tallies + (k * a.chunks + chunk))) for k in range(PARTS)]
        if chunk == 0:
            self.report(a, lane)
        first, second, other = begins
        for row in cutlass.range(0, (stop + LANES - 1) // LANES, UNROLL, unroll=1):
            for position, exists, values, ballots in self.rows(a, start, row, lane):
                one, two = (((ballot >> Uint32(lane)) & Uint32(1)) != Uint32(0) for ballot in ballots)
                ranks = [Int32(cute.arch.popc(Int32(ballot & below(lane)))) for ballot in ballots]
                place = choose(
                    one, first + ranks[0], choose(two, second + ranks[1], other + lane - ranks[0] - ranks[1])
                )
                if exists:
                    self.put(a, place, position, values)
                counts = [Int32(cute.arch.popc(Int32(ballot))) for ballot in ballots]
                first, second = first + counts[0], second + counts[1]
                other = other + (LANES - counts[0] - counts[1])

    def put(self, a: Arguments, place, position, values) -> None:
        """Store the elements of a position, and its index."""
        for out, value in zip(a.out, values):
            store(out + place, value)
        if self.parting.indices:
            store(a.places + place, position)

    @cute.jit
    def report(self, a: Arguments, lane):
        """Store how long the parts are."""
        if lane < PARTS:
            begin = Int64(element(a.tallies + lane * a.chunks))
            end = a.count
            if lane < PARTS - 1:
                end = Int64(element(a.tallies + (lane + 1) * a.chunks))
            store(a.counts + lane, end - begin)
