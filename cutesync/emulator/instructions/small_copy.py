"""Asynchronous operations of single lanes. ``cp.async``: each lane copies 4, 8 or 16 bytes into shared memory, and
waits by groups or by an mbarrier. ``st.async`` and ``red.async``: stores into a cluster peer's shared memory that
signal an mbarrier there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..async_copy import Operation, Side
from ..barriers import CTA_SCOPE, Arrival
from ..clocks import each
from ..memory import SHARED_BITS
from ..syntax import SIZES, Mem
from .barrier import barrier_address, find_barrier
from .memory_ops import combiner
from .moves import address_operand
from .registry import handles
from .transfers import REDUCTIONS, aligned, announce_writes, target_barrier


class SmallCopy(Operation):
    """One lane's ``cp.async``: 4, 8 or 16 bytes. It counts as a store of that lane at the first wait that covers it."""

    target: Side
    covered: Any = None  # the lane's time at that wait, or at the arrival that covers it
    counted = False

    def cover(self, time: int) -> None:
        if self.covered is None:
            self.covered = time

    def copy(self, target: Side, source: np.ndarray) -> None:
        """Set it up: the bytes of ``source``, padded with zeros."""
        self.target = target

        def land():
            start, stop = int(target.offsets[0]), int(target.offsets[0]) + target.unit
            data = target.region.data[start:stop]
            data[: len(source)], data[len(source) :] = source, 0
            target.region.mark_valid(start, stop)
            target.region.changed(self.machine)

        self.pieces = [land]

    def count_as_store(self) -> None:
        if not self.counted:
            self.counted = True
            self.machine.sanitizer.count_as_store(self, self.target, self.covered)


def small_copy(site: int, size: int, f, lanes, destination, source, kept) -> None:
    machine = f.warp.machine
    for lane in each(lanes):
        at, count = int(source[lane]), min(int(kept[lane]), size)
        operation = SmallCopy(f.warp, lane, site, "cp.async")
        aligned(operation, "the source of cp.async", at, size)
        aligned(operation, "the destination of cp.async", int(destination[lane]), size)
        region, offset = f.warp.block.shared_at(int(destination[lane]) & SHARED_BITS)
        if region is None or offset < 0 or offset + size > region.high:
            operation.fail("out-of-bounds", f"cp.async writes {size} bytes outside shared memory")
        data = np.zeros(0, np.uint8)
        if count:
            origin = machine.memory.find(at, count)
            if origin is None:
                where = machine.memory.describe(at)
                operation.fail("out-of-bounds", f"cp.async reads {count} bytes at {at:#x}, {where}")
            operation.check_preceding(origin, at - origin.base, count, False)
            data = origin.data[at - origin.base : at - origin.base + count]
        target = Side(region, np.array([offset], np.int64), size)
        operation.write_event = f.warp.clock.start_async()
        if machine.sanitizer is not None:
            machine.sanitizer.async_access(operation, target, operation.write_event, True, generic=True)
        operation.copy(target, data)
        operation.blocks.add(f.warp.block.number)
        f.warp.groups["cp.async", lane].open.append(operation)
        operation.start()


def arrive_after_copies(site: int, increments: bool, f, lanes, address) -> None:
    """``cp.async.mbarrier.arrive``: arrive once all of the thread's earlier ``cp.async`` have landed."""
    for lane in each(lanes):
        barrier = find_barrier(f.warp, [lane], int(address[lane]), site)
        copies = [o for o in f.warp.groups["cp.async", lane] if not o.counted]
        for copy in copies:
            copy.cover(f.warp.clock.time)
        if increments:
            barrier.pending += 1
        clock = f.warp.clock.release(np.array([lane])) if barrier.machine.sanitizer is not None else None
        operation = Operation(f.warp, lane, site, "arrival after cp.async")
        operation.after = copies

        def land(barrier=barrier, copies=copies, lane=lane, clock=clock):
            barrier.arrive(f, [lane], 1, site, CTA_SCOPE, False)
            if clock is not None:
                for copy in copies:
                    copy.count_as_store()
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
