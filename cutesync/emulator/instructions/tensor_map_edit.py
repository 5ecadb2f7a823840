"""``tensormap.replace`` and ``tensormap.cp_fenceproxy``: a kernel that makes tensor maps itself."""

from __future__ import annotations

import numpy as np

from ...errors import ArgumentValueError
from ..async_copy import Issue
from ..clocks import each
from ..memory import SHARED_BITS
from ..tensor_map import replace_field
from .barrier import barrier_address
from .memory_ops import scope_of, space_of
from .moves import address_operand
from .registry import handles, unknown

_BYTES = 128
_WITH_ORDINAL = ("box_dim", "global_dim", "global_stride", "element_stride")


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


def replace_maker(machine, site: int, space: str, field: str):
    def run(f, lanes, address, value, ordinal=None):
        for lane in each(lanes):
            issue = Issue(f.warp, lane, site)
            region, offset = place(issue, space, int(address[lane]))
            old, number = region.data[offset : offset + _BYTES].tobytes(), 0 if ordinal is None else int(ordinal[lane])
            try:
                data = replace_field(old, field, int(value[lane]), number)
            except ArgumentValueError as fault:
                issue.fail("misaligned", f"tensormap.replace: {fault}")
            issue.about_to_write(region)
            put(machine, region, offset, memoryview(data))

    return run


def copy_maker(machine, site: int, scope: int):
    def run(f, lanes, destination, source):
        issue = Issue(f.warp, next(iter(each(lanes))), site)
        near, start = place(issue, "shared", int(source[issue.lane]))
        far, stop = place(issue, "global", int(destination[issue.lane]))
        issue.about_to_write(far)
        put(machine, far, stop, near.data[start : start + _BYTES].copy())
        if machine.sanitizer is not None:
            machine.sanitizer.fence(f, lanes, scope)

    return run


@handles("tensormap", switch=True)
def tensormap(e, instr):
    parts, args = instr.parts, instr.args
    if parts[1] == "cp_fenceproxy":
        e.converge("f.warp.live")
        operation = e.op(copy_maker, e.site(), scope_of(instr))
        return e.effect(operation, address_operand(e, args[0], 64), barrier_address(e, args[1]))
    if parts[1:3] != ("replace", "tile"):
        raise unknown(instr)
    space = space_of(instr)
    address = barrier_address(e, args[0]) if space.startswith("shared") else address_operand(e, args[0], 64)
    bits = int(parts[-1][1:])
    operation = e.op(replace_maker, e.site(), space, parts[3])
    if parts[3] in _WITH_ORDINAL:
        return e.effect(operation, address, e.u(args[2], bits), e.u(args[1], 32))
    return e.effect(operation, address, e.u(args[1], bits))
