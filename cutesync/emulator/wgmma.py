"""``wgmma.mma_async`` (PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate"): what it reads and
what it computes.

The pieces, in the order in which an emulator needs them:

    step = instruction("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", False, (1, 1, 0, 0))
    where = addresses(step, "b", descriptor)            # shared addresses of the 16-byte rows that are read
    b = matrix(step, "b", bytes_at(where))              # (n, k) raw elements
    a = matrix(step, "a", ...) or registers(step, regs) # (64, k) raw elements
    d = multiply(step, a, b, d)                         # (count, 128) registers; d=None where scale-d is false

Every operand row holds 32 bytes of k, whatever the type, so one byte-wise description of registers and shared memory
serves all. Registers of a warpgroup are uint32 arrays of shape (count, 128): register number, then thread = 32 * warp +
lane.

Accumulation: products are exact, sums are float32 in an unspecified order, with one more rounding where D is f16. The
tensor core sums differently (it truncates aligned products), so compare floating results with a tolerance; integers are
exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from ..errors import ArgumentValueError, explain
from .formats import F16, F32, FORMATS, decode, require

K_BYTES = 32
ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
FP8, INT8 = ("e4m3", "e5m2"), ("s8", "u8")
SWIZZLE_BYTES = (0, 128, 64, 32)
SPELLING = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+?)(\.and\.popc)?$")


@dataclass(frozen=True)
class Instruction:
    """One ``wgmma.mma_async`` as written: D is 64 x n, A is 64 x k, B is k x n."""

    n: int
    k: int
    d_type: str
    a_type: str
    b_type: str
    a_in_registers: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    satfinite: bool = False

    @property
    def d_registers(self) -> int:
        return self.n // 4 if self.d_type == "f16" else self.n // 2


@cache
def instruction(opcode: str, a_in_registers: bool, immediates: tuple[int, ...] = ()) -> Instruction:
    """Parse the opcode and the constants after scale-d: scale-a, scale-b (1 or -1), trans-a (A in shared), trans-b."""
    satfinite = ".satfinite" in opcode
    found = SPELLING.fullmatch(opcode.replace(".satfinite", "", 1))
    if not found:
        raise ArgumentValueError(
            explain("wgmma", repr(opcode), "wgmma.mma_async.sync.aligned.m64nNkK{.satfinite}.dtype.atype.btype")
        )
    n, k, d_type, a_type, b_type, popc = found.groups()
    n, k = int(n), int(k)
    pairs = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "b1": ("s32",)}
    pairs |= dict.fromkeys(FP8, ("f16", "f32")) | dict.fromkeys(INT8, ("s32",))
    same_family = a_type == b_type or {a_type, b_type} <= set(FP8) or {a_type, b_type} <= set(INT8)
    sizes = range(8, 257, 8) if d_type != "s32" else (8, 24, *range(16, 257, 16))
    bits = ELEMENT_BITS.get(a_type, 0)
    fits = (
        n in sizes
        and k * bits == 8 * K_BYTES
        and (a_type == "b1") == bool(popc)
        and not (satfinite and a_type not in INT8)
    )
    fine = same_family and bits and d_type in pairs[a_type] and fits
    require(fine, "wgmma", repr(opcode), "a shape and types that sm_90a has")
    scales = 0 if d_type == "s32" else 2
    transposes = 0 if bits != 16 else (1 if a_in_registers else 2)
    in_range = set(immediates[:scales]) <= {1, -1} and set(immediates[scales:]) <= {0, 1}
    allowed = f"{scales} scales of 1 or -1, then {transposes} transposes of 0 or 1"
    require(in_range and len(immediates) == scales + transposes, "constants of " + opcode, immediates, allowed)
    negate_a, negate_b = (x == -1 for x in immediates[:2]) if scales else (False, False)
    transpose_a, transpose_b = {0: (False, False), 1: (False, *immediates[2:]), 2: immediates[2:]}[transposes]
    return Instruction(
        n,
        k,
        d_type,
        a_type,
        b_type,
        a_in_registers,
        negate_a,
        negate_b,
        bool(transpose_a),
        bool(transpose_b),
        satfinite,
    )


# --- shared memory ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descriptor:
    """The 64-bit matrix descriptor, decoded ("Matrix-descriptor format"): addresses, offsets, swizzle in bytes."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int


