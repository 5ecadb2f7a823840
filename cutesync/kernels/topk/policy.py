"""Which sizes a top-k has: a pure function of lengths, types and strides, not of the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..hardware import LANES, LINE_BYTES, SMS, VECTOR_BYTES
from ..policy import Policy

GROUP = 4  # elements of a lane that are looked at together
MAX_WANTED = 2048  # results of a launch: more take several launches, each of which reads the rows
BUCKETS, MAX_BUCKET = 2048, 64  # of many candidates that are ranked, and candidates of one
MANY = 512  # results: so many are ranked by buckets, fewer are sorted
MAX_HELD = 18  # candidates a thread has in registers, in small blocks
THREADS, HEAVY_THREADS, WIDE_THREADS = 512, 384, 320  # two blocks on a multiprocessor: 64, 80, 96 registers a thread
LIGHT_THREADS = 256  # smaller blocks have 80 registers a thread
ROW_THREADS = 64  # of a block that has a row for itself, where there are many rows: few threads wait at barriers
ROW_UNROLL = {1: 2, 2: 4, 4: 8, 8: 8}  # vectors of a lane there, by the size of an element: up to 32 elements
RESIDENT_THREADS = 1024  # of a multiprocessor, at least, where rows are few
MAX_BLOCKS = 16
MILESTONE_PARTS, MILESTONE_GROWTH = 16, 8  # blocks that share a row tell bounds after 1, 8, 16 / 16 of their share
MIN_CHUNKS = 4  # of a warp, where several blocks share a row
NARROW_INDEX = 1 << 31
HELD_GROUPS = 8  # groups of vectors of a thread, of a row in shared memory
# Results: of more the ranks take longer than rows take to come, but for rows of 32 vectors a result.
HELD_WANTED, HELD_CAPACITY = 64, 512  # results, and candidates
HELD_WARP_CAPACITY = 256  # of blocks of a warp, of which many are wanted: twice as many as results
HELD_THREADS, HELD_VECTORS, HELD_NARROW_VECTORS = 128, 32, 16  # threads at most, and vectors of one at least
HELD_RESIDENT = 1024  # threads of a multiprocessor
HELD_BYTES = 1 << 16  # of a row
MULTIPROCESSOR_BYTES = 227 << 10  # of shared memory
SHORT_WARPS = 4  # of a block whose warps have rows for themselves
# Of these blocks on a multiprocessor: 64 registers a thread, 80, 72 for elements of one and two bytes, and 128 for so
# many candidates of a lane, or as many as lanes if these are more. Such few take a stack, but more warps are faster
# (rows of 256, k = 8: 152 us, with 96 registers 159; of 1024 int8 371, 449; of 1024, k = 512: 2116, with 168 registers
# 2311). Four blocks are faster than five of rows of 256 int8, k = 128 (2143, 2302).
SHORT_LIGHT, SHORT_HEAVY, SHORT_NARROW, SHORT_MOST, SHORT_MANY = 8, 6, 7, 4, 16
SHORT_WORDS = 32  # registers of a lane for the elements of its row, at most
# Words of a lane where fewer than all lanes have a row. Of few candidates 32: fewer comparisons take shuffles (rows of
# 512, k = 16: 159 us, with 16 words 175), but by two lanes (64, k = 8: 256, 236; not int8: 662, 731) or with 16
# candidates a lane (256, k = 64: 562, 542) they are slower.
SHORT_FEW, SHORT_EACH = 32, 16
SHORT_FEW_LANES, SHORT_FEW_NARROW, SHORT_FEW_SLOTS = 4, 2, 8  # lanes at least, and candidates of one at most
# Where all elements are sorted 8: stores of more lanes lie side by side (64, k = 64: 637 us, with 16 words 816), but
# not where few are stored (16, k = 1: 428 by four lanes, 368 by two). 4 of rows of 32 (k = 32: 643, 813), and 16 of 256
# of one and two bytes (int8, k = 128: 2143, 2470).
SHORT_ALL, SHORT_ALL_NARROW = 8, 16
SHORT_HALF = 8  # groups of elements that reach the limit, at least
# So many results of rows of 4 KiB are found by ranks: of 1024 float32, k = 1 and 8, in 125 and 143 us, by sorted words
# in 140 and 146.
FEW_WANTED, FEW_BYTES = 8, 4096
FEW_WARPS, FEW_BLOCKS = 8, 3  # 80 registers a thread


@dataclass(frozen=True)
class Problem:
    """``rows`` of ``length`` elements of ``size`` bytes, ``neighbours`` in memory or not, of each of which ``wanted``
    are wanted. ``after``: only those behind another result. ``even``: rows begin at whole vectors if the first does."""

    rows: int
    length: int
    size: int
    neighbours: bool
    wanted: int
    after: bool
    even: bool = True


@dataclass(frozen=True)
class TopKPolicy(Policy, kernel=".kernel:TopKKernel"):
    """Blocks of ``threads`` with room for ``capacity`` candidates; a lane loads ``unroll`` vectors of a chunk, or so
    many elements without ``vectors``. ``split``: several blocks share a row. ``wide``: indexes have 64 bits.
    ``seed``: the first chunks give a "limit" before any candidate is kept, or tell a "share" of the wanted elements to
    the other blocks of the row (None: neither). ``bounded``: elements count behind the last result of the launch
    before. ``exact``: candidates are ranked by buckets, or cut back to as many as are wanted before they are sorted.
    Rows are numbered along ``rank`` axes."""

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
        """Upper bound of the shared memory (see ``pool.Pools.make``)."""
        entry = self.key_bytes + (8 if self.wide else 4)
        counters = 4 * (ceil_div(BUCKETS, self.threads) * self.threads + 1) if self.exact else 0
        return entry * self.capacity + 16 * (self.threads // LANES) + 128 + counters


@dataclass(frozen=True)
class ShortPolicy(Policy, kernel=".short:ShortTopK"):
    """Warps of which ``lanes`` lanes have a row each: a lane holds ``unroll`` vectors of ``width`` elements, and
    ``slots`` candidates. They are all elements if these are as many."""

    width: int
    unroll: int
    lanes: int
    slots: int
    key_bytes: int
    blocks_per_sm: int
    rank: int = 1
    split = wide = False
    warps = SHORT_WARPS

    @property
    def smem(self) -> int:
        """The bytes of shared memory: a key and an index for each candidate."""
        return self.warps * LANES * self.slots * (self.key_bytes + 2) + 32


@dataclass(frozen=True)
class FewPolicy(ShortPolicy, kernel=".few:FewTopK"):
    """Warps that have a row each, and a candidate a lane."""

    warps = FEW_WARPS

    @property
    def smem(self) -> int:
        """The bytes of shared memory: a key and an index of 32 bits for each candidate."""
        return self.warps * LANES * (self.key_bytes + 4) + 32


@dataclass(frozen=True)
class HeldPolicy(Policy, kernel=".held:HeldTopK"):
    """Blocks of ``threads`` that have rows of up to ``elements`` elements of ``size`` bytes in shared memory, with room
    for ``capacity`` candidates. A thread looks at ``groups`` of vectors."""

    threads: int
    groups: int
    elements: int
    size: int
    capacity: int
    blocks_per_sm: int
    rank: int = 1
    split = wide = False

    @property
    def key_bytes(self) -> int:
        return 8 if self.size == 8 else 4

    @property
    def smem(self) -> int:
        """Upper bound of the shared memory (see ``pool.Pools.make``)."""
        row = (ceil_div(self.size * self.elements, LINE_BYTES) + 1) * LINE_BYTES
        places = 4 if self.size == 8 else 0
        return (
            row
            + (8 + places + self.size) * self.capacity
            + self.groups * self.threads
            + 16 * (self.threads // LANES)
            + 256
        )


@dataclass(frozen=True)
class HeldWarpPolicy(HeldPolicy, kernel=".held_warp:HeldWarpTopK"):
    """Blocks of a warp, which sorts ``slots`` candidates a lane."""

    slots: int = 1


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``splits`` blocks a row."""

    policy: TopKPolicy | ShortPolicy | HeldPolicy
    splits: int
    grid: int


