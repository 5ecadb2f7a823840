"""Happens-before over shared and global memory, scopes and proxies included: finds two accesses that nothing orders.

Every region has shadow memory: per granule (4 bytes, finer once something finer is accessed) the last write and recent
reads, as keys that pack block, actor (see ``clocks``), time, scope and instruction. An access is fine if its thread's
clock knows the earlier one, or if both are strong operations whose scopes include each other. Reads are remembered per
warp (modulo 8) and lane position, so very many concurrent readers of one granule may hide one another; a hidden pair
shows under another schedule.

A launch that may start before the one before it has ended (``machine.programmatic``) may touch what any launch writes,
that is global memory, only where its clock knows of ``griddepcontrol.wait``: the thread's own, or that of a thread
which it has synchronized with since. (The wait makes memory visible to the grid. On an H200 a thread that does not wait
reads old values; one behind a barrier that another thread of its block or cluster has reached after waiting reads the
new ones.)

Release and acquire work per location: a release leaves the releaser's clock there, an acquire that is in scope takes
it.

A generic access and one of the async proxy (bulk and tensor copies, wgmma) to the same bytes need more than order: PTX
carries causality from one proxy to another only through a fence ("proxy-preserved base causality order"; a read before
a write is no exception, and NVIDIA's own code fences there: CUTLASS's epilogue before it releases C, CCCL after it has
read what cluster launch control wrote). So ``fence.proxy.async`` for that state space must lie on the way: after
ordinary stores ("proxy"), and after ordinary loads of what an asynchronous write then overwrites ("proxy-read"). Any
thread on the way will do, since fences compose with synchronization: the reader before it releases, or the one that
starts the copy after it has waited. What copies and tensor cores have read, and a generic access after an asynchronous
one, need its completion alone (PTX: an implicit proxy fence follows it).
"""

from __future__ import annotations

import numpy as np

from .clocks import ACTORS, LANES, PRECEDING, Clock, preceding
from .memory import SHARED_START, Region
from .proxies import AsyncAccess
from .report import lane_list
from .shadow import (
    ACTOR_AT,
    ACTOR_MASK,
    ASYNC_ROWS,
    BLOCK_AT,
    CLUSTER,
    CTA,
    GPU,
    READ_ROWS,
    SHIFT,
    SITE_BITS,
    TIME_AT,
    TIME_MASK,
    Location,
    Shadow,
    cnz,
)


