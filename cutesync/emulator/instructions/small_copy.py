"""``cp.async``: each lane copies 4, 8 or 16 bytes into shared memory, and waits by groups or by an mbarrier."""

from __future__ import annotations

import numpy as np

from ..async_copy import Operation, Side, groups_of
from ..barriers import CTA_SCOPE, Arrival
from ..memory import SHARED_BITS
from ..syntax import Mem
from .barrier import barrier_address, find_barrier
from .moves import address_operand
from .registry import handles
from .transfers import aligned, commit_maker, each, touch, wait_maker


class SmallCopy(Operation):
    """One lane's ``cp.async``: 4, 8 or 16 bytes. It counts as a store of that lane at the first wait or arrival that
    covers it.
    """

    covered: int | None = None  # the lane's time then
    adopted = False

    def cover(self, time: int) -> None:
        if self.covered is None:
            self.covered = time

    def set(self, near: Side, far: Side | None, kept: int) -> None:
        self.near = near

        def land():
            data = np.zeros(near.unit, np.uint8)
            if kept:
                start = int(far.offsets[0])
                data[:kept] = far.region.data[start : start + kept]
            start = int(near.offsets[0])
            near.region.data[start : start + near.unit] = data
            near.region.mark_valid(start, start + near.unit)
            near.region.changed(self.machine)

        self.pieces = [land]

    def adopt(self) -> None:
        if not self.adopted:
            self.adopted = True
            self.machine.sanitizer.adopt(
                self.warp, self.lane, self.near.region, self.near.offsets, self.near.unit, self.site, self.covered
            )


def small_copy_maker(machine, site: int, size: int):
    def run(f, lanes, destination, source, kept):
        for lane in each(lanes):
            at, count = int(source[lane]), min(int(kept[lane]), size)
            aligned(machine, f, lane, "the source of cp.async", at, size, site)
            aligned(machine, f, lane, "the destination of cp.async", int(destination[lane]), size, site)
            operation = SmallCopy(machine, f.warp, lane, site, "cp.async")
            region, offset = f.warp.block.shared_at(int(destination[lane]) & SHARED_BITS)
            if region is None or offset < 0 or offset + size > region.high:
                machine.fail(
                    "out-of-bounds", f"cp.async writes {size} bytes outside shared memory", f.warp, [lane], site
                )
            far = None
            if count:
                origin = machine.memory.find(at, count)
                if origin is None:
                    machine.fail(
                        "out-of-bounds",
                        f"cp.async reads {count} bytes at {at:#x}, {machine.memory.describe(at)}",
                        f.warp,
                        [lane],
                        site,
                    )
                touch(machine, f, lane, origin, site)
                far = Side(origin, np.array([at - origin.base], np.int64), size if size <= 8 else 16)
            near = Side(region, np.array([offset], np.int64), size)
            operation.write_event = f.warp.clock.start_async()
            if machine.sanitizer is not None:
                machine.sanitizer.async_access(
                    f.warp, lane, region, near.offsets, size, True, operation.write_event, site, generic=True
                )
            operation.set(near, far, count)
            operation.blocks.add(f.warp.block.number)
            groups_of(f.warp, "cp.async", lane).open.append(operation)
            operation.start()

    return run


def copy_arrive_maker(machine, site: int, increments: bool):
    """``cp.async.mbarrier.arrive``: arrive once all of the thread's earlier ``cp.async`` have landed."""

    def run(f, lanes, address):
        for lane in each(lanes):
            barrier = find_barrier(machine, f, [lane], int(address[lane]), site)
            groups = groups_of(f.warp, "cp.async", lane)
            copies = [o for group in (*groups.committed, groups.open) for o in group if not o.adopted]
            for copy in copies:
                copy.cover(f.warp.clock.time)
            if increments:
                barrier.pending += 1
            clock = f.warp.clock.release(np.array([lane])) if machine.sanitizer is not None else None
            operation = Operation(machine, f.warp, lane, site, "arrival after cp.async")
            operation.after = copies

            def land(barrier=barrier, copies=copies, lane=lane, clock=clock):
                if clock is not None:
                    for copy in copies:
                        copy.adopt()
                barrier.arrive(f, [lane], 1, site, CTA_SCOPE, False)
                if clock is not None:
                    barrier.arrived.append(Arrival(clock, CTA_SCOPE, f.warp.block.number))
                barrier.settle()

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
        allowed = instr.args[0].value if verb == "wait_group" else 0
        if verb == "wait_all":
            e.effect(e.op(commit_maker, "cp.async"), "None")
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
