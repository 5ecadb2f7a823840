"""Bulk copies (``cp.async.bulk``, ``cp.reduce.async.bulk``): contiguous bytes."""

from __future__ import annotations

import numpy as np

from .. import rounding
from ..async_copy import UNIT, Issue, Operation, Side, to_shared
from ..clocks import each
from ..memory import SHARED_START
from ..syntax import SIZES
from .barrier import barrier_address
from .moves import address_operand
from .registry import accept, handles
from .transfers import (
    REDUCTIONS,
    aligned,
    announce_read,
    announce_updates,
    announce_writes,
    destinations,
    reducer,
    sharing,
    start_store,
)


def global_side(issue: Issue, address: int, size: int, write: bool) -> Side:
    memory = issue.machine.memory
    region = memory.find(address, size)
    if region is None:
        issue.fail("out-of-bounds", f"a bulk copy of {size} bytes at {address:#x}, {memory.describe(address)}")
    start = address - region.base
    issue.check_preceding(region, start, size, write)
    return Side(region, np.arange(start, start + size, UNIT, dtype=np.int64), UNIT)


def side_of_block(issue: Issue, block, address: int, size: int) -> Side:
    """``size`` contiguous bytes of a block's shared memory."""
    offset = address - SHARED_START
    if block is None or offset < 0 or offset + size > block.shared.high:
        allowed = f"the block's {issue.machine.shared_bytes} bytes"
        issue.fail("out-of-bounds", f"{size} bytes at shared address {address:#x} are outside {allowed}")
    return Side(block.shared, np.arange(offset, offset + size, UNIT, dtype=np.int64), UNIT)


def elements(side: Side, count: int, kind: str) -> Side:
    """The same ``count`` bytes in units of one element."""
    unit, start = SIZES[kind], int(side.offsets[0])
    return Side(side.region, np.arange(start, start + count, unit, dtype=np.int64), unit)


def bulk_load_maker(machine, site: int, from_cluster: bool, operator: str, kind: str):
    """Contiguous bytes of global (or, ``from_cluster``, own shared) memory into shared memory, signalling an mbarrier.

    With ``operator`` they are combined with the bytes there.
    """

    def source_side(operation, address: int, size: int) -> Side:
        if not from_cluster:
            return global_side(operation, address, size, False)
        if not machine.clustered:
            operation.fail(
                "launch",
                "a bulk copy between shared memories is an illegal instruction in a launch without clusters (of one "
                "block is enough): set the launch's cluster",
            )
        block = operation.warp.block
        operation.blocks.add(block.number)
        operation.source = block.number
        return side_of_block(operation, block, address & 0xFFFFFF, size)

    def run(f, lanes, destination, source, size, barrier, mask):
        for lane in each(lanes):
            count, at, to = int(size[lane]), int(source[lane]), int(destination[lane])
            operation = Operation(f.warp, lane, site, f"bulk copy of {count} bytes to shared memory")
            for what, value in (("size", count), ("source", at), ("destination", to)):
                aligned(operation, f"the {what} of a bulk copy", value, 16)
            origin = source_side(operation, at, count)
            announce_read(operation, origin)
            places = destinations(operation, to, int(barrier[lane]), None if mask is None else int(mask[lane]))
            sides = [side_of_block(operation, block, address, count) for block, address, _ in places]
            if operator:
                origin, *sides = (elements(side, count, kind) for side in (origin, *sides))
                announce_updates(operation, sides)
            else:
                announce_writes(operation, sides)
            operation.blocks |= {block.number for block, _, _ in places}
            combine = reducer(operator, kind, flushes=False) if operator else None
            targets = [(side, b) for side, (_, _, b) in zip(sides, places)]
            to_shared(operation, origin, None, 0, targets, count, combine=combine)
            operation.start()

    return run


def bulk_store(site: int, operator: str, kind: str, f, lanes, destination, source, size) -> None:
    """Contiguous bytes of shared memory to global memory; with ``operator``, combined with the bytes there."""
    combine = reducer(operator, kind) if operator else None
    for lane, who in sharing(f, lanes, site, operator, destination, source, size):
        count, at, to = int(size[lane]), int(source[lane]), int(destination[lane])
        operation = Operation(f.warp, lane, site, f"bulk copy of {count} bytes to global memory")
        for what, value in (("size", count), ("destination", to), ("source", at)):
            aligned(operation, f"the {what} of a bulk copy", value, 16)
        origin = side_of_block(operation, f.warp.block, at & 0xFFFFFF, count)
        target = global_side(operation, to, count, True)
        if operator:
            origin, target = (elements(side, count, kind) for side in (origin, target))
            target.region.sums = rounding.summed(operator, kind) or target.region.sums
        start_store(operation, who, (to, at, count), origin, target, None, combine)


@handles("cp.async.bulk", "cp.reduce.async.bulk", switch=True)
def bulk(e, instr):
    parts, args = instr.parts, instr.args
    accept(instr, not {"cp_mask", "ignore_oob"} & set(parts))
    operator = next((p for p in parts if p in REDUCTIONS), "") if parts[1] == "reduce" else ""
    spaces = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    if spaces[0] == "global":
        operation = e.bound(bulk_store, e.site(), operator, parts[-1])
        return e.effect(operation, address_operand(e, args[0], 64), barrier_address(e, args[1]), e.u(args[2], 32))
    from_cluster = spaces[1] != "global"
    e.effect(
        e.op(bulk_load_maker, e.site(), from_cluster, operator, parts[-1]),
        barrier_address(e, args[0]),
        barrier_address(e, args[1]) if from_cluster else address_operand(e, args[1], 64),
        e.u(args[2], 32),
        barrier_address(e, args[3]),
        e.u(args[4], 16) if "multicast::cluster" in parts else "None",
    )
