"""Tensor maps in memory: maps that a kernel makes itself (``tensormap.replace``, ``tensormap.cp_fenceproxy``), their
fences, and the reads of copies that use them.

A copy reads the 128 bytes of its map at some time until it is over (for a copy to global memory: until ``wait_group
.read``), so that an edit before then is a race. It reads them through the tensormap proxy: between an edit in the same
launch and the copy there must be a ``fence.proxy.tensormap::generic.release`` after the edit (``cp_fenceproxy`` holds
one), and a ``fence.proxy.tensormap::generic.acquire`` of this map's address, in the thread that starts the copy or in
one that it has synchronized with since.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import ArgumentValueError
from ..async_copy import UNIT, Issue, Operation, Side
from ..clocks import ACTORS, LANES, MAPS, Table, each
from ..memory import SHARED_BITS, Region
from ..shadow import ACTOR_AT, ACTOR_MASK, SITE_MASK, Access, happened
from ..tensor_map import replace_field
from .barrier import barrier_address
from .memory_ops import scope_of, space_of, thread_fence
from .moves import address_operand
from .registry import handles

_BYTES = 128
_UNITS = np.arange(_BYTES // UNIT)


class MapFence(NamedTuple):
    """An acquire fence of a map: the event itself, and what the thread knew."""

    block: int
    actor: int
    time: int
    known: Table


def map_place(issue: Issue, address: int) -> tuple[Region, int]:
    """(region, offset) of the tensor map at a generic address: in the kernel's parameters or in global memory."""
    if address >> 56 == 3:
        return issue.machine.parameters, address & ((1 << 56) - 1)
    region = issue.machine.memory.find(address, _BYTES)
    if region is None:
        issue.fail("out-of-bounds", f"the tensor map at {address:#x} is in no buffer")
    issue.check_preceding(region, address - region.base, _BYTES, False)
    return region, address - region.base


def map_bytes(issue: Issue, address: int) -> bytes:
    region, offset = map_place(issue, address)
    return region.data[offset : offset + _BYTES].tobytes()


# --- the reads of copies ----------------------------------------------------------------------------------------------


MAP_READS = "maps"  # the commit groups of loads, which matter for edits of their maps alone


def announce_map_read(operation: Operation, address: int) -> None:
    """The operation reads its map: an event of its own, which bulk groups and their waits cover. (PTX says so of the
    copies that a group holds; that loads are meant too is what CUTLASS relies on before it edits a map.)"""
    region, offset = map_place(operation, address)
    sanitizer = operation.machine.sanitizer
    if sanitizer is None or not region.writable:
        return
    operation.map_event = operation.warp.clock.start_async()
    operation.warp.groups[MAP_READS, operation.lane].open.append(operation)
    side = Side(region, offset + _UNITS * UNIT, UNIT)
    sanitizer.async_access(operation, side, operation.map_event, False, generic=True)
    shadow = sanitizer.shadow(region)
    for key in np.unique(shadow.writes[side.granules(shadow)]).tolist():
        if key and ((key >> ACTOR_AT) & int(ACTOR_MASK)) % ACTORS < LANES:
            check_fences(operation, address, key, region)


def check_fences(operation: Operation, address: int, edit: int, region: Region) -> None:
    """Both fences must lie between an edit (its key in shadow memory) and the copy that ``operation`` is."""
    warp, lane = operation.warp, operation.lane
    clock, own = warp.clock.of(lane), (warp.block.number, warp.index * ACTORS + lane)

    def knows(fence: MapFence) -> bool:
        if (fence.block, fence.actor) == own:
            return True
        times = clock.known.get(fence.block)
        return times is not None and bool(times[fence.actor] >= fence.time)

    if not happened(edit, clock.proxied[MAPS]):
        missing = "fence.proxy.tensormap::generic.release after the edit (or tensormap.cp_fenceproxy)"
    elif not any(
        happened(edit, fence.known) and knows(fence) for fence in operation.machine.map_fences.get(address, ())
    ):
        missing = "fence.proxy.tensormap::generic.acquire of this map after the edit, before the copy"
    else:
        return
    lines = [f"its tensor map lies in {region.name}, which this launch has edited"]
    if edit & int(SITE_MASK):
        lines.append(f"  at {operation.machine.program.sites[(edit & int(SITE_MASK)) - 1].where()}")
    lines.append(f"there must be a {missing}")
    operation.found("proxy", "no fence.proxy.tensormap between an edit of a tensor map and its use", lines)


