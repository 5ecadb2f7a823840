"""Advice: the common causes of races and of threads that wait in vain, recognised by what their clocks know."""

from __future__ import annotations

import numpy as np

from . import route
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .clocks import ACTORS, LANES, Clock
from .report import actor, lane_list
from .shadow import ACTOR_AT, ACTOR_MASK, BLOCK_AT, SCOPE_MASK, SCOPE_SHIFT, SITE_MASK, TIME_AT, TIME_MASK, happened
from .tensor_registers import KIND

_SYNC_WARP = "bar.warp.sync (sync_warp) must come before one lane arrives or copies for its warp"


def of_race(machine, warp, lane: int, key: int, before: str) -> list[str]:
    """What an access of this lane lacks to be ordered after the one of ``key``."""
    site = key & int(SITE_MASK)
    block = (key >> BLOCK_AT) - 1
    atomic = site and machine.program_of(block).sites[site - 1].parts[0] in ("atom", "red")
    lines = ["the DSL gives an atomic operation the line of the launch, not its own"] if atomic else []
    return _cause(machine, warp, lane, key, before) + lines


def _cause(machine, warp, lane: int, key: int, before: str) -> list[str]:
    clock, actor, block = warp.clock.of(lane), key >> ACTOR_AT & int(ACTOR_MASK), (key >> BLOCK_AT) - 1
    other, slot = divmod(actor, ACTORS)
    if slot >= LANES:
        return _after_asynchronous(machine, warp, lane, key, before)
    others = _lanes_known(clock, block, other, key >> TIME_AT & int(TIME_MASK))
    if not len(others) and clock.invisible is not None:  # of another block: known to be over, and no more
        over = _lanes_known(clock.invisible, block, other, key >> TIME_AT & int(TIME_MASK))
        others = others if slot in over else over
    if len(others) and (block, other) != (warp.block.number, warp.index):
        return [f"of that warp only {lane_list(others)} is known to be past its access, not lane {slot}: {_SYNC_WARP}"]
    if clock.invisible is not None and happened(key, clock.invisible.known):
        return [
            "an arrival of the other block is known, but it was relaxed or at block scope, which publishes no writes: "
            "it must release at cluster scope, and the wait acquire there (the DSL's mbarrier_arrive of a peer is at "
            "block scope)"
        ]
    if (block, other) == (warp.block.number, warp.index):
        return [
            "both are lanes of one warp, which need not run together, volatile or not: bar.warp.sync (sync_warp) must "
            "come between them"
        ]
    if key >> int(SCOPE_SHIFT) & int(SCOPE_MASK):
        return ["one of the two accesses is strong: both must be, at a scope that holds both threads"]
    if block == warp.block.number:
        return ["a barrier of both warps must come between them: sync_threads, a named barrier, or an mbarrier"]
    if machine.name_of(block).partition("block")[0] != machine.name_of(warp.block.number).partition("block")[0]:
        return ["they are of different devices: a release at sys scope must follow the first, an acquire precede this"]
    return ["they are of different blocks: a release at gpu scope must follow the first, an acquire precede the second"]


def _lanes_known(clock: Clock, block: int, warp: int, time: int) -> np.ndarray:
    """The lanes of a warp that are known to be past a time."""
    times = clock.known.get(block)
    lanes = None if times is None else times[warp * ACTORS : warp * ACTORS + LANES]
    return np.zeros(0, int) if lanes is None else np.flatnonzero(lanes >= time)


def _after_asynchronous(machine, warp, lane: int, key: int, before: str) -> list[str]:
    site = key & int(SITE_MASK)
    parts = machine.program_of((key >> BLOCK_AT) - 1).sites[site - 1].parts if site else ()
    if parts[:1] == (KIND,):
        return ["wgmma.wait_group must come before what it reads is released or overwritten"]
    if before == "write" and parts[:2] == ("cp", "async") and "bulk" not in parts:
        return ["each thread waits for its own cp.async (wait_group), then a barrier tells the other threads"]
    if before == "write":
        found = _signalled(machine, warp, key)
        waited = [(barrier, phase) for barrier, phase, lanes in warp.waited if lane in lanes and barrier.copies]
        if found and waited and found not in waited:
            return [
                f"the copy signals {found[0].name} in phase {found[1]}, for which this thread has not waited. It has "
                f"last waited for phase {waited[-1][1]} of {waited[-1][0].name}: the wait, or the try_wait that lets "
                "it be skipped, is of another stage or phase"
            ]
        there = f"{found[0].name}, phase {found[1]}" if found else "the mbarrier that it signals (or wait_group)"
        return [f"the copy must be over: wait on {there}, then tell other threads"]
    return ["cp.async.bulk.wait_group.read (or the mbarrier) must come before the source of a copy is overwritten"]