def short(problem: Problem) -> Choice | None:
    """Return the launch of warps whose lanes share rows, if rows are short enough for them."""
    words, size = max(1, problem.size // 4), problem.size
    padded = power_of_two(max(problem.length, problem.wanted, 2))
    each, lanes, candidates = short_sizes(padded, problem)
    if problem.after or each * words > SHORT_WORDS:
        return None
    # Rows that begin anywhere are loaded element by element, but not those of one and two bytes (int8 of 250, k = 8:
    # 753 us, by vectors, of which a lane has 16 elements, 567).
    vectors = problem.neighbours and (problem.even or size < 4)
    width = min(each, VECTOR_BYTES // size) if vectors else 1
    width = 1 if width * size < 4 else width
    sizes, key_bytes = (width, each // width, lanes), 8 if size == 8 else 4
    if size >= 4 and size * padded == FEW_BYTES and problem.wanted <= FEW_WANTED and problem.even:
        return Choice(FewPolicy(*sizes, 1, key_bytes, FEW_BLOCKS), 1, ceil_div(problem.rows, FEW_WARPS))
    slots = candidates // lanes
    heavy = SHORT_NARROW if size < 4 else SHORT_HEAVY
    blocks = SHORT_LIGHT if max(each, 2 * slots) * words <= SHORT_WORDS // 2 else heavy
    blocks = SHORT_MOST if slots >= max(SHORT_MANY, lanes) else blocks
    policy = ShortPolicy(*sizes, slots, key_bytes, blocks)
    return Choice(policy, 1, ceil_div(problem.rows, SHORT_WARPS * (LANES // lanes)))


def short_sizes(padded: int, problem: Problem) -> tuple[int, int, int]:
    """``(elements of a lane, lanes, candidates)`` of rows of ``padded`` elements."""
    wanted, size = problem.wanted, problem.size

    def sizes(words: int) -> tuple[int, int, int]:
        each = max(padded // LANES, min(words // max(1, size // 4), padded // 2))
        lanes = padded // each
        return each, lanes, min(padded, 2 * max(SHORT_HALF, power_of_two(wanted), lanes // 2))

    _, lanes, candidates = found = sizes(SHORT_FEW if problem.even or size >= 4 else SHORT_EACH)
    if lanes < (SHORT_FEW_NARROW if size < 4 else SHORT_FEW_LANES) or candidates > SHORT_FEW_SLOTS * lanes:
        found = sizes(SHORT_EACH)
    if found[2] == padded:
        found = sizes(short_sorted(padded, wanted, size))
    return found


def short_sorted(padded: int, wanted: int, size: int) -> int:
    """The words of a lane where all elements are sorted."""
    if size < 4 and padded >= SHORT_ALL * LANES:
        return SHORT_ALL_NARROW
    if 4 * wanted <= padded:
        return SHORT_ALL
    # The results of four lanes at least lie side by side, those of eight where these have four elements.
    return min(SHORT_ALL, max(2, padded // 4) if padded < 32 or size == 8 else padded // 8)


def held(problem: Problem) -> Choice | None:
    """Return the launch of blocks that have rows in shared memory."""
    elements, wanted = power_of_two(problem.length), problem.wanted
    if not problem.neighbours or not problem.even or problem.after or elements * problem.size > HELD_BYTES:
        return None
    vectors = elements * problem.size // VECTOR_BYTES
    threads = max(LANES, min(HELD_THREADS, vectors // (HELD_VECTORS if problem.size >= 4 else HELD_NARROW_VECTORS)))
    alone = threads == LANES  # a warp that sorts
    most = HELD_GROUPS * LANES // 2 if alone else max(HELD_WANTED, vectors // LANES)
    if 2 * wanted > min(vectors, HELD_GROUPS * threads) or wanted > most:
        return None
    sizes = threads, HELD_GROUPS, elements, problem.size, HELD_WARP_CAPACITY if alone else HELD_CAPACITY, 1
    slots = ceil_div(2 * power_of_two(wanted), LANES)
    policy = HeldWarpPolicy(*sizes, slots=slots) if alone else HeldPolicy(*sizes)
    blocks = min(MULTIPROCESSOR_BYTES // (policy.smem + 1024), HELD_RESIDENT // threads)
    if problem.rows < blocks * SMS // 2:
        return None
    policy = replace(policy, blocks_per_sm=blocks)
    return Choice(policy, 1, min(problem.rows, blocks * SMS))


def choose(problem: Problem) -> Choice:
    """Return the policy and the launch of a problem."""
    found = short(problem) or held(problem)
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
    threads = max(threads, power_of_two(ceil_div(room, MAX_HELD)))
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
