"""``ldmatrix``, ``stmatrix``, ``movmatrix``, ``mma.sync`` and ``wgmma``: registers and shared memory around
``matrix.py`` and ``wgmma.py``.

``wgmma.mma_async`` gathers the four warps of its warpgroup, computes at once, and leaves its reads of shared memory in
flight until each warp's ``wgmma.wait_group``: whoever overwrites an operand before that is reported, whatever the
moment of the real read.
"""

from __future__ import annotations

import numpy as np

from .. import wgmma as wgmma_rules
from ..async_copy import groups_of
from ..memory import SHARED_START, load, store
from ..syntax import Vec
from ..tensor_registers import KIND, Product
from . import matrix
from .moves import address_operand
from .registry import handles, unknown

_FULL = 0xFFFFFFFF


def _items(operand) -> tuple:
    return operand.items if isinstance(operand, Vec) else (operand,)


def whole_warp_maker(machine, site: int):
    def run(f):
        if f.bits != _FULL:
            machine.fail(
                "convergence",
                "an instruction that needs all 32 lanes of its warp runs with some of them gone",
                f.warp,
                np.flatnonzero(f.mask),
                site,
            )

    return run


def whole_warp(e) -> None:
    if not e.full:
        e.converge(_FULL)
        e.line(f"{e.op(whole_warp_maker, e.site())}(f)")


def _row_lanes(count: int):
    return None if count == 4 else np.arange(8 * count)


def load_matrix_maker(machine, site: int, count: int, transposed: bool):
    fetch, lanes = load(machine, site, "shared::cta", 8, 2, 0, False), _row_lanes(count)

    def run(f, address):
        rows = fetch(f, lanes, address)[:, : 8 * count].T
        return matrix.load_matrices(np.ascontiguousarray(rows).view(np.uint8).reshape(-1, 16), transposed)

    return run


def store_matrix_maker(machine, site: int, count: int, transposed: bool):
    put, lanes = store(machine, site, "shared::cta", 8, 2, 0, False), _row_lanes(count)

    def run(f, address, *registers):
        rows = np.zeros((32, 16), np.uint8)
        rows[: 8 * count] = matrix.store_matrices(np.stack(registers), transposed)
        put(f, lanes, address, rows.view(np.uint64))

    return run


@handles("ldmatrix", together=True)
def ldmatrix(e, instr):
    destination = _items(instr.args[0])
    if "m8n8" not in instr.parts or "b16" not in instr.parts or instr.pred is not None:
        raise unknown(instr)
    whole_warp(e)
    operation = e.op(load_matrix_maker, e.site(), len(destination), "trans" in instr.parts)
    result = e.temp(f"{operation}(f, {address_operand(e, instr.args[1], instr.args[1].base.bits)})")
    for i, item in enumerate(destination):
        e.set(item, f"{result}[{i}]", "u", 32)


@handles("stmatrix", together=True)
def stmatrix(e, instr):
    source = _items(instr.args[1])
    if "m8n8" not in instr.parts or "b16" not in instr.parts or instr.pred is not None:
        raise unknown(instr)
    whole_warp(e)
    operation = e.op(store_matrix_maker, e.site(), len(source), "trans" in instr.parts)
    address = address_operand(e, instr.args[0], instr.args[0].base.bits)
    e.line(f"{operation}(f, {address}, {', '.join(e.u(x, 32) for x in source)})")


@handles("movmatrix", together=True)
def movmatrix(e, instr):
    whole_warp(e)
    e.set(instr.args[0], f"{e.name(matrix.transpose_matrix, 'transpose_matrix')}({e.u(instr.args[1], 32)})", "u", 32)


@handles("mma", together=True)
def mma(e, instr):
    whole_warp(e)
    step = matrix.instruction(instr.opcode)
    bits = 64 if step.d_type == "f64" else 32
    stacks = [f"np.stack(({', '.join(e.u(x, bits) for x in _items(a))},))" for a in instr.args[1:4]]
    result = e.temp(f"{e.name(matrix.multiply, 'multiply')}({e.name(step, 'step')}, {', '.join(stacks)})")
    for i, item in enumerate(_items(instr.args[0])):
        e.set(item, f"{result}[{i}]", "u", bits)


# --- wgmma
# --------------------------------------------------------------------------------------------------------------


class Gathering:
    """The warps of a warpgroup that have come to one ``wgmma.mma_async`` and wait for the others."""

    def __init__(self):
        self.site = 0
        self.arrived: list = []  # (fragment, operands)


