"""Which sizes a reduction of segments that offsets give has: a pure function of lengths and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES
from ..policy import Policy
from .policy import SHARED_BYTES

RUN_BYTES = 64  # of consecutive memory that a lane reads at once: 128 take 1.15 of the time, 32 take 1.05 (H100)
RUNS = (32, 16, 8, 4)  # powers of two; the ends in a run are the bits of a word
MAX_RUN_WORDS = 32  # registers of the elements of a run, of which a lane holds one and waits for the next
MIN_TILES = 8  # of a chunk, where a warp has several
# Members of the merged list that an end counts as. It costs more than an element: 2**22 segments of one element and a
# giant take 1105 us where it counts as 1, 700 as 4, 558 as 8 (H100, 2**28 float32, one chunk a warp).
END = 8
# A lane's registers follow from the threads of a multiprocessor: 64, 128 or 255 by the words of a state and a position.
WARPS = ((4, 16, 2), (10, 8, 2), (1 << 10, 8, 1))


@dataclass(frozen=True)
class ReducedPolicy(Policy, kernel=".reduced:SegmentReduction"):
    """Blocks of ``warps`` warps, of which ``blocks_per_sm`` fit on a multiprocessor. Each has at most ``rounds`` chunks
    for each warp. A warp goes through a chunk in tiles, of which each lane has ``run`` neighbouring elements.
    ``dealt``: parts of the list that are neighbours lie in blocks far apart."""

    run: int
    warps: int
    blocks_per_sm: int
    rounds: int = 8
    dealt: ClassVar[bool] = False

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return LANES * self.run

    @property
    def end(self) -> int:
        """Members of the merged list that an end counts as."""
        return END

    def members(self, length: int, segments: int) -> int:
        """How many members the merged list of so many elements and segments has."""
        return length + self.end * segments

    def bytes(self, states: tuple[int, ...], gathered: tuple[int, ...]) -> int:
        """Upper bound of the shared memory of a block. A state has numbers of ``states`` bytes; elements of
        ``gathered`` bytes are gathered there."""
        warp = self.tile * (sum(states) + 1 + sum(gathered)) + LANES * (VECTOR_BYTES * len(states) + 4)
        left = self.warps * self.rounds * (2 * sum(states) + 36) + self.warps * (sum(states) + 8) + 16
        return self.warps * warp + left + 16 * (5 * len(states) + 13)


@dataclass(frozen=True)
class RingPolicy(ReducedPolicy, kernel=".reduced_ring:RingReduction"):
    """The same where each warp has one chunk (``rounds`` is 1) and a ring of ``stages`` tiles in shared memory. Runs
    are a multiple of four elements long, whose marks are a word."""

    stages: int = 2
    end: int = END
    dealt: ClassVar[bool] = True

    def bytes(self, states: tuple[int, ...], gathered: tuple[int, ...]) -> int:
        """Upper bound of the shared memory of a block. States take the place of elements, which have their size."""
        warp = self.stages * (self.tile * states[0] + 8) + 3 * self.tile + LANES * 4
        left = self.warps * self.rounds * (2 * states[0] + 36) + self.warps * (states[0] + 8) + 16
        return self.warps * warp + left + LINE_BYTES + 16 * 18


# By the bytes of elements, with the mean length of segments from which on they are used, so that few runs have several
# ends: segments of 20 take 313 us by runs of 20, 334 by runs of 28 (328 without rings), those of 16 334 by runs of 12,
# 360 by runs of 20 (338 without rings); of 64, runs of 28 take 0.5 % less than those of 20. An end weighs more than
# without rings, as it waits longer where more bytes are on their way: 2**22 empty segments before a giant take 293 us
# where it counts as 12, 289 as 16, ones and a giant 290 and 286 (three stages, 12: 314, 295; H200, 2**28 float32).
# Random segments of 16 float64 take 331 us by runs of 12, 327 without rings. Segments of 10 take 429 us by runs of 12,
# 462 without rings, random ones of 8 496 and 504, but of 4 670 and 662.
RINGS = {
    4: ((20, RingPolicy(20, 16, 1, 1, 2, 16)), (8, RingPolicy(12, 24, 1, 1, 4, 12))),
    8: ((20, RingPolicy(20, 16, 1, 1, 2, 8)),),
}
# Block b has part b * DEALT % blocks of the merged list; a prime above any number of blocks. With one of 132 blocks,
# parts that are neighbours lie in blocks 5 apart. Some groups of multiprocessors had sparse parts alone, and others the
# dense ones: 2**22 segments of one element and a giant take 298 us in order and 285 dealt, a giant first 301 and 285,
# ones between two giants 293 and 283, all else +-1 % (H200, 2**28 float32).
DEALT = 317


def ring(
    sources: tuple[int, ...], states: tuple[int, ...], strided: bool, length: int, segments: int
) -> RingPolicy | None:
    """Return the policy of one array whose tiles bulk copies bring, if they can."""
    if strided or len(sources) > 1 or sources != states or sources[0] not in RINGS:
        return None
    return next((policy for least, policy in RINGS[sources[0]] if length >= least * segments), None)


def choose(
    sources: tuple[int, ...], states: tuple[int, ...], strided: bool, length: int = 0, segments: int = 0
) -> ReducedPolicy:
    """Return the policy of a call whose elements have ``sources`` bytes at a position, and whose states have numbers of
    ``states`` bytes, of arrays of ``length`` with so many ``segments``."""
    rings = ring(sources, states, strided, length, segments)
    if rings is not None:
        return rings
    words = sum(max(size, 4) for size in sources) // 4 + sum(states) // 4
    run = next((run for run in RUNS if run * max(sources) <= RUN_BYTES and run * sum(sources) // 4 <= MAX_RUN_WORDS), 4)
    warps, blocks = next((warps, blocks) for most, warps, blocks in WARPS if words <= most)
    gathered = sources if strided else ()
    policies = [ReducedPolicy(r, w, b) for r in RUNS if r <= run for w, b in ((warps, blocks), (8, 1), (4, 1))]
    for policy in policies:
        if policy.bytes(states, gathered) * policy.blocks_per_sm <= SHARED_BYTES:
            return policy
    raise ArgumentValueError(explain("x", f"{sum(sources)} bytes at each position", "fewer, or smaller states"))


def blocks(policy: ReducedPolicy, members: int) -> tuple[int, int]:
    """Return the number of blocks for so many members of the merged list, and the chunks of each of their warps. There
    is a thread for each block, and in a block one for each chunk, to combine what they have of segments that cross
    them."""
    most, tiles = min(SMS * policy.blocks_per_sm, policy.warps * LANES), ceil_div(members, policy.tile)
    grid = min(most, max(1, ceil_div(tiles, policy.warps)))
    return grid, min(policy.rounds, LANES, max(1, tiles // (grid * policy.warps * MIN_TILES)))
