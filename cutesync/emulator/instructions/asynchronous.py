"""``cp.async``, bulk copies, tensor copies, ``st.async`` / ``red.async``, and the waits for them."""

from __future__ import annotations

import numpy as np

from ...errors import ArgumentValueError
from ..async_copy import UNIT, Operation, Side, decoded, from_shared, groups_of, shared_side, to_shared
from ..memory import SHARED_BITS, SHARED_START
from ..syntax import SIZES, Mem, Vec
from .barrier import barrier_address, find_barrier
from .memory_ops import combiner
from .integer import address_operand
from .registry import handles, unknown

_REDUCTIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


def each(lanes):
    return range(32) if lanes is None else lanes.tolist()


def global_side(machine, f, lane: int, address: int, size: int, site: int) -> Side:
    region = machine.memory.find(address, size)
    if region is None:
        machine.fail("out-of-bounds", f"a bulk copy of {size} bytes at {address:#x}, {machine.memory.describe(address)}", f.warp, [lane], site)
    start = address - region.base
    return Side(region, np.arange(start, start + size, UNIT, dtype=np.int64), UNIT)


def target_barrier(machine, f, lane: int, address: int, site: int):
    """The mbarrier an asynchronous operation will signal; its initialisation must have been fenced for the async proxy."""
    barrier = find_barrier(machine, f, lane, address, site)
    if machine.sanitizer is not None and not barrier.fenced:
        machine.fail("barrier", f"{barrier.name} is used by an asynchronous operation without a fence after its initialisation", f.warp, [lane], site,
                     [f"initialised at {machine.program.sites[barrier.site - 1].where()}", "fence.mbarrier_init (or fence.proxy.async) must follow it"])
    return barrier


def aligned(machine, f, lane: int, what: str, value: int, unit: int, site: int) -> None:
    if value % unit:
        machine.fail("misaligned", f"{what} {value:#x} must be a multiple of {unit}", f.warp, [lane], site)


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
            operation.machine.fail("uninitialised", f"an asynchronous operation reads byte {first} of {side.region.name}, which nobody has written",
                                   warp, [operation.lane], operation.site)


def announce_targets(operation: Operation, sides: list[Side]) -> None:
    """All targets of a multicast are one write event."""
    event = operation.warp.clock.start_async()
    operation.write_event = event
    if operation.machine.sanitizer is not None:
        for side in sides:
            operation.machine.sanitizer.async_access(operation.warp, operation.lane, side.region, side.offsets, side.unit, True, event, operation.site)


# --- into shared memory -------------------------------------------------------------------------------------------------


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


def fits(machine, f, lane: int, block, address: int, size: int, site: int) -> Side:
    side = shared_side(block, address, size) if block is not None else None
    if side is None:
        machine.fail("out-of-bounds", f"{size} bytes at shared address {address:#x} are outside the block's {machine.shared_bytes} bytes", f.warp, [lane], site)
    return side


def bulk_load_maker(machine, site: int, from_cluster: bool):
    """Contiguous bytes of global (or, ``from_cluster``, own shared) memory into shared memory, signalling an mbarrier."""

    def run(f, lanes, destination, source, size, barrier, mask):
        for lane in each(lanes):
            count, at = int(size[lane]), int(source[lane])
            aligned(machine, f, lane, "the size of a bulk copy", count, 16, site)
            aligned(machine, f, lane, "the source of a bulk copy", at, 16, site)
            aligned(machine, f, lane, "the destination of a bulk copy", int(destination[lane]), 16, site)
            operation = Operation(machine, f.warp, lane, site, f"bulk copy of {count} bytes to shared memory")
            if from_cluster:
                origin = fits(machine, f, lane, f.warp.block, at & 0xFFFFFF, count, site)
                operation.blocks.add(f.warp.block.number)
            else:
                origin = global_side(machine, f, lane, at, count, site)
            announce(operation, origin, False)
            places = destinations(machine, f, lane, int(destination[lane]), int(barrier[lane]), None if mask is None else int(mask[lane]), site)
            sides = [fits(machine, f, lane, block, address, count, site) for block, address, _ in places]
            announce_targets(operation, sides)
            operation.blocks |= {block.number for block, _, _ in places}
            to_shared(operation, origin, None, 0, [(side, b) for side, (_, _, b) in zip(sides, places)], count)
            operation.start()

    return run


