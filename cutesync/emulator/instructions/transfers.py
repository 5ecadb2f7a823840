"""What all asynchronous copies share: their targets and mbarriers, alignment, what the sanitizer is told, commit groups
and waits.
"""

from __future__ import annotations

import numpy as np

from ..async_copy import Operation, Side, from_shared, groups_of
from ..memory import SHARED_BITS, SHARED_START
from .barrier import find_barrier
from .memory_ops import combiner

REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def each(lanes):
    return range(32) if lanes is None else lanes.tolist()


def target_barrier(machine, f, lane: int, address: int, site: int):
    """The mbarrier an asynchronous operation will signal; its initialisation must have been fenced for the async proxy."""
    barrier = find_barrier(machine, f, [lane], address, site)
    if machine.sanitizer is not None and not barrier.fenced:
        machine.fail(
            "barrier",
            f"{barrier.name} is used by an asynchronous operation without a fence after its initialisation",
            f.warp,
            [lane],
            site,
            [
                f"initialised at {machine.program.sites[barrier.site - 1].where()}",
                "fence.mbarrier_init (or fence.proxy.async) must follow it",
            ],
        )
    return barrier


def aligned(machine, f, lane: int, what: str, value: int, unit: int, site: int) -> None:
    if value % unit:
        machine.fail("misaligned", f"{what} {value:#x} must be a multiple of {unit}", f.warp, [lane], site)


def touch(machine, f, lane: int, region, site: int) -> None:
    """Tell the sanitizer that an operation of this lane will access a region of global memory."""
    if machine.sanitizer is not None:
        machine.sanitizer.touch(f.warp, np.array([lane]), region, site)


def about_to_write(machine, f, lane: int, region, site: int) -> None:
    """Memory that is read-only is a fault; what a launch that runs again is to find is kept."""
    if region.sealed:
        region.unseal(machine, f.warp, [lane], site)


def announce(operation: Operation, side: Side, write: bool) -> None:
    """Tell the sanitizer what the operation touches, from now on."""
    sanitizer = operation.machine.sanitizer
    warp = operation.warp
    event = warp.clock.start_async()
    if write:
        operation.write_event = event
    else:
        operation.read_event = event
    if sanitizer is not None:
        if side.unit < 4 and side.region.base > SHARED_START:
            shadow = side.region.shadow or sanitizer.shadow(side.region)
            if shadow.granule > side.unit:
                shadow.refine(side.unit)
        sanitizer.async_access(warp, operation.lane, side.region, side.offsets, side.unit, write, event, operation.site)
        first = None if write else side.unwritten()
        if first is not None:
            operation.machine.fail(
                "uninitialised",
                f"an asynchronous operation reads byte {first} of {side.region.name}, which nobody has written",
                warp,
                [operation.lane],
                operation.site,
            )


def announce_targets(operation: Operation, sides: list[Side]) -> None:
    """All targets of a multicast are one write event."""
    event = operation.warp.clock.start_async()
    operation.write_event = event
    if operation.machine.sanitizer is not None:
        for side in sides:
            operation.machine.sanitizer.async_access(
                operation.warp, operation.lane, side.region, side.offsets, side.unit, True, event, operation.site
            )


def announce_updates(operation: Operation, sides: list[Side]) -> None:
    """Targets of a reduction: any number may meet at one place, so each counts as a reader of what it finds there;
    and it overwrites what threads have read."""
    sanitizer = operation.machine.sanitizer
    for side in sides:
        announce(operation, side, False)
        if sanitizer is not None:
            sanitizer.async_update(operation.warp, operation.lane, side.region, side.offsets, side.unit, operation.site)
    operation.write_event = operation.read_event


def destinations(machine, f, lane: int, address: int, barrier_at: int, mask: int | None, site: int):
    """(block, shared address, mbarrier) of every block a copy goes to."""
    block = f.warp.block
    if mask is None:
        owner, offset = block.block_at(address & SHARED_BITS)
        return [(owner, offset, target_barrier(machine, f, lane, barrier_at, site))]
    found = []
    for rank, peer in enumerate(block.peers):
        if mask >> rank & 1:
            at = (barrier_at & 0xFFFFFF) | (rank + 1) << 24
            found.append((peer, address & 0xFFFFFF, target_barrier(machine, f, lane, at, site)))
    return found


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
            groups_of(f.warp, "bulk", lane).open.append(operation)
        else:
            found.setdefault(wanted, []).append(lane)
    return [(who[0], who) for who in found.values()]


def finish_store(
    operation: Operation, who: list[int], wanted: tuple, near: Side, far: Side | None, keep, f, combine
) -> None:
    """Start a copy out of shared memory on behalf of the lanes ``who``, whose open commit groups it joins;
    ``wanted`` is what they asked for."""
    announce(operation, near, False)
    if far is not None:
        about_to_write(f.warp.machine, f, operation.lane, far.region, operation.site)
    if far is not None and combine is None:
        announce(operation, far if keep is None else Side(far.region, far.offsets[keep], far.unit), True)
    operation.blocks.add(f.warp.block.number)
    if far is None:
        operation.pieces = [lambda: None]
    else:
        from_shared(operation, near, far, keep, combine)
    for lane in who:
        groups_of(f.warp, "bulk", lane).open.append(operation)
    f.warp.stores[operation.site] = (wanted, operation, set(who))
    operation.start()


def reducer(name: str, kind: str, flushes: bool = True):
    """An element-wise ``combine(old, new)`` on bit vectors. Sums of f32 flush subnormals unless told not to."""
    one = combiner(name, kind, "global" if flushes else "shared")
    return lambda old, new: np.array([one(int(a), int(b), 0) for a, b in zip(old, new)], old.dtype)


# --- commit groups
# ------------------------------------------------------------------------------------------------------


def commit_maker(machine, kind: str):
    def run(f, lanes, _=None):
        for lane in each(lanes):
            groups_of(f.warp, kind, lane).commit()

    return run


def wait_maker(machine, site: int, kind: str, allowed: int, reads_only: bool):
    """Block until at most ``allowed`` groups of each thread are pending, and then know that the others have happened."""

    def run(f, following, index):
        missing = None
        for lane in each(f.lanes):
            for operation in groups_of(f.warp, kind, lane).waited(allowed):
                if not (operation.reads_done if reads_only else operation.done):
                    missing = operation
                    missing.watchers.append(f)
                    return f.block_on(f"waits for its {operation.what}", operation, index, site)
        for lane in each(f.lanes):
            learn(f, kind, lane, allowed, reads_only)
        return following

    def learn(f, kind, lane, allowed, reads_only):
        if machine.sanitizer is None:
            return
        groups = groups_of(f.warp, kind, lane)
        for operation in groups.waited(allowed):
            if kind == "cp.async":
                operation.cover(f.warp.clock.time)
                operation.adopt()
                continue
            for event in (operation.read_event, None if reads_only else operation.write_event):
                if event is not None:
                    f.warp.learn(np.array([lane]), f.warp.clock.async_done(*event))
        if not reads_only:
            keep = len(groups.committed) - allowed
            groups.committed = groups.committed[max(keep, 0) :] if allowed else []

    return run
