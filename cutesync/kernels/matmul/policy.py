"""Tile configurations of the matmul, and the model that chooses one.

A block computes tiles of ``tile`` = (M, N) elements of the result from k-tiles of 128 bytes a row. Two consumer warpgroups of 128
threads multiply; how they share the work is the ``schedule``:

- "cooperative": both work on one tile, each on half of its rows.
- "pingpong": each works on a tile of its own; while one stores its tile, the other has the tensor cores.

``cluster`` = (m, n) blocks work on neighbouring tiles. Those along M need the same rows of B, those along N the same of A: each loads
its share and multicasts it, so a cluster of 2 reads that operand from the L2 once instead of twice. (What arrives at a multiprocessor is the
same: a cluster saves where the L2, memory or the power are the limit.)

wgmma takes 64 rows of A at a time, but few of B if there are few. So a result of few rows is computed as its transpose, of few columns (see
``problem``), and ``tile`` is then that of the transpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...arguments import choice, flag, whole
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown

SMS = 132
SMEM_BYTES = 232448  # what a block may have
K_TILE_BYTES = 128  # one row of a stage: the widest swizzle
WARPGROUP = 128
CONSUMERS = 2
THREADS = WARPGROUP * (CONSUMERS + 1)
SLABS = 2  # buffers of the epilogue, for each consumer warpgroup
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240  # (24 + 2 * 240) * 128 = 64512 of the 65536 of an SM
MOST_ACCUMULATORS, MOST_PROMOTED, MOST_SPLIT = 208, 96, 128  # 32-bit registers a thread; above, the compiler spills
MOST_DEFERRED = 192  # registers of the accumulators and of a tile that is held besides
MOST_SPLITS = 64
MOST_MEETING = 8  # blocks of a cluster
MEETING_STAGES = 4  # at least, of a ring beside the shares that meet in shared memory
PACK_ROWS, PACK_WORDS = 32, 32  # of 4 bytes: what a block of the packing kernel copies
PACK_RUN = 1024  # bytes that a warp copies of a row
LEAST_SHARE = 4  # k-tiles that are worth a block of their own
CLUSTERS = ((1, 1), (2, 1), (1, 2), (4, 1))
_BARRIER_BYTES = 1024


@dataclass(frozen=True)
class MatmulPolicy:
    """How a problem is tiled. ``stages`` 0 takes as many as fit; ``group`` is how many cluster tiles lie side by side in the order of
    tiles, 0 takes what the L2 model says. ``promoted`` (for float8, whose tensor cores keep some
    14 bits of a sum) adds every k-tile's products to a second set of accumulators, in full float32. ``splits``
    blocks share a tile, each with a part of K (see ``split``). With ``deferred`` a cooperative block holds a finished tile in registers and
    stores it while it multiplies the next ("pingpong" has its other warpgroup for that); None does so where registers and tiles are enough."""

    tile: tuple[int, int] = (128, 256)
    schedule: str = "cooperative"
    cluster: tuple[int, int] = (1, 1)
    stages: int = 0
    group: int = 0
    promoted: bool = False
    splits: int = 1
    deferred: bool | None = None

    def __post_init__(self) -> None:
        self._check_types()
        m, n = self.tile
        step = 64 * CONSUMERS if self.schedule == "cooperative" else 64
        if m % step or not 0 < m <= 256 or n % 16 or not 0 < n <= 256:
            raise ArgumentValueError(
                explain("config.tile", self.tile, f"M a multiple of {step} and N of 16, both up to 256")
            )
        most = MOST_PROMOTED if self.promoted else MOST_SPLIT if self.splits > 1 else MOST_ACCUMULATORS
        if self.accumulators > most:
            raise ArgumentValueError(
                explain("config.tile", f"{self.tile}: {self.accumulators} accumulators a thread", f"at most {most}")
            )
        if self.cluster not in CLUSTERS or self.tile[1] // 8 % self.cluster[0]:
            raise ArgumentValueError(
                explain(
                    "config.cluster",
                    self.cluster,
                    f"one of {CLUSTERS}, its first number a divisor of N / 8 of the tile",
                )
            )
        if not 1 <= self.splits <= MOST_SPLITS:
            raise ArgumentValueError(explain("config.splits", self.splits, f"1 to {MOST_SPLITS}"))
        if self.stages < 0 or self.stages == 1 or self.group < 0:
            raise ArgumentValueError(
                explain(
                    "config",
                    f"stages={self.stages}, group={self.group}",
                    "0, or 2 stages and more; a group of 0 or more",
                )
            )

    def _check_types(self) -> None:
        for name in ("tile", "cluster"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ArgumentTypeError(explain(f"config.{name}", shown(pair), "a pair of ints"))
            for extent in pair:
                whole(extent, f"config.{name}")
        for name in ("stages", "group", "splits"):
            whole(getattr(self, name), f"config.{name}")
        choice(self.schedule, "config.schedule", ("cooperative", "pingpong"))
        flag(self.promoted, "config.promoted")
        if self.deferred is not None:
            flag(self.deferred, "config.deferred")

    @property
    def kernel(self) -> tuple:
        """What of this decides the machine code."""
        return (
            self.tile,
            self.schedule,
            self.cluster,
            self.stages,
            self.promoted,
            self.splits if self.meets else self.splits > 1,
            self.deferred,
        )

    @property
    def rows(self) -> int:
        """Rows of the result that a consumer warpgroup computes of a tile."""
        return self.tile[0] // CONSUMERS if self.schedule == "cooperative" else self.tile[0]

    @property
    def accumulators(self) -> int:
        """32-bit registers of a thread that hold its part of the tile."""
        return self.rows * self.tile[1] // WARPGROUP

    def can_defer(self, out_bytes: int) -> bool:
        """Whether a block may hold a finished tile: its results, of ``out_bytes``, beside the accumulators of the next. (Not results of one byte:
        a slab has twice as many of them, and the terms of so many are too much besides.)"""
        registers = self.accumulators * (1 + self.promoted) + self.accumulators * out_bytes // 4
        return self.schedule == "cooperative" and self.splits == 1 and out_bytes > 1 and registers <= MOST_DEFERRED

    def holds(self, out_bytes: int, several: bool) -> bool:
        """Whether a block that has ``several`` tiles does so."""
        return several and self.can_defer(out_bytes) if self.deferred is None else self.deferred

    @property
    def peers(self) -> int:
        return self.cluster[0] * self.cluster[1]

    @property
    def meets(self) -> bool:
        """Whether the shares of split-K meet in the shared memory of a cluster (see ``split``): where they are few and fit."""
        room = SMEM_BYTES - _BARRIER_BYTES - CONSUMERS * SLABS * 64 * 128 - MEETING_STAGES * self.stage_bytes()
        return 1 < self.splits <= MOST_MEETING and self.peers == 1 and self.share_bytes() <= room

    def share_bytes(self) -> int:
        """What the first of the blocks that meet receives from the others."""
        return (self.splits - 1) * self.holders * self.accumulators * 4 * WARPGROUP

    @property
    def holders(self) -> int:
        """Consumer warpgroups that have a part of a tile."""
        return CONSUMERS if self.schedule == "cooperative" else 1

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster: the peers that share loads, or the shares that meet."""
        return self.splits if self.meets else self.peers

    def slots(self, multiprocessors: int) -> int:
        """Clusters that run at a time. Those of 4 and more leave some multiprocessors idle, as the parts of the GPU that hold a cluster are uneven."""
        return (
            multiprocessors // self.cluster_size
            if self.cluster_size < 4
            else max(1, multiprocessors * 28 // 33 // self.cluster_size)
        )

    def slab_columns(self, out_bytes: int) -> int:
        """Columns that the epilogue stores at a time: at most 128 bytes, and a divisor of the tile's."""
        return math.gcd(self.tile[1], 128 // out_bytes)

    def stage_bytes(self) -> int:
        return (self.tile[0] + self.tile[1]) * K_TILE_BYTES

    def slab_bytes(self, out_bytes: int) -> int:
        """All buffers of the epilogue."""
        return CONSUMERS * SLABS * 64 * self.slab_columns(out_bytes) * out_bytes

    def decided(self, out_bytes: int, several: bool = True) -> MatmulPolicy:
        """The same with the number of stages decided, and whether tiles are held: where blocks have ``several``, if not told."""
        fits = (
            SMEM_BYTES - _BARRIER_BYTES - self.slab_bytes(out_bytes) - self.meets * self.share_bytes()
        ) // self.stage_bytes()
        if max(self.stages, 2) > fits:
            raise ArgumentValueError(
                explain(
                    "config",
                    f"{max(self.stages, 2)} stages of {self.stage_bytes()} bytes",
                    f"at most {fits} for this output type",
                )
            )
        if self.deferred and not self.can_defer(out_bytes):
            allowed = f"a cooperative configuration, K whole, results of 2 or 4 bytes, {MOST_DEFERRED} registers for them and the accumulators"
            raise ArgumentValueError(
                explain(
                    "config.deferred",
                    f"True for {self.tile} {self.schedule}, splits {self.splits}, {out_bytes} bytes a result",
                    allowed,
                )
            )
        return replace(self, stages=self.stages or min(fits, 8), deferred=self.holds(out_bytes, several))

    def smem(self, out_bytes: int) -> int:
        """Shared memory of a block: the stages, the epilogue's slabs, the barriers, and for split-K the shares and their barriers, or a notice to
        each consumer warpgroup."""
        split = self.share_bytes() + 8 * CONSUMERS if self.meets else 4 * CONSUMERS if self.splits > 1 else 0
        return self.stages * self.stage_bytes() + self.slab_bytes(out_bytes) + 16 * self.stages + split

    def parts(self, m: int, n: int, batch: int) -> int:
        """Parts of tiles, one a consumer warpgroup, that split-K gathers."""
        return math.prod(self.tiles(m, n)) * batch * self.peers * self.holders

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Cluster tiles along M and N."""
        return -(-m // (self.tile[0] * self.cluster[0])), -(-n // (self.tile[1] * self.cluster[1]))


COOPERATIVE = tuple(
    MatmulPolicy(tile, "cooperative", cluster)
    for tile in ((128, 256), (256, 128), (256, 160), (256, 192), (128, 224), (128, 128))
    for cluster in ((2, 1), (1, 2), (1, 1))
)
PINGPONG = tuple(
    MatmulPolicy(tile, "pingpong", cluster)
    for tile in ((128, 128), (128, 160), (128, 192), (128, 208), (64, 256), (64, 128), (64, 64))
    for cluster in ((1, 2), (2, 1), (1, 1))
)
STRADDLING = (
    MatmulPolicy((64, 160), "pingpong", (4, 1)),
)  # for small results of operands whose rows are no cache lines: the fewest loads
# for results of few columns, and of few rows, which are computed as columns
_NARROW = (
    ((64, 16), "pingpong"),
    ((64, 32), "pingpong"),
    ((128, 16), "cooperative"),
    ((128, 32), "cooperative"),
    ((128, 64), "cooperative"),
)
SKINNY = tuple(MatmulPolicy(tile, schedule, cluster) for tile, schedule in _NARROW for cluster in ((2, 1), (1, 1)))
PROMOTED = tuple(
    MatmulPolicy(tile, schedule, cluster, promoted=True)
    for tile, schedule in (
        ((128, 192), "cooperative"),
        ((128, 160), "cooperative"),
        ((128, 128), "cooperative"),
        ((64, 192), "pingpong"),
        ((64, 128), "pingpong"),
        ((64, 64), "pingpong"),
    )
    for cluster in ((2, 1), (1, 2), (1, 1))
) + tuple(replace(config, promoted=True) for config in SKINNY)

# What the model knows of an H200. The rates that no manual states are fitted to times on one: of up to 57 configurations for 33 shapes, and of as
# many more, with K in 1 to 8 shares, for 66 shapes of few rows.
TENSOR_RATE = 2048  # multiply-adds of 16 bits that an SM does a clock; rows of 128 bytes of narrower types take as long
SHARED_RATE = 100  # bytes of shared memory that wgmma reads a clock
ARRIVAL_RATE, L2_RATE = (
    58.7,
    64.0,
)  # bytes that reach an SM a clock, multicast or not; bytes that its own loads bring, in aligned rows of 128
DRAM_RATE = 2200.0  # bytes that the GPU reads from memory or writes there a clock
K_TILE_CLOCKS, LEAST_K_TILE = (
    13.0,
    240.0,
)  # what a k-tile adds to its multiplications; the least it takes: a barrier, multiplications, a release
PROMOTION_CLOCKS = {
    "cooperative": 80.0,
    "pingpong": 300.0,
}  # the additions of float32 a k-tile: a cooperative block's other warpgroup hides most
TILE_CLOCKS = 600.0  # between two tiles
HOLD_CLOCKS = 1300.0  # the same where a tile is held
EPILOGUE_RATE = 9.5  # bytes of the result that an SM stores a clock
SPLIT_CLOCKS = 9000.0  # a write, an atomic and a read of the L2, one after the other
MEETING_RATE = 8.0  # bytes a clock of the shares that meet in a cluster: stored, waited for and added up
CLUSTER_CLOCKS = 1200.0  # the barrier of a cluster at its start and end
START_CLOCKS = 4500.0  # the first loads, the first barrier, the last store
UNHIDDEN = 0.03  # the part of the loads that shows beside whatever is slower: they share the power
UNHIDDEN_MEMORY = 0.5  # the part of a block's work that shows beside the streaming of memory, or the reverse
L2_SHARE = 0.05  # of what is loaded from the L2, this part costs as much as memory where memory is the limit


class Access(NamedTuple):
    """How TMA finds the operands: whether K is contiguous in B, and how much longer rows of 128 bytes of A and B take than those that are
    cache lines (``row_cost``)."""

    b_k_major: bool = True
    row_a: float = 1.0
    row_b: float = 1.0

    def bytes(self, config: MatmulPolicy) -> float:
        """What a block's loads of a k-tile are worth, in bytes. Columns of B come in boxes as wide as the swizzle that divides the tile."""
        boxes = 1 if self.b_k_major else 128 // math.gcd(2 * config.tile[1], 128)
        return K_TILE_BYTES * (
            self.row_a * config.tile[0] / config.cluster[1] + self.row_b * boxes * config.tile[1] / config.cluster[0]
        )


ALIGNED = Access()


def row_cost(stride: int) -> float:
    """Of rows ``stride`` bytes apart: 1 if all are cache lines, more if they straddle two, yet more if also the sectors of lines."""
    return 1.0 if stride % 128 == 0 else 1.5 if stride % 32 == 0 else 2.6


def cost(
    config: MatmulPolicy, m: int, n: int, k_tiles: int, batch: int, out_bytes: int, access: Access = ALIGNED
) -> float:
    """Clocks that the model expects a problem to take on an H200: waves of tiles, each as slow as its slowest resource, but no faster than
    memory gives the operands."""
    tile_m, tile_n = config.tile
    tiles_m, tiles_n = config.tiles(m, n)
    units = tiles_m * tiles_n * batch * config.splits
    waves = -(-units * config.peers // (config.slots(SMS) * config.cluster_size))
    loaded = units * config.peers * -(-k_tiles // config.splits) * access.bytes(config)
    memory = batch * (K_TILE_BYTES * k_tiles * (m + n) + m * n * out_bytes) / DRAM_RATE
    k_tiles = -(-k_tiles // config.splits)
    tensor = k_tiles * tile_m * tile_n * 64 / TENSOR_RATE
    shared = k_tiles * tile_m / 64 * (64 + tile_n) * K_TILE_BYTES / SHARED_RATE
    multiply = max(max(tensor, shared) + k_tiles * K_TILE_CLOCKS, k_tiles * LEAST_K_TILE)
    if config.promoted:
        multiply += k_tiles * PROMOTION_CLOCKS[config.schedule]
    loads, arrivals = k_tiles * access.bytes(config) / L2_RATE, k_tiles * config.stage_bytes() / ARRIVAL_RATE
    mainloop = max(multiply, loads, arrivals) + UNHIDDEN * loads
    store = tile_m * tile_n * out_bytes / EPILOGUE_RATE
    if config.meets:
        store += config.share_bytes() / MEETING_RATE
    elif config.splits > 1:
        store += SPLIT_CLOCKS + 4 * tile_m * tile_n * (1 + config.splits) / L2_RATE
    held = config.holds(out_bytes, waves > 1)
    # while both warpgroups of a cooperative block store, its tensor cores idle
    between = max(mainloop, store) - mainloop if held or config.schedule == "pingpong" else store
    work = waves * mainloop + (waves - 1) * (between + (HOLD_CLOCKS if held else TILE_CLOCKS))
    return (
        START_CLOCKS
        + max(work, memory + L2_SHARE * loaded / DRAM_RATE)
        + UNHIDDEN_MEMORY * min(work, memory)
        + store
        + (CLUSTER_CLOCKS if config.cluster_size > 1 else 0.0)
    )


@lru_cache(maxsize=4096)
def shortlist(
    m: int,
    n: int,
    k_tiles: int,
    batch: int,
    out_bytes: int,
    promoted: bool = False,
    split: bool = True,
    access: Access = ALIGNED,
    *,
    count: int = 1,
) -> tuple[MatmulPolicy, ...]:
    """The ``count`` configurations with the least modelled cost, best first, with K cut or (without ``split``) whole; ties as they are listed."""
    tiles = PROMOTED if promoted else COOPERATIVE + PINGPONG + SKINNY + STRADDLING
    cut = (
        [replace(config, splits=splits) for config in tiles for splits in _splits(config, m, n, k_tiles, batch)]
        if split
        else []
    )
    return tuple(
        sorted([*tiles, *cut], key=lambda config: cost(config, m, n, k_tiles, batch, out_bytes, access))[:count]
    )


def choose(*problem, **options) -> MatmulPolicy:
    """The first of the shortlist."""
    return shortlist(*problem, **options)[0]


def _splits(config: MatmulPolicy, m: int, n: int, k_tiles: int, batch: int) -> list[int]:
    """Into how many parts K may be cut: all parts of all tiles run at once, and each has some k-tiles. Few accumulators, as adding up the
    shares takes registers too."""
    if config.accumulators > MOST_SPLIT:
        return []
    room = config.slots(SMS) // (math.prod(config.tiles(m, n)) * batch)
    return [
        splits for splits in (2, 3, 4, 6, 8, 12, 16, 24, 32) if splits <= min(room, k_tiles // LEAST_SHARE)
    ]  # (of clusters a few less may run at once)


def raster(config: MatmulPolicy, m: int, n: int) -> tuple[bool, int]:
    """``(along_n, group)``: the order of tiles walks ``group`` cluster tiles side by side along the longer way. Those that run at the
    same time then form the squarest patch of the result, and read the fewest bytes of A and B."""
    tiles_m, tiles_n = config.tiles(m, n)
    slots = config.slots(SMS)
    high, wide = config.tile[0] * config.cluster[0], config.tile[1] * config.cluster[1]
    along_n = tiles_n * wide >= tiles_m * high
    side, other, most = (high, wide, tiles_m) if along_n else (wide, high, tiles_n)
    group = config.group or round(math.sqrt(slots * other / side))
    return along_n, max(1, min(group, most))