def decode_descriptor(bits: int) -> Descriptor:
    """Bits 0-13 start, 16-29 leading, 32-45 stride offset (units of 16 bytes), 49-51 base offset, 62-63 swizzle."""
    start, leading, stride = (((bits >> low) & 0x3FFF) << 4 for low in (0, 16, 32))
    return Descriptor(start, leading, stride, (bits >> 49) & 7, SWIZZLE_BYTES[(bits >> 62) & 3])


def swizzle(addresses: np.ndarray, swizzle_bytes: int, base_offset: int = 0) -> np.ndarray:
    """Exchange 16-byte pieces: address bits 4.. are XORed with bits 7.. (1, 2 or 3 of them for 32, 64 or 128 bytes).

    The pattern is a function of the shared address itself; ``base_offset`` shifts it by rows of 128 bytes where the
    pattern does not start at a multiple of its size. Tensor copies and matrix descriptors agree on this.
    """
    if not swizzle_bytes:
        return addresses
    return addresses ^ ((((addresses >> 7) - base_offset) & (swizzle_bytes // 16 - 1)) << 4)


@lru_cache(maxsize=256)
def _offsets(extent: int, transposed: bool, leading: int, stride: int, swizzle_bytes: int) -> np.ndarray:
    """Byte offsets of the 16-byte rows before swizzling; shapes as in ``addresses`` ("Shared Memory Matrix Layout")."""
    row = swizzle_bytes or 16
    if not transposed:
        mn, piece = np.ogrid[:extent, :2]
        return (mn % 8) * row + (mn // 8) * stride + piece * (16 if swizzle_bytes else leading)
    piece, k = np.ogrid[: extent // 8, :16]
    if not swizzle_bytes:
        return piece * stride + (k % 8) * 16 + (k // 8) * leading
    atom = swizzle_bytes // 16
    return (piece % atom) * 16 + (piece // atom) * leading + (k % 8) * row + (k // 8) * stride


def addresses(step: Instruction, operand: str, descriptor: int) -> np.ndarray:
    """Shared addresses (int64) of the 16-byte rows that operand "a" or "b" is read from.

    K-major: shape (extent, 2), where a row holds 16 bytes of k. MN-major (transposed; 16-bit types): shape (extent / 8,
    16), where a row holds 8 neighbours along m or n for one k. ``extent`` is 64 for A and n for B.
    """
    extent, transposed = (64, step.transpose_a) if operand == "a" else (step.n, step.transpose_b)
    where = decode_descriptor(descriptor)
    offsets = _offsets(extent, transposed, where.leading, where.stride, where.swizzle)
    return swizzle(offsets + where.start, where.swizzle, where.base_offset)


def matrix(step: Instruction, operand: str, rows: np.ndarray) -> np.ndarray:
    """The bytes at ``addresses(...)`` (same shape plus a last axis of 16, uint8) -> raw elements (extent, k)."""
    kind, transposed = (step.a_type, step.transpose_a) if operand == "a" else (step.b_type, step.transpose_b)
    if transposed:
        pieces = np.ascontiguousarray(rows).view(np.uint16)
        return pieces.transpose(0, 2, 1).reshape(-1, 16)
    return _elements(kind, np.ascontiguousarray(rows).reshape(-1, K_BYTES))


def _elements(kind: str, rows: np.ndarray) -> np.ndarray:
    """(extent, 32) bytes -> (extent, k) raw elements; b1 becomes one byte a bit."""
    if kind == "b1":
        return np.unpackbits(rows, axis=1, bitorder="little")
    return rows.view({8: np.uint8, 16: np.uint16, 32: np.uint32}[ELEMENT_BITS[kind]])


# --- registers --------------------------------------------------------------------------------------------------------


def registers(step: Instruction, regs: np.ndarray) -> np.ndarray:
    """The A fragment, uint32 (4, 128) -> raw elements (64, k) ("Register Fragments", matrix A).

    Register r of a lane holds row lane / 4 + 8 * (r % 2) of its warp's 16 rows, bytes 4 * (lane % 4) + 16 * (r / 2) and
    up of k.
    """
    pieces = regs.reshape(2, 2, 4, 8, 4)  # k half, row half, warp, lane / 4, lane % 4
    rows = np.ascontiguousarray(pieces.transpose(2, 1, 3, 0, 4)).reshape(64, 8)
    return _elements(step.a_type, rows.view(np.uint8))


def accumulator_matrix(regs: np.ndarray) -> np.ndarray:
    """The D fragment of a 32-bit type, (n / 2, 128) -> (64, n), any dtype ("Register Fragments", matrix D).

    Register i of a lane: row lane / 4 + 8 * (i / 2 % 2) of its warp's 16 rows, column 8 * (i / 4) + 2 * (lane % 4) + i
    % 2.
    """
    pieces = regs.reshape(-1, 2, 2, 4, 8, 4)  # column / 8, row half, column % 2, warp, lane / 4, lane % 4
    return pieces.transpose(3, 1, 4, 0, 5, 2).reshape(64, -1)


def accumulator_registers(values: np.ndarray) -> np.ndarray:
    """The inverse of ``accumulator_matrix``."""
    pieces = values.reshape(4, 2, 8, -1, 4, 2)
    return np.ascontiguousarray(pieces.transpose(3, 1, 5, 0, 2, 4)).reshape(-1, 128)


def half_registers_to_matrix(regs: np.ndarray) -> np.ndarray:
    """The D fragment of f16, uint32 (n / 4, 128) -> uint16 (64, n): two columns a register, the lower half first."""
    pairs = np.stack([regs.astype(np.uint16), (regs >> np.uint32(16)).astype(np.uint16)], axis=1)
    return accumulator_matrix(pairs.reshape(-1, 128))


def matrix_to_half_registers(values: np.ndarray) -> np.ndarray:
    """The inverse of ``half_registers_to_matrix``."""
    pairs = accumulator_registers(values).reshape(-1, 2, 128).astype(np.uint32)
    return pairs[:, 0] | (pairs[:, 1] << np.uint32(16))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def multiply(step: Instruction, a: np.ndarray, b: np.ndarray, d: np.ndarray | None) -> np.ndarray:
    """D registers of A * B + D: raw ``a`` (64, k), raw ``b`` (n, k); ``d`` uint32 (count, 128) or None (scale-d)."""
    if step.d_type == "s32":
        return _multiply_integers(step, a, b, d)
    if step.d_type == "f32":
        return single_registers(multiply_single(step, a, b, None if d is None else accumulator_matrix(d)))
    product = _product(step, a, b)
    if d is not None:
        product += half_registers_to_matrix(d).view(np.float16)
    bits = product.astype(np.float16).view(np.uint16)
    return matrix_to_half_registers(np.where(np.isnan(product), np.uint16(F16.nan), bits))


def multiply_single(step: Instruction, a: np.ndarray, b: np.ndarray, d: np.ndarray | None) -> np.ndarray:
    """The same for D of f32, as matrices (64, n): ``d`` is one of float32 or of its bits; the result is float32."""
    product = _product(step, a, b)
    if d is not None:
        product += d.view(np.float32)
    return product


def single_registers(values: np.ndarray) -> np.ndarray:
    """A D matrix of float32 -> its registers."""
    lost, bits = np.isnan(values), values.view(np.uint32)
    return accumulator_registers(np.where(lost, np.uint32(F32.nan), bits) if lost.any() else bits)


def _product(step: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    left, right = _float32(step.a_type, a), _float32(step.b_type, b)
    if step.negate_a != step.negate_b:
        left = -left
    return left @ right.T + np.float32(0)  # a sum that cancels is +0, as is one of products that are all -0


def _float32(kind: str, raw: np.ndarray) -> np.ndarray:
    if kind == "f16":
        return raw.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return decode(FORMATS[kind], raw).astype(np.float32)


def _multiply_integers(step: Instruction, a: np.ndarray, b: np.ndarray, d: np.ndarray | None) -> np.ndarray:
    left, right = (raw.view(np.int8) if kind == "s8" else raw for kind, raw in ((step.a_type, a), (step.b_type, b)))
    total = (left.astype(np.float64) @ right.astype(np.float64).T).astype(np.int64)
    if d is not None:
        total += accumulator_matrix(d).view(np.int32)
    if step.satfinite:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return accumulator_registers(total.astype(np.uint32))