def tensor_transfer(machine, f, lane: int, map_at: int, coordinates, shared_address: int, site: int, steps=()):
    """(transfer, region, tensor map) of a tensor copy; the map lies in the kernel's parameters or in global memory."""
    if map_at >> 56 == 3:
        offset = map_at & ((1 << 56) - 1)
        data = machine.parameters.data[offset:offset + 128].tobytes()
    else:
        region = machine.memory.find(map_at, 128)
        if region is None:
            machine.fail("out-of-bounds", f"the tensor map at {map_at:#x} is in no buffer", f.warp, [lane], site)
        data = region.data[map_at - region.base:map_at - region.base + 128].tobytes()
    try:
        described = decoded(data)
        extra = (tuple(int(o[lane]) for o in steps),) if steps else ()
        transfer = described.transfer(tuple(int(c[lane]) for c in coordinates), shared_address, *extra)
    except ArgumentValueError as fault:
        machine.fail("misaligned", f"tensor copy: {fault}", f.warp, [lane], site)
    inside = transfer.global_addresses[transfer.in_bounds]
    region = None
    if len(inside):
        low, high = int(inside.min()), int(inside.max()) + transfer.element_bytes
        region = machine.memory.find(low, high - low)
        if region is None:
            machine.fail("out-of-bounds", f"a tensor copy touches {low:#x} to {high:#x}: {machine.memory.describe(low)}", f.warp, [lane], site)
    return transfer, region, described


def tensor_sides(machine, f, lane: int, transfer, region, block, site: int) -> tuple[Side | None, Side]:
    unit = transfer.element_bytes
    offsets = transfer.shared_addresses - SHARED_START
    if block is None or int(offsets.max()) + unit > block.shared.high or int(offsets.min()) < 0:
        machine.fail("out-of-bounds", "the tile of a tensor copy lies outside the block's shared memory", f.warp, [lane], site)
    near = Side(block.shared, offsets, unit)
    far = None if region is None else Side(region, transfer.global_addresses - region.base, unit)
    return far, near


def tensor_load_maker(machine, site: int):
    def run(f, lanes, destination, map_at, coordinates, barrier, mask, steps):
        for lane in each(lanes):
            operation = Operation(machine, f.warp, lane, site, "tensor copy to shared memory")
            places = destinations(machine, f, lane, int(destination[lane]), int(barrier[lane]), None if mask is None else int(mask[lane]), site)
            transfer, region, described = tensor_transfer(machine, f, lane, int(map_at[lane]), coordinates, places[0][1], site, steps)
            pairs = [tensor_sides(machine, f, lane, transfer, region, block, site) for block, _, _ in places]
            far, keep = pairs[0][0], transfer.in_bounds
            if far is not None:
                announce(operation, Side(region, far.offsets[keep], far.unit), False)
            announce_targets(operation, [near for _, near in pairs])
            operation.blocks |= {block.number for block, _, _ in places}
            whole = keep is None or bool(keep.all())
            to_shared(operation, far, None if whole else keep, transfer.fill, [(near, b) for (_, near), (_, _, b) in zip(pairs, places)],
                      transfer.transaction_bytes, described.loaded)
            operation.start()

    return run


# --- out of shared memory -----------------------------------------------------------------------------------------------


def reducer(name: str, kind: str):
    """An element-wise ``combine(old, new)`` on bit vectors."""
    one = combiner(name, kind)
    return lambda old, new: np.array([one(int(a), int(b), 0) for a, b in zip(old, new)], old.dtype)


