"""ldmatrix, stmatrix, movmatrix and mma.sync against the ISA's formulas, CuTe's thread-value layouts and integer
arithmetic.
"""

import numpy as np
import pytest

from cutesync.emulator.instructions import matrix
from cutesync.errors import ArgumentValueError

from . import cute_layouts
from .support import RANGES, raw_of

SPELL = "mma.sync.aligned."


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_by_the_isa(count):
    """A lane holds elements 2 * (lane % 4) and the next of row lane / 4; with .trans of column lane / 4."""
    elements = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    rows = elements.reshape(-1, 8).view(np.uint8)
    plain, transposed = matrix.load_matrices(rows, False), matrix.load_matrices(rows, True)
    assert plain.shape == transposed.shape == (count, 32)
    g, t = divmod(np.arange(32), 4)
    wide = elements.astype(np.uint32)
    assert np.array_equal(plain, wide[:, g, 2 * t] | wide[:, g, 2 * t + 1] << 16)
    assert np.array_equal(transposed, wide[:, 2 * t, g] | wide[:, 2 * t + 1, g] << 16)
    assert np.array_equal(matrix.store_matrices(plain, False), rows)
    assert np.array_equal(matrix.store_matrices(transposed, True), rows)


def test_movmatrix_transposes():
    elements = np.arange(64, dtype=np.uint16).reshape(8, 8)
    register = matrix.load_matrices(elements.view(np.uint8).reshape(8, 16), False)[0]
    back = matrix.store_matrices(matrix.transpose_matrix(register)[None], False).view(np.uint16)
    assert np.array_equal(back.reshape(8, 8), elements.T)


@pytest.mark.parametrize("shape", [(16, 8, 8), (16, 8, 16)])
def test_half_fragments_are_cutes(shape):
    m, n, k = shape
    layouts = cute_layouts.mma_layouts(cute_layouts.warp_mma("Float16", shape))
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (n, k)), rng.integers(-99, 99, (m, n))

    def pack(values, layout, rows):
        row, column = cute_layouts.thread_values(layout, rows)
        raw = raw_of("f16", values)[row, column].astype(np.uint32)
        return raw[0::2] | raw[1::2] << 16

    row, column = cute_layouts.thread_values(layouts["C"], m)
    c_regs = c.astype(np.float32)[row, column].view(np.uint32)
    step = matrix.instruction(f"{SPELL}m16n8k{k}.row.col.f32.f16.f16.f32")
    d = matrix.multiply(step, pack(a, layouts["A"], m), pack(b, layouts["B"], n), c_regs)
    assert np.array_equal(d.view(np.float32), (a @ b.T + c)[row, column])


# --- fragments by the formulas of the ISA's tables --------------------------------------------------------------------


