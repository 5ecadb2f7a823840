"""How an access of an asynchronous operation is judged: ordered after what it conflicts with, and fenced where that was a generic access."""

from __future__ import annotations

import numpy as np

from .clocks import ACTORS, GLOBAL, LANES, SHARED, Clock
from .memory import SHARED_START
from .shadow import ACTOR_AT, ACTOR_MASK, BLOCK_AT, SHIFT, SITE_BITS, TIME_AT, cnz, happened


class AsyncAccess:
    """An operation started by ``lane`` accesses the granules ``index``; ``proxy``: through the async proxy."""

    def __init__(self, sanitizer, warp, lane: int, region, index: np.ndarray, site: int, write: bool, proxy: bool = True):
        self.sanitizer, self.warp, self.lane, self.region, self.index, self.site = sanitizer, warp, lane, region, index, site
        self.write, self.proxy = write, proxy
        self.own = np.int64(int(warp.key_base[lane]) >> ACTOR_AT)
        self.clock = warp.clock.of(lane)
        self.space = GLOBAL if region.base > SHARED_START else SHARED

    def key(self, actor: int, time: int) -> np.int64:
        warp, site = self.warp, min(self.site, (1 << SITE_BITS) - 1)
        return np.int64((warp.block.number + 1) << BLOCK_AT | (warp.index * ACTORS + actor) << ACTOR_AT | time << TIME_AT | site)

    def overwrites(self, rows: int | None = None) -> None:
        """Judge it against what has been read, or against the first ``rows`` rows of reads.

        A write settles all of them: what comes later must be ordered after it.
        """
        shadow = self.region.shadow
        if shadow.reads is None:
            return
        earlier = shadow.reads[:rows, self.index]
        if cnz(earlier):
            for row in earlier:
                self.judge(row, "read")
            if rows is None:
                shadow.reads[:, self.index] = 0

    def judge(self, earlier: np.ndarray, before: str) -> None:
        """Earlier accesses of the granules, reads or writes as ``before`` says: what was read may be overwritten once it is over."""
        if not cnz(earlier):
            return
        clocks = [self.clock, self.clock.seen] if before == "read" and self.clock.seen else [self.clock]
        if cnz(earlier != earlier[0]):
            bad = self._unordered(earlier, self.own, [clock.known for clock in clocks])
            generic = np.where(((earlier >> SHIFT["actor"]) & ACTOR_MASK) % ACTORS < LANES, earlier, 0) if self.proxy else None
            unfenced = self._unordered(generic, np.int64(-1), [clock.proxied[self.space] for clock in clocks]) if self.proxy else False
        else:                           # one operation or thread did it all: the usual case of a stage
            key = int(earlier[0])
            generic = (key >> ACTOR_AT & int(ACTOR_MASK)) % ACTORS < LANES
            bad = key >> ACTOR_AT != self.own and not any(happened(key, clock.known) for clock in clocks)
            unfenced = self.proxy and generic and not any(happened(key, clock.proxied[self.space]) for clock in clocks)
        granule = self.region.shadow.granule
        if cnz(bad):
            at = int(np.flatnonzero(bad)[0])
            now = "write" if self.write else "read"
            self.sanitizer.race(self.warp, self.lane, self.region, int(self.index[at]) * granule, granule, int(earlier[at]), self.site, before, now)
        if cnz(unfenced):
            at = int(np.flatnonzero(unfenced)[0])
            self.missing_fence(int(self.index[at]) * granule, int(earlier[at]), before)

    def _unordered(self, earlier: np.ndarray, own: np.int64, tables: list[dict]) -> np.ndarray:
        bad = self.sanitizer.unordered(earlier, own, Clock(tables[0]), self.warp.block.number, 0)
        for table in tables[1:]:
            if cnz(bad):
                bad &= self.sanitizer.unordered(earlier, own, Clock(table), self.warp.block.number, 0)
        return bad

    def missing_fence(self, offset: int, key: int, before: str) -> None:
        machine, other = self.sanitizer.machine, key & ((1 << SITE_BITS) - 1)
        read = before == "read"
        lines = [f"its asynchronous operation {'write' if self.write else 'read'}s byte {offset - self.region.low} of {self.region.name}, "
                 f"which an ordinary {'load read' if read else 'store wrote'}"]
        if other:
            lines.append(f"  at {machine.program.sites[other - 1].where()}")
        if read:
            where = "in the reader after its last read and before it releases, or in the thread that starts the operation, after it waited"
            title = "no fence.proxy.async between an ordinary load and the asynchronous write of the same bytes"
        else:
            where = "in the writer before it signals, or in the reader after it waited"
            title = "no fence.proxy.async between an ordinary store and the async proxy"
        fence = "fence.proxy.async" if self.space == SHARED else "fence.proxy.async (without .shared, for this is global memory)"
        lines.append(f"a {fence} must stand between them: {where}")
        machine.fail("proxy-read" if read else "proxy", title, self.warp, [self.lane], self.site, lines)
