"""Shadow memory: the last accesses to each granule of a region, as keys of block, actor, time, scope and instruction.

A key packs, from the low bits up, the instruction (its site), the scope, the time, the actor and the block plus one; 0
is no access.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from .clocks import Clock
from .lanes import count_nonzero as cnz

SITE_BITS, SCOPE_BITS, TIME_BITS, ACTOR_BITS = 12, 3, 20, 11
TIME_AT = SITE_BITS + SCOPE_BITS
ACTOR_AT = TIME_AT + TIME_BITS
BLOCK_AT = ACTOR_AT + ACTOR_BITS
WEAK, CTA, CLUSTER, GPU, SYS = 0, 1, 2, 3, 4
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "sys": SYS}
READ_ROWS, ASYNC_ROWS = 32, 8  # tables of the reads of warps, and of asynchronous operations
GLOBAL_ROWS = 8  # of global memory, which has more readers: some of them share a table
SCOPE_SHIFT, TIME_SHIFT, ACTOR_SHIFT, BLOCK_SHIFT = map(np.array, (SITE_BITS, TIME_AT, ACTOR_AT, BLOCK_AT))
SITE_MASK, TIME_MASK, ACTOR_MASK = (np.array((1 << bits) - 1) for bits in (SITE_BITS, TIME_BITS, ACTOR_BITS))
SCOPE_MASK = np.array((1 << SCOPE_BITS) - 1)
NO_KEY = np.array(0)
_ACTORS, _TIMES = (1 << ACTOR_BITS) - 1, (1 << TIME_BITS) - 1
MAX_LOG = 20000
_LARGE = 1 << 15  # granules


class Order(NamedTuple):
    """The memory order of an access; the scope of an ordinary one is ``WEAK``. ``volatile``: one at system scope."""

    scope: int = WEAK
    acquires: bool = False
    releases: bool = False
    volatile: bool = False


ORDINARY = Order()


@dataclass
class Access:
    """A memory instruction at ``site``: each lane "read"s or "write"s ``size`` bytes. ``update``: it is atomic."""

    site: int
    size: int
    verb: str
    order: Order = ORDINARY
    update: bool = False

    def __post_init__(self):
        self.tail = self.order.scope << SITE_BITS | min(self.site, int(SITE_MASK))  # of its keys: scope and site


def happened(key: int, known: dict[int, np.ndarray]) -> bool:
    """Whether the access that a key stands for is among known events."""
    times = known.get((key >> BLOCK_AT) - 1)
    return times is not None and bool(times[key >> ACTOR_AT & _ACTORS] >= key >> TIME_AT & _TIMES)


def _nothing(count: int) -> np.ndarray:
    """A table of no accesses. Of a large one only the pages that are used take time and memory."""
    if count < _LARGE:
        return np.zeros(count, np.int64)
    pages: Any = mmap.mmap(-1, 8 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, np.int64)


class Shadow:
    """The shadow memory of one region. ``released``: the clocks released there, by byte offset and scope.

    A granule has 16 bytes, what one lane accesses at most, until something finer is accessed.
    """

    def __init__(self, size: int):
        self.granule = 16
        self.writes = _nothing(-(-size // 16))
        self.reads: dict[int, np.ndarray] = {}  # the tables of reads, by row
        self.written = False
        self.log: list[tuple[int, int, np.ndarray, np.ndarray, int]] = []  # reads that are not in the table yet:
        # row, size, units of that size, and keys as a base for each lane and a number to add
        self.released: dict[int, dict[tuple, Clock]] = {}

    def nbytes(self) -> int:
        """About."""
        return self.writes.nbytes * (1 + len(self.reads)) + 512 * len(self.log)

    def refine(self, granule: int) -> None:
        self.flush()
        if granule >= self.granule:  # a logged read was finer still
            return
        factor = self.granule // granule
        self.writes = self.writes.repeat(factor) if self.written else _nothing(len(self.writes) * factor)
        self.reads = {row: table.repeat(factor) for row, table in self.reads.items()}
        self.granule = granule

    def index(self, rows: np.ndarray, size: int) -> np.ndarray:
        """Granules of units of ``size`` bytes: shape (units,) or (units, granules a unit). May refine the tables."""
        if size < self.granule:
            self.refine(size)
        if size == self.granule:
            return rows
        factor = size // self.granule
        return rows[:, None] * factor + np.arange(factor)

    def granules(self, offsets: np.ndarray, unit: int) -> np.ndarray:
        """Granules of units of ``unit`` bytes at byte ``offsets``, all in one row."""
        first = offsets >> (self.granule.bit_length() - 1)
        return first if unit <= self.granule else (first[:, None] + np.arange(unit // self.granule)).reshape(-1)

    def read_table(self, row: int) -> np.ndarray:
        """The reads of the warps, or of the asynchronous operations, that share a row."""
        if row not in self.reads:
            self.reads[row] = _nothing(len(self.writes))
        return self.reads[row]

    def flush(self) -> None:
        """Move the logged reads into the table."""
        log, self.log = self.log, []
        for (row, size), entries in groupby(log, itemgetter(0, 1)):
            _, _, units, bases, tails = zip(*entries)
            keys = np.concatenate(bases) + np.repeat(np.array(tails), [len(base) for base in bases])
            index = self.index(np.concatenate(units), size)
            keys = keys if index.ndim == 1 else np.broadcast_to(keys[:, None], index.shape)
            table = self.read_table(row)
            before = table[index]
            table[index] = keys
            last = table[index]
            if cnz(before):
                self.keep_another(row, index, before, last)
            if last.tobytes() != keys.tobytes():  # some granules were read more than once
                self.keep_another(row, index, keys, last)

    def keep_another(self, row: int, index: np.ndarray, earlier: np.ndarray, last: np.ndarray) -> None:
        """Of each granule a read by another lane than the last one is kept, too: if that one writes there next, its own
        read hides nothing."""
        another = (earlier ^ last) >> ACTOR_SHIFT != NO_KEY
        another &= earlier != NO_KEY
        if cnz(another):
            self.read_table(~row)[index[another]] = earlier[another]
