"""Which sizes a call by segments has: a pure function of lengths, types and alignment, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
LANES = 32
VECTOR_BYTES = 16
SHARED_BYTES = 226 << 10
# More bytes in flight are faster (H200, the same: 8 tiles of 2304 positions 1123 us, 12 of them 865).
STAGES, MIN_STAGES = 12, 4
# Multiples of four elements are read in vectors, and odd multiples of these by different banks; the others leave room
# for more stages. The bits of a run are one word.
RUNS = (28, 24, 20, 18, 17, 16, 12, 10, 8, 6, 4)
# Warps that look ahead read the states of all tiles: more of them slow each other (H200, ``segmented_scan`` of 2**28
# float32 in segments of 10**6, two 620 us, four 730, six 850).
LOOK_AHEADS = 2
MAX_RUN_WORDS = 48  # registers of a lane's run


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sources`` bytes, of which ``held`` words are in a lane's registers, and
    states of ``words`` words of 32 bits. ``apart`` are the bytes that a position has in shared memory besides its
    elements. ``found``: the number of segments is. ``marked``: bits say where segments begin. ``strided``: elements are
    gathered."""

    length: int
    sources: tuple[int, ...]
    apart: tuple[int, ...]
    words: int
    found: bool = False
    marked: bool = False
    strided: bool = False


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:SegmentPipeline"):
    """Resident blocks with a ring of ``stages`` tiles: ``reduce_warps`` warps reduce each tile, and ``squads`` squads
    of ``warps`` warps emit it, a chunk each. A lane has ``run`` neighbouring positions of a chunk. ``look_aheads``
    warps, at least as many as squads, take tiles in turn to find what comes before them. The
    tiles of strided arrays are brought by ``gathers`` warps together."""

    reduce_warps: int
    squads: int
    warps: int
    run: int
    stages: int
    look_aheads: int = 4
    gathers: int = 0

    @property
    def chunk(self) -> int:
        """Positions of a chunk."""
        return LANES * self.run

    @property
    def tile(self) -> int:
        """Positions of a tile."""
        return self.chunk * self.warps

    def bytes(self, problem: Problem) -> int:
        """Upper bound of the shared memory."""
        held = sum(size * self.tile + 3 * VECTOR_BYTES for size in problem.sources)
        runs = self.warps * (4 if problem.found else LANES * 4 * problem.words)  # bits, and values before each lane
        partials = (self.warps + 1) * 4 * (problem.words + 1) + 88
        apart = (self.stages if problem.found else self.squads) * self.tile * sum(problem.apart)
        padding = 128 * (len(problem.sources) + 1) + 16 * (len(problem.apart) + 3 * (problem.words + 1))
        return self.stages * (held + runs + partials + 8 * (self.gathers > 0)) + apart + padding


@dataclass(frozen=True)
class MarkedPolicy(PipelinePolicy, kernel=".marked:MarkedPipeline"):
    """The same where bits say at which positions segments begin."""

    def bytes(self, problem: Problem) -> int:
        return super().bytes(problem) + self.stages * self.tile // 8 + VECTOR_BYTES


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` at most, ``shared`` bytes of shared memory."""

    policy: PipelinePolicy
    tiles: int
    grid: int
    shared: int


def _usual(policy: PipelinePolicy) -> PipelinePolicy:
    return policy


def _fewer(policy: PipelinePolicy) -> PipelinePolicy:
    return replace(policy, reduce_warps=4)


def _fewest(policy: PipelinePolicy) -> PipelinePolicy:
    return replace(policy, reduce_warps=4, squads=1, look_aheads=1)


def _gathered(policy: PipelinePolicy) -> PipelinePolicy:
    """Return the policy for strided arrays. Not measured on a GPU."""
    return replace(policy, reduce_warps=4, look_aheads=policy.squads, gathers=4 * policy.squads)


# By the words of a state: larger ones need the registers of a block of fewer warps.
WARPS = ((4, _usual), (8, _fewer), (1 << 10, _fewest))


def sized(problem: Problem, run: int) -> PipelinePolicy:
    """Return the policy of lanes that have ``run`` positions, with as many stages as there is shared memory for."""
    kind = MarkedPolicy if problem.marked else PipelinePolicy
    few = next(warps for words, warps in WARPS if problem.words <= words)
    policy = few(kind(reduce_warps=8, squads=2, warps=4, run=run, stages=STAGES, look_aheads=LOOK_AHEADS))
    policy = _gathered(policy) if problem.strided else policy
    while policy.bytes(problem) > SHARED_BYTES and policy.stages > MIN_STAGES:
        policy = replace(policy, stages=policy.stages - 2)
    return policy


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem: the most positions in the ring, in the largest tiles."""
    words = sum(max(size, 4) // 4 for size in problem.sources)
    policies = [sized(problem, run) for run in RUNS]
    fitting = [
        policy
        for policy in policies
        if ceil_div(problem.length, policy.tile) >= SMS  # a tile for each multiprocessor
        and policy.run * words <= MAX_RUN_WORDS
        and policy.bytes(problem) <= SHARED_BYTES
    ]
    policy = max(fitting or policies[-1:], key=lambda policy: (policy.stages * policy.tile, policy.tile))
    if policy.bytes(problem) > SHARED_BYTES:
        came = f"{sum(problem.sources) + sum(problem.apart)} bytes at each position"
        raise ArgumentValueError(explain("x", came, "fewer, or smaller states"))
    tiles = max(1, ceil_div(problem.length, policy.tile))
    return Choice(policy, tiles, min(SMS, tiles), policy.bytes(problem))
