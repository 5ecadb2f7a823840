"""``ldmatrix``, ``stmatrix``, ``movmatrix``, ``mma.sync`` and ``wgmma``: registers and shared memory around the
arithmetic of ``matrix.py`` and ``..wgmma``.

``wgmma.mma_async`` waits for the four warps of its warpgroup, computes at once, and keeps its reads of shared memory in
flight until a ``wgmma.wait_group``: a write to an operand before that is reported, whatever the moment of the real
read. A wgmma-group is one of the warpgroup (PTX: "creates a new wgmma-group per warpgroup"), so a warp that has waited
for it knows the reads of all four warps to be over: CUTLASS has one thread of 128 release a stage. Registers are the
warp's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import wgmma as rules
from ..accesses import reader, store
from ..async_copy import Issue, Side
from ..memory import SHARED_START, UNITS, Place, Port
from ..syntax import Vec, items
from ..tensor_registers import KIND, Product, Tile, spill
from . import matrix
from .memory_ops import placed
from .registry import accept, handles

_FULL = 0xFFFFFFFF


def check_whole(site: int, f) -> None:
    if f.bits != _FULL:
        f.fail("convergence", "an instruction that needs all 32 lanes of its warp runs with some of them gone", site)


def whole_warp(e) -> None:
    if not e.full:
        e.converge(_FULL)
        e.line(f"{e.bound(check_whole, e.site())}(f)")


def whole_matrices(e, instr) -> None:
    """A whole warp loads or stores 8 x 8 matrices of 16-bit elements."""
    accept(instr, "m8n8" in instr.parts and "b16" in instr.parts and instr.pred is None)
    whole_warp(e)


def _row_lanes(count: int):
    return None if count == 4 else np.arange(8 * count)


def load_matrix_maker(machine, site: int, count: int, transposed: bool, place: Place):
    read, lanes = reader(Port(machine, site, "shared::cta", 8, 2, place)), _row_lanes(count)

    def run(f, address):
        return matrix.load_matrices(read(f, lanes, address).view(np.uint8).reshape(-1, 16), transposed)

    return run


def store_matrix_maker(machine, site: int, count: int, transposed: bool, place: Place):
    put, lanes = store(machine, (site, "shared::cta", 8, 2, place)), _row_lanes(count)

    def run(f, address, *registers):
        rows = np.zeros((32, 16), np.uint8)
        rows[: 8 * count] = matrix.store_matrices(np.stack(registers), transposed)
        put(f, lanes, address, rows.view(UNITS[16]).reshape(32))

    return run


@handles("ldmatrix", together=True)
def ldmatrix(e, instr):
    destination = items(instr.args[0])
    whole_matrices(e, instr)
    address, place = placed(e, instr, instr.args[1], "shared::cta")
    operation = e.op(load_matrix_maker, e.site(), len(destination), "trans" in instr.parts, place)
    result = e.temp(f"{operation}(f, {address})")
    for i, item in enumerate(destination):
        e.set(item, f"{result}[{i}]", "u", 32)


@handles("stmatrix", together=True)
def stmatrix(e, instr):
    source = items(instr.args[1])
    whole_matrices(e, instr)
    address, place = placed(e, instr, instr.args[0], "shared::cta")
    operation = e.op(store_matrix_maker, e.site(), len(source), "trans" in instr.parts, place)
    e.line(f"{operation}(f, {address}, {', '.join(e.u(x, 32) for x in source)})")


@handles("movmatrix", together=True)
def movmatrix(e, instr):
    whole_warp(e)
    e.set(instr.args[0], e.call(matrix.transpose_matrix, e.u(instr.args[1], 32)), "u", 32)


@handles("mma", together=True)
def mma(e, instr):
    whole_warp(e)
    step = matrix.instruction(instr.opcode)
    bits = 64 if step.d_type == "f64" else 32
    stacks = [f"np.array(({', '.join(e.u(x, bits) for x in items(a))},))" for a in instr.args[1:4]]
    result = e.temp(e.call(matrix.multiply, e.name(step, "step"), *stacks))
    for i, item in enumerate(items(instr.args[0])):
        e.set(item, f"{result}[{i}]", "u", bits)


# --- wgmma ------------------------------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """One warp at a ``wgmma.mma_async``: its fragment and operands. ``a`` is a descriptor vector or four registers."""

    f: Any
    a: Any
    b: np.ndarray
    accumulate: np.ndarray


class Gathering:
    """The warps of a warpgroup that have reached one ``wgmma.mma_async`` and wait for the others."""

    def __init__(self):
        self.site = 0
        self.turns: list[Turn] = []


@lru_cache(maxsize=512)
def operand_places(step: rules.Instruction, name: str, descriptor: int) -> tuple[np.ndarray, np.ndarray, range, dict]:
    """Of the 16-byte rows of operand "a" or "b": offsets in shared memory, their numbers, the bytes that they span, and
    the granules that ``Side`` finds."""
    offsets = rules.addresses(step, name, descriptor) - SHARED_START
    return offsets, offsets >> 4, range(int(offsets.min()), int(offsets.max()) + 16), {}


@lru_cache(maxsize=512)
def parts_of_a(step: rules.Instruction, descriptor: int) -> list[tuple[np.ndarray, dict]]:
    """Of operand "a", the offsets that each warp of the warpgroup multiplies, and the granules that ``Side`` finds."""
    offsets = operand_places(step, "a", descriptor)[0]
    return [(part.reshape(-1), {}) for part in np.split(offsets, 4)]


@lru_cache(maxsize=512)
def slots_of(registers: tuple[int, ...]) -> frozenset[int]:
    """One set for all instructions with these registers."""
    return frozenset(registers)


class MultiplyAsync:
    """The function behind one ``wgmma.mma_async``. ``d`` and ``a``: the slots of D, and of A if it is in registers."""

    def __init__(self, machine, site: int, step: rules.Instruction, d: tuple[int, ...], a: tuple[int, ...]):
        self.machine, self.site, self.step, self.d = machine, site, step, d
        self.shape, self.d_set, self.a_set = (step.n, step.k), slots_of(d), slots_of(a)

    def __call__(self, f, following, a, b, accumulate):
        gathering = f.warp.block.gatherings.setdefault(f.warp.index // 4, Gathering())
        if gathering.turns and gathering.site != self.site:
            other = self.machine.program.sites[gathering.site - 1].where()
            self.machine.fail(
                "convergence",
                "warps of one warpgroup run different wgmma instructions",
                f.warp,
                range(32),
                self.site,
                [f"another is at {other}"],
            )
        gathering.site = self.site
        gathering.turns.append(Turn(f, a, b, accumulate))
        if len(gathering.turns) < 4:
            return f.block_on("waits for the other warps of its warpgroup", gathering, following, self.site)
        turns, gathering.turns = sorted(gathering.turns, key=lambda turn: turn.f.warp.index), []
        self.compute(turns)
        for turn in turns:
            if turn.f is not f:
                self.machine.resume(turn.f, "is blocked")
        return following

    def compute(self, turns: list[Turn]) -> None:
        """Multiply, write D, and leave the reads of shared memory in flight."""
        step, first = self.step, turns[0]
        b, reads = self.operand("b", first.f.warp, int(first.b[0]))
        sides: list[tuple[Side, Callable[[int], Side] | None]] = [(reads, None)]
        if step.a_in_registers:
            a = rules.registers(step, np.concatenate([np.stack(turn.a) for turn in turns], axis=1))
        else:
            a, reads = self.operand("a", first.f.warp, int(first.a[0]))
            sides.insert(0, (reads, self.rows_of_warps(first.f.warp, int(first.a[0]))))
        warps = [turn.f.warp for turn in turns]
        if self.machine.sanitizer is not None:
            for warp in warps:
                warp.tensor_registers.start(self.site, self.shape, self.d_set, self.a_set)
        self.multiply(warps, a, b, bool(first.accumulate[0]))
        self.note_reads(warps, sides)

    def multiply(self, warps: list, a: np.ndarray, b: np.ndarray, accumulate: bool) -> None:
        """Compute D. One of f32 stays a matrix until another instruction than ``wgmma`` uses an accumulator."""
        step, tile = self.step, warps[0].tiles.get(self.d)
        if any(warp.tiles.get(self.d) is not tile for warp in warps) or (
            tile is None and any(not self.d_set.isdisjoint(slots) for warp in warps for slots in warp.tiles)
        ):
            tile = None
            for warp in warps:
                spill(warp)
        old = None
        if accumulate and tile is None:
            old = np.concatenate([np.array([warp.R[slot] for slot in self.d]) for warp in warps], axis=1)
        if step.d_type == "f32":
            before = None if old is None else rules.accumulator_matrix(old)
            if accumulate and tile is not None:
                before = tile.values
            made = Tile(self.d, rules.multiply_single(step, a, b, before))
            for warp in warps:
                warp.tiles[self.d] = made
            return
        result = rules.multiply(step, a, b, old)
        for i, warp in enumerate(warps):
            for slot, register in zip(self.d, np.ascontiguousarray(result[:, 32 * i : 32 * i + 32])):
                warp.R[slot] = register

    def operand(self, name: str, warp, descriptor: int) -> tuple[np.ndarray, Side]:
        """Raw elements of operand "a" or "b", and the 16-byte rows of shared memory that they were read from."""
        issue, region = Issue(warp, 0, self.site), warp.block.shared
        offsets, places, span, indices = operand_places(self.step, name, descriptor)
        if span.start < 0 or span.stop > region.high:
            issue.fail("out-of-bounds", "an operand of wgmma lies outside shared memory")
        if self.machine.sanitizer is not None and 0 in region.valid[span.start : span.stop].tobytes():
            rows = region.valid_units[16][places].view(np.uint8).reshape(offsets.size, 16)
            if 0 in rows.tobytes():
                at = int(offsets.reshape(-1)[np.flatnonzero(~rows.all(1))[0]])
                title = f"wgmma reads byte {at} of {region.name}, which nobody has written"
                self.machine.unwritten(region, title, warp, [0], self.site)
        rows = region.units[16][places].view(np.uint8).reshape(*places.shape, 16)
        return rules.matrix(self.step, name, rows), Side(region, offsets.reshape(-1), 16, indices)

    def rows_of_warps(self, warp, descriptor: int) -> Callable[[int], Side]:
        """The part of A that one of the four warps multiplies: 16 rows of the matrix."""
        parts, region = parts_of_a(self.step, descriptor), warp.block.shared
        return lambda number: Side(region, parts[number][0], 16, parts[number][1])

    def note_reads(self, warps: list, sides: list[tuple[Side, Callable[[int], Side] | None]]) -> None:
        """The first warp's event stands for the reads of all four; each must know that the operands are there."""
        first, trace = warps[0], self.machine.trace
        event = first.clock.start_product()
        over = first.clock.async_done(*event)
        if trace is not None:
            name = f"wgmma m64n{self.step.n} of warps {first.index} to {first.index + 3}"
            trace.launched((KIND, id(first), event[1]), first.block, name)
        for warp in warps:
            warp.groups[KIND, 0].open.append(Product(event, over, self.site, self.shape, self.d_set, self.a_set))
        if self.machine.sanitizer is not None:
            for side, own in sides:
                self.machine.sanitizer.tensor_read([Issue(warp, 0, self.site) for warp in warps], side, event, own)


