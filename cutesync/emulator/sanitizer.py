"""Happens-before over shared and global memory, scopes and proxies included: reports two accesses that nothing orders.

Every region has shadow memory (``shadow``): for each granule (4 bytes, finer once something finer is accessed) the last
write and recent reads. An access is fine if its thread's clock knows the earlier one, or if both are strong operations
whose scopes include each other. Of each granule the last read of each warp is remembered, in global memory modulo 8: so
readers of one granule in many blocks may hide one another; a hidden pair shows under another schedule.

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
from typing import Any, NamedTuple

import numpy as np

from . import hints, proxies, route
from .async_copy import Issue, Side
from .block import Block, Warp, keys_at
from .clocks import ACTORS, LANES
from .fragment import Fragment
from .lanes import count_nonzero as cnz
from .memory import SHARED_START, Region
from .proxies import AsyncAccess
from .releases import Releases
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
    Shadow,
    happened,
)

Values = tuple[np.ndarray, np.ndarray]
_ONE = np.array(1)
_EXCHANGE = "lanes of one warp exchange volatile words: a {} and a {}"


class Earlier(NamedTuple):
    """Accesses (keys), all reads or all writes. ``values``: of a later write, what is there and what is stored."""

    keys: np.ndarray
    verb: str
    values: Values | None = None

    def unchanged(self) -> np.ndarray:
        """Which places the later write leaves as they are."""
        if self.values is None:
            return np.zeros(len(self.keys), bool)
        old, new = (np.ascontiguousarray(v).view(np.uint8) for v in self.values)
        return (old == new).reshape(len(self.keys), -1).all(1)


class Sanitizer(Releases):
    """One launch's happens-before state. Every method that checks reports through ``machine.fail``, which raises."""

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

    def known_here(self, warp: Warp, region: Region, keys: np.ndarray) -> bool:
        """Whether all lanes of a warp know these accesses, which are of its own block alone. A no proves nothing."""
        known = warp.clock.common.known.get(warp.block.number)
        if known is None or warp.clock.single or region.base != SHARED_START or not self.alone:
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

    def loads(self, access: Access) -> Callable[[Fragment, Any, Region, np.ndarray], None]:
        """``load(f, lanes, region, rows)`` checks and records the reads of one instruction."""
        size, tail, strong, programmatic = access.size, access.tail, access.order.scope, self.programmatic

        def load(f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
            warp = f.warp
            if region.valid is not None and 0 in region.valid_units[size][rows].tobytes():
                self.unwritten(access, f, lanes, region, rows)
            if programmatic:
                self.check_preceding(warp, lanes, region, access.site, rows, size, False)
            shadow = region.shadow or self.shadow(region)
            if shadow.written:
                index = rows if size == shadow.granule else shadow.index(rows, size)  # may refine the table
                earlier = shadow.writes[index]
                if cnz(earlier):
                    self.check(access, f, lanes, region, rows, Earlier(earlier, "write"))
            base = warp.key_base if lanes is None else warp.key_base[lanes]
            row = warp.read_rows[region.base > SHARED_START]
            shadow.log.append((row, size, rows, base, warp.clock.time << TIME_AT | tail))
            if len(shadow.log) > MAX_LOG:
                shadow.flush()
            if strong:
                self.acquire(access, f, lanes, shadow, rows)

        return load

    def unwritten(self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
        """Some lane reads a byte that nobody has written."""
        size = access.size
        whole = region.valid_units[size][rows].view(np.uint8).reshape(len(rows), size).all(1)
        bad = int(np.flatnonzero(~whole)[0])
        lane = bad if lanes is None else int(lanes[bad])
        title = f"reads {size} bytes that nobody has written, at byte {int(rows[bad]) * size - region.low} of "
        self.machine.unwritten(region, title + region.name, f.warp, [lane], access.site)

    def stores(self, access: Access) -> Callable[..., None]:
        """``store(f, lanes, region, rows, values)`` checks and records the writes of one instruction. ``values``: what
        is there, and what is stored."""
        size, tail, strong, programmatic = access.size, access.tail, access.order.scope, self.programmatic

        def store(f: Fragment, lanes, region: Region, rows: np.ndarray, values: Values | None = None) -> None:
            warp = f.warp
            if programmatic:
                self.check_preceding(warp, lanes, region, access.site, rows, size, True)
            shadow = region.shadow or self.shadow(region)
            if shadow.log:
                shadow.flush()
            index = rows if size == shadow.granule else shadow.index(rows, size)
            if shadow.written:
                earlier = shadow.writes[index]
                if cnz(earlier):
                    self.check(access, f, lanes, region, rows, Earlier(earlier, "write", values))
            for reads in shadow.reads.values():
                earlier = reads[index]
                if cnz(earlier):
                    self.check(access, f, lanes, region, rows, Earlier(earlier, "read"))
            keys = keys_at(warp.first_actor, warp.clock.time << TIME_AT | tail)
            keys = keys if lanes is None else keys[lanes]
            shadow.writes[index] = keys if index.ndim == 1 else keys[:, None]
            shadow.written = True
            if strong or shadow.released:
                self.release(access, f, lanes, shadow, rows)

        return store

    def atomics(self, access: Access) -> Callable[[Fragment, Any, Region, np.ndarray], None]:
        """The same of read-modify-writes: strong accesses that continue the release sequences at their locations."""
        store = self.stores(access)

        def update(f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
            self.acquire(access, f, lanes, region.shadow or self.shadow(region), rows)
            store(f, lanes, region, rows)

        return update

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
        earlier, verb, _ = before
        warp, key = f.warp, earlier.item(0)
        if not warp.clock.single:
            known = warp.clock.common.known
            if key and earlier.tobytes().count(key.to_bytes(8, "little")) == earlier.size and happened(key, known):
                return  # one access that all lanes know: the usual case of a stage
            if self.known_here(warp, region, earlier):
                return
        own = warp.actor_keys if lanes is None else warp.actor_keys[lanes]
        for clock, positions in warp.clock.groups(lanes):
            mine, theirs = (own, earlier) if positions is None else (own[positions], earlier[positions])
            tables = [clock.known, clock.invisible.known] if verb == "read" and clock.invisible else [clock.known]
            if theirs.ndim == 2:
                mine = mine[:, None]
            bad = self.unordered(theirs, mine, tables, warp.block.number, access.order.scope)
            exchange = access.order.volatile and not cnz(bad)
            if exchange:
                bad = self.exchanged(theirs, mine, tables, warp)
            if cnz(bad):
                where = np.argwhere(bad)
                numbers = where[:, 0] if positions is None else positions[where[:, 0]]
                same = before.unchanged()[numbers]
                at = int(np.argmin(same))  # the first that differs, if one does
                position = int(numbers[at])
                lane = position if lanes is None else int(lanes[position])
                offset, key = int(rows[position]) * access.size, int(theirs[tuple(where[at])])
                harmless = (
                    "writes of the same value" if same[at] else _EXCHANGE.format(access.verb, verb) if exchange else ""
                )
                self.race(access, warp, lane, (region, offset), key, verb, ("warning", harmless) if harmless else None)

    def exchanged(self, keys: np.ndarray, own: np.ndarray, tables: list[dict], warp: Warp) -> np.ndarray:
        """Which of the earlier accesses are of another lane of this warp, volatile and not ordered before this one.

        They are no data race, since volatile accesses are relaxed ones at system scope; but nothing says which value a
        lane reads (PTX: volatile adds no order between threads).
        """
        lane = (keys >> ACTOR_SHIFT) - np.array(warp.first_actor)
        bad = (lane >= 0) & (lane < LANES)
        if cnz(bad):
            bad &= self.unordered(keys, own, tables, warp.block.number)
        if cnz(bad):
            sites = warp.machine.program.sites
            bad &= np.isin(keys & SITE_MASK, [i for i, site in enumerate(sites, 1) if "volatile" in site.parts])
        return bad

    def lost_store(self, access: Access, f: Fragment, lanes, region: Region, rows: np.ndarray) -> None:
        """Two lanes of one instruction stored different values to one place."""
        values, counts = np.unique(rows, return_counts=True)
        twice = np.flatnonzero(rows == values[counts > 1][0])
        who = twice if lanes is None else lanes[twice]
        self.machine.found(
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
        harmless: tuple[str, str] | None = None,
    ) -> None:
        """Report that an access is not ordered after the one of ``key``, a "read" or "write" (``before``).

        ``place``: region and offset; ``harmless``: a lower severity, and what makes it one.
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
        lines += route.since_access(machine, key)
        lines += [f"hint: {line}" for line in hints.of_race(machine, warp, lane, key, before)]
        title, at = "of the same bytes with nothing to order them", (warp, [lane], access.site)
        copy = machine.how.copies and before != access.verb and block == warp.block.number
        if harmless:
            machine.note(harmless[0], "race", f"{harmless[1]} {title}", at, lines, first)
        elif copy and region.base > SHARED_START:  # a result that depends on it differs between two schedules
            machine.note("warning", "race", f"{access.verb} and {before} {title}", at, lines, first)
        else:
            machine.earlier = block, actor // ACTORS
            machine.found("race", f"{access.verb} and {before} {title}", *at, lines, first)

    def has_started(self, warp: Warp, lane: int, block: Block, site: int) -> None:
        """A lane touches shared memory of another block of its cluster, which it must know to have started."""
        clock = warp.clock.of(lane)
        if block.number not in clock.known and (clock.invisible is None or block.number not in clock.invisible.known):
            title = f"touches shared memory of block {block.coordinates}, which is not known to have started"
            advice = "hint: a cluster barrier must come before it, or a wait for something that the other block does"
            self.machine.found("barrier", title, warp, [lane], site, [advice])

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

    def tensor_read(
        self, issues: list[Issue], side: Side, event: tuple[int, int], own: Callable[[int], Side] | None = None
    ) -> None:
        """The warps of a warpgroup read an operand together. ``event`` is the (actor, time) of the first.

        ``own``: the rows of A that a warp of the four multiplies. PTX does not say which warp reads which rows. Kernels
        let each warp store its own and tell the others nothing, and GPUs compute right: that is a note.
        """
        shadow = side.region.shadow or self.shadow(side.region)
        index = side.granules(shadow)
        first = AsyncAccess(self, issues[0], side.region, index, False)
        if shadow.written:
            earlier = shadow.writes[index]
            single = not cnz(earlier != earlier[0])
            for issue in issues:
                if single and first.clear(issue, int(earlier[0])):
                    continue
                access = AsyncAccess(self, issue, side.region, index, False)
                if own is not None:
                    access.index = own(issue.warp.index % 4).granules(shadow)
                    access.check(shadow.writes[access.index], "write")
                    access.index, access.foreign = index, True
                access.check(earlier, "write")
        shadow.read_table(READ_ROWS + issues[0].warp.index % ASYNC_ROWS)[index] = first.key(*event)

    def async_update(self, issue: Issue, side: Side) -> None:
        """An asynchronous reduction overwrites what threads have read. To others of its kind it counts as a read."""
        index = side.granules(self.shadow(side.region))
        AsyncAccess(self, issue, side.region, index, True).overwrite(of_threads_only=True)
