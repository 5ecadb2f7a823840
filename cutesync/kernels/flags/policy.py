"""Which kernel flags an array, with which sizes: a pure function of lengths, types and alignment, not of the GPU.

A thread has vectors of ``vector`` elements: as many as fit 16 bytes of the wider of input and output, and as the
alignment of all addresses allows. So the loads and stores of a warp cover whole lines for all types, and misaligned
arrays are read and written in narrower vectors, without a separate head and tail. Items that are less aligned than
flags are loaded in several pieces per vector: these hit the cache. Flags are not stored in pieces, as each piece would
be a separate write to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div
from ..hardware import LANES, SMS, VECTOR_BYTES
from ..policy import Policy

# Up to half of the threads that are resident at once have one vector each. Beyond, two vectors per thread are faster
# than more blocks, and faster than four.
ONE_VECTOR_THREADS = SMS * 1024
# A block moves at least this much, as the GPU starts about 0.8 blocks per nanosecond; and not much more, as small
# blocks overlap reads and writes better.
MIN_BYTES_PER_BLOCK = 8192
MAX_RUN = 2048  # elements, the longest run of a warp: a row that is a multiple of it ends where a run ends
MAX_PIECED_VECTOR = 4  # elements, the longest vector that is loaded in pieces
# Bits of bytes that begin anywhere, but for small arrays: elements of a thread, which are joined from words.
ODD_VECTORS = 32, 16, 8, 4
MIN_ODD_ELEMENTS, MAX_ODD_PIECE = 1 << 17, 4
# Elements of one byte that begin anywhere are joined from aligned vectors, of two bytes from aligned words, in arrays
# of so many: the bytes of the largest piece that is loaded by itself else (H200, heads int8 (268435456,), off by one:
# 146 us, so 129 us; both float16 (21803, 2544), off by one: 64 us, so 56 us; tails float16 (332720, 247): one by one 70
# us, from vectors 74 us, from words 71 us; but pieces of four bytes, bits float16 (8017, 14000): 65 and 72 us; fewer
# elements, bits uint16 (1048576,): 1.6 and 2.1 us, tails uint8 (1159295,): 1.3 and 1.4 us; of periods that are whole
# vectors of bytes, heads bool (62, 12992): 2.3 us, so 1.3 us; of others, only differences: int16 (9262, 7651) 76.8 us,
# so 69 us, but tails (2082, 27773) 48.7 and 49.2 us).
HALF, MAX_JOINED_PIECE, MIN_JOINED, MIN_JOINED_PERIODS = 2, {1: 4, 2: 2}, {1: 3 << 19, 2: 5 << 18}, 1 << 19
MAX_BLOCKS = (1 << 31) - 1  # in a grid; memory holds at most 32 times as many rows
MAX_PERIOD = 1 << 30  # indexes in a tile are counted in 32 bits


@dataclass(frozen=True)
class Problem:
    """``rows`` rows of ``length`` elements of ``size`` bytes, with flags of ``flag`` bytes (0: one bit). Each row is
    cut into tiles of ``tile`` elements. ``aligned`` and ``flag_aligned`` are the powers of two, up to 16, that divide
    the addresses. ``words``: four elements are compared at a time."""

    rows: int
    length: int
    tile: int
    size: int
    flag: int
    aligned: int
    flag_aligned: int
    words: bool = False


@dataclass(frozen=True)
class FlagPolicy(Policy, kernel=".kernel:FlagKernel"):
    """Compile-time choices of the kernel: whether there are several rows, whether rows are cut into periods, elements
    per vector, elements per load, vectors per thread, warps per block; whether no period ends within a vector; whether
    vectors are joined from what lies on boundaries."""

    several_rows: bool
    periodic: bool
    vector: int
    piece: int
    unroll: int
    warps: int
    whole: bool
    joined: bool = False


@dataclass(frozen=True)
class Choice:
    """A policy and its launch."""

    policy: FlagPolicy
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
    """Return how many threads share a run of a row: a warp if there are several rows, which may be short, else a
    block."""
    return LANES if several_rows else warps * LANES


def choose(problem: Problem, unroll: int | None = None, warps: int | None = None) -> Choice:
    """Return the policy and the launch of a problem. ``unroll`` (vectors per thread) and ``warps`` (per block) override
    what the size decides."""
    rows, length, tile = problem.rows, problem.length, min(problem.tile, problem.length)
    mergeable = length % tile == 0 and tile <= MAX_PERIOD and (problem.flag > 0 or length % LANES == 0)
    if rows > 1 and mergeable and (tile < length or length % MAX_RUN):
        rows, length = 1, rows * length  # as tiles of one long row: then no row ends within a warp's run
    vector, piece = vector_of(problem, length if rows > 1 else 0, tile if tile < length else 0)
    vectors = rows * length // vector
    narrow = max(1, VECTOR_BYTES // (vector * max(problem.size, problem.flag)))  # how many vectors make 16 bytes
    several = rows > 1
    # A warp divides to find its row. With rows of bits it stores little, so it does more work for each division.
    most = 4 if several and problem.flag == 0 else 2
    if not unroll:
        few = vectors <= ONE_VECTOR_THREADS
        unroll = 1 if few and rows * length <= ONE_VECTOR_THREADS else (1 if few else most) * min(narrow, 8)
    while several and unroll > 1 and 2 * LANES * unroll * vector > length:
        unroll //= 2  # only runs that end within the row have no bounds checks
    moved = 4 * LANES * unroll * vector * (problem.size + problem.flag)  # bytes, by a block of four warps
    warps = warps or (
        32 if rows > MAX_BLOCKS * 4 else 4 if vectors < ONE_VECTOR_THREADS // 2 or moved >= MIN_BYTES_PER_BLOCK else 8
    )
    runs = rows * ceil_div(length, team(several, warps) * unroll * vector)
    grid = ceil_div(runs, warps) if several else runs
    periodic = tile < length
    joined = joins(problem, vector, piece, tile if periodic else 0)
    whole = not periodic or tile % vector == 0
    policy = FlagPolicy(several, periodic, vector, piece, unroll, warps, whole, joined)
    return Choice(policy, rows, length, tile, grid)


def vector_of(problem: Problem, stride: int, period: int, join: bool = True) -> tuple[int, int]:
    """Return the elements per vector and per load, if rows begin ``stride`` elements apart and have periods of
    ``period`` elements (0: no periods). ``join``: vectors may be joined."""
    vector = piece = VECTOR_BYTES // max(problem.size, problem.flag)

    def fits(count: int, size: int, aligned: int) -> bool:
        return aligned % (count * size) == 0 and stride * size % (count * size) == 0

    while not fits(piece, problem.size, problem.aligned):
        piece //= 2
    large = problem.rows * problem.length >= MIN_ODD_ELEMENTS
    if problem.words and problem.flag == 0 and large and piece <= MAX_ODD_PIECE and not stride:
        found = next((count for count in ODD_VECTORS if period % count == 0), 0)
        if found:
            return found, piece
    stored = not problem.flag or fits(vector, problem.flag, problem.flag_aligned)
    if join and stored and joins(problem, vector, piece, period):
        return vector, piece
    while vector > max(piece, MAX_PIECED_VECTOR) or (
        problem.flag > 0 and not fits(vector, problem.flag, problem.flag_aligned)
    ):
        vector //= 2
    return vector, min(vector, piece)


def joins(problem: Problem, vector: int, piece: int, period: int) -> bool:
    """Return whether vectors of elements that begin anywhere are joined from aligned ones; of bytes, if keys are
    compared by words; in periods, if these end where vectors do, or results are as wide as two-byte elements."""
    size = problem.size
    if size > HALF or vector * size < VECTOR_BYTES or piece * size > MAX_JOINED_PIECE[size]:
        return False
    whole = period % vector == 0
    fits = whole or problem.flag == HALF if size == HALF else whole and problem.words and problem.flag > 0
    return fits and problem.rows * problem.length >= (MIN_JOINED_PERIODS if size == 1 and period else MIN_JOINED[size])


def alignment(address: int) -> int:
    """Return the largest power of two, up to 16, that divides an address."""
    return min(address & -address or VECTOR_BYTES, VECTOR_BYTES)
