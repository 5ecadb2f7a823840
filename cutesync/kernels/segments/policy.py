"""Which sizes a call by segments has: a pure function of lengths, types and alignment, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import ArgumentValueError, explain
from ...sizes import ceil_div
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES
from ..policy import Policy

SHARED_BYTES = 226 << 10
# More bytes in flight are faster (H200, 8 tiles of 2304 positions 1123 us, 12 of them 865).
STAGES, MIN_STAGES = 12, 4  # of tiles of four chunks
# Multiples of four elements are read in vectors, and odd multiples of these by different banks; the others leave room
# for more stages. The bits of a run are one word.
RUNS = (28, 24, 20, 18, 17, 16, 12, 10, 8, 6, 4)
# The state before a tile takes a warp that looks ahead as long whatever the tile's size is, and a second such warp does
# not help: both read the states of all tiles. So long arrays have tiles of eight chunks, half as many stages, and one
# such warp (H200, 2**28, microseconds with tiles of four chunks and two such warps, of eight and two, of eight and one)
#   ``reduce_by_key`` of int32, runs of 8     733, 746, 670; of 10**6  684, 644, 588
#   ``scan_by_key`` of int32, runs of 8       861, 933, 812; of 10**6  858, 937, 813
#   ``segmented_scan`` of int32, runs of 64   617, 676, 597; of 10**6  587, 644, 566
# Of arrays of few tiles for each multiprocessor, smaller ones leave less of it idle (``scan_by_key`` of 2**21 int32 in
# a graph 16.2 us, with eight chunks 17.2).
CHUNKS, FEW_ROUNDS = 8, 8
# There, a run that is read in vectors without conflicts is as good as one that is a tenth longer (6 tiles of runs of 18
# positions, 5 of runs of 20: ``reduce_by_key`` as above 670, 662 and 588, 576; ``scan_by_key``, 6 tiles of runs of 17
# positions, 5 of runs of 20: 812, 802).
EVEN = 1.1
MAX_RUN_WORDS = 48  # registers of a lane's run


@dataclass(frozen=True)
class Problem:
    """``length`` positions with elements of ``sources`` bytes, of which ``held`` words are in a lane's registers, and
    states of ``words`` words of 32 bits. ``apart`` are the bytes that a position has in shared memory besides its
    elements. ``found``: the number of segments is. ``marked``: bits say where segments begin. ``strided``: elements are
    gathered. ``filled``: what lies behind the segments is written."""

    length: int
    sources: tuple[int, ...]
    apart: tuple[int, ...]
    words: int
    found: bool = False
    marked: bool = False
    strided: bool = False
    filled: bool = False


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
        held = sum(size * self.tile + 3 * LINE_BYTES for size in problem.sources)
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
class WavePolicy(PipelinePolicy, kernel=".wave:SegmentWave"):
    """A block for each tile of ``warps`` chunks, one a warp, which comes in ``parts`` of as many chunks. ``alone``:
    there is one tile. ``cluster``: the blocks of the launch, if they are one cluster."""

    alone: bool = False
    cluster: int = 1
    parts: int = 1

    def bytes(self, problem: Problem) -> int:
        told = self.cluster * 4 * (problem.words + 1) + 24 * (problem.words + 1)
        return super().bytes(problem) + told + 8 * self.parts


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` at most, ``shared`` bytes of shared memory."""

    policy: PipelinePolicy
    tiles: int
    grid: int
    shared: int


