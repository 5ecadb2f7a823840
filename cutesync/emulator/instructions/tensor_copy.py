"""Tensor copies (``cp.async.bulk.tensor``, tiled and im2col): boxes of a tensor map, both ways, multicast, reducing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...errors import ArgumentValueError
from .. import rounding
from ..async_copy import Issue, Operation, Side, decoded, to_shared
from ..clocks import each
from ..memory import SHARED_START, Region
from ..syntax import Vec
from ..tensor_map import Transfer
from .barrier import barrier_address
from .registry import accept, handles
from .tensor_map_edit import announce_map_read, map_bytes
from .transfers import REDUCTIONS, announce_read, announce_writes, destinations, reducer, sharing, start_store


def tensor_transfer(issue: Issue, map_at: int, corner: tuple[int, ...], shared_address: int, *steps, store=False):
    """(transfer, region, tensor map) of the box at ``corner``; ``steps`` are im2col offsets, if given."""
    try:
        described = decoded(map_bytes(issue, map_at))
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
    places = transfer.global_addresses[transfer.in_bounds] - region.base
    issue.check_preceding(region, places, transfer.element_bytes, store)
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
            transfer = transfer if described.rounds else transfer.coarse()
            source, keep = global_side(transfer, region), transfer.in_bounds
            targets = [(shared_side(operation, transfer, block), b) for block, _, b in places]
            if source is not None:
                announce_read(operation, Side(source.region, source.offsets[keep], source.unit))
            announce_map_read(operation, int(map_at[lane]))
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
        transfer = transfer if operator else transfer.coarse()
        origin, target = shared_side(operation, transfer, f.warp.block), global_side(transfer, region)
        keep = None if bool(transfer.in_bounds.all()) else transfer.in_bounds
        kind = described.element.removesuffix("_ftz").replace("tf32", "f32")
        combine = reducer(operator, kind, described.element.endswith("ftz")) if operator else None
        if target is not None:
            target.region.sums = rounding.summed(operator, kind) or target.region.sums
        start_store(operation, who, (at, place, *corner), origin, target, keep, combine, map_at=at)


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
