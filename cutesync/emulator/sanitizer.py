"""Happens-before over shared and global memory, scopes and proxies included: reports two accesses that nothing orders.

Every region has shadow memory (``shadow``): for each granule (4 bytes, finer once something finer is accessed) the last
write and recent reads. An access is fine if its thread's clock knows the earlier one, or if both are strong operations
whose scopes include each other. Of each granule the last read of each warp is remembered, in global memory modulo 8: so
readers of one granule in many blocks may hide one another; a hidden pair shows under another schedule.

Release and acquire work for each location: a release leaves the releaser's clock there, an acquire in scope joins it.

A generic access and one of the async proxy (bulk and tensor copies, wgmma) to the same bytes need more than order:
PTX carries causality from one proxy to another only through a fence ("proxy-preserved base causality order"; a read
before a write is no exception, and NVIDIA's own code fences there: CUTLASS's epilogue before it releases C, CCCL
after it has read what cluster launch control wrote). So ``fence.proxy.async`` for that state space must lie between
them: after ordinary stores ("proxy"), and after ordinary loads of what an asynchronous write then overwrites
("proxy-read"). Any thread between them may execute it, since fences compose with synchronization: the reader before it
releases, or the thread that starts the copy after it has waited. After a read by a copy or tensor core, and before a
generic access that follows an asynchronous one, completion alone is enough (PTX: an implicit proxy fence follows it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from . import hints, proxies
from .async_copy import Issue, Side
from .block import Warp
from .clocks import ACTORS, LANES, Clock, each
from .fragment import Fragment
from .lanes import count_nonzero as cnz
from .memory import SHARED_START, Region
from .preceding import Preceding
from .proxies import AsyncAccess
from .report import lane_list, warp_name
from .shadow import (
    ACTOR_AT,
    ACTOR_MASK,
    ACTOR_SHIFT,
    ASYNC_ROWS,
    BLOCK_AT,
    BLOCK_SHIFT,
    CLUSTER,
    CTA,
    GPU,
    MAX_LOG,
    NO_KEY,
    READ_ROWS,
    SCOPE_MASK,
    SCOPE_SHIFT,
    SITE_MASK,
    TIME_AT,
    TIME_MASK,
    TIME_SHIFT,
    Access,
    Order,
    Shadow,
    happened,
)

Unchanged = Callable[[], np.ndarray]
_ONE = np.array(1)


class Earlier(NamedTuple):
    """Accesses (keys), all reads or all writes. ``unchanged()``: where the later write leaves the value as it is."""

    keys: np.ndarray
    verb: str
    unchanged: Unchanged | None = None


class Sanitizer(Preceding):
    """One launch's happens-before state. Every method that checks reports through ``machine.fail``, which raises."""

    device = 0  # among devices that run at the same time (see ``several``)

    def __init__(self, machine):
        super().__init__(machine)
        self.alone = machine.cluster_size == 1  # blocks touch no shared memory but their own

    # --- order --------------------------------------------------------------------------------------------------------

    @staticmethod
    def shadow(region: Region) -> Shadow:
        if region.shadow is None:
            region.shadow = Shadow(region.high)
        return region.shadow

    def unordered(
        self, keys: np.ndarray, own: np.ndarray | np.int64, tables: list[dict], block: int, scope: int = 0
    ) -> np.ndarray:
        """Which of the earlier accesses ``keys`` are not ordered before the running one of this block and scope.

        ``tables`` are the tables of events that the runner knows, and ``own`` its actor keys: its own accesses count as
        ordered.
        """
        who = keys >> ACTOR_SHIFT
        bad = who != own
        if cnz(bad):
            bad &= keys != NO_KEY
        if not cnz(bad):
            return bad
        blocks = (keys >> BLOCK_SHIFT) - _ONE
        inside = blocks == np.array(block)
        actors, times = who & ACTOR_MASK, (keys >> TIME_SHIFT) & TIME_MASK
        for known in tables:
            times_here, outside = known.get(block), bad & ~inside
            if not cnz(outside):  # all are of this block, or no access
                if times_here is not None:
                    bad &= times_here.take(actors, mode="clip") < times
            else:
                if times_here is not None:
                    bad &= ~(inside & (times_here[np.where(inside, actors, 0)] >= times))
                for other in np.unique(blocks[outside]).tolist():
                    theirs, times_there = blocks == other, known.get(other)
                    if times_there is not None:
                        bad &= ~(theirs & (times_there[np.where(theirs, actors, 0)] >= times))
            if not cnz(bad):
                return bad
        return bad & ~self._morally_strong(keys, blocks, block, scope) if scope else bad

    def of_block(self, keys: np.ndarray, known: np.ndarray | None) -> bool:
        """Whether all of these accesses, of threads of one block, are known to it. A quick no proves nothing."""
        if known is None:
            return False
        return not cnz(known[(keys >> ACTOR_SHIFT) & ACTOR_MASK] < ((keys >> TIME_SHIFT) & TIME_MASK))

    def _morally_strong(self, keys: np.ndarray, blocks: np.ndarray, block: int, scope: int) -> np.ndarray:
        """Both are strong and each one's scope includes the other's thread."""
        least = np.minimum((keys >> SCOPE_SHIFT) & SCOPE_MASK, scope)
        size = self.machine.cluster_size
        return (
            (least >= GPU)
            | ((least == CTA) & (blocks == block))
            | ((least == CLUSTER) & (blocks // size == block // size))
        )

    # --- accesses of threads ------------------------------------------------------------------------------------------

    @staticmethod
    def keys(access: Access, f: Fragment, lanes) -> np.ndarray:
        warp = f.warp
        tail = np.array(warp.clock.time << TIME_AT | access.tail)
        return warp.key_base + tail if lanes is None else warp.key_base[lanes] + tail

    def load(self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
        warp = f.warp
        if self.programmatic:
            self.check_preceding(warp, lanes, region, access.site, rows, access.size, False)
        shadow = region.shadow or self.shadow(region)
        if shadow.written:
            index = rows if access.size == shadow.granule else shadow.index(rows, access.size)  # may refine the table
            earlier = shadow.writes[index]
            if cnz(earlier):
                self.check(access, f, lanes, region, rows, Earlier(earlier, "write"))
        base = warp.key_base if lanes is None else warp.key_base[lanes]
        row = warp.read_rows[region.base > SHARED_START]
        shadow.log.append((row, access.size, rows, base, warp.clock.time << TIME_AT | access.tail))
        if len(shadow.log) > MAX_LOG:
            shadow.flush()
        if access.order.scope:
            self.acquire(access, f, lanes, shadow, rows)

    def store(
        self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray, unchanged: Unchanged | None = None
    ) -> None:
        """``unchanged()``: which places hold the value already that is stored there."""
        if self.programmatic:
            self.check_preceding(f.warp, lanes, region, access.site, rows, access.size, True)
        shadow = region.shadow or self.shadow(region)
        if shadow.log:
            shadow.flush()
        index = rows if access.size == shadow.granule else shadow.index(rows, access.size)
        if shadow.written:
            earlier = shadow.writes[index]
            if cnz(earlier):
                self.check(access, f, lanes, region, rows, Earlier(earlier, "write", unchanged))
        for reads in shadow.reads.values():
            earlier = reads[index]
            if cnz(earlier):
                self.check(access, f, lanes, region, rows, Earlier(earlier, "read"))
        keys = self.keys(access, f, lanes)
        shadow.writes[index] = keys if index.ndim == 1 else keys[:, None]
        shadow.written = True
        if access.order.scope or shadow.released:
            self.release(access, f, lanes, shadow, rows)

    def atomic(self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
        """A read-modify-write: a strong access that continues the release sequence at its location."""
        self.acquire(access, f, lanes, region.shadow or self.shadow(region), rows)
        self.store(access, f, lanes, region, rows)

    def check(
        self,
        access: Access,
        f: Fragment,
        lanes,
        region: Region,
        rows: np.ndarray,
        before: Earlier,
    ) -> None:
        """Report a race with one of the earlier accesses to these rows. Two writes of the same value are a warning."""
        earlier, verb, unchanged = before
        warp, key = f.warp, earlier.item(0)
        if not warp.clock.single:
            known = warp.clock.common.known
            if key and earlier.tobytes().count(key.to_bytes(8, "little")) == earlier.size and happened(key, known):
                return  # one access that all lanes know: the usual case of a stage
            if region.base == SHARED_START and self.alone and self.of_block(earlier, known.get(warp.block.number)):
                return
        own = warp.actor_keys if lanes is None else warp.actor_keys[lanes]
        for clock, positions in warp.clock.groups(lanes):
            mine, theirs = (own, earlier) if positions is None else (own[positions], earlier[positions])
            tables = [clock.known, clock.invisible.known] if verb == "read" and clock.invisible else [clock.known]
            if theirs.ndim == 2:
                mine = mine[:, None]
            bad = self.unordered(theirs, mine, tables, warp.block.number, access.order.scope)
            if cnz(bad):
                where = np.argwhere(bad)
                numbers = where[:, 0] if positions is None else positions[where[:, 0]]
                same = np.zeros(len(where), bool) if unchanged is None else unchanged()[numbers]
                at = int(np.argmin(same))  # the first that differs, if one does
                position = int(numbers[at])
                lane = position if lanes is None else int(lanes[position])
                offset, key = int(rows[position]) * access.size, int(theirs[tuple(where[at])])
                self.race(access, warp, lane, (region, offset), key, verb, harmless=bool(same[at]))

    def lost_store(self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
        """Two lanes of one instruction stored different values to one place."""
        values, counts = np.unique(rows, return_counts=True)
        twice = np.flatnonzero(rows == values[counts > 1][0])
        who = twice if lanes is None else lanes[twice]
        self.machine.fail(
            "race",
            f"{lane_list(who)} of one store write different values to the same {access.size} bytes, at byte "
            f"{int(rows[twice[0]]) * access.size - region.low} of {region.name}",
            f.warp,
            who,
            access.site,
        )

    def race(
        self,
        access: Access,
        warp: Warp,
        lane: int,
        place: tuple[Region, int],
        key: int,
        before: str,
        harmless: bool = False,
    ) -> None:
        """Report that an access is not ordered after the one of ``key``, a "read" or "write" (``before``).

        ``place``: region and offset; ``harmless``: both write the same value.
        """
        machine, (region, offset) = self.machine, place
        actor, block, other = (key >> ACTOR_AT) & int(ACTOR_MASK), (key >> BLOCK_AT) - 1, key & int(SITE_MASK)
        slot = actor % ACTORS
        what = f"lane {slot}" if slot < LANES else "(an asynchronous operation it started)"
        first = machine.program_of(block).sites[other - 1] if other else None
        who = warp_name(machine, actor // ACTORS, first.loc if first else None)
        lines = [
            f"it {access.verb}s {access.size} bytes at byte {offset - region.low} of {region.name}",
            f"unordered with the {before} by {machine.name_of(block)} {who} {what}",
        ]
        if first:
            lines.append(f"  at {first.where()}")
        lines += [f"hint: {line}" for line in hints.of_race(machine, warp, lane, key, before)]
        title, at = "of the same bytes with nothing to order them", (warp, [lane], access.site)
        if harmless:
            machine.note("warning", "race", f"writes of the same value {title}", at, lines, first)
        else:
            machine.earlier = block, actor // ACTORS
            machine.fail("race", f"{access.verb} and {before} {title}", *at, lines, first)

    # --- release and acquire ------------------------------------------------------------------------------------------

    def release(self, access: Access, f: Fragment, lanes, shadow: Shadow, rows: np.ndarray) -> None:
        """A store at these places. A read-modify-write continues the release sequence, any other store ends it."""
        warp = f.warp
        block = warp.block.number
        for lane, place in zip(each(lanes), (rows * access.size).tolist()):
            clock, scope = None, access.order.scope
            if scope and access.order.releases:
                clock = warp.clock.release(np.array([lane]))
            elif scope and lane in warp.fence_releases:
                clock, reach = warp.fence_releases[lane]
                scope = min(scope, reach)
            if not access.update or not scope:
                shadow.released.pop(place, None)
            if clock is not None:
                group = {CTA: block, CLUSTER: block // self.machine.cluster_size}.get(scope, self.device)
                here = shadow.released.setdefault(place, {})
                if (scope, group) in here:
                    clock = clock.copy()
                    clock.join(here[scope, group])
                here[scope, group] = clock

    def acquire(self, access: Access, f: Fragment, lanes, shadow: Shadow, rows: np.ndarray) -> None:
        """A load at these places learns what was released there, now (acquire) or at its next fence."""
        if not shadow.released:
            return
        block, cluster = f.warp.block.number, f.warp.block.number // self.machine.cluster_size
        for lane, place in zip(each(lanes), (rows * access.size).tolist()):
            for (kind, number), clock in shadow.released.get(place, {}).items():
                if (kind == CTA and number != block) or (kind == CLUSTER and number != cluster):
                    continue
                if access.order.scope == CTA and kind != CTA:
                    clock = clock.only({block})
                self.hear(f, lane, access.order, (kind, number), clock)

    def hear(self, f: Fragment, lane: int, order: Order, source: tuple[int, int], clock: Clock) -> None:
        """A lane has read what was released by ``source`` (scope, and block, cluster or device of that scope)."""
        if order.acquires:
            f.warp.learn(np.array([lane]), clock)
        else:
            f.warp.fence_acquires.setdefault(lane, Clock()).join(clock)

    def fence(self, f: Fragment, lanes, scope: int) -> None:
        """``fence.acq_rel`` / ``fence.sc``: earlier relaxed loads now acquire, later relaxed stores release."""
        warp = f.warp
        for lane in each(lanes):
            acquired = warp.fence_acquires.pop(lane, None)
            if acquired is not None:
                warp.learn(np.array([lane]), acquired.only({warp.block.number}) if scope == CTA else acquired)
        for lane in each(lanes):
            warp.fence_releases[lane] = (warp.clock.release(np.array([lane])), scope)
            warp.clock.time -= 1
        warp.clock.time += 1

    # --- accesses of the async proxy ----------------------------------------------------------------------------------

    def async_access(
        self,
        issue: Issue,
        side: Side,
        event: tuple[int, int],
        write: bool,
        generic: bool = False,
        unchanged: proxies.Unchanged | None = None,
    ) -> None:
        """An asynchronous operation reads or writes one end of a copy. ``event`` is its (actor, time).

        It must be ordered after what it conflicts with (the clock of the lane that started it), and where that was a
        generic access ``fence.proxy.async`` must lie between, unless it is of the generic proxy itself (``cp.async``).
        """
        shadow = side.region.shadow or self.shadow(side.region)
        if shadow.log:
            shadow.flush()
        index = side.granules(shadow)
        access = AsyncAccess(self, issue, side.region, index, write, proxy=not generic)
        access.unchanged = unchanged
        if shadow.written:
            access.check(shadow.writes[index], "write")
        key = access.key(*event)
        if write:
            access.overwrite()
            shadow.writes[index] = key
            shadow.written = True
        else:
            shadow.read_table(READ_ROWS + issue.warp.index % ASYNC_ROWS)[index] = key

    def tensor_read(self, issues: list[Issue], side: Side, event: tuple[int, int]) -> None:
        """The warps of a warpgroup read an operand together. ``event`` is the (actor, time) of the first."""
        shadow = side.region.shadow or self.shadow(side.region)
        index = side.granules(shadow)
        first = AsyncAccess(self, issues[0], side.region, index, False)
        if shadow.written:
            earlier = shadow.writes[index]
            single = not cnz(earlier != earlier[0])
            for issue in issues:
                if not (single and first.clear(issue, int(earlier[0]))):
                    AsyncAccess(self, issue, side.region, index, False).check(earlier, "write")
        shadow.read_table(READ_ROWS + issues[0].warp.index % ASYNC_ROWS)[index] = first.key(*event)

    def async_update(self, issue: Issue, side: Side) -> None:
        """An asynchronous reduction overwrites what threads have read. To others of its kind it counts as a read."""
        index = side.granules(self.shadow(side.region))
        AsyncAccess(self, issue, side.region, index, True).overwrite(of_threads_only=True)

    def count_as_store(self, issue: Issue, side: Side, time: int) -> None:
        """Bytes that an asynchronous operation has written now count as written by its lane at ``time``."""
        shadow, base = self.shadow(side.region), int(issue.warp.key_base[issue.lane])
        index = side.granules(shadow)
        shadow.writes[index] = np.int64(base + (time << TIME_AT) + min(issue.site, int(SITE_MASK)))
