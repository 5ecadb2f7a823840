"""Shadow memory: what happened to each granule of a region, as keys of block, actor, time, scope and instruction."""

from __future__ import annotations

import numpy as np

from .clocks import Clock

SITE_BITS, SCOPE_BITS, TIME_BITS, ACTOR_BITS = 12, 2, 21, 11
TIME_AT = SITE_BITS + SCOPE_BITS
ACTOR_AT = TIME_AT + TIME_BITS
BLOCK_AT = ACTOR_AT + ACTOR_BITS
WEAK, CTA, CLUSTER, GPU = 0, 1, 2, 3
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "sys": GPU}
READ_ROWS, ASYNC_ROWS = 8, 8
_LOG_LIMIT = 20000
SHIFT = {name: np.int64(value) for name, value in (("time", TIME_AT), ("actor", ACTOR_AT), ("block", BLOCK_AT))}
TIME_MASK, ACTOR_MASK = np.int64((1 << TIME_BITS) - 1), np.int64((1 << ACTOR_BITS) - 1)
cnz = np.count_nonzero


def happened(key: int, known: dict | None) -> bool:
    """Whether the access that a key stands for is among known events."""
    times = known.get((key >> BLOCK_AT) - 1) if known else None
    return times is not None and times[key >> ACTOR_AT & (1 << ACTOR_BITS) - 1] >= key >> TIME_AT & (1 << TIME_BITS) - 1


class Location:
    """What was released at one address, by scope."""

    __slots__ = ("released",)

    def __init__(self):
        self.released: dict[tuple, Clock] = {}


class Shadow:
    """What happened to each granule of a region."""

    def __init__(self, size: int):
        self.size = size
        self.granule = 4
        self.writes = np.zeros(-(-size // 4), np.int64)
        self.reads: np.ndarray | None = None
        self.written = False
        self.log: list[tuple] = []
        self.locations: dict[int, Location] = {}

    def refine(self, granule: int) -> None:
        self.flush()
        if granule >= self.granule:  # what was noted was finer still
            return
        factor = self.granule // granule
        self.writes = self.writes.repeat(factor)
        if self.reads is not None:
            self.reads = self.reads.repeat(factor, axis=1)
        self.granule = granule

    def index(self, rows: np.ndarray, size: int) -> np.ndarray:
        """Granules of units of ``size`` bytes: shape (units,) or (units, granules a unit)."""
        if size < self.granule:
            self.refine(size)
        factor = size // self.granule
        return rows if factor == 1 else rows[:, None] * factor + np.arange(factor)

    def granules(self, offsets: np.ndarray, unit: int) -> np.ndarray:
        """Granules of units of ``unit`` bytes at byte ``offsets``, all in one row."""
        first = offsets // self.granule
        return first if unit <= self.granule else (first[:, None] + np.arange(unit // self.granule)).reshape(-1)

    def note_read(self, row: int, rows: np.ndarray, size: int, keys: np.ndarray) -> None:
        self.log.append((row, rows, size, keys))
        if len(self.log) > _LOG_LIMIT:
            self.flush()

    def tabulate_reads(self) -> np.ndarray:
        if self.reads is None:
            self.reads = np.zeros((READ_ROWS + ASYNC_ROWS, len(self.writes)), np.int64)
        return self.reads

    def flush(self) -> None:
        if self.log:
            self.tabulate_reads()
        log, self.log = self.log, []
        for row, rows, size, keys in log:
            if size < self.granule:
                self.log = []
                self.refine(size)
            index = self.index(rows, size)
            self.reads[row][index] = keys if index.ndim == 1 else keys[:, None]
