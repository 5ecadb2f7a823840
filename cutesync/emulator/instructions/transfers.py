"""Shared by all asynchronous copies: targets and mbarriers, alignment, checks, commit groups and waits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..async_copy import Issue, Operation, Side, from_shared
from ..clocks import each
from ..memory import SHARED_BITS, SHARED_START
from ..proxies import Unchanged
from .barrier import find_barrier
from .memory_ops import combiner
from .registry import handles
from .tensor_map_edit import MAP_READS, announce_map_read

REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def target_barrier(issue: Issue, address: int):
    """The mbarrier an asynchronous operation will signal; its initialisation must have been fenced."""
    barrier = find_barrier(issue.warp, [issue.lane], address, issue.site)
    if issue.machine.sanitizer is not None and not barrier.fenced:
        issue.found(
            "barrier",
            f"{barrier.name} is used by an asynchronous operation without a fence after its initialisation",
            [
                f"initialised at {issue.machine.program.sites[barrier.site - 1].where()}",
                "fence.mbarrier_init (or fence.proxy.async) must follow it",
            ],
        )
    return barrier


def aligned(issue: Issue, what: str, value: int, unit: int) -> None:
    if value % unit:
        issue.fail("misaligned", f"{what} {value:#x} must be a multiple of {unit}")


def announce_read(operation: Operation, side: Side) -> None:
    """The operation reads this end of the copy, from now on."""
    operation.read_event = operation.warp.clock.start_async()
    sanitizer = operation.machine.sanitizer
    if sanitizer is not None:
        refine(sanitizer, side)
        sanitizer.async_access(operation, side, operation.read_event, False)
        first = side.unwritten()
        if first is not None:
            title = f"an asynchronous operation reads byte {first} of {side.region.name}, which nobody has written"
            operation.machine.unwritten(side.region, title, operation.warp, [operation.lane], operation.site)


def announce_writes(operation: Operation, sides: list[Side], unchanged: Unchanged | None = None) -> None:
    """The operation writes these ends, from now on. All targets of a multicast are one write event."""
    operation.write_event = operation.warp.clock.start_async()
    sanitizer = operation.machine.sanitizer
    if sanitizer is not None:
        for side in sides:
            refine(sanitizer, side)
            sanitizer.async_access(operation, side, operation.write_event, True, unchanged=unchanged)


def refine(sanitizer, side: Side) -> None:
    """Elements of less than 4 bytes of global memory need finer shadow memory."""
    if side.unit < 4 and side.region.base > SHARED_START:
        sanitizer.shadow(side.region).refine(side.unit)


def announce_updates(operation: Operation, sides: list[Side]) -> None:
    """The operation reduces into these ends.

    Any number may update one place, so each counts as a reader of what it finds; and it overwrites what threads read.
    """
    for side in sides:
        announce_read(operation, side)
        if operation.machine.sanitizer is not None:
            operation.machine.sanitizer.async_update(operation, side)
    operation.write_event = operation.read_event


def destinations(issue: Issue, address: int, barrier_at: int, mask: int | None):
    """(block, shared address, mbarrier) of every block a copy goes to."""
    block = issue.warp.block
    if mask is None:
        owner, offset = block.block_at(address & SHARED_BITS)
        return [(owner, offset, target_barrier(issue, barrier_at))]
    return [
        (peer, address & 0xFFFFFF, target_barrier(issue, (barrier_at & 0xFFFFFF) | (rank + 1) << 24))
        for rank, peer in enumerate(block.peers)
        if mask >> rank & 1
    ]


def sharing(f, lanes, site: int, operator: str, *operands):
    """``(lane, all lanes that ask for the same)``, one for every copy to global memory to start.

    Lanes of a warp that ask for the same copy at the same instruction start one copy together, as the hardware's
    warp-wide instruction does (the DSL issues tensor stores that way); a lane that comes later joins. Reductions are
    never shared: they add up.
    """
    if operator:
        return [(lane, [lane]) for lane in each(lanes)]
    found: dict[tuple, list[int]] = {}
    for lane in each(lanes):
        wanted = tuple(int(o[lane]) for o in operands)
        asked, operation, members = f.warp.stores.get(site, (None, None, ()))
        if asked == wanted and lane not in members:
            members.add(lane)
            f.warp.groups["bulk", lane].open.append(operation)
        else:
            found.setdefault(wanted, []).append(lane)
    return [(who[0], who) for who in found.values()]


def unchanged(source: Side, target: Side, keep, granules: np.ndarray, size: int) -> bool:
    """Whether ``target`` holds at these granules what a copy of ``source`` brings, as both are now."""
    new, old = (np.ascontiguousarray(side.read(slice(None))).view(np.uint8) for side in (source, target))
    differ = (new != old).reshape(len(target.offsets), -1).any(1)
    units = np.sort(target.offsets[differ if keep is None else differ & keep])
    last = np.searchsorted(units, granules + size) - 1  # the last of these units that begins before a granule's end
    return not ((last >= 0) & (units[last] + target.unit > granules)).any() if len(units) else True


def start_store(
    operation: Operation,
    who: list[int],
    wanted: tuple,
    source: Side,
    target: Side | None,
    keep,
    combine,
    map_at: int | None = None,
) -> None:
    """Start a copy out of shared memory for the lanes ``who``, whose open commit groups it joins.

    ``wanted`` is what they asked for; ``map_at`` the address of the tensor map.
    """
    warp = operation.warp
    if target is not None:  # elements of the box that lie outside the tensor are not copied
        announce_read(operation, source if keep is None else Side(source.region, source.offsets[keep], source.unit))
    if map_at is not None:
        announce_map_read(operation, map_at)
    operation.blocks.add(warp.block.number)
    operation.source = warp.block.number
    if target is None:
        operation.pieces = [lambda: None]
    else:
        operation.about_to_write(target.region)
        if combine is None:
            written = target if keep is None else Side(target.region, target.offsets[keep], target.unit)
            announce_writes(operation, [written], partial(unchanged, source, target, keep))
        from_shared(operation, source, target, keep, combine)
    for lane in who:
        warp.groups["bulk", lane].open.append(operation)
    warp.stores[operation.site] = (wanted, operation, set(who))
    operation.start()


def reducer(name: str, kind: str, flushes: bool = True):
    """An element-wise ``combine(old, new)`` on bit vectors. Sums of f32 flush subnormals unless told not to."""
    one = combiner(name, kind, "global" if flushes else "shared")
    return lambda old, new: np.array([one(int(a), int(b), 0) for a, b in zip(old, new)], old.dtype)


# --- commit groups ----------------------------------------------------------------------------------------------------


def commit(kind: str, f, lanes) -> None:
    for lane in each(lanes):
        f.warp.groups[kind, lane].commit()
        maps = f.warp.groups.get((MAP_READS, lane)) if kind == "bulk" else None
        if maps is not None:
            maps.commit()


def wait(site: int, kind: str, allowed: int, reads_only: bool, f, following, index):
    """Block until at most ``allowed`` groups of each thread are pending; then it knows that the others are over."""
    groups = [(lane, f.warp.groups[kind, lane]) for lane in each(f.lanes)]
    for _, group in groups:
        for operation in group.covered(allowed):
            if not (operation.reads_done if reads_only else operation.done):
                operation.watchers.append(f)
                return f.block_on(f"waits for its {operation.name}", operation, index, site)
    if f.warp.machine.sanitizer is not None:
        over = [(lane, group.unknown(allowed, reads_only)) for lane, group in groups]
        if kind == "cp.async":
            count_as_stores(f, over)
        else:
            learn_of_copies(f, over, reads_only)
            learn_of_maps(f, allowed)
    for _, group in groups:
        if reads_only:
            group.heard_of_reads(allowed)
        else:
            group.forget(allowed)
    return following


def count_as_stores(f, over: list) -> None:
    """Each of these lanes has waited for its operations."""
    lanes_of: dict[int, tuple[Any, list[int]]] = {}
    for lane, operations in over:
        for operation in operations:
            lanes_of.setdefault(id(operation), (operation, []))[1].append(lane)
    for operation, lanes in lanes_of.values():
        operation.cover(lanes, f.warp.clock.time)
        operation.count_as_stores(lanes)


def learn_of_copies(f, over: list, reads_only: bool) -> None:
    """Each of these lanes learns that its operations (or their reads) are over. Lanes with the same learn together."""
    together: dict[tuple[int, ...], tuple[list, list[int]]] = {}
    for lane, operations in over:
        if operations:
            together.setdefault(tuple(map(id, operations)), (operations, []))[1].append(lane)
    for operations, lanes in together.values():
        for operation in operations:
            f.warp.learn(None if len(lanes) == 32 else np.array(lanes), operation.finished(reads_only))


def learn_of_maps(f, allowed: int) -> None:
    """Each of these lanes learns that the tensor maps of its copies have been read."""
    for lane in each(f.lanes):
        maps = f.warp.groups.get((MAP_READS, lane))
        for operation in maps.covered(allowed) if maps is not None else ():
            f.warp.learn(np.array([lane]), f.warp.clock.async_done(*operation.map_event))
        if maps is not None:
            maps.forget(allowed)


def kind_of(instr) -> str:
    return "bulk" if "bulk" in instr.parts else "cp.async"


@handles("cp.async.commit_group", "cp.async.bulk.commit_group", switch=True)
def commit_group(e, instr):
    e.effect(e.bound(commit, kind_of(instr)))


@handles("cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk.wait_group", switch=True)
def wait_group(e, instr):
    if "wait_all" in instr.parts:
        commit_group(e, instr)
    allowed = instr.args[0].value if instr.args else 0
    e.blocking(e.bound(wait, e.site(), kind_of(instr), allowed, "read" in instr.parts), str(e.index))