def _signalled(machine, warp, key: int) -> tuple[MBarrier, int] | None:
    """The mbarrier, and its phase, that the copy of ``key`` signals: that of the warp's own block if it has several."""
    event = (key >> BLOCK_AT) - 1, key >> ACTOR_AT & int(ACTOR_MASK), key >> TIME_AT & int(TIME_MASK)
    others = [block for block in machine.resident.values() if block is not warp.block]
    for barrier in (barrier for block in (warp.block, *others) for barrier in block.mbarriers.values()):
        for copy, phase in barrier.copies:
            if copy == event:
                return barrier, phase
    return None


def of_waiting(f) -> list[str]:
    """Why what a fragment waits for may never come."""
    barrier = f.waits_on
    if isinstance(barrier, NamedBarrier):
        return _named(barrier)
    if isinstance(barrier, ClusterBarrier):
        absent = [warp for block in barrier.blocks for warp in block.warps if warp.live & ~barrier.arrived.get(warp, 0)]
        return [f"{actor(warp, _lanes(warp.live))} has not arrived at the cluster barrier" for warp in absent[:4]]
    return _phase(f, barrier) if isinstance(barrier, MBarrier) else []


def _lanes(bits: int) -> list[int]:
    return [lane for lane in range(LANES) if bits >> lane & 1]


def _named(barrier: NamedBarrier) -> list[str]:
    threads = barrier.block.warp_count * 32
    if barrier.expected > threads:
        return [f"{barrier.name} counts {barrier.expected} threads; this launch has {threads} in a block"]
    arrived = {f.warp.index for f, _ in barrier.waiting}
    absent = [w.index for w in barrier.block.warps if w.live and w.index not in arrived]
    if barrier.whole_block and absent:
        return [
            f"{barrier.name} needs all of the block's warps; {len(absent)} of {barrier.block.warp_count} are "
            "elsewhere: a barrier of some warps has a number of its own and their count of threads"
        ]
    return []


def _phase(f, barrier: MBarrier) -> list[str]:
    came = barrier.count - barrier.pending
    if barrier.phase == 0 and not came and not barrier.tx and "parity 0" in (f.waits or ""):
        return _not_released(f, barrier) or [
            f"nobody has arrived at {barrier.name} yet. If its first wait is to pass (a stage that is empty at first), "
            "that wait is for parity 1"
        ]
    for lanes, what in ((32, "warp"), (128, "warpgroup")):
        if came and barrier.count == came * lanes:
            return [f"{barrier.name} counts {barrier.count} arrivals, and one lane of each {what} arrives: {came}"]
    if barrier.pending:
        return [
            f"{barrier.name} lacks {barrier.pending} of {barrier.count} arrivals: its count, or a path without one",
            *_not_released(f, barrier),
        ]
    return []


def _not_released(f, barrier: MBarrier) -> list[str]:
    """A warp that has waited for a stage of a pipeline and not arrived at the barrier of its release since."""
    machine, name = f.warp.machine, barrier.name.partition(" (shared")[0]
    full = name.replace(".empty[", ".full[") + " (shared"
    for twin in barrier.block.mbarriers.values():
        if twin is barrier or not twin.name.startswith(full):
            continue
        for (block, number), (_, time) in sorted(twin.knows.items(), key=lambda known: known[0]):
            late = route.warp_of(machine, block, number)
            if late not in (None, f.warp) and (block, number) not in barrier.knows:
                steps = "; it ".join(["", *map(str.strip, route.since_time(late, time, waits=True))])
                who = f"warp {number} of {machine.name_of(block)}"
                return [f"{who} has waited for {twin.name} and not arrived at {name} since{steps}"]
    return []
