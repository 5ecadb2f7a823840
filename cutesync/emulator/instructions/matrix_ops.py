"""``ldmatrix``, ``stmatrix``, ``movmatrix`` and ``mma.sync``: registers and shared memory around ``matrix.py``."""

from __future__ import annotations

import numpy as np

from ..memory import load, store
from ..syntax import Vec
from . import matrix
from .moves import address_operand
from .registry import handles, unknown

_FULL = 0xFFFFFFFF


def _items(operand) -> tuple:
    return operand.items if isinstance(operand, Vec) else (operand,)


def whole_warp_maker(machine, site: int):
    def run(f):
        if f.bits != _FULL:
            f.fail(
                "convergence", "an instruction that needs all 32 lanes of its warp runs with some of them gone", site
            )

    return run


def whole_warp(e) -> None:
    if not e.full:
        e.converge(_FULL)
        e.line(f"{e.op(whole_warp_maker, e.site())}(f)")


def _row_lanes(count: int):
    return None if count == 4 else np.arange(8 * count)


def load_matrix_maker(machine, site: int, count: int, transposed: bool):
    fetch, lanes = load(machine, site, "shared::cta", 8, 2), _row_lanes(count)

    def run(f, address):
        rows = fetch(f, lanes, address)[:, : 8 * count].T
        return matrix.load_matrices(np.ascontiguousarray(rows).view(np.uint8).reshape(-1, 16), transposed)

    return run


def store_matrix_maker(machine, site: int, count: int, transposed: bool):
    put, lanes = store(machine, site, "shared::cta", 8, 2), _row_lanes(count)

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
