"""``tensormap.replace`` and ``tensormap.cp_fenceproxy``: a kernel that makes tensor maps itself."""

from __future__ import annotations

import numpy as np

from ...errors import ArgumentValueError
from ..memory import SHARED_BITS
from ..shadow import GPU, SCOPES
from ..tensor_map import replace_field
from .barrier import barrier_address
from .memory_ops import space_of
from .moves import address_operand
from .registry import handles, unknown
from .transfers import about_to_write, each, touch

_BYTES = 128
_WITH_ORDINAL = ("box_dim", "global_dim", "global_stride", "element_stride")


def place(machine, f, lane: int, space: str, address: int, site: int):
    """(region, offset) of the 128 bytes of a map."""
    if space.startswith("shared"):
        region, offset = f.warp.block.shared_at(address & SHARED_BITS)
    else:
        region = machine.memory.find(address, _BYTES)
        offset = address - region.base if region else 0
    if region is None or offset < 0 or offset + _BYTES > region.high:
        machine.fail(
            "out-of-bounds", f"a tensor map of 128 bytes at {address:#x} is in no memory", f.warp, [lane], site
        )
    touch(machine, f, lane, region, site)
    if offset % 64:
        machine.fail("misaligned", f"a tensor map at {address:#x} must be a multiple of 64", f.warp, [lane], site)
    return region, offset


def put(machine, region, offset: int, data) -> None:
    region.data[offset : offset + _BYTES] = data
    region.mark_valid(offset, offset + _BYTES)
    region.changed(machine, np.arange(offset // 64, (offset + _BYTES) // 64), 64)


def replace_maker(machine, site: int, space: str, field: str):
    def run(f, lanes, address, value, ordinal=None):
        for lane in each(lanes):
            region, offset = place(machine, f, lane, space, int(address[lane]), site)
            try:
                data = replace_field(
                    region.data[offset : offset + _BYTES].tobytes(),
                    field,
                    int(value[lane]),
                    0 if ordinal is None else int(ordinal[lane]),
                )
            except ArgumentValueError as fault:
                machine.fail("misaligned", f"tensormap.replace: {fault}", f.warp, [lane], site)
            about_to_write(machine, f, lane, region, site)
            put(machine, region, offset, memoryview(data))

    return run


def copy_maker(machine, site: int, scope: int):
    def run(f, lanes, destination, source):
        lane = int(each(lanes)[0])
        near, start = place(machine, f, lane, "shared", int(source[lane]), site)
        far, stop = place(machine, f, lane, "global", int(destination[lane]), site)
        about_to_write(machine, f, lane, far, site)
        put(machine, far, stop, near.data[start : start + _BYTES].copy())
        if machine.sanitizer is not None:
            machine.sanitizer.fence(f, lanes, scope)

    return run


@handles("tensormap", switch=True)
def tensormap(e, instr):
    parts, args = instr.parts, instr.args
    if parts[1] == "cp_fenceproxy":
        e.converge("f.warp.live")
        scope = next((SCOPES[p] for p in parts if p in SCOPES), GPU)
        return e.effect(e.op(copy_maker, e.site(), scope), address_operand(e, args[0], 64), barrier_address(e, args[1]))
    if parts[1:3] != ("replace", "tile"):
        raise unknown(instr)
    space = space_of(instr)
    address = barrier_address(e, args[0]) if space.startswith("shared") else address_operand(e, args[0], 64)
    bits = int(parts[-1][1:])
    operation = e.op(replace_maker, e.site(), space, parts[3])
    if parts[3] in _WITH_ORDINAL:
        return e.effect(operation, address, e.u(args[2], bits), e.u(args[1], 32))
    return e.effect(operation, address, e.u(args[1], bits))