# Warps of a block, and stages of its ring: of tiles of eight chunks, and of four, which eight warps reduce, or four,
# with two squads or one.
EIGHT_CHUNKS = {"reduce_warps": CHUNKS, "squads": 1, "warps": CHUNKS, "stages": STAGES // 2, "look_aheads": 1}
FOUR_CHUNKS = {"reduce_warps": 8, "squads": 2, "warps": 4, "stages": STAGES, "look_aheads": 2}
FEW_REDUCERS = FOUR_CHUNKS | {"reduce_warps": 4}
ONE_SQUAD = FEW_REDUCERS | {"squads": 1, "look_aheads": 1}
# By the words of a state: larger ones need the registers of a block of fewer warps.
WARPS = ((4, EIGHT_CHUNKS), (8, FEW_REDUCERS), (1 << 10, ONE_SQUAD))
MAX_BYTES = 32  # of a position in shared memory, in tiles of eight chunks

# Short arrays have a block a tile. One block, or one cluster of blocks, has up to so many positions, in chunks of runs
# of some length (H200, ``reduce_by_key`` of 2**12 int32 in runs of 8 in a graph: 4 blocks 2.6 us, 2 of twice the size
# 2.8, one 3.0; of 2**13: 8 blocks 2.7 us, 4 of twice the size 2.95; of 2**14: 8 blocks 2.9 us, on their own 3.1).
WAVE_WARPS = 8
CLUSTERS = ((1 << 10, 1, 4), (1 << 11, 2, 4), (1 << 12, 4, 4), (1 << 13, 8, 4), (1 << 14, 8, 8))
# Blocks on their own: (warps, run), and how many tiles at most, the first that suffice (the same of 2**15: 3.2 us,
# with twice the warps 3.7, with the pipeline 4.5; of 2**16: 3.6, 4.2, 4.5; of 2**18: 4.8, 5.2, 6.2; of 2**20: 7.8 us,
# the pipeline 8.4; ``scan_by_key`` 9.1, 9.8; in runs of 20, 17 and 18 8.15, 7.8 and 7.7, by events 13.5 each).
WAVES = ((8, 4, 32), (8, 8, 32), (8, 12, 128), (16, 12, 128), (16, 17, 128), (16, 20, 128))
MAX_WAVE_WORDS = 4  # of a state
PARTS = 4  # of the tiles of 16 warps


def wave(problem: Problem) -> Choice | None:
    """Return the launch of a block for each tile, if the array is short enough for that."""
    if problem.strided or problem.marked or problem.filled or problem.words > MAX_WAVE_WORDS:
        return None
    found = [_wave(problem, WAVE_WARPS, run, blocks) for most, blocks, run in CLUSTERS if problem.length <= most]
    for warps, run, tiles in WAVES:
        if problem.length <= tiles * warps * run * LANES:
            found.append(_wave(problem, warps, run, 1))
    return next((choice for choice in found if _fits(choice.policy, problem)), None)


def _wave(problem: Problem, warps: int, run: int, cluster: int) -> Choice:
    """Return the launch of tiles of ``warps`` chunks."""
    tiles = max(cluster, ceil_div(problem.length, warps * run * LANES))
    parts = PARTS if warps == 2 * WAVE_WARPS and cluster == 1 < tiles else 1
    policy = WavePolicy(warps, 1, warps, run, 1, 1, alone=tiles == 1, cluster=cluster, parts=parts)
    return Choice(policy, tiles, tiles, policy.bytes(problem))


def _fits(policy: PipelinePolicy, problem: Problem) -> bool:
    """Whether there are registers and shared memory for a policy."""
    words = sum(max(size, 4) // 4 for size in problem.sources)
    return policy.run * words <= MAX_RUN_WORDS and policy.bytes(problem) <= SHARED_BYTES


def sized(problem: Problem, run: int, long: bool) -> PipelinePolicy:
    """Return the policy of lanes that have ``run`` positions, with as many stages as there is shared memory for."""
    kind = MarkedPolicy if problem.marked else PipelinePolicy
    sizes = next(sizes for words, sizes in WARPS if problem.words <= words)
    if sizes is EIGHT_CHUNKS and not (long and sum(problem.sources) + sum(problem.apart) <= MAX_BYTES):
        sizes = FOUR_CHUNKS
    if problem.strided:  # not measured on a GPU
        sizes = FEW_REDUCERS if sizes["reduce_warps"] > 4 else sizes
        sizes = sizes | {"look_aheads": sizes["squads"], "gathers": 4 * sizes["squads"]}
    policy = kind(run=run, **sizes)
    while policy.bytes(problem) > SHARED_BYTES and policy.stages > MIN_STAGES:
        policy = replace(policy, stages=policy.stages - policy.look_aheads)
    return policy


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    short = wave(problem)
    if short is not None:
        return short
    policy = _pipeline(problem, True)
    if ceil_div(problem.length, policy.tile) <= FEW_ROUNDS * SMS:
        policy = _pipeline(problem, False)
    if policy.bytes(problem) > SHARED_BYTES:
        came = f"{sum(problem.sources) + sum(problem.apart)} bytes at each position"
        raise ArgumentValueError(explain("x", came, "fewer, or smaller states"))
    tiles = max(1, ceil_div(problem.length, policy.tile))
    return Choice(policy, tiles, min(SMS, tiles), policy.bytes(problem))


def _pipeline(problem: Problem, long: bool) -> PipelinePolicy:
    """Return the policy with the most positions in the ring, in the largest tiles."""
    policies = [sized(problem, run, long) for run in RUNS]
    fitting = [
        policy
        for policy in policies
        if ceil_div(problem.length, policy.tile) >= SMS and _fits(policy, problem)  # a tile for each multiprocessor
    ]
    return max(fitting or policies[-1:], key=lambda policy: (_in_flight(policy), policy.tile))


def _in_flight(policy: PipelinePolicy) -> float:
    """Return the positions in the ring, and what even runs are worth."""
    even = policy.warps == CHUNKS and policy.run % 8 == 4
    return policy.stages * policy.tile * (EVEN if even else 1)
