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
# A tile stays in the ring for some 8 us, so many small ones are better than few large ones (H200, 2**28 int32 keys and
# values, runs of 8: 8 tiles of 2688 positions 757 us, 4 of 4224 positions 1057 us).
STAGES, MIN_STAGES = 8, 4
RUNS = (65, 49, 33, 21, 15, 9, 5, 3)  # odd: lanes that read elements of their runs use different banks
MERGED_RUNS = (31, 21, 15, 9, 5, 3)  # the bits of a run are one word
MAX_RUN_WORDS = 160  # words of a lane's run: it is unrolled


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sources`` bytes, results of ``results`` bytes, and states of ``words``
    words of 32 bits. With ``offsets``, there are ``segments`` segments. ``results`` are then the bytes of what is put
    together in shared memory. ``strided``: elements are gathered."""

    length: int
    sources: tuple[int, ...]
    results: tuple[int, ...]
    words: int
    segments: int = 0
    offsets: bool = False
    strided: bool = False


@dataclass(frozen=True)
class PipelinePolicy(Policy, kernel=".pipeline:SegmentPipeline"):
    """Resident blocks with a ring of ``stages`` tiles: ``reduce_warps`` warps reduce each tile, and ``squads`` squads
    of ``warps`` warps emit it, a chunk each. A lane has ``run`` neighbouring positions of a chunk. ``look_aheads``
    warps, at least as many as squads, take tiles in turn to find what comes before them. Each of
    ``loaders`` warps loads a part of the tiles, for its own part of the other warps; the tiles of strided arrays are
    brought by ``gathers`` warps together."""

    reduce_warps: int
    squads: int
    warps: int
    run: int
    stages: int
    look_aheads: int = 4
    marks: int = 0
    loaders: int = 2
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
        partials = (self.warps * (LANES + 1) + 1) * 4 * (problem.words + 1) + 80
        staged = self.squads * self.warps * self.chunk * sum(problem.results)
        padding = 128 * (len(problem.sources) + 1) + 16 * (len(problem.results) + 3 * (problem.words + 1))
        return self.stages * (held + partials + 8 * (self.gathers > 0)) + staged + padding


@dataclass(frozen=True)
class MergedPolicy(PipelinePolicy, kernel=".merged:MergedPipeline"):
    """The same for tiles of the merged list of positions and ends; ``marks`` warps mark where segments begin."""

    marks: int = 2

    def bytes(self, problem: Problem) -> int:
        return super().bytes(problem) + self.stages * (4 * 8 + 4 * (self.tile // LANES + 2) + 8) + 64


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
    return replace(policy, reduce_warps=4, look_aheads=2, loaders=1)


def _fewest(policy: PipelinePolicy) -> PipelinePolicy:
    return replace(policy, reduce_warps=4, squads=1, look_aheads=1, loaders=1, marks=min(policy.marks, 1))


def _gathered(policy: PipelinePolicy) -> PipelinePolicy:
    """Return the policy for strided arrays. Not measured on a GPU."""
    return replace(policy, reduce_warps=4, look_aheads=policy.squads, loaders=1, gathers=4 * policy.squads)


# By the words of a state: larger ones need the registers of a block of fewer warps.
WARPS = ((4, _usual), (8, _fewer), (1 << 10, _fewest))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    words = sum(problem.sources) / 4 + problem.words
    members = problem.length + problem.segments
    kind, runs = (MergedPolicy, MERGED_RUNS) if problem.offsets else (PipelinePolicy, RUNS)
    few = next(warps for words, warps in WARPS if problem.words <= words)
    for run in runs:
        policy = few(kind(reduce_warps=8, squads=2, warps=4, run=run, stages=STAGES))
        if problem.strided:
            policy = _gathered(policy)
        many = ceil_div(members, policy.tile) >= SMS  # a tile for each multiprocessor
        if many and run * words <= MAX_RUN_WORDS and policy.bytes(problem) <= SHARED_BYTES:
            break
    if policy.bytes(problem) > SHARED_BYTES:
        policy = replace(policy, stages=MIN_STAGES)
    if policy.bytes(problem) > SHARED_BYTES:
        came = f"{sum(problem.sources) + sum(problem.results)} bytes at each position"
        raise ArgumentValueError(explain("x", came, "fewer, or smaller states"))
    tiles = max(1, ceil_div(members, policy.tile))
    return Choice(policy, tiles, min(SMS, tiles), policy.bytes(problem))
