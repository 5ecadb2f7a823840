"""``ldmatrix stmatrix movmatrix`` and ``mma.sync`` (PTX ISA 9.7.14, "Warp Level Matrix Multiply-Accumulate"), on
registers of one warp.

Registers are arrays of raw bits of shape (count, 32): register number, then lane; uint32, or uint64 for f64. Below, g =
lane / 4 and t = lane % 4. Every fragment of ``mma.sync`` follows one rule, whatever the type: a register holds the
elements that fit in it,

    A   row g + 8 * (r % 2), k = elements * (t + 4 * (r / 2)) and up    (8-row shapes: row g, k by r)
    B   column g,            k = elements * (t + 4 * r) and up
    C,D row g + 8 * (r / 2), column 2 * t + r % 2                       (f16: both columns in one register)

Accumulation is as in ``wgmma``: exact products, float32 (float64 for f64) sums in no fixed order. Integers are exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...errors import ArgumentValueError, explain
from ..formats import FORMATS, decode, encode, require

# --- 8 x 8 matrices of 16-bit elements --------------------------------------------------------------------------------


def load_matrices(rows: np.ndarray, transposed: bool) -> np.ndarray:
    """``ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16``: N * 8 rows of 16 bytes -> registers uint32 (N, 32).

    ``rows`` is uint8 (N * 8, 16), read at the shared addresses that lanes 0 to N * 8 - 1 hold; each must be a multiple
    of 16. Register i of a lane holds elements 2 * t and 2 * t + 1 of row g of matrix i; with ``.trans``, of column g.
    """
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
    if transposed:
        matrices = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    return matrices.view(np.uint32).reshape(-1, 32)


def store_matrices(registers: np.ndarray, transposed: bool) -> np.ndarray:
    """``stmatrix``, the inverse of ``load_matrices``: rows uint8 (N * 8, 16) for the addresses of that many lanes."""
    matrices = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, 8, 8)
    if transposed:
        matrices = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    return matrices.reshape(-1, 8).view(np.uint8)


def transpose_matrix(register: np.ndarray) -> np.ndarray:
    """``movmatrix.sync.aligned.m8n8.trans.b16``: uint32 (32,) -> uint32 (32,)."""
    return load_matrices(store_matrices(register, False), True)[0]


# --- mma.sync ---------------------------------------------------------------------------------------------------------

ELEMENT_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "f64": 64,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "fp8": ("m16n8k16", "m16n8k32"),
    "int8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "int4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
}
FAMILY = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}
SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "f64": ("f64",)}
SPELLING = re.compile(
    r"mma\.sync\.aligned\.(m(\d+)n8k(\d+))\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+?)(?:\.(and|xor)\.popc)?$"
)


@dataclass(frozen=True)
class Mma:
    """One ``mma.sync`` as written: D (m x 8) = A (m x k) * B (k x 8) + C."""

    m: int
    k: int
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    satfinite: bool
    bit_operation: str | None


@cache
def instruction(opcode: str) -> Mma:
    satfinite = ".satfinite" in opcode
    found = SPELLING.fullmatch(opcode.replace(".satfinite", "", 1))
    if not found:
        raise ArgumentValueError(
            explain("mma", repr(opcode), "mma.sync.aligned.mMn8kK.row.col{.satfinite}.dtype.atype.btype.ctype")
        )
    shape, m, k, d_type, a_type, b_type, c_type, bit_operation = found.groups()
    family = FAMILY.get(a_type, a_type)
    sums = SUMS.get(family, ("s32",))
    same_family = FAMILY.get(b_type, b_type) == family and (family in FAMILY.values() or a_type == b_type)
    typed = same_family and {d_type, c_type} <= set(sums) and (family == "b1") == bool(bit_operation)
    fine = typed and shape in SHAPES.get(family, ())
    require(fine, "mma", repr(opcode), "a shape and types that sm_90 has; m8n8k4 of f16 is not emulated")
    return Mma(int(m), int(k), d_type, a_type, b_type, c_type, satfinite, bit_operation)


def multiply(step: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """D registers from the registers of A, B and C."""
    left, right = _operand(step.a_type, a, step.m), _operand(step.b_type, b, 8)
    addend = accumulator_matrix(step.c_type, c, step.m)
    if step.d_type == "s32":
        return accumulator_registers("s32", _integer_sum(step, left, right, addend))
    real: Any = np.float64 if step.d_type == "f64" else np.float32
    x, y = (decode(FORMATS[kind], raw).astype(real) for kind, raw in ((step.a_type, left), (step.b_type, right)))
    total = x @ y.T + decode(FORMATS[step.c_type], addend).astype(real)
    return accumulator_registers(step.d_type, encode(FORMATS[step.d_type], total.astype(np.float64)))


def _integer_sum(step: Mma, left: np.ndarray, right: np.ndarray, addend: np.ndarray) -> np.ndarray:
    x, y = left.astype(np.int64), right.astype(np.int64)
    product = x @ (1 - y).T + (1 - x) @ y.T if step.bit_operation == "xor" else x @ y.T
    total = product + addend.view(np.int32)
    if step.satfinite:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.uint32)


def _operand(kind: str, registers: np.ndarray, rows: int) -> np.ndarray:
    """Registers of A (16 or 8 rows) or B (8 columns) -> raw elements (rows, k)."""
    halves = rows // 8
    pieces = registers.reshape(-1, halves, 8, 4)  # k group, row half, g, t
    lines = np.ascontiguousarray(pieces.transpose(1, 2, 0, 3)).reshape(rows, -1)
    bits = ELEMENT_BITS[kind]
    if bits >= 8:
        dtype = {"s8": np.int8}.get(kind) or {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
        return lines.view(dtype)
    single = np.unpackbits(lines.view(np.uint8), axis=1, bitorder="little")
    if bits == 1:
        return single
    return single.reshape(rows, -1, 4) @ np.array([1, 2, 4, -8 if kind == "s4" else 8])


def accumulator_matrix(kind: str, registers: np.ndarray, rows: int) -> np.ndarray:
    """Registers of C or D -> raw elements (rows, 8)."""
    if kind == "f16":
        return np.ascontiguousarray(registers.reshape(rows, 4)).view(np.uint16)
    return registers.reshape(rows // 8, 2, 8, 4).transpose(0, 2, 3, 1).reshape(rows, 8)


def accumulator_registers(kind: str, values: np.ndarray) -> np.ndarray:
    """The inverse of ``accumulator_matrix``."""
    if kind == "f16":
        return np.ascontiguousarray(values).view(np.uint32).reshape(-1, 32)
    return np.ascontiguousarray(values.reshape(-1, 8, 4, 2).transpose(0, 3, 1, 2)).reshape(-1, 32)
