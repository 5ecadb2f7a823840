"""Tensor copies (``cp.async.bulk.tensor``, tiled and im2col): boxes of a tensor map, both ways, multicast, reducing;
and tensor maps that a kernel makes itself (``tensormap.replace``, ``tensormap.cp_fenceproxy``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ArgumentValueError
from ..async_copy import Issue, Operation, Side, decoded, to_shared
from ..clocks import each
from ..memory import SHARED_BITS, SHARED_START, Region
from ..syntax import Vec
from ..tensor_map import Transfer, replace_field
from .barrier import barrier_address
from .memory_ops import scope_of, space_of, thread_fence
from .moves import address_operand
from .registry import accept, handles
from .transfers import REDUCTIONS, announce_read, announce_writes, destinations, reducer, sharing, start_store


def tensor_map_at(issue: Issue, address: int):
    """The tensor map at an address: in the kernel's parameters or in global memory."""
    if address >> 56 == 3:
        region: Any = issue.machine.parameters
        offset = address & ((1 << 56) - 1)
    else:
        region = issue.machine.memory.find(address, 128)
        if region is None:
            issue.fail("out-of-bounds", f"the tensor map at {address:#x} is in no buffer")
        issue.check_preceding(region)
        offset = address - region.base
    return decoded(region.data[offset : offset + 128].tobytes())


def tensor_transfer(issue: Issue, map_at: int, corner: tuple[int, ...], shared_address: int, *steps, store=False):
    """(transfer, region, tensor map) of the box at ``corner``; ``steps`` are im2col offsets, if given."""
    try:
        described = tensor_map_at(issue, map_at)
        transfer = described.transfer(corner, shared_address, *steps, store=store)
    except ArgumentValueError as fault:
        issue.fail("misaligned", f"tensor copy: {fault}")
    inside = transfer.global_addresses[transfer.in_bounds]
    if not len(inside):
        return transfer, None, described
    memory, low = issue.machine.memory, int(inside.min())
    high = int(inside.max()) + transfer.element_bytes
    region = memory.find(low, high - low)
    if region is None and store:
        exact = described.transfer(corner, shared_address, *steps)
        last = int(exact.global_addresses[exact.in_bounds].max(initial=low)) + transfer.element_bytes
        region = memory.find(low, last - low)
        if region is not None:  # what is stored beyond the end of its buffer falls into the padding of the allocation
            fits = transfer.global_addresses + transfer.element_bytes <= region.base + region.high
            transfer = replace(transfer, in_bounds=transfer.in_bounds & fits)
    if region is None:
        issue.fail("out-of-bounds", f"a tensor copy touches {low:#x} to {high:#x}: {memory.describe(low)}")
    issue.check_preceding(region)
    return transfer, region, described


def global_side(transfer: Transfer, region: Region | None) -> Side | None:
    return None if region is None else Side(region, transfer.global_addresses - region.base, transfer.element_bytes)


def shared_side(issue: Issue, transfer: Transfer, block) -> Side:
    offsets = transfer.shared_addresses - SHARED_START
    if block is None or int(offsets.max()) + transfer.element_bytes > block.shared.high or int(offsets.min()) < 0:
        issue.fail("out-of-bounds", "the tile of a tensor copy lies outside the block's shared memory")
    return Side(block.shared, offsets, transfer.element_bytes)


def tensor_load_maker(machine, site: int):
    def run(f, lanes, destination, map_at, coordinates, barrier, mask, steps):
        for lane in each(lanes):
            operation = Operation(f.warp, lane, site, "tensor copy to shared memory")
            masked = None if mask is None else int(mask[lane])
            places = destinations(operation, int(destination[lane]), int(barrier[lane]), masked)
            extra = (tuple(int(o[lane]) for o in steps),) if steps else ()
            corner = tuple(int(c[lane]) for c in coordinates)
            transfer, region, described = tensor_transfer(operation, int(map_at[lane]), corner, places[0][1], *extra)
            source, keep = global_side(transfer, region), transfer.in_bounds
            targets = [(shared_side(operation, transfer, block), b) for block, _, b in places]
            if source is not None:
                announce_read(operation, Side(source.region, source.offsets[keep], source.unit))
            announce_writes(operation, [side for side, _ in targets])
            operation.blocks |= {block.number for block, _, _ in places}
            to_shared(
                operation,
                source,
                None if bool(keep.all()) else keep,
                transfer.fill,
                targets,
                transfer.transaction_bytes,
                described.loaded if described.rounds else None,
            )
            operation.start()

    return run