def wait(allowed: int, f) -> None:
    groups, machine = f.warp.groups[KIND, 0], f.warp.machine
    over = groups.covered(allowed)
    if over and machine.sanitizer is not None:
        f.warp.learn(f.lanes, over[-1].over)
    if machine.trace is not None:
        for product in over:
            machine.trace.landed((KIND, id(f.warp), product.event[1]))
    groups.forget(allowed)


def commit(f) -> None:
    f.warp.groups[KIND, 0].commit()


def fence(f) -> None:
    f.warp.tensor_registers.fence()


_BOOKKEEPING = {"fence": fence, "commit_group": commit, "wait_group": wait}


@handles("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", switch=True)
def wgmma_order(e, instr):
    whole_warp(e)
    e.line(f"{e.bound(_BOOKKEEPING[instr.parts[1]], *(a.value for a in instr.args))}(f)")


@handles("wgmma.mma_async", switch=True)
def wgmma(e, instr):
    whole_warp(e)
    accept(instr, "sp" not in instr.parts)
    d, a, b, accumulate, *immediates = instr.args
    in_registers = isinstance(a, Vec)
    step = rules.instruction(instr.opcode, in_registers, tuple(x.value for x in immediates))
    accept(instr, len(d.items) == step.d_registers, f"{len(d.items)} destination registers")
    for register in d.items:
        e.u(register, 32)
    slots = [tuple(map(e.program.slot, items)) for items in (d.items, a.items if in_registers else ())]
    left = f"({', '.join(e.u(x, 32) for x in a.items)},)" if in_registers else e.u(a, 64)
    return e.blocking(e.op(MultiplyAsync, e.site(), step, *slots), left, e.u(b, 64), e.p(accumulate))