class Sanitizer:
    """One launch's happens-before state. Every method that checks reports through ``machine.fail`` and does not return
    then.
    """

    def __init__(self, machine):
        self.machine = machine
        self.programmatic = machine.programmatic

    # --- the launch before -------------------------------------------------------------------------------------------

    def wait_for_preceding(self, f, lanes) -> None:
        """``griddepcontrol.wait`` by these lanes."""
        if self.programmatic:
            f.warp.learn(lanes, preceding())

    def touch(self, warp, lanes, region: Region, site: int) -> None:
        """These lanes (None: all 32) access a region, themselves or by an operation that they start."""
        if not self.programmatic or region.base <= SHARED_START or not region.writable:
            return
        if PRECEDING in warp.clock.common.known:  # so each lane knows it, too
            return
        for known, positions in warp.clock.groups(lanes):
            if PRECEDING not in known.known:
                numbers = np.arange(LANES) if lanes is None else lanes
                self.machine.fail(
                    "race",
                    "global memory touched before griddepcontrol.wait",
                    warp,
                    numbers if positions is None else numbers[positions],
                    site,
                    [
                        f"it accesses {region.name}, which the launch before it in the stream may still read or write",
                        "the launch is programmatic: a thread must pass griddepcontrol.wait, "
                        "or synchronize with one that has, before it touches global memory",
                    ],
                )

    # --- keys -------------------------------------------------------------------------------------------------------

    @staticmethod
    def shadow(region: Region) -> Shadow:
        if region.shadow is None:
            region.shadow = Shadow(region.high)
        return region.shadow

    @staticmethod
    def keys(f, lanes, site: int, scope: int) -> np.ndarray:
        warp = f.warp
        tail = np.int64(warp.clock.time << TIME_AT | scope << SITE_BITS | min(site, (1 << SITE_BITS) - 1))
        return warp.key_base + tail if lanes is None else warp.key_base[lanes] + tail

    def unordered(self, keys: np.ndarray, own: np.ndarray | int, clock: Clock, block: int, scope: int) -> np.ndarray:
        """Which of the earlier accesses ``keys`` are not ordered before the running one (``own``: the runner's actor
        keys).
        """
        actors, times = (keys >> SHIFT["actor"]) & ACTOR_MASK, (keys >> SHIFT["time"]) & TIME_MASK
        blocks = (keys >> SHIFT["block"]) - 1
        known = clock.known
        bad = keys != 0
        own_array = known.get(block)
        inside = blocks == block
        safe = np.where(inside, actors, 0) if own_array is not None else None
        if own_array is not None:
            bad &= ~(inside & (own_array[safe] >= times))
        bad &= (keys >> SHIFT["actor"]) != own
        if cnz(bad & ~inside):
            for other in np.unique(blocks[bad & ~inside]).tolist():
                theirs, array = blocks == other, known.get(other)
                if array is not None:
                    bad &= ~(theirs & (array[np.where(theirs, actors, 0)] >= times))
        if scope:
            bad &= ~self._morally_strong(keys, blocks, block, scope)
        return bad

    def _morally_strong(self, keys: np.ndarray, blocks: np.ndarray, block: int, scope: int) -> np.ndarray:
        """Both are strong and each one's scope includes the other's thread."""
        least = np.minimum((keys >> np.int64(SITE_BITS)) & 3, scope)
        size = self.machine.cluster_size
        return (
            (least == GPU)
            | ((least == CTA) & (blocks == block))
            | ((least == CLUSTER) & (blocks // size == block // size))
        )

    # --- accesses of threads ----------------------------------------------------------------------------------------

    def load(self, f, lanes, region: Region, rows: np.ndarray, size: int, site: int, scope: int, acquire: bool) -> None:
        self.touch(f.warp, lanes, region, site)
        shadow = region.shadow or self.shadow(region)
        keys = self.keys(f, lanes, site, scope)
        if shadow.written:
            self.compare(f, lanes, region, shadow, rows, size, site, scope, keys, "write", "read")
        shadow.note_read(f.warp.read_row, rows, size, keys)
        if scope:
            self.take(f, lanes, shadow, rows, size, scope, acquire)

    def store(
        self,
        f,
        lanes,
        region: Region,
        rows: np.ndarray,
        size: int,
        site: int,
        scope: int,
        release: bool,
        update: bool = False,
    ) -> None:
        self.touch(f.warp, lanes, region, site)
        shadow = region.shadow or self.shadow(region)
        keys = self.keys(f, lanes, site, scope)
        if shadow.log:
            shadow.flush()
        if shadow.written:
            self.compare(f, lanes, region, shadow, rows, size, site, scope, keys, "write", "write")
        if shadow.reads is not None:
            index = shadow.index(rows, size)
            earlier = shadow.reads[:, index]
            if cnz(earlier):
                for row in range(len(earlier)):
                    if cnz(earlier[row]):
                        self.judge(f, lanes, region, earlier[row], size, rows, site, scope, keys, "read", "write")
        index = shadow.index(rows, size)
        shadow.writes[index] = keys if index.ndim == 1 else keys[:, None]
        shadow.written = True
        if scope or shadow.locations:
            self.leave(f, lanes, shadow, rows, size, scope, release, update)

    def atomic(
        self, f, lanes, region: Region, rows, size: int, site: int, scope: int, acquire: bool, release: bool
    ) -> None:
        """A read-modify-write: a strong access that continues the release sequence at its place."""
        self.take(f, lanes, region.shadow or self.shadow(region), rows, size, scope, acquire)
        self.store(f, lanes, region, rows, size, site, scope, release, update=True)

    def compare(self, f, lanes, region, shadow, rows, size, site, scope, keys, before, now) -> None:
        index = shadow.index(rows, size)  # may make the tables finer
        earlier = shadow.writes[index]
        if cnz(earlier):
            self.judge(f, lanes, region, earlier, size, rows, site, scope, keys, before, now)

    def judge(self, f, lanes, region, earlier, size, rows, site, scope, keys, before, now) -> None:
        own = keys >> SHIFT["actor"]
        clock = f.warp.clock
        for known, positions in clock.groups(lanes):
            mine, theirs = (own, earlier) if positions is None else (own[positions], earlier[positions])
            if theirs.ndim == 2:
                mine = mine[:, None]
            bad = self.unordered(theirs, mine, known, f.warp.block.number, scope)
            if before == "read" and known.seen and cnz(bad):
                bad &= self.unordered(theirs, mine, known.seen, f.warp.block.number, scope)
            if cnz(bad):
                at = np.argwhere(bad)[0]
                position = int(at[0]) if positions is None else int(positions[at[0]])
                key = int(theirs[tuple(at)])
                lane = position if lanes is None else int(lanes[position])
                self.race(f.warp, lane, region, int(rows[position]) * size, size, key, site, before, now)

    def lost_store(self, f, lanes, region, rows: np.ndarray, size: int, site: int) -> None:
        """Two lanes of one instruction stored different values to one place."""
        values, counts = np.unique(rows, return_counts=True)
        twice = np.flatnonzero(rows == values[counts > 1][0])
        who = twice if lanes is None else lanes[twice]
        self.machine.fail(
            "race",
            f"{lane_list(who)} of one store write different values to the same {size} bytes, at byte "
            f"{int(rows[twice[0]]) * size - region.low} of {region.name}",
            f.warp,
            who,
            site,
        )

    def race(self, warp, lane, region, offset: int, size: int, key: int, site: int, before: str, now: str) -> None:
        machine = self.machine
        actor, block, other = (key >> ACTOR_AT) & int(ACTOR_MASK), (key >> BLOCK_AT) - 1, key & ((1 << SITE_BITS) - 1)
        slot = actor % ACTORS
        what = f"lane {slot}" if slot < LANES else "(an asynchronous operation it started)"
        instr = machine.program.sites[other - 1] if other else None
        lines = [
            f"it {now}s {size} bytes at byte {offset - region.low} of {region.name}",
            f"unordered with the {before} by block {machine.block_coordinates(block)} warp {actor // ACTORS} {what}",
        ]
        if instr is not None:
            lines.append(f"  at {instr.where()}")
        machine.fail(
            "race", f"{now} and {before} of the same bytes with nothing to order them", warp, [lane], site, lines
        )

    # --- release and acquire ----------------------------------------------------------------------------------------

    def scope_key(self, f, scope: int) -> tuple:
        block = f.warp.block.number
        return {CTA: (CTA, block), CLUSTER: (CLUSTER, block // self.machine.cluster_size), GPU: (GPU, 0)}[scope]

    def leave(self, f, lanes, shadow: Shadow, rows, size, scope: int, release: bool, update: bool = False) -> None:
        """A store (or, with ``update``, a read-modify-write, which continues the release sequence) at these places."""
        numbers = list(range(LANES)) if lanes is None else lanes.tolist()
        warp = f.warp
        for lane, place in zip(numbers, (rows * size).tolist()):
            if not scope:
                shadow.locations.pop(place, None)
                continue
            clock, reach = None, scope
            if release:
                clock = warp.clock.release(np.array([lane]))
            elif lane in warp.fenced:
                clock, reach = warp.fenced[lane]
            location = shadow.locations.get(place)
            if location is None:
                if clock is None:
                    continue
                location = shadow.locations[place] = Location()
            elif not update:
                location.released = {}
            if clock is not None:
                key = self.scope_key(f, min(scope, reach))
                held = location.released.get(key)
                merged = clock if held is None else held.copy()
                if held is not None:
                    merged.join(clock)
                location.released[key] = merged

    def take(self, f, lanes, shadow: Shadow, rows, size, scope: int, acquire: bool) -> None:
        """A load at these places learns what was released there, now (acquire) or at its next fence."""
        if not shadow.locations:
            return
        numbers = list(range(LANES)) if lanes is None else lanes.tolist()
        for lane, place in zip(numbers, (rows * size).tolist()):
            location = shadow.locations.get(place)
            if location is None or not location.released:
                continue
            block, size_ = f.warp.block.number, self.machine.cluster_size
            for (kind, number), clock in location.released.items():
                if (kind == CTA and number != block) or (kind == CLUSTER and number != block // size_):
                    continue
                if scope == CTA and kind != CTA:
                    clock = clock.only(block)
                if acquire:
                    f.warp.learn(np.array([lane]), clock)
                else:
                    f.warp.heard.setdefault(lane, Clock()).join(clock)

    def fence(self, f, lanes, scope: int) -> None:
        """``fence.acq_rel`` / ``fence.sc``: earlier relaxed loads now acquire, later relaxed stores release."""
        warp = f.warp
        numbers = list(range(LANES)) if lanes is None else lanes.tolist()
        for lane in numbers:
            heard = warp.heard.pop(lane, None)
            if heard is not None:
                warp.learn(np.array([lane]), heard.only(warp.block.number) if scope == CTA else heard)
        for lane in numbers:
            warp.fenced[lane] = (warp.clock.release(np.array([lane])), scope)
            warp.clock.time -= 1
        warp.clock.time += 1

    # --- accesses of the async proxy --------------------------------------------------------------------------------

    def async_access(
        self,
        warp,
        lane: int,
        region: Region,
        offsets: np.ndarray,
        unit: int,
        write: bool,
        event: tuple[int, int],
        site: int,
        generic: bool = False,
    ) -> None:
        """An asynchronous operation started by ``lane`` reads or writes units of ``unit`` bytes at byte ``offsets``.

        It must be ordered after what it conflicts with (the starter's clock), and where that was a generic access
        ``fence.proxy.async`` must lie on the way, unless it is of the generic proxy itself (``cp.async``).
        ``event`` is its (actor, time).
        """
        shadow = region.shadow or self.shadow(region)
        if shadow.log:
            shadow.flush()
        index = shadow.granules(offsets, unit)
        access = AsyncAccess(self, warp, lane, region, index, site, write, proxy=not generic)
        if shadow.written:
            access.judge(shadow.writes[index], "write")
        if write:
            access.overwrites()
        key = access.key(*event)
        if write:
            shadow.writes[index] = key
            shadow.written = True
        else:
            shadow.tabulate_reads()[READ_ROWS + warp.index % ASYNC_ROWS][index] = key

    def async_update(self, warp, lane: int, region: Region, offsets: np.ndarray, unit: int, site: int) -> None:
        """An asynchronous reduction, announced as a read to others of its kind, overwrites what threads have read."""
        AsyncAccess(self, warp, lane, region, region.shadow.granules(offsets, unit), site, True).overwrites(READ_ROWS)

    def adopt(self, warp, lane: int, region: Region, offsets: np.ndarray, unit: int, site: int, time: int) -> None:
        """Bytes an asynchronous operation has written now count as written by ``lane`` at ``time``."""
        key = np.int64(int(warp.key_base[lane]) + (time << TIME_AT) + min(site, (1 << SITE_BITS) - 1))
        region.shadow.writes[region.shadow.granules(offsets, unit)] = key
