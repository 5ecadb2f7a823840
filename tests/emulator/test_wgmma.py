"""wgmma against CuTe: fragment layouts from its thread-value layouts, shared addresses from its layouts and compiled
descriptors.
"""

import itertools

import numpy as np
import pytest

from cutesync.emulator import wgmma
from cutesync.errors import ArgumentValueError

from . import cute_layouts
from .support import RANGES, raw_of

SPELL = "wgmma.mma_async.sync.aligned."
F16 = SPELL + "m64n64k16.f32.f16.f16"


# --- registers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 24, 256])
def test_accumulator_layout_is_cutes(n):
    layouts = cute_layouts.mma_layouts(cute_layouts.warpgroup_mma(n))
    row, column = cute_layouts.thread_values(layouts["C"], 64)
    matrix = np.arange(64 * n, dtype=np.uint32).reshape(64, n)
    assert np.array_equal(wgmma.accumulator_registers(matrix), matrix[row, column])
    assert np.array_equal(wgmma.accumulator_matrix(matrix[row, column]), matrix)
    halves = matrix[row, column].astype(np.uint16)
    packed = halves[0::2].astype(np.uint32) | halves[1::2].astype(np.uint32) << 16
    assert np.array_equal(wgmma.half_registers_to_matrix(packed), matrix.astype(np.uint16))
    assert np.array_equal(wgmma.matrix_to_half_registers(matrix.astype(np.uint16)), packed)


def test_a_fragment_is_cutes():
    layouts = cute_layouts.mma_layouts(cute_layouts.warpgroup_mma(64))
    row, k = cute_layouts.thread_values(layouts["A"], 64)
    matrix = np.arange(64 * 16, dtype=np.uint16).reshape(64, 16)
    values = matrix[row, k]
    regs = values[0::2].astype(np.uint32) | values[1::2].astype(np.uint32) << 16
    assert np.array_equal(wgmma.registers(wgmma.instruction(F16, True, (1, 1, 0)), regs), matrix)


