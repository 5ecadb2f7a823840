"""``cp.async``: each lane copies 4, 8 or 16 bytes into shared memory, and waits by groups or by an mbarrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..async_copy import Operation, Side
from ..barriers import CTA_SCOPE, Arrival
from ..clocks import each
from ..memory import SHARED_BITS
from ..syntax import Mem
from .barrier import barrier_address, find_barrier
from .moves import address_operand
from .registry import handles
from .transfers import aligned, commit_maker, wait_maker


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


def small_copy_maker(machine, site: int, size: int):
    def run(f, lanes, destination, source, kept):
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
                operation.check_preceding(origin)
                data = origin.data[at - origin.base : at - origin.base + count]
            target = Side(region, np.array([offset], np.int64), size)
            operation.write_event = f.warp.clock.start_async()
            if machine.sanitizer is not None:
                machine.sanitizer.async_access(operation, target, operation.write_event, True, generic=True)
            operation.copy(target, data)
            operation.blocks.add(f.warp.block.number)
            f.warp.groups["cp.async", lane].open.append(operation)
            operation.start()

    return run


def copy_arrive_maker(machine, site: int, increments: bool):
    """``cp.async.mbarrier.arrive``: arrive once all of the thread's earlier ``cp.async`` have landed."""

    def run(f, lanes, address):
        for lane in each(lanes):
            barrier = find_barrier(f.warp, [lane], int(address[lane]), site)
            copies = [o for o in f.warp.groups["cp.async", lane] if not o.counted]
            for copy in copies:
                copy.cover(f.warp.clock.time)
            if increments:
                barrier.pending += 1
            clock = f.warp.clock.release(np.array([lane])) if machine.sanitizer is not None else None
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

    return run


@handles("cp.async", switch=True)
def cp_async(e, instr):
    verb = instr.parts[2]
    if verb == "commit_group":
        return e.effect(e.op(commit_maker, "cp.async"), "None")
    if verb in ("wait_group", "wait_all"):
        if verb == "wait_all":
            e.effect(e.op(commit_maker, "cp.async"), "None")
        allowed = instr.args[0].value if verb == "wait_group" else 0
        return e.blocking(e.op(wait_maker, e.site(), "cp.async", allowed, False), str(e.index))
    if verb == "mbarrier":
        return e.effect(
            e.op(copy_arrive_maker, e.site(), "noinc" not in instr.parts), barrier_address(e, instr.args[0])
        )
    destination, source, size = instr.args[:3]
    kept = e.const(size.value, "u", 32)
    if len(instr.args) > 3 and not isinstance(instr.args[3], Mem) and getattr(instr.args[3], "bits", 32) == 32:
        kept = e.u(instr.args[3], 32)
    e.effect(
        e.op(small_copy_maker, e.site(), size.value),
        barrier_address(e, destination),
        address_operand(e, source, 64),
        kept,
    )
