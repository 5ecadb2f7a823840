"""Which sizes a reduction of segments that offsets give has: a pure function of lengths and types."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..policy import Policy
from .policy import LANES, SHARED_BYTES, SMS

RUN_BYTES = 64  # of consecutive memory that a lane reads at once: more spreads a warp over too many lines
RUNS = (32, 16, 8, 4)  # powers of two; the ends in a run are the bits of a word
MAX_RUN_WORDS = 32  # registers of the elements of a run, of which a lane holds one and waits for the next
MIN_TILES = 4  # of a warp
END = 4  # members of the merged list that an end counts as: it reads 8 bytes and writes a result
# Registers of a lane follow from the threads of a multiprocessor: 64, 128 or 255 by the words of a state and a position.
WARPS = ((4, 16, 2), (10, 8, 2), (1 << 10, 8, 1))


@dataclass(frozen=True)
class ReducedPolicy(Policy, kernel=".reduced:SegmentReduction"):
    """Blocks of ``warps`` warps, of which ``blocks_per_sm`` fit on a multiprocessor. A warp goes through its share of
    the elements in tiles, of which each lane has ``run`` neighbouring ones."""

    run: int
    warps: int
    blocks_per_sm: int

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return LANES * self.run

    def bytes(self, states: tuple[int, ...], gathered: tuple[int, ...]) -> int:
        """Upper bound of the shared memory of a block. A state has numbers of ``states`` bytes; elements of
        ``gathered`` bytes are gathered there."""
        warp = (self.tile + LANES) * sum(states) + self.tile * (1 + sum(gathered)) + 16 * (len(states) + 2)
        summary = self.warps * (2 * sum(states) + 12) + 16 * (2 * len(states) + 4)
        return self.warps * warp + 2 * summary + 64


def choose(sources: tuple[int, ...], states: tuple[int, ...], strided: bool) -> ReducedPolicy:
    """Return the policy of a call whose elements have ``sources`` bytes at a position, and whose states have numbers of
    ``states`` bytes."""
    words = sum(max(size, 4) for size in sources) // 4 + sum(states) // 4
    run = next((run for run in RUNS if run * max(sources) <= RUN_BYTES and run * sum(sources) // 4 <= MAX_RUN_WORDS), 4)
    warps, blocks = next((warps, blocks) for most, warps, blocks in WARPS if words <= most)
    gathered = sources if strided else ()
    policies = [ReducedPolicy(r, w, b) for r in RUNS if r <= run for w, b in ((warps, blocks), (8, 1), (4, 1))]
    for policy in policies:
        if policy.bytes(states, gathered) * policy.blocks_per_sm <= SHARED_BYTES:
            return policy
    raise ArgumentValueError(explain("x", f"{sum(sources)} bytes at each position", "fewer, or smaller states"))


def blocks(policy: ReducedPolicy, members: int) -> int:
    """Return the number of blocks for so many elements and ends together: a thread for each combines what they have of
    segments that cross them."""
    most = min(SMS * policy.blocks_per_sm, policy.warps * LANES)
    return min(most, max(1, ceil_div(members, policy.warps * policy.tile * MIN_TILES)))
