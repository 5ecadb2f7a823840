"""Which kernel marks an array, with which sizes: a function of lengths, types and alignment, never of the chip.

A thread holds vectors of ``vector`` elements: as many as fit 16 bytes of the wider side, input or output, and as the
alignment of all addresses allows. So loads and stores of a warp cover whole lines whatever the types, and a misaligned
view is read and written in narrower vectors rather than peeled. Keys that are less aligned than flags are loaded in
several pieces a vector, which the cache puts together; flags are not stored in pieces, as these would all travel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div

SMS = 132  # multiprocessors the block counts are tuned for
LANES = 32
VECTOR_BYTES = 16
THREADS = (
    SMS * 1024
)  # half of what the chip holds at once: beyond, two vectors a thread are faster than more blocks, and than four
# Bytes a block moves at least: the chip starts about 0.8 blocks per nanosecond. Not more: small blocks mix reads with writes.
LEAST_MOVED = 8192
RUN = 2048  # elements, the most of a warp's run: rows of a multiple of it end where a run does
IN_PIECES = 4  # elements, the longest vector that is loaded in pieces
MOST_BLOCKS = (1 << 31) - 1  # in a grid; memory holds no more than 32 times as many rows
MOST_PERIOD = 1 << 30  # places in a tile are counted in 32 bits


@dataclass(frozen=True)
class Problem:
    """``rows`` rows of ``length`` elements of ``size`` bytes, marked with ``flag`` bytes each (0: one bit), each row
    cut into tiles of ``tile`` elements; ``aligned`` and ``flag_aligned``: the powers of two, up to 16, that divide the
    addresses."""

    rows: int
    length: int
    tile: int
    size: int
    flag: int
    aligned: int
    flag_aligned: int


@dataclass(frozen=True)
class Policy:
    """Of the kernel: whether there are several rows, whether rows are cut into periods, elements a vector, elements a
    load, vectors a thread, warps a block."""

    several_rows: bool
    periodic: bool
    vector: int
    piece: int
    unroll: int
    warps: int


@dataclass(frozen=True)
class Choice:
    """A policy and its launch."""

    policy: Policy
    rows: int
    length: int
    period: int
    grid: int

    @property
    def runs(self) -> int:
        """Runs that cover a row."""
        policy = self.policy
        return ceil_div(self.length, team(policy.several_rows, policy.warps) * policy.unroll * policy.vector)


def team(several_rows: bool, warps: int) -> int:
    """Threads that share a run of a row: a warp where there are several rows, as these may be short, else a block."""
    return LANES if several_rows else warps * LANES


def choose(problem: Problem, unroll: int | None = None, warps: int | None = None) -> Choice:
    """The one configuration of a problem. The optional arguments override what the size decides: vectors a thread has
    in flight, warps a block."""
    rows, length, tile = problem.rows, problem.length, min(problem.tile, problem.length)
    mergeable = length % tile == 0 and tile <= MOST_PERIOD and (problem.flag > 0 or length % LANES == 0)
    if rows > 1 and mergeable and (tile < length or length % RUN):
        rows, length = 1, rows * length  # rows are tiles of one long row: no row ends within a warp's run
    vector, piece = _vector(problem, length if rows > 1 else 0)
    vectors = rows * length // vector
    narrow = VECTOR_BYTES // (
        vector * max(problem.size, problem.flag)
    )  # how many times less than 16 bytes a vector has
    several = rows > 1
    most = (
        4 if several and problem.flag == 0 else 2
    )  # a warp of rows of bits stores little for the division that finds its row
    unroll = unroll or (1 if vectors <= THREADS else most) * min(narrow, 8)
    while several and unroll > 1 and 2 * LANES * unroll * vector > length:
        unroll //= 2  # only a run within the row is straight code
    moved = 4 * LANES * unroll * vector * (problem.size + problem.flag)  # bytes, by a block of four warps
    warps = warps or (32 if rows > MOST_BLOCKS * 4 else 4 if vectors < THREADS // 2 or moved >= LEAST_MOVED else 8)
    runs = rows * ceil_div(length, team(several, warps) * unroll * vector)
    grid = ceil_div(runs, warps) if several else runs
    policy = Policy(several, tile < length, vector, piece, unroll, warps)
    return Choice(policy, rows, length, tile, grid)


def _vector(problem: Problem, stride: int) -> tuple[int, int]:
    """Elements a vector, and of these a load, if rows begin ``stride`` elements apart."""
    vector = piece = VECTOR_BYTES // max(problem.size, problem.flag)

    def fits(count: int, size: int, aligned: int) -> bool:
        return aligned % (count * size) == 0 and stride * size % (count * size) == 0

    while not fits(piece, problem.size, problem.aligned):
        piece //= 2
    while vector > max(piece, IN_PIECES) or (problem.flag > 0 and not fits(vector, problem.flag, problem.flag_aligned)):
        vector //= 2
    return vector, min(vector, piece)


def alignment(address: int) -> int:
    """The largest power of two, up to 16, that divides an address."""
    return min(address & -address or VECTOR_BYTES, VECTOR_BYTES)