def bulk_store_maker(machine, site: int, operator: str, kind: str):
    """Contiguous bytes of shared memory to global memory; with ``operator``, combined with what is there."""

    def run(f, lanes, destination, source, size):
        for lane in each(lanes):
            count, at = int(size[lane]), int(destination[lane])
            for what, value in (("size", count), ("destination", at), ("source", int(source[lane]))):
                aligned(machine, f, lane, f"the {what} of a bulk copy", value, 16, site)
            operation = Operation(machine, f.warp, lane, site, f"bulk copy of {count} bytes to global memory")
            near = fits(machine, f, lane, f.warp.block, int(source[lane]) & 0xFFFFFF, count, site)
            far = global_side(machine, f, lane, at, count, site)
            if operator:
                unit = SIZES[kind]
                near, far = (Side(s.region, np.arange(s.offsets[0], s.offsets[0] + count, unit, dtype=np.int64), unit) for s in (near, far))
            finish_store(operation, near, far, None, f, reducer(operator, kind) if operator else None)

    return run


def finish_store(operation: Operation, near: Side, far: Side | None, keep, f, combine) -> None:
    announce(operation, near, False)
    if far is not None and combine is None:
        announce(operation, far if keep is None else Side(far.region, far.offsets[keep], far.unit), True)
    operation.blocks.add(f.warp.block.number)
    if far is None:
        operation.pieces = [lambda: None]
    else:
        from_shared(operation, near, far, keep, combine)
    groups_of(f.warp, "bulk", operation.lane).open.append(operation)
    operation.start()


_TENSOR_KINDS = {"u8": "u8", "u16": "u16", "u32": "u32", "s32": "s32", "u64": "u64", "s64": "s64", "f16": "f16", "f32": "f32", "f32_ftz": "f32",
                 "f64": "f64", "bf16": "bf16", "tf32": "f32", "tf32_ftz": "f32"}


def tensor_store_maker(machine, site: int, operator: str):
    def run(f, lanes, map_at, coordinates, source):
        for lane in each(lanes):
            operation = Operation(machine, f.warp, lane, site, "tensor copy to global memory")
            transfer, region, described = tensor_transfer(machine, f, lane, int(map_at[lane]), coordinates, int(source[lane]) & 0xFFFFFF, site)
            far, near = tensor_sides(machine, f, lane, transfer, region, f.warp.block, site)
            keep = None if bool(transfer.in_bounds.all()) else transfer.in_bounds
            finish_store(operation, near, far, keep, f, reducer(operator, _TENSOR_KINDS[described.element]) if operator else None)

    return run


# --- groups -------------------------------------------------------------------------------------------------------------


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
                operation.adopt(f.warp.clock.time)
                continue
            for event in (operation.read_event, None if reads_only else operation.write_event):
                if event is not None:
                    f.warp.learn(np.array([lane]), f.warp.clock.async_done(*event))
        if not reads_only:
            keep = len(groups.committed) - allowed
            groups.committed = groups.committed[max(keep, 0):] if allowed else []

    return run


# --- cp.async -----------------------------------------------------------------------------------------------------------


class SmallCopy(Operation):
    """One lane's ``cp.async``: 4, 8 or 16 bytes. Once waited for, it counts as a store of that lane."""

    def set(self, near: Side, far: Side | None, kept: int) -> None:
        self.near = near

        def land():
            data = np.zeros(near.unit, np.uint8)
            if kept:
                start = int(far.offsets[0])
                data[:kept] = far.region.data[start:start + kept]
            start = int(near.offsets[0])
            near.region.data[start:start + near.unit] = data
            near.region.mark_valid(start, start + near.unit)
            near.region.changed(self.machine)

        self.pieces = [land]

    def adopt(self, time: int) -> None:
        self.machine.sanitizer.adopt(self.warp, self.lane, self.near.region, self.near.offsets, self.near.unit, self.site, time)


