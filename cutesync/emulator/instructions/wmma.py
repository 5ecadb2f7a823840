"""``wmma.load``, ``wmma.mma`` and ``wmma.store`` (PTX ISA 9.7.14.4): D (m x n) = A (m x k) * B (k x n) + C.

Which element a register holds is left open by PTX: a program may only load, compute the same on all, and store. Here
the elements of a matrix follow each other row by row: those of lane 0, of lane 1, and so on; where the registers hold
more than the matrix has (A and B of f16), they repeat. Memory is accessed element by element. Sums are as in ``mma``.
Types of less than 8 bits are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..accesses import reader, store
from ..formats import FORMATS, decode, encode, require
from ..memory import DIRECT, UNITS, UNSIGNED, Port
from ..syntax import items
from .matrix import ELEMENT_BITS
from .matrix_ops import whole_warp
from .memory_ops import address_of, space_of
from .registry import accept, handles, unknown

_BITS = {**ELEMENT_BITS, "f32": 32, "s32": 32}
_WIDE = ("m16n16k16", "m8n32k16", "m32n8k16")
SHAPES = {"f16": _WIDE, "bf16": _WIDE, "s8": _WIDE, "u8": _WIDE, "tf32": ("m16n16k8",), "f64": ("m8n8k4",)}
SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}
_MEMORY = re.compile(
    r"wmma\.(load|store)\.([abcd])\.sync\.aligned\.(row|col)\.(m\d+n\d+k\d+)(?:\.(?:global|shared(?:::cta)?))?\.(\w+)"
)
_PRODUCT = re.compile(r"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.(m\d+n\d+k\d+)(?:\.rn)?\.([\w.]+)")


@dataclass(frozen=True)
class Fragment:
    """One matrix in registers: its type, rows and columns, and the registers of a lane."""

    kind: str
    rows: int
    columns: int
    registers: int

    @property
    def width(self) -> int:
        return _BITS[self.kind] // 8

    @property
    def held(self) -> int:
        """Elements of a lane, those that repeat included."""
        return self.registers * (8 if self.kind == "f64" else 4) // self.width

    def unpacked(self, registers: np.ndarray) -> np.ndarray:
        """Registers (count, 32) -> raw elements (rows, columns)."""
        lanes = np.ascontiguousarray(registers.T).view(UNSIGNED[self.width])
        return lanes.reshape(-1)[: self.rows * self.columns].reshape(self.rows, self.columns)

    def packed(self, elements: np.ndarray) -> np.ndarray:
        """The inverse of ``unpacked``."""
        lanes = np.resize(np.ascontiguousarray(elements), (32, self.held))
        return np.ascontiguousarray(lanes.view("u8" if self.kind == "f64" else "u4").T)

    def offsets(self, stride: np.ndarray, by_rows: bool) -> list[np.ndarray]:
        """Byte offsets of the elements in memory, for each of a lane's elements those of all lanes."""
        place = np.resize(np.arange(self.rows * self.columns), (32, self.held))
        row, column = np.divmod(place, self.columns)
        major, minor = (row, column) if by_rows else (column, row)
        return list(((major * stride[:, None] + minor) * self.width).T)

    def shortest(self, by_rows: bool) -> int:
        """The stride where the instruction gives none."""
        return self.columns if by_rows else self.rows


@cache
def fragment(role: str, shape: str, kind: str, registers: int) -> Fragment:
    """The fragment of A, B, C or D in a shape."""
    m, n, k = map(int, re.findall(r"\d+", shape))
    rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    made = Fragment(kind, rows, columns, registers)
    fine = made.held * 32 % (rows * columns) == 0 and made.held * 32 >= rows * columns
    require(fine, f"wmma {shape} {role} of {kind}", f"{registers} registers", "as many as the fragment has")
    return made


def _typed(instr: Any, shape: str, role: str, kind: str) -> None:
    inputs = [kind] if role in "ab" else [name for name, sums in SUMS.items() if kind in sums]
    accept(instr, any(shape in SHAPES.get(name, ()) for name in inputs))


def _of_memory(instr: Any, registers: int) -> tuple[Fragment, bool]:
    found = _MEMORY.fullmatch(instr.opcode)
    if found is None or instr.pred is not None:
        raise unknown(instr, "")
    _, role, layout, shape, kind = found.groups()
    _typed(instr, shape, role, kind)
    return fragment(role, shape, kind, registers), layout == "row"


def _stride(e: Any, instr: Any, at: int, matrix: Fragment, by_rows: bool) -> str:
    given = len(instr.args) > at
    return e.u(instr.args[at], 32) if given else e.const(matrix.shortest(by_rows), "u", 32)


