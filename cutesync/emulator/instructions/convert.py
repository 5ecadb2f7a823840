"""``cvt``, ``cvt.pack``: every conversion PTX has on sm_90 (PTX ISA 9.7.9, "Data Movement and Conversion: cvt").

    function = conversion("cvt.rn.satfinite.e4m3x2.f32")
    destination = function(a, b)

The function takes one unsigned array of raw register bits per source operand, in the order of the instruction, all of
one shape (a warp: ``(32,)``), and returns raw bits of the same shape. A source register may be wider than its type: the
low bits count. The result has the width asked for with ``register_bits`` (default: the type's width, at least 16) and
is sign- or zero-extended to it, as PTX does. Packed destinations put the first source in the upper half.

Rules that are easy to get wrong, and where PTX states them (same section):

- Float to integer always clamps. NaN gives 0, but 1 << (width - 1) where the source is f64 or the destination has 64
  bits.
- NaN in f16 and bf16 is 0x7fff, in f32 0x7fffffff, in tf32 0x7fffe000, in e4m3 and e5m2 0x7f: payloads are not kept,
  with three exceptions that the ISA leaves open and an H200 shows. From and to f64, the sign and the upper bits of the
  payload stay and the NaN becomes quiet. f32 from bf16 is a shift. ``.rna.tf32`` cuts the low bits of a NaN off (which
  can leave an infinity); its ``.satfinite`` then subtracts one from the code of any infinity or NaN.
- ``.sat`` to a float is a clamp to [0, 1] with NaN -> +0; ``.satfinite`` keeps NaN, and clamps infinities as well.
- ``.ftz`` flushes f32 subnormals, in the source and in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from ..formats import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    FORMATS,
    QUIET,
    TF32,
    Format,
    bf16_from_f32,
    canonical,
    clamp_negative,
    decode,
    encode,
    flush_subnormals,
    require,
    round_to_odd_integer,
    saturate_unit,
)
from ..lanes import count_nonzero

INTEGERS = {f"{sign}{bits}": (sign == "s", bits) for sign in "su" for bits in (8, 16, 32, 64)}
UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
PAIRS = {"f16x2": F16, "bf16x2": BF16, "e4m3x2": E4M3, "e5m2x2": E5M2}
TO_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
ROUNDING = ("rn", "rna", "rz", "rm", "rp")
FLAGS = ("ftz", "sat", "satfinite", "relu")

Conversion = Callable[..., np.ndarray]


@cache
def conversion(opcode: str, register_bits: int | None = None) -> Conversion:
    """The function that carries out ``opcode`` (see the module's docstring). ArgumentValueError: not a form of PTX."""
    parts = opcode.split(".")
    require(parts[0] == "cvt" and len(parts) > 2, "conversion", repr(opcode), "cvt{.rounding}{.flags}.dtype.atype")
    if parts[1] == "pack":
        return _pack(opcode, parts[2:], register_bits)
    *modifiers, target, source = parts[1:]
    mode, flags = _modifiers(opcode, modifiers)
    if source in PAIRS:
        return _between_pairs(opcode, target, source, mode, flags)
    if target in PAIRS:
        return _pair_from_two(opcode, target, source, mode, flags)
    if target in INTEGERS:
        make = _integer_to_integer if source in INTEGERS else _float_to_integer
    else:
        make = _integer_to_float if source in INTEGERS else _float_to_float
    fine = {target, source} <= {*INTEGERS, *FORMATS} - {"e4m3", "e5m2"} and source != "tf32"
    require(fine, "conversion", repr(opcode), "types that cvt has on sm_90")
    body = make(target, source, mode, flags)
    signed, bits = INTEGERS.get(target, (False, 0))
    bits = bits or FORMATS[target].bits
    wide = register_bits or max(bits, 16)
    narrow_in = UNSIGNED[INTEGERS[source][1] if source in INTEGERS else FORMATS[source].bits]
    extend = (SIGNED if signed else UNSIGNED)[bits]

    def run(a: np.ndarray) -> np.ndarray:
        result = body(a.astype(narrow_in, copy=False))
        return result if bits == wide else result.view(extend).astype(UNSIGNED[wide])

    return run


def _modifiers(opcode: str, modifiers: list[str]) -> tuple[str, frozenset[str]]:
    rounding = [m for m in modifiers if m in ROUNDING or m in TO_INTEGRAL]
    flags = frozenset(m for m in modifiers if m in FLAGS)
    fine = len(rounding) < 2 and len(rounding) + len(flags) == len(modifiers)
    allowed = f"one of {ROUNDING + tuple(TO_INTEGRAL)} and any of {FLAGS}"
    require(fine, "modifiers of " + opcode, modifiers, allowed)
    return (rounding[0] if rounding else ""), flags


# --- integers ---------------------------------------------------------------------------------------------------------


def _limits(name: str) -> tuple[int, int]:
    signed, bits = INTEGERS[name]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def _saturate_integer(values: np.ndarray, source: str, target: str) -> np.ndarray:
    """Integer array of type ``source`` clamped to the range of ``target`` (still in the source's dtype)."""
    (low, high), (source_low, source_high) = _limits(target), _limits(source)
    return np.clip(values, values.dtype.type(max(low, source_low)), values.dtype.type(min(high, source_high)))


def _integer_to_integer(target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    signed, bits = INTEGERS[source]
    as_source = (SIGNED if signed else UNSIGNED)[bits]
    unsigned = UNSIGNED[INTEGERS[target][1]]

    def run(a: np.ndarray) -> np.ndarray:
        values = a.view(as_source)
        if "sat" in flags:
            values = _saturate_integer(values, source, target)
        return values.astype(unsigned)

    return run


def _float_to_integer(target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    fmt, to_integral = FORMATS[source], TO_INTEGRAL.get(mode, np.trunc)
    signed, bits = INTEGERS[target]
    low, high = _limits(target)
    unsigned = UNSIGNED[bits]
    nan = unsigned(1 << (bits - 1) if source == "f64" or bits == 64 else 0)
    top = float(high + 1)

    def run(a: np.ndarray) -> np.ndarray:
        if "ftz" in flags and fmt is F32:
            a = flush_subnormals(fmt, a)
        values = to_integral(decode(fmt, a))
        inside = (values > low) & (values < top)
        exact = np.where(inside, values, 0.0).astype(np.int64 if signed else np.uint64).astype(unsigned)
        result = np.where(
            inside, exact, np.where(values >= top, unsigned(high), unsigned(low & (2 * (1 << (bits - 1)) - 1)))
        )
        return np.where(np.isnan(values), nan, result)

    return run


def _integer_to_float(target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    fmt = FORMATS[target]
    signed, bits = INTEGERS[source]
    as_source = (SIGNED if signed else UNSIGNED)[bits]
    rounding = mode or "rn"

    def run(a: np.ndarray) -> np.ndarray:
        values = a.view(as_source)
        if bits < 64:
            exact = values.astype(np.float64)
        elif fmt.name == "f64":
            exact = _long_to_double(values, rounding)
        else:
            negative = values < 0
            magnitude = np.where(negative, ~a + np.uint64(1), a)
            exact = round_to_odd_integer(magnitude)
            exact = np.where(negative, -exact, exact)
        result = encode(fmt, exact, rounding)
        return saturate_unit(fmt, result) if "sat" in flags else result

    return run


def _long_to_double(values: np.ndarray, mode: str) -> np.ndarray:
    """int64 or uint64 -> float64 in a directed mode: round to nearest, then step back where that went the wrong way."""
    nearest = values.astype(np.float64)
    if mode == "rn":
        return nearest
    edge = nearest >= (2.0**63 if values.dtype == np.int64 else 2.0**64)
    back = np.where(edge, values, np.where(edge, 0.0, nearest).astype(values.dtype))
    too_high, too_low = edge | (back > values), ~edge & (back < values)
    down, up = np.nextafter(nearest, -np.inf), np.nextafter(nearest, np.inf)
    if mode == "rm":
        return np.where(too_high, down, nearest)
    if mode == "rp":
        return np.where(too_low, up, nearest)
    return np.where(too_high & (values > 0), down, np.where(too_low & (values < 0), up, nearest))


# --- floats -----------------------------------------------------------------------------------------------------------


def _float_to_float(target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    into, out = FORMATS[target], FORMATS[source]
    if into is BF16 and out is F32 and mode == "rn" and not flags:
        return bf16_from_f32
    if into is TF32 and mode == "rna":
        return partial(_tf32_away, "satfinite" in flags)
    if into is F32 and out is BF16 and not mode and not flags:
        return lambda a: a.astype(np.uint32) << np.uint32(16)

    def run(a: np.ndarray) -> np.ndarray:
        if "ftz" in flags and out is F32:
            a = flush_subnormals(out, a)
        values = decode(out, a)
        if mode in TO_INTEGRAL:
            values = TO_INTEGRAL[mode](values)
        result = encode(into, values, "rn" if mode in TO_INTEGRAL else mode or "rn", satfinite="satfinite" in flags)
        if F64 in (into, out):
            result = _with_payload(into, out, a, values, result)
        if "ftz" in flags and into is F32:
            result = flush_subnormals(into, result)
        if "sat" in flags:
            result = saturate_unit(into, result)
        return clamp_negative(into, result) if "relu" in flags else result

    return run


def _with_payload(into: Format, out: Format, a: np.ndarray, values: np.ndarray, result: np.ndarray) -> np.ndarray:
    """``result``, where ``values`` are NaN replaced by the NaNs in ``a``, made quiet."""
    lost = np.isnan(values)
    if not np.count_nonzero(lost):
        return result
    wide = a.astype(np.uint64)
    fraction = (wide & np.uint64((1 << out.precision - 1) - 1)) << np.uint64(53 - out.precision) | QUIET
    sign = wide >> np.uint64(out.bits - 1) << np.uint64(into.bits - 1)
    nan = sign | np.uint64(into.inf_code) | fraction >> np.uint64(53 - into.precision)
    return np.where(lost, nan.astype(into.dtype), result)


def _tf32_away(satfinite: bool, a: np.ndarray) -> np.ndarray:
    """``cvt.rna{.satfinite}.tf32.f32``: ties away from zero, by carry."""
    top = np.uint32(0x7F800000)
    result = np.where(a & top == top, a, a + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(result & top == top, result - np.uint32(0x2000), result) if satfinite else result


def _join(high: np.ndarray, low: np.ndarray, bits: int) -> np.ndarray:
    wide = UNSIGNED[2 * bits]
    return (high.astype(wide) << wide(bits)) | low


def _halves(fmt: Format, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two f32, rounded to nearest, as a pair of f16 or bf16."""
    both = np.empty((*high.shape, 2), np.uint32)
    both[..., 0], both[..., 1] = low, high
    if fmt is BF16:
        return bf16_from_f32(both).view(np.uint32)[..., 0]
    values = both.view(np.float32)
    halves = values.astype(np.float16)
    if count_nonzero(np.isnan(values)):  # of single precision, for that is faster
        return canonical(F16, halves).view(np.uint32)[..., 0]
    return halves.view(np.uint32)[..., 0]


def _pair_from_two(opcode: str, target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    fmt = PAIRS[target]
    fine = source == "f32" and (fmt.bits > 8 or "satfinite" in flags)
    require(fine, "conversion", repr(opcode), "two f32 sources, and .satfinite for 8-bit floats")
    if fmt in (F16, BF16) and mode == "rn" and not flags:
        return partial(_halves, fmt)
    one = _float_to_float(fmt.name, "f32", mode, flags)
    return lambda a, b: _join(one(a.astype(np.uint32, copy=False)), one(b.astype(np.uint32, copy=False)), fmt.bits)


def _between_pairs(opcode: str, target: str, source: str, mode: str, flags: frozenset[str]) -> Conversion:
    out, into = PAIRS[source], PAIRS.get(target, BF16)
    fine = {into.bits, out.bits} == {8, 16} and BF16 not in (into, out) and (into.bits > 8 or "satfinite" in flags)
    require(fine, "conversion", repr(opcode), "f16x2 from an 8-bit pair, or back with .satfinite")
    one = _float_to_float(into.name, out.name, mode, flags)
    narrow, whole, shift = out.dtype, UNSIGNED[2 * out.bits], out.bits

    def run(a: np.ndarray) -> np.ndarray:
        a = a.astype(whole, copy=False)
        return _join(one((a >> whole(shift)).astype(narrow)), one(a.astype(narrow)), into.bits)

    return run


def _pack(opcode: str, parts: list[str], register_bits: int | None) -> Conversion:
    """``cvt.pack.sat.{s16,u16}.s32 d, a, b``; with 8 bits also ``c``: d = c shifted up, then a, then b."""
    saturates, target, source = (*parts, "", "", "")[:3]
    fine = saturates == "sat" and source == "s32" and target in ("s8", "u8", "s16", "u16")
    require(fine, "conversion", repr(opcode), "cvt.pack.sat.{s8,u8,s16,u16}.s32{.b32}")
    bits = INTEGERS[target][1]
    mask = np.uint32((1 << bits) - 1)

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        high, low = (_saturate_integer(x.view(np.int32), "s32", target).view(np.uint32) & mask for x in (a, b))
        result = (high << np.uint32(bits)) | low
        return result if c is None else result | (c << np.uint32(2 * bits))

    return run