def place(kind_bits: int, operand: str, rows: int, r: int, lane: np.ndarray, j: int) -> tuple:
    """(row or column, k) of element j of register r in each lane, by the tables of "Matrix Fragments for mma"."""
    g, t = divmod(lane, 4)
    if kind_bits == 64:
        return (g + 8 * (r % 2), t + 4 * (r // 2)) if operand == "a" and rows == 16 else (g, t + 4 * r)
    per = 32 // kind_bits
    if operand == "a" and rows == 16:
        return g + 8 * (r % 2), t * per + j + (4 * per if r >= 2 else 0)
    return g, t * per + j + 4 * per * r


LANES = np.arange(32)


def registers_of(raw: np.ndarray, bits: int, operand: str) -> np.ndarray:
    rows, k = raw.shape
    width = 64 if bits == 64 else 32
    registers = [
        sum(
            raw[place(bits, operand, rows, r, LANES, j)].astype(np.uint64) << np.uint64(bits * j)
            for j in range(max(1, 32 // bits))
        )
        for r in range(rows * k * bits // (32 * width))
    ]
    return np.array(registers, f"u{width // 8}")


def accumulators(values: np.ndarray, kind: str) -> np.ndarray:
    rows, (g, t) = values.shape[0], divmod(LANES, 4)
    if kind == "f16":
        raw = values.astype(np.float16).view(np.uint16).astype(np.uint32)
        return np.array([raw[g + 8 * r, 2 * t] | raw[g + 8 * r, 2 * t + 1] << 16 for r in range(rows // 8)])
    dtype = {"f32": np.float32, "s32": np.int32, "f64": np.float64}[kind]
    out = np.array([values[g + 8 * (r // 2), 2 * t + r % 2] for r in range(rows // 4)], dtype)
    return out.view({4: np.uint32, 8: np.uint64}[out.itemsize])


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}
FORMS = [
    "m16n8k8.f16.f16.f16.f16",
    "m16n8k16.f16.f16.f16.f16",
    "m16n8k16.f32.f16.f16.f32",
    "m16n8k8.f32.bf16.bf16.f32",
    "m16n8k16.f32.bf16.bf16.f32",
    "m16n8k4.f32.tf32.tf32.f32",
    "m16n8k8.f32.tf32.tf32.f32",
    "m16n8k32.f32.e4m3.e5m2.f32",
    "m16n8k32.f32.e5m2.e5m2.f32",
    "m16n8k16.f16.e4m3.e4m3.f16",
    "m8n8k16.s32.s8.u8.s32",
    "m16n8k16.s32.s8.s8.s32",
    "m16n8k32.s32.u8.s8.s32",
    "m8n8k32.s32.s4.s4.s32",
    "m16n8k32.s32.u4.s4.s32",
    "m16n8k64.s32.s4.u4.s32",
    "m8n8k128.s32.b1.b1.s32.and.popc",
    "m16n8k128.s32.b1.b1.s32.xor.popc",
    "m16n8k256.s32.b1.b1.s32.and.popc",
    "m8n8k4.f64.f64.f64.f64",
    "m16n8k4.f64.f64.f64.f64",
    "m16n8k8.f64.f64.f64.f64",
    "m16n8k16.f64.f64.f64.f64",
]


@pytest.mark.parametrize("form", FORMS)
def test_products_of_small_integers_are_exact(form):
    shape, d_kind, a_kind, b_kind, c_kind, *popc = form.split(".")
    m, k = int(shape[1 : shape.index("n")]), int(shape.split("k")[1])
    rng = np.random.default_rng(k)
    ranges = RANGES | {"s4": 8, "u4": 16, "b1": 2, "f64": 1000}

    def numbers(kind, rows):
        return rng.integers(0 if kind in ("u8", "u4", "b1") else -ranges[kind], ranges[kind], (rows, k))

    def raw(kind, values):
        if kind == "f64":
            return values.astype(np.float64).view(np.uint64)
        if kind in ("s4", "u4", "b1"):
            return (values & 15).astype(np.uint8)
        return raw_of(kind, values)

    a, b, c = numbers(a_kind, m), numbers(b_kind, 8), rng.integers(-90, 90, (m, 8))
    product = (a[:, None, :] ^ b[None]).sum(-1) if "xor" in popc else a @ b.T
    tail = "." + ".".join(popc) if popc else ""
    step = matrix.instruction(f"{SPELL}{shape}.row.col.{d_kind}.{a_kind}.{b_kind}.{c_kind}{tail}")
    a_regs, b_regs = registers_of(raw(a_kind, a), BITS[a_kind], "a"), registers_of(raw(b_kind, b), BITS[b_kind], "b")
    got = matrix.multiply(step, a_regs, b_regs, accumulators(c, c_kind))
    assert np.array_equal(got, accumulators(product + c, d_kind))


def test_integer_sums_saturate_only_when_asked():
    ones, top = np.full((4, 32), 0x01010101, np.uint32), np.full((4, 32), 0x7FFFFFF0, np.uint32)
    form = "m16n8k32.row.col{}.s32.u8.u8.s32"
    assert (matrix.multiply(matrix.instruction(SPELL + form.format("")), ones, ones[:2], top) == 0x7FFFFFF0 + 32).all()
    assert (
        matrix.multiply(matrix.instruction(SPELL + form.format(".satfinite")), ones, ones[:2], top) == 0x7FFFFFFF
    ).all()


@pytest.mark.parametrize(
    "form",
    [
        "m16n8k16.row.row.f32.f16.f16.f32",
        "m8n8k4.row.col.f32.f16.f16.f32",
        "m16n8k16.row.col.f32.f16.bf16.f32",
        "m16n8k8.row.col.f16.bf16.bf16.f16",
        "m16n8k128.row.col.s32.b1.b1.s32",
        "m16n8k16.row.col.f32.s8.s8.f32",
    ],
)
def test_forms_that_do_not_exist_are_refused(form):
    with pytest.raises(ArgumentValueError):
        matrix.instruction(SPELL + form)