def wgmma_maker(machine, site: int, step, slots: tuple[int, ...], a_slots: tuple[int, ...]):
    """``run(f, next, a, b, scale)``: a is a descriptor vector or four registers. ``slots`` and ``a_slots`` hold D, and
    A if in registers.
    """
    sanitizer = machine.sanitizer
    shape, d_set, a_set = (step.n, step.k), frozenset(slots), frozenset(a_slots)

    def run(f, following, a, b, scale):
        block, group = f.warp.block, f.warp.index // 4
        gathering = block.gatherings.setdefault(group, Gathering())
        if gathering.arrived and gathering.site != site:
            machine.fail(
                "convergence",
                "warps of one warpgroup run different wgmma instructions",
                f.warp,
                range(32),
                site,
                [f"another is at {machine.program.sites[gathering.site - 1].where()}"],
            )
        gathering.site = site
        gathering.arrived.append((f, a, b, scale))
        if len(gathering.arrived) < 4:
            return f.block_on("waits for the other warps of its warpgroup", gathering, following, site)
        arrived, gathering.arrived = sorted(gathering.arrived, key=lambda entry: entry[0].warp.index), []
        compute(block, arrived)
        for other, *_ in arrived:
            if other is not f:
                machine.resume(other, "is blocked")
        return following

    def compute(block, arrived):
        first = arrived[0]
        where_b = wgmma_rules.addresses(step, "b", int(first[2][0]))
        b = wgmma_rules.matrix(step, "b", rows_at(block, where_b, first[0]))
        if step.a_in_registers:
            where_a = None
            a = wgmma_rules.registers(step, np.concatenate([np.stack(entry[1]) for entry in arrived], axis=1))
        else:
            where_a = wgmma_rules.addresses(step, "a", int(first[1][0]))
            a = wgmma_rules.matrix(step, "a", rows_at(block, where_a, first[0]))
        d = (
            np.concatenate([np.array([entry[0].warp.R[s] for s in slots]) for entry in arrived], axis=1)
            if first[3][0]
            else None
        )
        result = wgmma_rules.multiply(step, a, b, d)
        for i, (f, *_) in enumerate(arrived):
            if sanitizer is not None:
                f.warp.tensor_registers().start(site, shape, d_set, a_set)
            R, mine = f.warp.R, np.ascontiguousarray(result[:, 32 * i : 32 * i + 32])
            for slot, register in zip(slots, mine):
                R[slot] = register
            note_reads(block, f.warp, where_a, where_b)

    def rows_at(block, where, f):
        offsets = where - SHARED_START
        region = block.shared
        if int(offsets.min()) < 0 or int(offsets.max()) + 16 > region.high:
            machine.fail("out-of-bounds", "an operand of wgmma lies outside shared memory", f.warp, [0], site)
        if sanitizer is not None:
            bad = region.valid_view(16)[offsets // 16] != np.uint64(0x0101010101010101)
            if np.count_nonzero(bad):
                at = int(offsets.reshape(-1)[np.flatnonzero(bad.reshape(offsets.size, 2).any(1))[0]])
                machine.fail(
                    "uninitialised",
                    f"wgmma reads byte {at} of {region.name}, which nobody has written",
                    f.warp,
                    [0],
                    site,
                )
        return region.data.reshape(-1, 16)[offsets // 16]

    def note_reads(block, warp, where_a, where_b):
        event = warp.clock.start_async()
        if machine.trace is not None and warp.index % 4 == 0:
            machine.trace.launched(
                (KIND, id(warp), event[1]), block, f"wgmma m64n{step.n} of warps {warp.index} to {warp.index + 3}"
            )
        groups_of(warp, KIND, 0).open.append(Product(event, site, shape, d_set, a_set))
        if sanitizer is None:
            return
        for where in (where_a, where_b):
            if where is not None:
                sanitizer.async_access(warp, 0, block.shared, where.reshape(-1) - SHARED_START, 16, False, event, site)

    return run


def wgmma_wait_maker(machine, allowed: int):
    def run(f):
        groups = groups_of(f.warp, KIND, 0)
        for product in groups.waited(allowed):
            if machine.sanitizer is not None:
                f.warp.learn(f.lanes, f.warp.clock.async_done(*product.event))
            if machine.trace is not None:
                machine.trace.landed((KIND, id(f.warp), product.event[1]))
        groups.committed = groups.committed[max(len(groups.committed) - allowed, 0) :] if allowed else []

    return run


def wgmma_commit_maker(machine):
    def run(f):
        groups_of(f.warp, KIND, 0).commit()

    return run


def wgmma_fence_maker(machine):
    return lambda f: f.warp.tensor_registers().fence()


@handles("wgmma", switch=True)
def wgmma(e, instr):
    whole_warp(e)
    verb = instr.parts[1]
    if verb == "fence":
        return e.line(f"{e.op(wgmma_fence_maker)}(f)")
    if verb == "commit_group":
        return e.line(f"{e.op(wgmma_commit_maker)}(f)")
    if verb == "wait_group":
        return e.line(f"{e.op(wgmma_wait_maker, instr.args[0].value)}(f)")
    if verb != "mma_async" or "sp" in instr.parts:
        raise unknown(instr)
    d, a, b, scale, *immediates = instr.args
    in_registers = isinstance(a, Vec)
    step = wgmma_rules.instruction(instr.opcode, in_registers, tuple(x.value for x in immediates))
    if len(d.items) != step.d_registers:
        raise unknown(instr, f"{len(d.items)} destination registers")
    for register in d.items:
        e.u(register, 32)
    slots, a_slots = (
        tuple(e.program.slot(register) for register in items) for items in (d.items, a.items if in_registers else ())
    )
    left = f"({', '.join(e.u(x, 32) for x in a.items)},)" if in_registers else e.u(a, 64)
    return e.blocking(e.op(wgmma_maker, e.site(), step, slots, a_slots), left, e.u(b, 64), e.p(scale))
