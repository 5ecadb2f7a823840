"""Which sizes a top-k has: a pure function of lengths, types and strides, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..policy import Policy

SMS = 132  # of an H200: grids are sized for this many multiprocessors, on every GPU
LANES = 32
VECTOR_BYTES = 16
GROUP = 4  # elements of a lane that are looked at together
MAX_WANTED = 2048  # results of a launch: more take several launches, each of which reads the rows
MANY = 512  # results: a sort of up to twice as many takes longer than to find these
MAX_HELD = 18  # candidates a thread has in registers, in small blocks
THREADS, HEAVY_THREADS, WIDE_THREADS = 512, 384, 320  # two blocks on a multiprocessor: 64, 80, 96 registers a thread
LIGHT_THREADS = 256  # smaller blocks have 80 registers a thread
ROW_THREADS = 64  # of a block that has a row for itself, where there are many rows: few threads wait at barriers
ROW_UNROLL = {1: 2, 2: 4, 4: 8, 8: 8}  # vectors of a lane there, by the size of an element: up to 32 elements
RESIDENT_THREADS = 1024  # of a multiprocessor, at least, where rows are few
MAX_BLOCKS = 16
FIRST_MILESTONE, MILESTONE_STEP, MILESTONE_PARTS = (
    1,
    7,
    16,
)  # blocks that share a row exchange bounds after 1, 8, 15 / 16
MIN_CHUNKS = 4  # of a warp, where several blocks share a row
NARROW_INDEX = 1 << 31
SHORT_WARPS = 8  # of a block whose warps have a row each
SHORT_WORDS = 32  # registers of a lane for the elements of its row
# The lane whose greatest element is the limit is in the middle at most: of random rows, some 22 elements then reach it.
# With 32 results of rows of 1024 int8 it is the last one, and the search for a better limit takes twice as long as
# blocks do (H200: 2472 us, 1272).
MAX_SHORT_WANTED = LANES // 2


@dataclass(frozen=True)
class Problem:
    """``rows`` of ``length`` elements of ``size`` bytes, ``neighbours`` in memory or not, of each of which ``wanted``
    are wanted. ``after``: only those behind another result."""

    rows: int
    length: int
    size: int
    neighbours: bool
    wanted: int
    after: bool


@dataclass(frozen=True)
class TopKPolicy(Policy, kernel=".kernel:TopKKernel"):
    """Blocks of ``threads`` with room for ``capacity`` candidates; a lane loads ``unroll`` vectors of a chunk, or so
    many elements without ``vectors``. ``split``: several blocks share a row. ``wide``: indexes have 64 bits.
    ``seed``: the first chunks give a "limit" before any candidate is kept, or tell a "share" of the wanted elements to
    the other blocks of the row (None: neither). ``bounded``: elements count behind the last result of the launch
    before. ``exact``: candidates are cut back to as many as are wanted before they are sorted. Rows are numbered along
    ``rank`` axes."""

    threads: int
    unroll: int
    capacity: int
    vectors: bool
    split: bool
    wide: bool
    seed: str | None
    bounded: bool
    exact: bool
    blocks_per_sm: int
    key_bytes: int
    rank: int = 1

    @property
    def smem(self) -> int:
        """The bytes of shared memory (see ``pool.Pools.bytes``)."""
        entry = self.key_bytes + (8 if self.wide else 4)
        return entry * self.capacity + 16 * (self.threads // LANES) + 128


@dataclass(frozen=True)
class ShortPolicy(Policy, kernel=".short:ShortTopK"):
    """Warps that have a row each: a lane holds ``unroll`` vectors of ``width`` elements."""

    width: int
    unroll: int
    key_bytes: int
    blocks_per_sm: int
    rank: int = 1
    split = wide = False

    @property
    def smem(self) -> int:
        """The bytes of shared memory: a candidate a lane."""
        return SHORT_WARPS * LANES * (self.key_bytes + 4) + 32


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``splits`` blocks a row."""

    policy: TopKPolicy | ShortPolicy
    splits: int
    grid: int


def short(problem: Problem) -> Choice | None:
    """Return the launch of warps that have a row each, if rows are short enough for them."""
    each = power_of_two(max(1, ceil_div(problem.length, LANES)))
    words = max(1, problem.size // 4) * each
    if problem.after or problem.wanted > MAX_SHORT_WANTED or words > SHORT_WORDS:
        return None
    width = min(each, VECTOR_BYTES // problem.size) if problem.neighbours else 1
    width = 1 if width * problem.size < 4 else width
    blocks = 4 if words <= SHORT_WORDS // 2 else 3
    policy = ShortPolicy(width, each // width, 8 if problem.size == 8 else 4, blocks)
    return Choice(policy, 1, ceil_div(problem.rows, SHORT_WARPS))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    found = short(problem)
    if found is not None:
        return found
    size, vectors, keep = problem.size, problem.neighbours, problem.wanted + problem.wanted // 4
    width = VECTOR_BYTES // size if vectors else 1
    unroll = (2 if size == 1 else 4) if vectors else 8
    wide = problem.length >= NARROW_INDEX
    heavy = size != 4 or problem.after or wide  # more registers a thread, so fewer threads
    most = WIDE_THREADS if size != 4 or wide else HEAVY_THREADS if heavy else THREADS
    chunks = problem.length // (LANES * width * unroll)
    splits = min(max(1, 2 * SMS // problem.rows), chunks // (MIN_CHUNKS * most // LANES))
    threads = most
    if splits <= 1:
        unroll = ROW_UNROLL[size] if vectors else unroll
        chunks = problem.length // (LANES * width * unroll)
        enough = max(ROW_THREADS, power_of_two_below(RESIDENT_THREADS * SMS // problem.rows))
        threads = max(LANES, min(enough, most // 2, power_of_two_below(chunks // 2) * LANES))
    if vectors and chunks < 2:
        unroll = 1
    room = max(keep + LANES * width * unroll, power_of_two(keep))  # for a chunk, and for a sort
    threads = max(threads, min(most, power_of_two(ceil_div(room, MAX_HELD))))
    capacity = ceil_div(max(room, 4 * threads), threads) * threads
    each = 2 * most if heavy else 768 if threads < LIGHT_THREADS else 1024
    policy = TopKPolicy(
        threads,
        unroll,
        capacity,
        vectors,
        splits > 1,
        wide,
        None if problem.after else seeding(problem.wanted, splits, threads * max(1, unroll * width // GROUP)),
        problem.after,
        problem.wanted >= MANY,
        min(MAX_BLOCKS, each // threads),
        8 if size == 8 else 4,
    )
    return Choice(policy, max(1, splits), problem.rows * max(1, splits))


def seeding(wanted: int, splits: int, groups: int) -> str | None:
    """What the greatest keys of so many groups can tell."""
    if 2 * wanted <= groups:
        return "limit"
    return "share" if splits > 1 and 2 * ceil_div(wanted, splits) <= groups else None