@pytest.mark.parametrize("types,k,bits", [("f32.tf32.tf32", 8, 32), ("f32.e4m3.e5m2", 32, 8), ("s32.s8.u8", 32, 8)])
def test_a_fragment_of_other_widths_follows_the_isa(types, k, bits):
    """PTX ISA: row = lane / 4 + 16 * warp, +8 for odd registers; column by register / 2, lane % 4 and place in the
    register.
    """
    step = wgmma.instruction(f"{SPELL}m64n8k{k}.{types}", True, () if "s32" in types else (1, 1))
    per = 32 // bits
    regs = np.random.default_rng(0).integers(0, 1 << 32, (4, 128), dtype=np.uint64).astype(np.uint32)
    want = np.zeros((64, k), np.uint64)
    warp, lane = divmod(np.arange(128), 32)
    for r, j in itertools.product(range(4), range(per)):
        column = (lane % 4) * per + (r // 2) * 4 * per + j
        want[16 * warp + lane // 4 + 8 * (r % 2), column] = (regs[r] >> np.uint32(bits * j)) & ((1 << bits) - 1)
    assert np.array_equal(wgmma.registers(step, regs), want)


# --- shared memory ----------------------------------------------------------------------------------------------------

KINDS = [
    ("Float16", 64, ("K_SW128", "K_SW128"), (0, 1)),
    ("Float16", 256, ("K_SW64", "K_SW32"), (0, 1)),
    ("BFloat16", 24, ("K_INTER", "K_INTER"), (0, 1)),
    ("BFloat16", 64, ("MN_SW128", "MN_SW128"), (0, 1)),
    ("Float16", 192, ("MN_SW64", "MN_SW64"), (1, 0)),
    ("Float16", 16, ("MN_SW32", "MN_SW32"), (0, 1)),
    ("Float16", 40, ("MN_INTER", "MN_INTER"), (1, 0)),
    ("Float16", 128, ("K_SW32", "MN_SW128"), (1, 0)),
    ("Float8E4M3FN", 72, ("K_SW128", "K_SW64"), (0, 1)),
    ("Int8", 48, ("K_INTER", "K_SW128"), (1, 0)),
]


def cute_matrix(cute_layouts, layout, extent, block_k, base, width_bytes, swizzle_bytes):
    """Byte address of every (row, k) by CuTe: the affine layout, then Swizzle<log2(bytes / 16), 4, 3> on the byte
    address.
    """
    shape, stride = layout
    linear = cute_layouts.evaluate(shape, stride, np.arange(extent)[:, None] + extent * np.arange(block_k))
    address = base + linear * width_bytes
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle_bytes]
    return address ^ ((address & (((1 << bits) - 1) << 7)) >> 3)


@pytest.mark.parametrize("dtype,n,kinds,order", KINDS, ids=lambda v: str(v))
def test_shared_addresses_are_cutes(dtype, n, kinds, order, tmp_path):
    width = 1 if "8" in dtype else 2
    block_k = 128 // width
    uses, layouts, b_base = cute_layouts.compiled_descriptors(dtype, n, block_k, kinds, order, tmp_path)
    assert len(uses) == block_k * width // 32
    memory = np.arange(1 << 17, dtype=np.uint32)
    for k_block, (opcode, a, b, immediates) in enumerate(uses):
        step = wgmma.instruction(opcode, False, immediates)
        assert (step.transpose_a, step.transpose_b) == tuple(kind.startswith("MN") for kind in kinds)
        for name, descriptor, extent, base, kind in (("a", a, 64, 0, kinds[0]), ("b", b, n, b_base, kinds[1])):
            swizzle = int(kind.split("SW")[1]) if "SW" in kind else 0
            assert wgmma.decode_descriptor(descriptor).swizzle == swizzle
            whole = cute_matrix(cute_layouts, layouts[name], extent, block_k, base, width, swizzle)
            want = whole[:, k_block * step.k : (k_block + 1) * step.k]
            where = wgmma.addresses(step, name, descriptor)
            numbers = where[..., None] + np.arange(0, 16, width)
            raw = memory[numbers].astype(np.uint32)
            got = raw.transpose(0, 2, 1).reshape(extent, 16) if kind.startswith("MN") else raw.reshape(extent, step.k)
            assert np.array_equal(got, want)


def test_matrix_puts_the_bytes_where_addresses_say():
    shared = np.random.default_rng(1).integers(0, 256, 1 << 15, dtype=np.uint8)
    for transposes in ((0, 0), (1, 1)):
        step = wgmma.instruction(F16, False, (1, 1, *transposes))
        descriptor = 1 << 62 | 64 << 32 | 64 << 16 | 1024 >> 4
        where = wgmma.addresses(step, "b", descriptor)
        got = wgmma.matrix(step, "b", shared[where[..., None] + np.arange(16)])
        words = shared.view(np.uint16)
        for n, k in ((0, 0), (1, 0), (0, 1), (9, 15), (63, 7), (33, 8)):
            address = (where[n // 8, k] + n % 8 * 2) if transposes[1] else (where[n, k // 8] + k % 8 * 2)
            assert got[n, k] == words[address // 2]


def test_descriptor_fields():
    bits = 2 << 62 | 5 << 49 | 0x155 << 32 | 0x2AA << 16 | 0x3FFF
    assert wgmma.decode_descriptor(bits) == wgmma.Descriptor(0x3FFF0, 0x2AA0, 0x1550, 5, 64)


# --- products ---------------------------------------------------------------------------------------------------------

CASES = [
    ("f32", "f16", "f16", 16),
    ("f16", "f16", "f16", 16),
    ("f32", "bf16", "bf16", 16),
    ("f32", "tf32", "tf32", 8),
    ("f32", "e4m3", "e4m3", 32),
    ("f32", "e4m3", "e5m2", 32),
    ("f16", "e5m2", "e4m3", 32),
    ("s32", "s8", "s8", 32),
    ("s32", "u8", "s8", 32),
    ("s32", "s8", "u8", 32),
    ("s32", "u8", "u8", 32),
]


@pytest.mark.parametrize("d,a,b,k", CASES)
@pytest.mark.parametrize("n", [8, 64, 256])
def test_products_of_small_integers_are_exact(d, a, b, k, n):
    rng = np.random.default_rng(n)

    def numbers(kind, shape):
        top = RANGES[kind]
        return rng.integers(0 if kind == "u8" else -top, top, shape)

    x, y = numbers(a, (64, k)), numbers(b, (n, k))
    z = rng.integers(-50, 50, (64, n))
    opcode = f"{SPELL}m64n{n}k{k}.{d}.{a}.{b}"
    scales = () if d == "s32" else (-1, 1)
    step = wgmma.instruction(opcode, False, scales + ((0, 0) if k == 16 else ()))
    if d == "f16":
        regs = wgmma.matrix_to_half_registers(z.astype(np.float16).view(np.uint16))
    else:
        regs = wgmma.accumulator_registers(z.astype(np.float32 if d == "f32" else np.int32).view(np.uint32))
    sign = -1 if scales else 1
    for before, want in ((regs, sign * (x @ y.T) + z), (None, sign * (x @ y.T))):
        out = wgmma.multiply(step, raw_of(a, x), raw_of(b, y), before)
        assert out.shape == (step.d_registers, 128) and out.dtype == np.uint32
        if d == "f16":
            got = wgmma.half_registers_to_matrix(out).view(np.float16)
            want = want.astype(np.float16)
        else:
            got = wgmma.accumulator_matrix(out).view(np.float32 if d == "f32" else np.int32)
        assert np.array_equal(got, want)


def test_bits_multiply_by_and():
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 2, (64, 256), dtype=np.uint8), rng.integers(0, 2, (8, 256), dtype=np.uint8)
    step = wgmma.instruction(SPELL + "m64n8k256.s32.b1.b1.and.popc", False)
    rows = np.packbits(x, axis=1, bitorder="little").reshape(64, 2, 16)
    assert np.array_equal(wgmma.matrix(step, "a", rows), x)
    out = wgmma.multiply(step, x, y, None)
    assert np.array_equal(wgmma.accumulator_matrix(out).view(np.int32), x.astype(int) @ y.T.astype(int))


def test_integer_sums_wrap_or_saturate():
    ones = np.ones((64, 32), np.uint8)
    top = np.full((4, 128), 0x7FFFFFFF, np.uint32)
    wrapped = wgmma.multiply(wgmma.instruction(SPELL + "m64n8k32.s32.u8.u8", False), ones, ones[:8], top)
    assert (wrapped == 0x7FFFFFFF + 32).all()
    for form in ("m64n8k32.satfinite.s32.u8.u8", "m64n8k32.s32.u8.u8.satfinite"):
        assert (wgmma.multiply(wgmma.instruction(SPELL + form, False), ones, ones[:8], top) == 0x7FFFFFFF).all()


@pytest.mark.parametrize("d_type", ["f32", "f16"])
def test_a_sum_that_cancels_is_plus_zero_whatever_is_negated(d_type):
    halves = np.array([1.0, -1.0], np.float16).view(np.uint16)
    a, b = np.tile(halves, (64, 8)), np.full((8, 16), halves[0])
    zeros = np.full((64, 16), 0x8000, np.uint16)
    for scales in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        step = wgmma.instruction(SPELL + f"m64n8k16.{d_type}.f16.f16", False, (*scales, 0, 0))
        assert not wgmma.multiply(step, a, b, None).any() and not wgmma.multiply(step, zeros, b, None).any()
        one = wgmma.multiply(step, np.abs(a.view(np.float16)).view(np.uint16), b, None)
        value = one.view(np.float32) if d_type == "f32" else one.view(np.float16)
        assert (value == 16 * scales[0] * scales[1]).all()


def test_nan_is_canonical_and_tf32_ignores_low_bits():
    a = np.zeros((64, 8), np.uint32)
    a[3, 2], a[4, 0] = 0xFFC01234, np.float32(1).view(np.uint32) | 0x1FFF
    b = np.full((8, 8), np.float32(1).view(np.uint32), np.uint32)
    out = wgmma.accumulator_matrix(
        wgmma.multiply(wgmma.instruction(SPELL + "m64n8k8.f32.tf32.tf32", False, (1, 1)), a, b, None)
    )
    assert (out[3] == 0x7FFFFFFF).all() and (out[4].view(np.float32) == 1).all() and not out[5:].any()


@pytest.mark.parametrize(
    "opcode,in_registers,immediates",
    [
        (SPELL + "m64n12k16.f32.f16.f16", False, (1, 1, 0, 0)),
        (SPELL + "m64n8k8.f32.f16.f16", False, (1, 1, 0, 0)),
        (SPELL + "m64n8k16.f16.bf16.bf16", False, (1, 1, 0, 0)),
        (SPELL + "m64n8k16.f32.f16.bf16", False, (1, 1, 0, 0)),
        (SPELL + "m64n40k32.s32.s8.s8", False, ()),
        (F16, False, (1, 1)),
        (F16, True, (1, 1, 0, 0)),
        (F16, False, (2, 1, 0, 0)),
        (F16 + ".satfinite", False, (1, 1, 0, 0)),
        (SPELL + "m64n8k256.s32.b1.b1", False, ()),
        ("wgmma.fence.sync.aligned", False, ()),
    ],
)
def test_forms_that_do_not_exist_are_refused(opcode, in_registers, immediates):
    with pytest.raises(ArgumentValueError):
        wgmma.instruction(opcode, in_registers, immediates)
