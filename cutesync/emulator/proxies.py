"""Checks an asynchronous operation's access: ordered after what it conflicts with, fenced after generic accesses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import route
from .async_copy import Issue
from .clocks import ACTORS, GLOBAL, LANES, SHARED
from .lanes import count_nonzero as cnz
from .memory import SHARED_START, Region
from .shadow import ACTOR_AT, ACTOR_MASK, ACTOR_SHIFT, BLOCK_AT, READ_ROWS, SITE_MASK, TIME_AT, Access, happened

# Of a fence that is missing after a read or a write: the kind of report, what came before, what the fence must separate
# and where it must be.
_FENCES = {
    "read": (
        "proxy-read",
        "load read",
        "an ordinary load and the asynchronous write of the same bytes",
        "in the reader between its last read and its release, or in the thread that starts it, after its wait",
    ),
    "write": (
        "proxy",
        "store wrote",
        "an ordinary store and the async proxy",
        "in the writer before it signals, or in the reader after it waited",
    ),
}

_FOREIGN = "note", "by a wgmma, of rows of A that another warp of its warpgroup multiplies: read and write"
Unchanged = Callable[[np.ndarray, int], bool]  # of granules: their byte offsets and their size


def event_key(issue: Issue, actor: int, time: int) -> int:
    """The key in shadow memory of an event of an asynchronous operation."""
    warp, site = issue.warp, min(issue.site, int(SITE_MASK))
    block, actor = warp.block.number + 1, warp.index * ACTORS + actor
    return block << BLOCK_AT | actor << ACTOR_AT | time << TIME_AT | site


class AsyncAccess:
    """An operation of one lane (``issue``) accesses the granules ``index``; ``proxy``: through the async proxy."""

    def __init__(
        self, sanitizer, issue: Issue, region: Region, index: np.ndarray | slice, write: bool, proxy: bool = True
    ):
        self.sanitizer, self.issue, self.region, self.index, self.proxy = sanitizer, issue, region, index, proxy
        self.verb = "write" if write else "read"
        self.shadow = sanitizer.shadow(region)
        self.own = np.int64(issue.warp.actor_keys[issue.lane])
        self.clock = issue.warp.clock.of(issue.lane)
        self.space = GLOBAL if region.base > SHARED_START else SHARED
        self.unchanged: Unchanged | None = None  # of a write: whether it leaves these bytes as they are
        self.foreign = False  # whether other warps of its warpgroup multiply these rows of A

    def key(self, actor: int, time: int) -> np.int64:
        return np.int64(event_key(self.issue, actor, time))

    def place(self, at: int) -> int:
        """The offset of one of the granules in bytes."""
        index = self.index
        return (index.start + at if isinstance(index, slice) else int(index[at])) * self.shadow.granule

    def clear(self, issue: Issue, key: int) -> bool:
        """Whether another issue of the operation may follow an earlier write (a key) without any further question: its
        lane knows a write of the async proxy."""
        clock = issue.warp.clock.of(issue.lane)
        return (key >> ACTOR_AT & int(ACTOR_MASK)) % ACTORS >= LANES and happened(key, clock.known)

    def overwrite(self, of_threads_only: bool = False) -> None:
        """Check it against the reads so far, or against those of threads.

        A write makes all of them obsolete: what comes later must be ordered after it.
        """
        for row, reads in self.shadow.reads.items():
            if row < READ_ROWS or not of_threads_only:
                self.check(reads[self.index], "read")
                if not of_threads_only:
                    reads[self.index] = 0

    def check(self, earlier: np.ndarray, before: str) -> None:
        """Check it against earlier accesses (keys), each a "read" or "write" (``before``).

        Bytes may be overwritten once their reads are known to be over.
        """
        if not cnz(earlier):
            return
        clocks = [self.clock, self.clock.invisible] if before == "read" and self.clock.invisible else [self.clock]
        known, fenced = [clock.known for clock in clocks], [clock.proxied[self.space] for clock in clocks]
        bad: np.ndarray | bool
        unfenced: np.ndarray | bool = False
        if cnz(earlier != earlier[0]):
            block = self.issue.warp.block.number
            bad = self.sanitizer.unordered(earlier, self.own, known, block)
            generic = np.where(((earlier >> ACTOR_SHIFT) & ACTOR_MASK) % ACTORS < LANES, earlier, 0)
            if self.proxy and cnz(generic):
                unfenced = self.sanitizer.unordered(generic, np.int64(-1), fenced, block)
        else:  # one operation or thread did it all: the usual case of a stage
            key = int(earlier[0])
            bad = bool(key >> ACTOR_AT != self.own) and not any(happened(key, table) for table in known)
            if self.proxy and (key >> ACTOR_AT & int(ACTOR_MASK)) % ACTORS < LANES:
                unfenced = not any(happened(key, table) for table in fenced)
        granule, issue = self.shadow.granule, self.issue
        if cnz(bad) and before == self.verb == "write" and self.clock.invisible:
            bad &= ~self.landed(earlier)
        if cnz(bad):
            bad = np.broadcast_to(bad, earlier.shape)
            at = int(np.flatnonzero(bad)[0])
            access, place = Access(issue.site, granule, self.verb), (self.region, self.place(at))
            unchanged = before == "write" and self.writes_the_same(np.flatnonzero(bad), earlier)
            harmless = ("warning", "writes of the same value") if unchanged else _FOREIGN if self.foreign else None
            self.sanitizer.race(access, issue.warp, issue.lane, place, int(earlier[at]), before, harmless)
        if cnz(unfenced) and not self.foreign:
            at = int(np.flatnonzero(unfenced)[0])
            self.missing_fence(self.place(at), int(earlier[at]), before)

    def landed(self, earlier: np.ndarray) -> np.ndarray:
        """Which earlier writes are of asynchronous operations that have landed: somebody who waited on their mbarrier
        has arrived since, at whatever scope. What has been observed may be overwritten, as what has been read may."""
        block, invisible = self.issue.warp.block.number, self.clock.invisible
        over = ~self.sanitizer.unordered(earlier, np.int64(-1), [invisible.known] if invisible else [], block)
        return (((earlier >> ACTOR_SHIFT) & ACTOR_MASK) % ACTORS >= LANES) & over

    def writes_the_same(self, places: np.ndarray, earlier: np.ndarray) -> bool:
        """Whether asynchronous operations have written, or are about to write, the same bytes to these granules."""
        keys, granule = set(np.unique(earlier[places]).tolist()), self.shadow.granule
        if self.unchanged is None or any((key >> ACTOR_AT & int(ACTOR_MASK)) % ACTORS < LANES for key in keys):
            return False
        for operation in list(self.issue.machine.pending):
            if operation.write_event is not None and event_key(operation, *operation.write_event) in keys:
                while not operation.done:
                    operation.step(0)
        return self.unchanged(np.array([self.place(int(at)) for at in places]), granule)

    def missing_fence(self, offset: int, key: int, before: str) -> None:
        other, (kind, then, what, where) = key & int(SITE_MASK), _FENCES[before]
        lines = [
            f"its asynchronous operation {self.verb}s byte {offset - self.region.low} of {self.region.name}, "
            f"which an ordinary {then}"
        ]
        if other:
            lines.append(f"  at {self.issue.machine.program_of((key >> BLOCK_AT) - 1).sites[other - 1].where()}")
        lines += route.since_access(self.issue.machine, key)
        fence = "fence.proxy.async" + ("" if self.space == SHARED else " (without .shared, for this is global memory)")
        lines.append(f"a {fence} must stand between them: {where}")
        self.issue.found(kind, f"no fence.proxy.async between {what}", lines)
