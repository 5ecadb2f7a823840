"""The kernels of strided arrays, as policies, and what they are chosen for. ``strided_policy`` chooses."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from ...runtime.layout import Axis
from ...sizes import ceil_div
from ..axes import NUMBER_BITS, divisor
from ..hardware import LANES, VECTOR_BYTES
from ..policy import Policy
from .policy import FlagPolicy, alignment

MAX_NARROW = (1 << NUMBER_BITS) - 1  # threads whose numbers are split in 32 bits
THREADS = 256
# Of a block that flags runs of rows (H200, tails float16 (4096, 4, 8, 512) stepped: of 4 warps 81 us, so 54 us)
WARPS = 8
# The GPU starts 0.81 blocks a ns, of 128 or 256 threads, in which a copy moves 5.1 KB a block: those of less that load
# next to nothing have more threads, if so many blocks are left (H200, bits int8 (1, 134217728, 1): 161 us, so 117 us;
# bool (15541, 487, 3), repeated along its last axis: 36.6 us, so 18.6 us). Others gain nothing (difference float16,
# 4 apart: 335 and 353 us).
MAX_MOVED, LARGE, MIN_LARGE = 6000, 512, 2048


@dataclass(frozen=True)
class Facts:
    """What a policy depends on besides the axes: the sizes of elements and results in bytes, how many bytes behind a
    16-byte boundary the input begins, the power of two up to 16 that divides the addresses of all outputs, whether rows
    are cut into periods, whether ``n`` is given, whether flags or differences can be found by words of four keys, or
    flags by words of two, whether the last period of a row is as long as the others, and whether elements are floats.
    """

    size: int
    result: int
    begin: int
    result_aligned: int
    periodic: bool
    counted: bool
    by_words: bool = False
    even: bool = False
    floats: bool = False

    @property
    def aligned(self) -> int:
        """The power of two up to 16 that divides the address of the input."""
        return alignment(self.begin)


@dataclass(frozen=True)
class TilePolicy(Policy, kernel=".tiles:TileFlags"):
    """Compile-time choices of the kernel: the digits of a thread's number, which of them are the flagged axis and that
    of a tile's rows, the columns and rows of a tile, whether results are stored in vectors across the columns or down
    the rows, whether keys are compared by words, whether rows are cut into periods, whether ``n`` is given, whether
    numbers of threads need 64 bits, how the columns of a row are loaded (as a "vector", as one element that is
    "repeated", "each" by itself, or as a part of a "run" of memory, which is the tile, in pieces of ``piece`` bytes, 1
    if it begins anywhere, as a vector of memory that is taken "back" wards, "joined" from two words, or "spaced": each
    by itself, one of every warp's lanes behind that of the lane before), whether all items of a row are equal, how many
    words of bits of a column a thread has, which are neighbours, whether the rows of a tile are the flagged axis, in
    ``full``."""

    digits: int
    along: int
    row: int
    columns: int
    rows: int
    across: bool
    down: bool
    by_words: bool
    periodic: bool
    counted: bool
    wide: bool
    loads: str = "vector"
    equal: bool = False
    threads: int = THREADS
    piece: int = 0
    words: int = 1
    full: bool = False


@dataclass(frozen=True)
class TransposedPolicy(TilePolicy, kernel=".transposed:TransposedFlags"):
    """Tiles of blocks, which have ``lanes`` tiles of threads side by side. Results are stored one by one, or in
    "words" of four bytes; in those of columns that begin "anywhere", which are joined; or in those of a "run": all of a
    block, as columns are short and each begins where the one before ends.

    ``split``: the columns are two axes of the outputs, the last digit's the outer one."""

    lanes: int = LANES
    stores: str = ""
    split: bool = False


@dataclass(frozen=True)
class TurnedBitsPolicy(TilePolicy, kernel=".turned_bits:TurnedBitFlags"):
    """Tiles of threads that turn words of bits: the digit of the axis ``beside``, on which neighbouring words lie, and
    how many tiles along it a thread has."""

    beside: int = 1
    each: int = 1


class WholeRows:
    """What is said of policies whose kernels have neither periods nor a number of items that only the device knows."""

    periodic = counted = False


@dataclass(frozen=True)
class BoxPolicy(WholeRows, Policy, kernel=".boxes:BoxFlags"):
    """Compile-time choices of the kernel: the digits of a block's number, of which the first are the axes of its box;
    which of them is flagged; the extents of the box, powers of two; its axes in the order of results, the fastest
    first; along which axes elements repeat; neighbouring results of a thread, and whether they are stored as a vector;
    whether numbers of blocks need 64 bits; elements of a load, neighbours on the first axis."""

    digits: int
    along: int
    box: tuple[int, ...]
    order: tuple[int, ...]
    repeated: tuple[bool, ...]
    each: int
    vector: bool
    wide: bool
    threads: int = THREADS
    piece: int = 1


@dataclass(frozen=True)
class FlatPolicy(Policy, kernel=".flat:FlatFlags"):
    """Compile-time choices of the kernel: the digits of a result's number, results of a thread, whether the input has
    no gaps, whether it has none inside a slice, whether slices are long, whether neighbours are adjacent in a slice,
    elements per load, and per load of neighbours, whether keys are compared by words, whether blocks take the rows in
    turn, as neighbours are ``far``, whether elements of a slice are ``equal``, whether vectors are taken ``back``
    wards, how many elements a ``row`` has of which a thread has whole ones (0: it may have parts), how far apart are
    the elements that are loaded as vectors of memory, whether all periods are as long, whether neighbours are
    ``close``, less than a word of bytes away, whether all places of a vector are in ``uniform`` rows: all at an end of
    the flagged axis, or none; the rest as in TilePolicy."""

    digits: int
    vector: int
    whole: bool
    unit: bool
    long: bool
    adjacent: bool
    piece: int
    near: int
    by_words: bool
    periodic: bool
    counted: bool
    wide: bool
    far: bool = False
    equal: bool = False
    threads: int = THREADS
    back: bool = False
    row: int = 0
    pace: int = 1
    even: bool = False
    close: bool = False
    uniform: bool = False


@dataclass(frozen=True)
class SinglesPolicy(FlatPolicy, kernel=".singles:SingleFlags"):
    """The same of threads with ``singles`` results, one by one, as far apart as a block has threads."""

    singles: int = 4


@dataclass(frozen=True)
class ColumnsPolicy(FlatPolicy, kernel=".columns:ColumnFlags"):
    """The same of rows of a few columns, all rows of a slice being ``equal``."""


@dataclass(frozen=True)
class PitchedPolicy(WholeRows, Policy, kernel=".pitched:PitchedFlags"):
    """Compile-time choices of the kernel: the digits of a result's number; the rest as in TilePolicy."""

    digits: int
    wide: bool
    threads: int = 128


@dataclass(frozen=True)
class RowPolicy(Policy, kernel=".rows:RowFlags"):
    """Compile-time choices of the kernel: the digits of a warp's number, and how a warp flags a run; the rest as in
    TilePolicy."""

    digits: int
    run: FlagPolicy
    counted: bool
    wide: bool
    threads: int

    @property
    def periodic(self) -> bool:
        return self.run.periodic


@dataclass(frozen=True)
class BallotPolicy(Policy, kernel=".ballots:BallotFlags"):
    """Compile-time choices of the kernel: the digits of a warp's number, words of a warp; the rest as in TilePolicy.
    ``columns`` of an item, and how many of them are loaded at once: a warp has as many words of each."""

    digits: int
    unroll: int
    periodic: bool
    counted: bool
    wide: bool
    threads: int = THREADS
    columns: int = 1
    piece: int = 1


@dataclass(frozen=True)
class ShortPolicy(WholeRows, Policy, kernel=".short:ShortFlags"):
    """Compile-time choices of the kernel: the digits of a thread's number, the elements of a row, the rows of a thread,
    elements per load; the rest as in TilePolicy."""

    digits: int
    length: int
    rows: int
    piece: int
    by_words: bool
    wide: bool
    threads: int = THREADS


@dataclass(frozen=True)
class RunPolicy(WholeRows, Policy, kernel=".runs:RunFlags"):
    """Compile-time choices of the kernel: the digits of a thread's number, its rows and their columns, the elements
    from a row to the next in memory, whether rows run backwards, elements per load, results per store; the rest as in
    TilePolicy."""

    digits: int
    rows: int
    columns: int
    pitch: int
    back: bool
    piece: int
    stored: int
    wide: bool
    threads: int = THREADS


@dataclass(frozen=True)
class PackedPolicy(WholeRows, Policy, kernel=".packed:PackedFlags"):
    """Compile-time choices of the kernel: the digits of a number; the vectors of a thread; whether rows run
    backwards; the rest as in TilePolicy."""

    digits: int
    unroll: int
    back: bool
    wide: bool
    threads: int = THREADS


@dataclass(frozen=True)
class StridedChoice:
    """A policy and its launch: the axes of the digits, and how many values each digit has."""

    policy: (
        TilePolicy
        | BoxPolicy
        | FlatPolicy
        | PitchedPolicy
        | RowPolicy
        | BallotPolicy
        | ShortPolicy
        | RunPolicy
        | PackedPolicy
    )
    axes: tuple[Axis, ...]
    counts: tuple[int, ...]

    @functools.cached_property
    def work(self) -> int:
        if isinstance(self.policy, PackedPolicy):
            return self.counts[0] * self.axes[1].extent
        return math.prod(self.counts) * (LANES if isinstance(self.policy, (RowPolicy, BallotPolicy)) else 1)

    @property
    def grid(self) -> int:
        if isinstance(self.policy, (TransposedPolicy, TurnedBitsPolicy, BoxPolicy)):
            return self.work
        if isinstance(self.policy, PackedPolicy):
            return ceil_div(self.work, self.axes[0].extent)
        each = self.policy.vector if isinstance(self.policy, FlatPolicy) else 1
        each *= self.policy.singles if isinstance(self.policy, SinglesPolicy) else 1
        work = self.work
        if isinstance(self.policy, PitchedPolicy):
            work = work // VECTOR_BYTES + work % VECTOR_BYTES  # threads
        blocks = ceil_div(work, self.policy.threads * each)
        if isinstance(self.policy, FlatPolicy) and self.policy.far:
            rows = self.work // self.axes[0].extent
            return ceil_div(blocks, rows) * rows
        return blocks

    @property
    def values(self) -> dict[str, int]:
        """The parameters of the launch that describe the axes."""
        found = {"work": self.work}
        split = isinstance(self.policy, TransposedPolicy) and self.policy.split
        for k, (axis, count) in enumerate(zip(self.axes, self.counts)):
            factor, shift = divisor(axis.extent if split and axis is self.axes[-1] else count)
            found |= {f"count{k}": count, f"factor{k}": factor, f"shift{k}": shift, f"extent{k}": axis.extent}
            found |= {f"{name}{k}": step for name, step in zip(("x", "out", "other"), axis.steps)}
        return found
