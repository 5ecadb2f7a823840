"""Asynchronous operations of single lanes. ``cp.async``: each lane copies 4, 8 or 16 bytes into shared memory, and
waits by groups or by an mbarrier. ``st.async`` and ``red.async``: stores into a cluster peer's shared memory that
signal an mbarrier there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import lane_copies
from ..async_copy import Operation, Side, cut
from ..barriers import CTA_SCOPE, Arrival
from ..clocks import each
from ..lanes import count_nonzero as cnz
from ..memory import ONES, SHARED_BITS, SHARED_START, UNITS, Region
from ..syntax import SIZES, Mem
from .barrier import barrier_address, find_barrier
from .memory_ops import combiner
from .moves import address_operand
from .registry import handles
from .transfers import REDUCTIONS, aligned, announce_writes, target_barrier


class SmallCopies(Operation):
    """One ``cp.async`` of some lanes: 4, 8 or 16 bytes each, which count as a store of that lane at its first wait that
    covers them."""

    def __init__(self, warp: Any, lanes: np.ndarray, site: int, target: tuple[Region, np.ndarray, int]):
        super().__init__(warp, int(lanes[0]), site, "cp.async")
        self.lanes, (self.region, self.rows, self.size) = lanes, target
        self.times = np.zeros(32, np.int64)  # of lanes, at those waits, or at arrivals that cover their copies
        self.counted = np.zeros(32, bool)
        self.blocks.add(warp.block.number)

    def copy(self, source: Region | None, offsets: np.ndarray, kept: np.ndarray) -> None:
        """Set it up: ``kept`` bytes of each lane, padded with zeros. They land some lanes at a time."""
        order = np.array(self.machine.schedule.random.sample(self.lanes.tolist(), len(self.lanes)))
        self.pieces = [partial(self.land, source, offsets, kept, order[part]) for part in cut(self.machine, len(order))]

    def land(self, source: Region | None, offsets: np.ndarray, kept: np.ndarray, lanes: np.ndarray) -> None:
        region, rows, columns = self.region, self.rows[lanes], np.arange(self.size)
        values = np.zeros((len(lanes), self.size), np.uint8)
        some = columns < kept[lanes, None]
        if source is not None:
            values[some] = source.data[(offsets[lanes, None] + columns)[some]]
        region.units[self.size][rows] = values.view(UNITS[self.size]).reshape(-1)
        if region.valid is not None:
            region.valid_units[self.size][rows] = ONES[self.size]
        region.changed(self.machine, rows, self.size)

    def cover(self, lanes: list[int], time: int) -> None:
        """These lanes wait for their copies, or arrive after them, at this time."""
        self.times[lanes] = np.where(self.times[lanes], self.times[lanes], time)

    def count_as_stores(self, lanes: list[int]) -> None:
        fresh = np.array(lanes)[~self.counted[lanes]]
        if len(fresh):
            self.counted[fresh] = True
            keys = (self.rows[fresh], self.size), self.times[fresh]
            lane_copies.count_as_stores(self.machine.sanitizer, self.warp, fresh, self.site, self.region, *keys)


def small_copy(site: int, size: int, f, lanes, destination, source, kept) -> None:
    """Start the copies of these lanes, at once if nothing about them needs a closer look."""
    numbers, kept = np.arange(32) if lanes is None else lanes, np.minimum(kept, size).astype(np.int64)
    offsets = (destination & np.uint64(SHARED_BITS)).astype(np.int64) - SHARED_START
    for who in [numbers] if together(f.warp, numbers, offsets, source, kept, size) else numbers[:, None]:
        start_copies(site, size, f, who, offsets, source, kept)


def together(warp, lanes: np.ndarray, offsets: np.ndarray, source: np.ndarray, kept: np.ndarray, size: int) -> bool:
    """Whether copies are aligned, between different units of the block's own memory and one region, and none writes
    what somebody may use."""
    to, region = offsets[lanes], warp.block.shared
    at, sanitizer = source[lanes][kept[lanes] > 0], warp.machine.sanitizer
    if cnz(to % size) or to.min() < 0 or to.max() + size > region.high or len(set(to.tolist())) < len(to):
        return False
    if len(at):
        low = int(at.min())
        if cnz(at % np.uint64(size)) or warp.machine.memory.find(low, int(at.max()) - low + size) is None:
            return False
    return sanitizer is None or lane_copies.clear_to_write(sanitizer, warp, lanes, region, to // size, size)


def start_copies(site: int, size: int, f, lanes: np.ndarray, offsets: np.ndarray, source, kept: np.ndarray) -> None:
    """Start the copies of lanes that are ``together``, or that of one lane, which reports what is wrong with it."""
    machine, warp = f.warp.machine, f.warp
    to = int(offsets[lanes[0]]) + SHARED_START
    region, offset = warp.block.shared_at(to)
    operation = SmallCopies(warp, lanes, site, (region, offsets // size, size))
    used = lanes[kept[lanes] > 0]
    origin = machine.memory.find(int(source[used].min()), int(kept[used].max())) if len(used) else None
    if len(lanes) == 1:
        at, count = int(source[lanes[0]]), int(kept[lanes[0]])
        aligned(operation, "the source of cp.async", at, size)
        aligned(operation, "the destination of cp.async", to, size)
        if region is None or offset < 0 or offset + size > region.high:
            operation.fail("out-of-bounds", f"cp.async writes {size} bytes outside shared memory")
        operation.rows = np.full(32, offset // size)
        if count and origin is None:
            where = machine.memory.describe(at)
            operation.fail("out-of-bounds", f"cp.async reads {count} bytes at {at:#x}, {where}")
    operation.write_event = warp.clock.start_async()
    first = source.astype(np.int64) - (0 if origin is None else origin.base)
    if machine.sanitizer is not None:
        if origin is not None and machine.programmatic:
            units = (first[used, None] + np.arange(size))[np.arange(size) < kept[used, None]]
            machine.sanitizer.check_preceding(warp, used, origin, site, units, 1, False)
        if len(lanes) == 1:
            side = Side(region, np.array([offset]), size)
            machine.sanitizer.async_access(operation, side, operation.write_event, True, generic=True)
        else:
            lane_copies.async_stores(machine.sanitizer, operation, region, operation.rows[lanes], size)
    operation.copy(origin, first, kept)
    for lane in lanes.tolist():
        warp.groups["cp.async", lane].open.append(operation)
    operation.start()


def arrive_after_copies(site: int, increments: bool, f, lanes, address) -> None:
    """``cp.async.mbarrier.arrive``: arrive once all of the thread's earlier ``cp.async`` have landed."""
    for lane in each(lanes):
        barrier = find_barrier(f.warp, [lane], int(address[lane]), site)
        copies = [o for o in f.warp.groups["cp.async", lane] if not o.counted[lane]]
        for copy in copies:
            copy.cover([lane], f.warp.clock.time)
        if increments:
            barrier.pending += 1
        clock = f.warp.clock.release(np.array([lane])) if barrier.machine.sanitizer is not None else None
        operation = Operation(f.warp, lane, site, "arrival after cp.async")
        operation.after = copies

        def land(barrier=barrier, copies=copies, lane=lane, clock=clock):
            barrier.arrive(f, [lane], 1, site, CTA_SCOPE, False)
            if clock is not None:
                for copy in copies:
                    copy.count_as_stores([lane])
                barrier.arrived.append(Arrival(clock, CTA_SCOPE, f.warp.block.number))
            barrier.complete_if_done()

        operation.pieces = [land]
        operation.blocks.add(f.warp.block.number)
        operation.start()