def acquire_map(scope: int, f, lanes, address) -> None:
    """``fence.proxy.tensormap::generic.acquire``: later copies of these lanes see the edits of this map they know."""
    thread_fence(scope, f, lanes)
    machine, clock = f.warp.machine, f.warp.clock
    if machine.sanitizer is None:
        return
    for lane in each(lanes):
        fences = machine.map_fences.setdefault(int(address[lane]), [])
        actor, time = f.warp.index * ACTORS + lane, clock.time
        known = clock.release(np.array([lane])).known
        fences[:] = [e for e in fences if (e.block, e.actor) != (f.warp.block.number, actor)]
        fences.append(MapFence(f.warp.block.number, actor, time, known))


def release_maps(scope: int, f, lanes) -> None:
    """``fence.proxy.tensormap::generic.release``: the edits that these lanes know may be used after an acquire."""
    if f.warp.machine.sanitizer is not None:
        f.warp.fence_proxy(lanes, (MAPS,))
    thread_fence(scope, f, lanes)


@handles("fence.proxy.tensormap::generic", switch=True)
def map_fence(e, instr):
    if "acquire" in instr.parts:
        e.effect(e.bound(acquire_map, scope_of(instr)), address_operand(e, instr.args[0], 64))
    else:
        e.effect(e.bound(release_maps, scope_of(instr)))


# --- edits ------------------------------------------------------------------------------------------------------------


def place(issue: Issue, space: str, address: int) -> tuple[Region, int]:
    """(region, offset) of the 128 bytes of a map that is edited or copied."""
    if space.startswith("shared"):
        region, offset = issue.warp.block.shared_at(address & SHARED_BITS)
    else:
        region = issue.machine.memory.find(address, _BYTES)
        offset = address - region.base if region else 0
    if region is None or offset < 0 or offset + _BYTES > region.high:
        issue.fail("out-of-bounds", f"a tensor map of 128 bytes at {address:#x} is in no memory")
    issue.check_preceding(region, offset, _BYTES, True)
    if address % 64:
        issue.fail("misaligned", f"a tensor map at {address:#x} must be a multiple of 64")
    return region, offset


def put(issue: Issue, f, region: Region, offset: int, data) -> None:
    """One lane writes a map."""
    machine, rows = issue.machine, offset // UNIT + _UNITS
    issue.about_to_write(region)
    if machine.sanitizer is not None:
        access = Access(issue.site, UNIT, "write")
        machine.sanitizer.stores(access)(f, np.full(len(rows), issue.lane), region, rows)
    region.data[offset : offset + _BYTES] = data
    region.mark_valid(offset, offset + _BYTES)
    region.changed(machine, rows, UNIT)


def replace_lanes(site: int, space: str, field: str, f, lanes, address, value, ordinal=None) -> None:
    for lane in each(lanes):
        issue = Issue(f.warp, lane, site)
        region, offset = place(issue, space, int(address[lane]))
        old, number = region.data[offset : offset + _BYTES].tobytes(), 0 if ordinal is None else int(ordinal[lane])
        try:
            data = replace_field(old, field, int(value[lane]), number)
        except ArgumentValueError as fault:
            issue.fail("misaligned", f"tensormap.replace: {fault}")
        put(issue, f, region, offset, memoryview(data))


def copy_fenced(site: int, scope: int, f, lanes, destination, source) -> None:
    """``tensormap.cp_fenceproxy``: one lane copies the map, then each lane's release fence follows."""
    issue = Issue(f.warp, next(iter(each(lanes))), site)
    near, start = place(issue, "shared", int(source[issue.lane]))
    far, stop = place(issue, "global", int(destination[issue.lane]))
    if issue.machine.sanitizer is not None:
        read = Access(site, UNIT, "read")
        issue.machine.sanitizer.loads(read)(f, np.full(len(_UNITS), issue.lane), near, start // UNIT + _UNITS)
    put(issue, f, far, stop, near.data[start : start + _BYTES].copy())
    release_maps(scope, f, lanes)


@handles("tensormap.cp_fenceproxy", switch=True)
def cp_fenceproxy(e, instr):
    far, near = instr.args[:2]
    e.converge("f.warp.live")
    operation = e.bound(copy_fenced, e.site(), scope_of(instr))
    e.effect(operation, address_operand(e, far, 64), barrier_address(e, near))


@handles("tensormap.replace.tile", switch=True)
def tensormap_replace(e, instr):
    space, field, bits = space_of(instr), instr.parts[3], int(instr.parts[-1][1:])
    mem, *ordinal, value = instr.args
    address = barrier_address(e, mem) if space.startswith("shared") else address_operand(e, mem, 64)
    operation = e.bound(replace_lanes, e.site(), space, field)
    e.effect(operation, address, e.u(value, bits), *(e.u(number, 32) for number in ordinal))
