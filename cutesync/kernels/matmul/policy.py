"""How a matmul is tiled: ``MatmulPolicy``, and what fits into a multiprocessor. ``candidates`` lists policies,
``model`` chooses one.

A block computes tiles of ``tile`` = (M, N) elements of the result from k-tiles of 128 bytes a row. Two consumer
warpgroups of 128 threads multiply; how they share the work is the ``schedule``:

- "cooperative": both work on one tile, each on half of its rows; of its columns where M is no multiple of 128.
- "pingpong": each works on a tile of its own; while one stores its tile, the other has the tensor cores.

``cluster`` = (m, n) blocks work on neighbouring tiles. Those along M need the same rows of B, those along N the same of
A: each loads a part and multicasts it, so a cluster of 2 reads that operand from the L2 once instead of twice. Where
the rows of B do not suffice for parts of 8, the blocks load whole stages of it in turn. (As many
bytes arrive at a multiprocessor as without: a cluster saves where the L2, memory or the power are the limit, above all
where rows are no whole cache lines.)

wgmma takes 64 rows of A at a time, but few of B if there are few. So a result of few rows is computed as its transpose,
of few columns (see ``problem``), and ``tile`` is then that of the transpose.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from ...arguments import choice, flag, whole
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown

SMEM_BYTES = 232448  # what a block may have
OWN_SMEM_BYTES = 163 * 1024  # of a block whose threads load operands: the rest of 256 KiB is L1, which lines need that
# two k-tiles share (1.1 to 1.5 of the time with all: H200, words, few rows by a long K)
K_TILE_BYTES = 128  # one row of a stage: the widest swizzle
WARPGROUP = 128
CONSUMERS = 2
THREADS = WARPGROUP * (CONSUMERS + 1)
MAX_STAGES = 16  # more bytes in flight: a narrow tile of weights needs them all
SUB_TILE_BUFFERS = 2  # of the epilogue, for each consumer warpgroup
MAX_ROW_OF_TWO = 128  # bytes of a row of a sub-tile: of longer ones there is but one buffer
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 24, 240  # (24 + 2 * 240) * 128 = 64512 of the 65536 of an SM
# 32-bit accumulators a thread: in general, with a second set besides, and with split-K; above, the compiler spills
MAX_ACCUMULATORS, MAX_PROMOTED_ACCUMULATORS, MAX_SPLIT_ACCUMULATORS = 208, 96, 128
MAX_PARTS_ACCUMULATORS = 64  # with two more sets
PARTS_REGISTERS = 8  # that each consumer gives up for the warps that split stages into parts
MAX_OWN_ACCUMULATORS = 64  # of all sets, beside a producer that loads by itself
OWN_REGISTERS = 64  # that each consumer gives up for such a producer: 176 remain, and the producer has 152
MAX_ACCUMULATORS_OF_MORE = 192  # that the model chooses for two results or a C: above, up to 200 bytes a thread spill
MAX_FETCHED_ACCUMULATORS = 128  # beside which all elements of C for a tile have registers
MAX_DEFERRED_REGISTERS = 192  # of the accumulators and of a pending tile beside them
MAX_SPLITS = 64
MAX_CLUSTER_BLOCKS = 8  # that every GPU of sm_90 can run
CLUSTER_SLOTS = (0, 132, 66, 39, 30, 22, 17, 15, 15)  # clusters of so many blocks that an H200 runs at a time
SURE_SLOTS = (0, 132, 66, 39, 28, 22, 17, 15, 14)  # the same on every H200 timed: of one more some wait for others
# Vectors of a row of a sub-tile that is not swizzled: half of 80, 112, 144 or 176 columns and all of 72, in tiles of 64
# rows all, take 0.95 of the time of 16 and 24 at a time (half of 160 and 224, not of 32: 1.03).
MOST_VECTORS = 13
MIN_SPLIT_COLUMNS = 16  # of a sub-tile: a row of 32 bytes of 16-bit results
MAX_EXCHANGE_BESIDE = 32768  # bytes of partial sums beside the stages; more lie in the stages (see ``split``)
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
PACK_ROWS, PACK_WORDS = 32, 32  # of 4 bytes: what a block of the packing kernel copies
PACK_RUN = 1024  # bytes that a warp copies of a row
_BARRIER_BYTES = 1024


def sub_tile_buffers(columns: int, out_bytes: int) -> int:
    """Of each consumer warpgroup, for sub-tiles of so many columns."""
    return SUB_TILE_BUFFERS if columns * out_bytes <= MAX_ROW_OF_TWO else 1


@dataclass(frozen=True)
class MatmulPolicy:
    """How a problem is tiled.

    ``stages`` 0 takes as many as fit. ``group`` is how many cluster tiles lie side by side in the order of tiles; 0
    takes what the L2 model says. ``promoted`` (for float8, whose tensor cores keep some 14 bits of a sum) adds every
    k-tile's products to a second set of accumulators, in full float32. ``splits`` blocks share a tile, each with one
    slice of K (see ``split``). With ``deferred`` a cooperative block keeps a finished tile in registers and stores it
    while it multiplies the next ("pingpong" has its other warpgroup for that); None does so where registers and tiles
    are enough. With ``swap_ab`` the result is computed as its transpose (see ``problem``), and ``tile`` is that of the
    transpose; None leaves it to the model. ``parts`` (for float32 in three products) splits each stage into big and
    small parts in the kernel (see ``parts``), and False in copies before it; None does so in the kernel where that can.
    ``load_a`` and ``load_b`` say how an operand that TMA refuses as it lies is loaded: "own" by the producer's threads
    (see ``own``), "tma" by TMA from a packed copy; None leaves it to the model. Other operands are always loaded by
    TMA. They are those of the transpose, too. ``slices`` of K are multiplied one behind the other by the same block,
    each in accumulators that are zero at first, and their sums added up in order: the bits are those of so many
    ``splits``. With ``wide`` more columns are stored at a time; None does so where the result allows it."""

    tile: tuple[int, int] = (128, 256)
    schedule: str = "cooperative"
    cluster: tuple[int, int] = (1, 1)
    stages: int = 0
    group: int = 0
    promoted: bool = False
    splits: int = 1
    deferred: bool | None = None
    swap_ab: bool | None = None
    parts: bool | None = None
    load_a: str | None = None
    load_b: str | None = None
    slices: int = 1
    wide: bool | None = None

    def __post_init__(self) -> None:
        self._check_types()
        m, n = self.tile
        step = 8 * CONSUMERS if self.across else 8
        if m % 64 or not 0 < m <= 256 or n % step or not 16 <= self.columns <= n <= 256:
            allowed = "M a multiple of 64 and N of 8, 16 at least, both up to 256; cooperative: one of them twice that"
            raise ArgumentValueError(explain("config.tile", self.tile, allowed))
        most = MAX_SPLIT_ACCUMULATORS if self.splits > 1 else MAX_ACCUMULATORS
        most = MAX_PROMOTED_ACCUMULATORS if self.promoted or self.slices > 1 else most
        most = MAX_PARTS_ACCUMULATORS if self.parts else most
        if self.accumulators > most:
            raise ArgumentValueError(
                explain("config.tile", f"{self.tile}: {self.accumulators} accumulators a thread", f"at most {most}")
            )
        if self.cluster not in CLUSTERS:
            raise ArgumentValueError(explain("config.cluster", self.cluster, f"one of {CLUSTERS}"))
        if self.parts and self.peers > 1:
            raise ArgumentValueError(explain("config.cluster", self.cluster, "(1, 1) with parts"))
        if self.own and not self.can_load_own():
            came = f"load_a={self.load_a!r}, load_b={self.load_b!r}, {self.tile}, {self.cluster}"
            allowed = f"without parts, a cluster of (1, 1), at most {MAX_OWN_ACCUMULATORS} accumulators a thread"
            raise ArgumentValueError(explain("config", came, f'"own" {allowed} in all sets'))
        if self.odd and (self.parts or self.own):
            raise ArgumentValueError(
                explain("config.tile", self.tile, "a multiple of 16 columns with parts or own loads")
            )
        for name in ("splits", "slices"):
            if not 1 <= getattr(self, name) <= MAX_SPLITS:
                raise ArgumentValueError(explain(f"config.{name}", getattr(self, name), f"1 to {MAX_SPLITS}"))
        if self.slices > 1 and (self.splits > 1 or self.promoted or self.parts or self.own):
            raise ArgumentValueError(
                explain("config.slices", self.slices, "1 with splits, promoted, parts or loads of the kernel's own")
            )
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
        for name in ("stages", "group", "splits", "slices"):
            whole(getattr(self, name), f"config.{name}")
        choice(self.schedule, "config.schedule", ("cooperative", "pingpong"))
        flag(self.promoted, "config.promoted")
        for name in ("load_a", "load_b"):
            if getattr(self, name) is not None:
                choice(getattr(self, name), f"config.{name}", ("tma", "own"))
        for name in ("deferred", "swap_ab", "parts", "wide"):
            if getattr(self, name) is not None:
                flag(getattr(self, name), f"config.{name}")

    @property
    def kernel(self) -> tuple:
        """What of this decides the machine code."""
        splits = self.splits if self.cluster_split else self.splits > 1
        sliced = self.slices > 1
        return (
            self.tile,
            self.schedule,
            self.cluster,
            self.stages,
            self.promoted,
            splits,
            self.deferred,
            bool(self.parts),
            sliced,
            self.wide,
        )

    def splits_parts(self) -> bool:
        """Whether float32 operands can be split into parts in the kernel: no blocks share loads, as the DSL's ring
        releases a peer's stage at block scope, which does not publish what was written into it."""
        fits = self.accumulators <= MAX_PARTS_ACCUMULATORS and self.slices == 1
        return fits and self.peers == 1 and not (self.odd or self.own)

    @property
    def own(self) -> bool:
        """Whether the producer's threads load an operand."""
        return "own" in (self.load_a, self.load_b)

    def can_load_own(self) -> bool:
        """Whether the producer's threads can: nobody shares their loads, and registers suffice."""
        accumulators = self.accumulators * (1 + self.promoted)
        return self.peers == 1 and not (self.parts or self.across or self.odd) and accumulators <= MAX_OWN_ACCUMULATORS

    # --- the tile and its parts ------------------------------------------------------------------------------------

    @property
    def warpgroups_per_tile(self) -> int:
        """Consumer warpgroups that have a part of a tile."""
        return CONSUMERS if self.schedule == "cooperative" else 1

    @property
    def across(self) -> bool:
        """Whether consumer warpgroups share the columns of a tile, and not its rows."""
        return self.schedule == "cooperative" and self.tile[0] % (64 * CONSUMERS) > 0

    @property
    def rows(self) -> int:
        """Rows of the result that a consumer warpgroup computes of a tile."""
        return self.tile[0] // (1 if self.across else self.warpgroups_per_tile)

    @property
    def columns(self) -> int:
        """Columns of the result that a consumer warpgroup computes of a tile."""
        return self.tile[1] // (CONSUMERS if self.across else 1)

    @property
    def odd(self) -> bool:
        """Whether a warpgroup's columns are an odd multiple of 8: only results of 16 bits are stored from such."""
        return self.columns % 16 > 0

    @property
    def accumulators(self) -> int:
        """32-bit registers of a thread for its part of the tile."""
        return self.rows * self.columns // WARPGROUP

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Cluster tiles along M and N."""
        return -(-m // (self.tile[0] * self.cluster[0])), -(-n // (self.tile[1] * self.cluster[1]))

    def sub_tile_columns(self, out_bytes: int) -> int:
        """Columns that the epilogue stores at a time, a divisor of the tile's: a power of two, at most 128 bytes, fewer
        where blocks of a cluster split would have unequally many; of an odd multiple of 8 another, up to all. ``wide``:
        all of 64 rows, else an odd number of vectors, whose rows begin in different banks, if twice as many."""
        vectors, columns = self.columns // 8, math.gcd(self.columns, 128 // out_bytes)
        if self.odd:
            columns = 8 * max((some for some in (3, 5, 7) if vectors % some == 0), default=vectors)
        if self.wide and not self.cluster_split and columns * out_bytes < 128:
            odd = 8 * max(some for some in range(1, MOST_VECTORS + 1, 2) if vectors % some == 0)
            whole = self.tile[0] == 64 and vectors > 4  # 32 columns are swizzled
            columns = self.columns if whole else odd if odd > 2 * columns else columns
        while self.cluster_split and columns % (2 * MIN_SPLIT_COLUMNS) == 0 and self._unevenly_dealt(columns):
            columns //= 2
        return columns

    def _unevenly_dealt(self, columns: int) -> bool:
        """Whether some blocks of a cluster split have considerably more sub-tiles than others."""
        count = self._sub_tiles(columns)
        return count % self.splits > 0 and count < 2 * self.splits

    def _sub_tiles(self, columns: int) -> int:
        """Of a consumer warpgroup's part of a tile."""
        return self.rows // 64 * self.columns // columns

    # --- clusters and split-K --------------------------------------------------------------------------------------

    @property
    def peers(self) -> int:
        """Blocks of a cluster that share loads."""
        return self.cluster[0] * self.cluster[1]

    @property
    def parts_of_b(self) -> int:
        """In how many parts blocks that share rows of B load a stage of it: one where they load whole stages in
        turn."""
        return 1 if self.tile[1] // 8 % self.cluster[0] else self.cluster[0]

    @property
    def in_turns(self) -> bool:
        """Whether they load whole stages in turn."""
        return self.parts_of_b < self.cluster[0]

    @property
    def cluster_split(self) -> bool:
        """Whether split-K goes through the shared memory of a cluster (see ``split``)."""
        return self.splits > 1 and self.splits * self.peers <= MAX_CLUSTER_BLOCKS

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster: those that share loads, times the slices of K in cluster split-K."""
        return self.peers * (self.splits if self.cluster_split else 1)

    def slots(self, multiprocessors: int) -> int:
        """Clusters that run at a time. Clusters of 3 and more leave some multiprocessors idle: the parts of the GPU
        that hold a cluster are uneven."""
        return max(1, multiprocessors * CLUSTER_SLOTS[self.cluster_size] // CLUSTER_SLOTS[1])

    def sub_tiles_of_block(self, out_bytes: int) -> int:
        """The most sub-tiles of each consumer warpgroup that a block of a cluster split adds up and stores."""
        return -(-self._sub_tiles(self.sub_tile_columns(out_bytes)) // self.splits)

    def stored_share(self, out_bytes: int) -> float:
        """The part of a tile that a block stores, of those of a cluster split that which stores most."""
        if not self.cluster_split:
            return 1.0
        return self.sub_tiles_of_block(out_bytes) / self._sub_tiles(self.sub_tile_columns(out_bytes))

    def exchange_bytes(self, out_bytes: int) -> int:
        """The partial sums that a block of a cluster split receives from the others."""
        sub_tile = 64 * self.sub_tile_columns(out_bytes) * 4
        return (self.splits - 1) * self.warpgroups_per_tile * self.sub_tiles_of_block(out_bytes) * sub_tile

    def exchange_in_stages(self, out_bytes: int) -> bool:
        """Whether these lie in the stages, which all blocks of the cluster split must have read before."""
        return self.cluster_split and self.exchange_bytes(out_bytes) > MAX_EXCHANGE_BESIDE

    def exchange_beside(self, out_bytes: int) -> int:
        """Bytes of shared memory for these beside the stages."""
        beside = self.cluster_split and not self.exchange_in_stages(out_bytes)
        return self.exchange_bytes(out_bytes) if beside else 0

    def turnstile_parts(self, m: int, n: int, batch: int) -> int:
        """Parts of tiles, one a consumer warpgroup, that the split-K turnstile adds up."""
        return math.prod(self.tiles(m, n)) * batch * self.peers * self.warpgroups_per_tile

    # --- what fits -------------------------------------------------------------------------------------------------

    def can_defer(self, out_bytes: int) -> bool:
        """Whether the registers suffice for a deferred epilogue: for a tile's results, of ``out_bytes``, beside the
        accumulators of the next. One-byte results are excluded: a sub-tile holds twice as many of them, and their
        epilogue operands do not fit in the remaining registers."""
        registers = self.accumulators * (1 + self.promoted) + self.accumulators * out_bytes // 4
        fits = out_bytes > 1 and registers <= MAX_DEFERRED_REGISTERS
        whole = self.splits == self.slices == 1
        return self.schedule == "cooperative" and whole and not (self.parts or self.own) and fits

    def defers(self, out_bytes: int, several: bool) -> bool:
        """Whether the epilogue of a block that has ``several`` tiles is deferred."""
        return several and self.can_defer(out_bytes) if self.deferred is None else self.deferred

    def stage_bytes(self) -> int:
        """What is loaded into a stage."""
        return (self.tile[0] + self.tile[1]) * K_TILE_BYTES

    def stage_room(self) -> int:
        """Shared memory of a stage, with its small parts if there are."""
        return self.stage_bytes() * (1 + bool(self.parts))

    def buffer_bytes(self, out_bytes: int) -> int:
        """All buffers of the epilogue."""
        columns = self.sub_tile_columns(out_bytes)
        return CONSUMERS * sub_tile_buffers(columns, out_bytes) * 64 * columns * out_bytes

    def smem(self, out_bytes: int) -> int:
        """Shared memory of a block: the stages, the epilogue's buffers, the barriers; for cluster split-K the partial
        sums and their barriers, for the turnstile a word for each consumer warpgroup."""
        split = 4 * CONSUMERS if self.splits > 1 else 0
        if self.cluster_split:
            split = self.exchange_beside(out_bytes) + 8 * (CONSUMERS + self.exchange_in_stages(out_bytes))
        barriers = (16 + 8 * bool(self.parts) + 16 * self.own) * self.stages
        return self.stages * self.stage_room() + self.buffer_bytes(out_bytes) + barriers + split

    def fitting_stages(self, out_bytes: int) -> int:
        """How many stages the shared memory has room for."""
        room = (
            (OWN_SMEM_BYTES if self.own else SMEM_BYTES)
            - _BARRIER_BYTES
            - self.buffer_bytes(out_bytes)
            - self.exchange_beside(out_bytes)
        )
        return room // self.stage_room()

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (policies are values)
    def decided(self, out_bytes: int, several: bool = True, wide: bool = False) -> MatmulPolicy:
        """The same with the number of stages decided, and whether the epilogue is deferred: if not given, where blocks
        have ``several`` tiles."""
        if self.wide is None:
            return replace(self, wide=wide).decided(out_bytes, several)
        fits = self.fitting_stages(out_bytes)
        exchanged = self.exchange_bytes(out_bytes) if self.exchange_in_stages(out_bytes) else 0
        stages = self.stages or min(fits, MAX_STAGES)
        if stages * self.stage_room() < exchanged:
            raise ArgumentValueError(
                explain(
                    "config",
                    f"{stages} stages of {self.stage_room()} bytes",
                    f"at least {-(-exchanged // self.stage_room())}, which then hold the partial sums",
                )
            )
        if max(self.stages, 2) > fits:
            raise ArgumentValueError(
                explain(
                    "config",
                    f"{max(self.stages, 2)} stages of {self.stage_room()} bytes",
                    f"at most {fits} for this output type",
                )
            )
        if self.odd and out_bytes != 2:
            raise ArgumentValueError(explain("config.tile", self.tile, "a multiple of 16 columns for this output type"))
        if self.deferred and not self.can_defer(out_bytes):
            raise ArgumentValueError(
                explain(
                    "config.deferred",
                    f"True for {self.tile} {self.schedule}, splits {self.splits}, {out_bytes} bytes a result",
                    "a cooperative configuration, K whole, results of 2 or 4 bytes, "
                    f"{MAX_DEFERRED_REGISTERS} registers for them and the accumulators",
                )
            )
        return replace(self, stages=stages, deferred=self.defers(out_bytes, several))