def small_copy_maker(machine, site: int, size: int):
    def run(f, lanes, destination, source, kept):
        for lane in each(lanes):
            at, count = int(source[lane]), min(int(kept[lane]), size)
            aligned(machine, f, lane, "the source of cp.async", at, size, site)
            aligned(machine, f, lane, "the destination of cp.async", int(destination[lane]), size, site)
            operation = SmallCopy(machine, f.warp, lane, site, "cp.async")
            region, offset = f.warp.block.shared_at(int(destination[lane]) & SHARED_BITS)
            if region is None or offset < 0 or offset + size > region.high:
                machine.fail("out-of-bounds", f"cp.async writes {size} bytes outside shared memory", f.warp, [lane], site)
            far = None
            if count:
                origin = machine.memory.find(at, count)
                if origin is None:
                    machine.fail("out-of-bounds", f"cp.async reads {count} bytes at {at:#x}, {machine.memory.describe(at)}", f.warp, [lane], site)
                far = Side(origin, np.array([at - origin.base], np.int64), size if size <= 8 else 16)
            near = Side(region, np.array([offset], np.int64), size)
            operation.write_event = f.warp.clock.start_async()
            if machine.sanitizer is not None:
                machine.sanitizer.async_access(f.warp, lane, region, near.offsets, size, True, operation.write_event, site, generic=True)
            operation.set(near, far, count)
            operation.blocks.add(f.warp.block.number)
            groups_of(f.warp, "cp.async", lane).open.append(operation)
            operation.start()

    return run


def copy_arrive_maker(machine, site: int, increments: bool):
    """``cp.async.mbarrier.arrive``: arrive once all of the thread's earlier ``cp.async`` have landed."""

    def run(f, lanes, address):
        for lane in each(lanes):
            barrier = find_barrier(machine, f, lane, int(address[lane]), site)
            groups = groups_of(f.warp, "cp.async", lane)
            copies = [o for group in (*groups.committed, groups.open) for o in group]
            if increments:
                barrier.pending += 1
            time = f.warp.clock.time
            clock = f.warp.clock.release(np.array([lane])) if machine.sanitizer is not None else None
            operation = Operation(machine, f.warp, lane, site, "arrival after cp.async")
            operation.after = copies

            def land(barrier=barrier, copies=copies, lane=lane, clock=clock, time=time):
                if clock is not None:
                    for copy in copies:
                        copy.adopt(time)
                barrier.arrive(f, [lane], 1, site, 1, False)
                if clock is not None:
                    barrier.arrived.append((clock, 1, f.warp.block.number))
                barrier.settle()

            operation.pieces = [land]
            operation.blocks.add(f.warp.block.number)
            operation.start()

    return run


# --- st.async, red.async ------------------------------------------------------------------------------------------------


def remote_store_maker(machine, site: int, width: int, operator: str, kind: str):
    """A store (or reduction) into a cluster peer's shared memory that signals the mbarrier there."""
    combine = combiner(operator, kind) if operator else None

    def run(f, lanes, address, barrier_at, values):
        for lane in each(lanes):
            barrier = target_barrier(machine, f, lane, int(barrier_at[lane]), site)
            region, offset = f.warp.block.shared_at(int(address[lane]) & SHARED_BITS)
            row = np.atleast_1d(values[lane])
            size = width * len(row)
            aligned(machine, f, lane, "the address of an asynchronous store", int(address[lane]), size, site)
            if region is None or offset < 0 or offset + size > region.high:
                machine.fail("out-of-bounds", f"an asynchronous store of {size} bytes outside shared memory", f.warp, [lane], site)
            operation = Operation(machine, f.warp, lane, site, "asynchronous store")
            side = Side(region, np.arange(offset, offset + size, width, dtype=np.int64), width)
            if operator:
                operation.write_event = f.warp.clock.start_async()
            else:
                announce_targets(operation, [side])

            def land(side=side, row=row, barrier=barrier, operation=operation, size=size):
                old = side.view[side.rows]
                new = row if combine is None else np.array([combine(int(a), int(b), 0) for a, b in zip(old, row)], old.dtype)
                side.write(slice(0, len(row)), new, machine)
                barrier.complete_bytes(size, f.warp.clock.async_done(*operation.write_event), f.warp, operation.lane, site)

            operation.pieces = [land]
            operation.blocks |= {barrier.block.number}
            operation.start()

    return run