@handles("cp.async.mbarrier", switch=True)
def cp_async_arrive(e, instr):
    e.effect(e.bound(arrive_after_copies, e.site(), "noinc" not in instr.parts), barrier_address(e, instr.args[0]))


@handles("cp.async", switch=True)
def cp_async(e, instr):
    destination, source, size = instr.args[:3]
    kept = e.const(size.value, "u", 32)
    if len(instr.args) > 3 and not isinstance(instr.args[3], Mem) and getattr(instr.args[3], "bits", 32) == 32:
        kept = e.u(instr.args[3], 32)
    operation = e.bound(small_copy, e.site(), size.value)
    e.effect(operation, barrier_address(e, destination), address_operand(e, source, 64), kept)


# --- stores into another block's memory -------------------------------------------------------------------------------


def remote_store(site: int, operator: str, kind: str, f, lanes, address, barrier_at, values) -> None:
    """A store (or reduction) into a cluster peer's shared memory that signals the mbarrier there."""
    combine = combiner(operator, kind) if operator else None
    width = SIZES[kind]
    for lane in each(lanes):
        operation = Operation(f.warp, lane, site, "asynchronous store")
        barrier = target_barrier(operation, int(barrier_at[lane]))
        region, offset = f.warp.block.shared_at(int(address[lane]) & SHARED_BITS)
        row = np.atleast_1d(values[lane])
        size = width * len(row)
        aligned(operation, "the address of an asynchronous store", int(address[lane]), size)
        if region is None or offset < 0 or offset + size > region.high:
            operation.fail("out-of-bounds", f"an asynchronous store of {size} bytes outside shared memory")
        side = Side(region, np.arange(offset, offset + size, width, dtype=np.int64), width)
        announce_writes(operation, [] if operator else [side])
        barrier.flies(size, operation)

        def land(side=side, row=row, barrier=barrier, operation=operation, size=size):
            new = row
            if combine is not None:
                old = side.view[side.rows]
                new = np.array([combine(int(a), int(b), 0) for a, b in zip(old, row)], old.dtype)
            side.write(slice(0, len(row)), new, operation.machine)
            barrier.land(size, operation.finished(), operation)

        operation.pieces = [land]
        operation.blocks |= {barrier.block.number}
        operation.start()


@handles("st.async", "red.async", switch=True)
def st_async(e, instr):
    address, source, barrier = instr.args[:3]
    kind = instr.parts[-1]
    data = e.stacked(source, 8 * SIZES[kind])
    operator = next((p for p in instr.parts if p in REDUCTIONS), "") if instr.parts[0] == "red" else ""
    operation = e.bound(remote_store, e.site(), operator, kind)
    e.effect(operation, barrier_address(e, address), barrier_address(e, barrier), data)
