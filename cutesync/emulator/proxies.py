"""How an asynchronous operation's access is judged: after what it conflicts with, and fenced where that was generic."""

from __future__ import annotations

import numpy as np

from .clocks import ACTORS, GLOBAL, LANES, SHARED, Clock
from .memory import SHARED_START
from .shadow import ACTOR_AT, ACTOR_MASK, BLOCK_AT, SHIFT, SITE_BITS, TIME_AT, cnz, happened


class AsyncAccess:
    """An operation started by ``lane`` accesses the granules ``index``; ``proxy``: through the async proxy."""

    def __init__(self, sanitizer, warp, lane: int, region, index, site: int, write: bool, proxy: bool = True):
        self.sanitizer, self.warp, self.lane, self.region = sanitizer, warp, lane, region
        self.index, self.site, self.write, self.proxy = index, site, write, proxy
        self.own = np.int64(int(warp.key_base[lane]) >> ACTOR_AT)
        self.clock = warp.clock.of(lane)
        self.space = GLOBAL if region.base > SHARED_START else SHARED

    def key(self, actor: int, time: int) -> np.int64:
        warp, site = self.warp, min(self.site, (1 << SITE_BITS) - 1)
        block, actor = warp.block.number + 1, warp.index * ACTORS + actor
        return np.int64(block << BLOCK_AT | actor << ACTOR_AT | time << TIME_AT | site)

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
        """Earlier accesses, each a "read" or "write" (``before``). What was read may be overwritten once it is over."""
        if not cnz(earlier):
            return
        clocks = [self.clock, self.clock.seen] if before == "read" and self.clock.seen else [self.clock]
        if cnz(earlier != earlier[0]):
            bad = self._unordered(earlier, self.own, [clock.known for clock in clocks])
            generic = np.where(((earlier >> SHIFT["actor"]) & ACTOR_MASK) % ACTORS < LANES, earlier, 0)
            unfenced = False
            if self.proxy and cnz(generic):
                unfenced = self._unordered(generic, np.int64(-1), [clock.proxied[self.space] for clock in clocks])
        else:  # one operation or thread did it all: the usual case of a stage
            key = int(earlier[0])
            generic = (key >> ACTOR_AT & int(ACTOR_MASK)) % ACTORS < LANES
            bad = key >> ACTOR_AT != self.own and not any(happened(key, clock.known) for clock in clocks)
            unfenced = self.proxy and generic and not any(happened(key, clock.proxied[self.space]) for clock in clocks)
        granule = self.region.shadow.granule
        if cnz(bad):
            at = int(np.flatnonzero(bad)[0])
            offset, key, now = int(self.index[at]) * granule, int(earlier[at]), "write" if self.write else "read"
            self.sanitizer.race(self.warp, self.lane, self.region, offset, granule, key, self.site, before, now)
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
        now, then = "write" if self.write else "read", "load read" if read else "store wrote"
        lines = [
            f"its asynchronous operation {now}s byte {offset - self.region.low} of {self.region.name}, "
            f"which an ordinary {then}"
        ]
        if other:
            lines.append(f"  at {machine.program.sites[other - 1].where()}")
        if read:
            where = "in the reader between its last read and its release, or in who starts the operation after its wait"
            title = "no fence.proxy.async between an ordinary load and the asynchronous write of the same bytes"
        else:
            where = "in the writer before it signals, or in the reader after it waited"
            title = "no fence.proxy.async between an ordinary store and the async proxy"
        fence = "fence.proxy.async" + ("" if self.space == SHARED else " (without .shared, for this is global memory)")
        lines.append(f"a {fence} must stand between them: {where}")
        machine.fail("proxy-read" if read else "proxy", title, self.warp, [self.lane], self.site, lines)