@handles("st.async", "red.async", switch=True)
def st_async(e, instr):
    address, source, barrier = instr.args[:3]
    kind = instr.parts[-1]
    items = source.items if isinstance(source, Vec) else (source,)
    bits = 8 * SIZES[kind]
    values = [e.u(x, bits) for x in items]
    data = values[0] if len(values) == 1 else e.temp(f"np.stack(({', '.join(values)}), 1)")
    operator = next((p for p in instr.parts if p in _REDUCTIONS), "") if instr.parts[0] == "red" else ""
    e.effect(e.op(remote_store_maker, e.site(), SIZES[kind], operator, kind), barrier_address(e, address), barrier_address(e, barrier), data)


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
        return e.effect(e.op(copy_arrive_maker, e.site(), "noinc" not in instr.parts), barrier_address(e, instr.args[0]))
    destination, source, size = instr.args[:3]
    kept = e.const(size.value, "u", 32)
    if len(instr.args) > 3 and not isinstance(instr.args[3], Mem) and getattr(instr.args[3], "bits", 32) == 32:
        kept = e.u(instr.args[3], 32)
    e.effect(e.op(small_copy_maker, e.site(), size.value), barrier_address(e, destination), address_operand(e, source, 64), kept)


@handles("cp.async.bulk", "cp.reduce.async.bulk", switch=True)
def bulk(e, instr):
    parts = instr.parts
    if "commit_group" in parts:
        return e.effect(e.op(commit_maker, "bulk"), "None")
    if "wait_group" in parts:
        return e.blocking(e.op(wait_maker, e.site(), "bulk", instr.args[0].value, "read" in parts), str(e.index))
    if "prefetch" in parts:
        return None
    if {"im2col::w", "im2col::w::128", "cp_mask", "ignore_oob"} & set(parts):
        raise unknown(instr)
    if "tensor" in parts:
        return tensor(e, instr)
    operator = next((p for p in parts if p in _REDUCTIONS), "") if parts[1] == "reduce" else ""
    args = list(instr.args)
    spaces = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    if spaces[0] == "global":
        operation = e.op(bulk_store_maker, e.site(), operator, parts[-1])
        return e.effect(operation, address_operand(e, args[0], 64), barrier_address(e, args[1]), e.u(args[2], 32))
    if operator:
        raise unknown(instr, "a bulk reduction into shared memory")
    mask = e.u(args[4], 16) if "multicast::cluster" in parts else "None"
    from_cluster = spaces[1] != "global"
    source = barrier_address(e, args[1]) if from_cluster else address_operand(e, args[1], 64)
    e.effect(e.op(bulk_load_maker, e.site(), from_cluster), barrier_address(e, args[0]), source, e.u(args[2], 32), barrier_address(e, args[3]), mask)


def tensor(e, instr) -> None:
    parts, args = instr.parts, instr.args
    operator = next((p for p in parts if p in _REDUCTIONS), "") if parts[1] == "reduce" else ""
    spaces = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    described = args[1] if spaces[0] != "global" else args[0]
    coordinates = "(" + "".join(e.s(c, 32) + ", " for c in described.extra[0].items) + ")"
    map_at = e.u(described.base, 64)
    if spaces[0] == "global":
        return e.effect(e.op(tensor_store_maker, e.site(), operator), map_at, coordinates, barrier_address(e, args[1]))
    rest = list(args[3:])
    steps = "(" + "".join(e.u(x, 16) + ", " for x in rest.pop(0).items) + ")" if rest and isinstance(rest[0], Vec) else "()"
    mask = e.u(rest[0], 16) if "multicast::cluster" in parts else "None"
    return e.effect(e.op(tensor_load_maker, e.site()), barrier_address(e, args[0]), map_at, coordinates, barrier_address(e, args[2]), mask, steps)
