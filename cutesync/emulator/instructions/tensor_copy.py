"""Tensor copies (``cp.async.bulk.tensor``, tiled and im2col): boxes of a tensor map, both ways, multicast and reducing."""

from __future__ import annotations

from dataclasses import replace

from ...errors import ArgumentValueError
from ..async_copy import Operation, Side, decoded, to_shared
from ..memory import SHARED_START
from ..syntax import Vec
from .barrier import barrier_address
from .transfers import REDUCTIONS, announce, announce_targets, destinations, each, finish_store, reducer, sharing, touch

_TENSOR_KINDS = {
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "s32": "s32",
    "u64": "u64",
    "s64": "s64",
    "f16": "f16",
    "f32": "f32",
    "f32_ftz": "f32",
    "f64": "f64",
    "bf16": "bf16",
    "tf32": "f32",
    "tf32_ftz": "f32",
}


def tensor_transfer(
    machine, f, lane: int, map_at: int, coordinates, shared_address: int, site: int, steps=(), store: bool = False
):
    """(transfer, region, tensor map) of a tensor copy; the map lies in the kernel's parameters or in global memory."""
    if map_at >> 56 == 3:
        offset = map_at & ((1 << 56) - 1)
        data = machine.parameters.data[offset : offset + 128].tobytes()
    else:
        region = machine.memory.find(map_at, 128)
        if region is None:
            machine.fail("out-of-bounds", f"the tensor map at {map_at:#x} is in no buffer", f.warp, [lane], site)
        touch(machine, f, lane, region, site)
        data = region.data[map_at - region.base : map_at - region.base + 128].tobytes()
    try:
        described = decoded(data)
        extra = (tuple(int(o[lane]) for o in steps),) if steps else ()
        corner = tuple(int(c[lane]) for c in coordinates)
        transfer = described.transfer(corner, shared_address, *extra, store=store)
    except ArgumentValueError as fault:
        machine.fail("misaligned", f"tensor copy: {fault}", f.warp, [lane], site)
    inside = transfer.global_addresses[transfer.in_bounds]
    region = None
    if len(inside):
        low, high = int(inside.min()), int(inside.max()) + transfer.element_bytes
        region = machine.memory.find(low, high - low)
        if region is None and store:
            exact = described.transfer(corner, shared_address, *extra)
            last = int(exact.global_addresses[exact.in_bounds].max(initial=low)) + transfer.element_bytes
            region = machine.memory.find(low, last - low)
            if region is not None:  # what spills over the end of its buffer falls into the padding of the allocation
                fits = transfer.global_addresses + transfer.element_bytes <= region.base + region.high
                transfer = replace(transfer, in_bounds=transfer.in_bounds & fits)
        if region is None:
            machine.fail(
                "out-of-bounds",
                f"a tensor copy touches {low:#x} to {high:#x}: {machine.memory.describe(low)}",
                f.warp,
                [lane],
                site,
            )
        touch(machine, f, lane, region, site)
    return transfer, region, described


def tensor_sides(machine, f, lane: int, transfer, region, block, site: int) -> tuple[Side | None, Side]:
    unit = transfer.element_bytes
    offsets = transfer.shared_addresses - SHARED_START
    if block is None or int(offsets.max()) + unit > block.shared.high or int(offsets.min()) < 0:
        machine.fail(
            "out-of-bounds", "the tile of a tensor copy lies outside the block's shared memory", f.warp, [lane], site
        )
    near = Side(block.shared, offsets, unit)
    far = None if region is None else Side(region, transfer.global_addresses - region.base, unit)
    return far, near


def tensor_load_maker(machine, site: int):
    def run(f, lanes, destination, map_at, coordinates, barrier, mask, steps):
        for lane in each(lanes):
            operation = Operation(machine, f.warp, lane, site, "tensor copy to shared memory")
            places = destinations(
                machine,
                f,
                lane,
                int(destination[lane]),
                int(barrier[lane]),
                None if mask is None else int(mask[lane]),
                site,
            )
            transfer, region, described = tensor_transfer(
                machine, f, lane, int(map_at[lane]), coordinates, places[0][1], site, steps
            )
            pairs = [tensor_sides(machine, f, lane, transfer, region, block, site) for block, _, _ in places]
            far, keep = pairs[0][0], transfer.in_bounds
            if far is not None:
                announce(operation, Side(region, far.offsets[keep], far.unit), False)
            announce_targets(operation, [near for _, near in pairs])
            operation.blocks |= {block.number for block, _, _ in places}
            whole = keep is None or bool(keep.all())
            to_shared(
                operation,
                far,
                None if whole else keep,
                transfer.fill,
                [(near, b) for (_, near), (_, _, b) in zip(pairs, places)],
                transfer.transaction_bytes,
                described.loaded if described.rounds else None,
            )
            operation.start()

    return run


def tensor_store_maker(machine, site: int, operator: str):
    def run(f, lanes, map_at, coordinates, source):
        for lane, who in sharing(f, lanes, site, operator, map_at, source, *coordinates):
            operation = Operation(machine, f.warp, lane, site, "tensor copy to global memory")
            transfer, region, described = tensor_transfer(
                machine, f, lane, int(map_at[lane]), coordinates, int(source[lane]) & 0xFFFFFF, site, store=True
            )
            far, near = tensor_sides(machine, f, lane, transfer, region, f.warp.block, site)
            keep = None if bool(transfer.in_bounds.all()) else transfer.in_bounds
            combine = (
                reducer(operator, _TENSOR_KINDS[described.element], described.element.endswith("ftz"))
                if operator
                else None
            )
            wanted = tuple(int(o[lane]) for o in (map_at, source, *coordinates))
            finish_store(operation, who, wanted, near, far, keep, f, combine)

    return run


def tensor(e, instr) -> None:
    parts, args = instr.parts, instr.args
    operator = next((p for p in parts if p in REDUCTIONS), "") if parts[1] == "reduce" else ""
    spaces = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    described = args[1] if spaces[0] != "global" else args[0]
    coordinates = "(" + "".join(e.s(c, 32) + ", " for c in described.extra[0].items) + ")"
    map_at = e.u(described.base, 64)
    if spaces[0] == "global":
        return e.effect(e.op(tensor_store_maker, e.site(), operator), map_at, coordinates, barrier_address(e, args[1]))
    rest = list(args[3:])
    steps = (
        "(" + "".join(e.u(x, 16) + ", " for x in rest.pop(0).items) + ")" if rest and isinstance(rest[0], Vec) else "()"
    )
    mask = e.u(rest[0], 16) if "multicast::cluster" in parts else "None"
    return e.effect(
        e.op(tensor_load_maker, e.site()),
        barrier_address(e, args[0]),
        map_at,
        coordinates,
        barrier_address(e, args[2]),
        mask,
        steps,
    )