def load_maker(machine, site: int, space: str, matrix: Fragment, by_rows: bool):
    read = reader(Port(machine, site, space, matrix.width, 1))

    def run(f, address, stride):
        offsets = matrix.offsets(stride.astype(np.int64), by_rows)
        elements = [read(f, None, address + offset.astype(address.dtype)) for offset in offsets]
        lanes = np.stack([element.view(UNSIGNED[matrix.width]) for element in elements], 1)
        return np.ascontiguousarray(np.ascontiguousarray(lanes).view("u8" if matrix.kind == "f64" else "u4").T)

    return run


def store_maker(machine, site: int, space: str, matrix: Fragment, by_rows: bool):
    one = store(machine, (site, space, matrix.width, 1, DIRECT))

    def run(f, address, stride, *registers):
        lanes = np.ascontiguousarray(np.stack(registers).T).view(UNITS[matrix.width])
        for i, offset in enumerate(matrix.offsets(stride.astype(np.int64), by_rows)):
            one(f, None, address + offset.astype(address.dtype), np.ascontiguousarray(lanes[:, i]))

    return run


@handles("wmma.load", together=True)
def wmma_load(e, instr):
    destination = items(instr.args[0])
    matrix, by_rows = _of_memory(instr, len(destination))
    whole_warp(e)
    space = space_of(instr)
    operation = e.op(load_maker, e.site(), space, matrix, by_rows)
    address, stride = address_of(e, instr, instr.args[1], space), _stride(e, instr, 2, matrix, by_rows)
    result = e.temp(f"{operation}(f, {address}, {stride})")
    for i, item in enumerate(destination):
        e.set(item, f"{result}[{i}]", "u", 64 if matrix.kind == "f64" else 32)


@handles("wmma.store", together=True)
def wmma_store(e, instr):
    source = items(instr.args[1])
    matrix, by_rows = _of_memory(instr, len(source))
    whole_warp(e)
    space, bits = space_of(instr), 64 if matrix.kind == "f64" else 32
    operation = e.op(store_maker, e.site(), space, matrix, by_rows)
    address, stride = address_of(e, instr, instr.args[0], space), _stride(e, instr, 2, matrix, by_rows)
    e.line(f"{operation}(f, {address}, {stride}, {', '.join(e.u(x, bits) for x in source)})")


def product_maker(machine, d: Fragment, a: Fragment, b: Fragment, c: Fragment, satfinite: bool):
    real: Any = np.float64 if d.kind == "f64" else np.float32

    def values(matrix: Fragment, registers: np.ndarray) -> np.ndarray:
        raw = matrix.unpacked(registers)
        if matrix.kind in FORMATS:
            return decode(FORMATS[matrix.kind], raw).astype(real)
        return raw.view({"s8": np.int8, "s32": np.int32}.get(matrix.kind, raw.dtype)).astype(np.int64)

    def run(left, right, addend):
        total = values(a, left) @ values(b, right) + values(c, addend)
        if d.kind == "s32":
            total = np.clip(total, -(1 << 31), (1 << 31) - 1) if satfinite else total
            return d.packed(total.astype(np.uint32))
        return d.packed(encode(FORMATS[d.kind], total.astype(np.float64)))

    return run


@handles("wmma.mma", together=True)
def wmma_mma(e, instr):
    found = _PRODUCT.fullmatch(instr.opcode.replace(".satfinite", "", 1))
    if found is None or instr.pred is not None:
        raise unknown(instr, "")
    shape, kinds = found[1], found[2].split(".")
    d_kind, a_kind, b_kind, c_kind = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[-1])
    accept(instr, a_kind == b_kind and shape in SHAPES.get(a_kind, ()) and {d_kind, c_kind} <= set(SUMS[a_kind]))
    whole_warp(e)
    bits = 64 if d_kind == "f64" else 32
    kinds_of = zip("dabc", (d_kind, a_kind, b_kind, c_kind), instr.args)
    matrices = [fragment(role, shape, kind, len(items(arg))) for role, kind, arg in kinds_of]
    stacks = [f"np.array(({', '.join(e.u(x, bits) for x in items(arg))},))" for arg in instr.args[1:4]]
    operation = e.op(product_maker, *matrices, "satfinite" in instr.parts)
    result = e.temp(f"{operation}({', '.join(stacks)})")
    for i, item in enumerate(items(instr.args[0])):
        e.set(item, f"{result}[{i}]", "u", bits)