def tensor_store(site: int, operator: str, f, lanes, map_at, coordinates, source) -> None:
    for lane, who in sharing(f, lanes, site, operator, map_at, source, *coordinates):
        operation = Operation(f.warp, lane, site, "tensor copy to global memory")
        at, place, *corner = (int(o[lane]) for o in (map_at, source, *coordinates))
        transfer, region, described = tensor_transfer(operation, at, tuple(corner), place & 0xFFFFFF, store=True)
        origin, target = shared_side(operation, transfer, f.warp.block), global_side(transfer, region)
        keep = None if bool(transfer.in_bounds.all()) else transfer.in_bounds
        kind = described.element.removesuffix("_ftz").replace("tf32", "f32")
        combine = reducer(operator, kind, described.element.endswith("ftz")) if operator else None
        start_store(operation, who, (at, place, *corner), origin, target, keep, combine)


@handles("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", switch=True)
def tensor(e, instr):
    parts, args = instr.parts, instr.args
    accept(instr, not {"im2col::w", "im2col::w::128", "cp_mask", "ignore_oob"} & set(parts))
    operator = next((p for p in parts if p in REDUCTIONS), "") if parts[1] == "reduce" else ""
    spaces = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    described = args[1] if spaces[0] != "global" else args[0]
    coordinates = _tuple(e.s(c, 32) for c in described.extra[0].items)
    map_at = e.u(described.base, 64)
    if spaces[0] == "global":
        return e.effect(e.bound(tensor_store, e.site(), operator), map_at, coordinates, barrier_address(e, args[1]))
    steps, rest = (args[3].items, args[4:]) if len(args) > 3 and isinstance(args[3], Vec) else ((), args[3:])
    return e.effect(
        e.op(tensor_load_maker, e.site()),
        barrier_address(e, args[0]),
        map_at,
        coordinates,
        barrier_address(e, args[2]),
        e.u(rest[0], 16) if "multicast::cluster" in parts else "None",
        _tuple(e.u(x, 16) for x in steps),
    )


def _tuple(texts: Iterable[str]) -> str:
    return "(" + "".join(text + ", " for text in texts) + ")"


# --- tensor maps that a kernel makes itself ---------------------------------------------------------------------------

_BYTES = 128


def place(issue: Issue, space: str, address: int):
    """(region, offset) of the 128 bytes of a map."""
    if space.startswith("shared"):
        region, offset = issue.warp.block.shared_at(address & SHARED_BITS)
    else:
        region = issue.machine.memory.find(address, _BYTES)
        offset = address - region.base if region else 0
    if region is None or offset < 0 or offset + _BYTES > region.high:
        issue.fail("out-of-bounds", f"a tensor map of 128 bytes at {address:#x} is in no memory")
    issue.check_preceding(region)
    if offset % 64:
        issue.fail("misaligned", f"a tensor map at {address:#x} must be a multiple of 64")
    return region, offset


def put(machine, region, offset: int, data) -> None:
    region.data[offset : offset + _BYTES] = data
    region.mark_valid(offset, offset + _BYTES)
    region.changed(machine, np.arange(offset // 64, (offset + _BYTES) // 64), 64)


def replace_lanes(site: int, space: str, field: str, f, lanes, address, value, ordinal=None) -> None:
    for lane in each(lanes):
        issue = Issue(f.warp, lane, site)
        region, offset = place(issue, space, int(address[lane]))
        old, number = region.data[offset : offset + _BYTES].tobytes(), 0 if ordinal is None else int(ordinal[lane])
        try:
            data = replace_field(old, field, int(value[lane]), number)
        except ArgumentValueError as fault:
            issue.fail("misaligned", f"tensormap.replace: {fault}")
        issue.about_to_write(region)
        put(issue.machine, region, offset, memoryview(data))


def copy_fenced(site: int, scope: int, f, lanes, destination, source) -> None:
    issue = Issue(f.warp, next(iter(each(lanes))), site)
    near, start = place(issue, "shared", int(source[issue.lane]))
    far, stop = place(issue, "global", int(destination[issue.lane]))
    issue.about_to_write(far)
    put(issue.machine, far, stop, near.data[start : start + _BYTES].copy())
    thread_fence(scope, f, lanes)


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
