"""Floating-point formats as bit patterns: exact decoding to float64, and rounding from float64 in every PTX mode.

float64 holds every finite value of every narrower PTX format exactly, so it is the one intermediate form. A sum that
does not fit in it is carried *rounded to odd* (``round_to_odd_sum``): rounding such a number once more, to at most 51
significant bits, gives the same answer as rounding the exact sum directly (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums", 2008).

Callers hold ``np.errstate(all="ignore")``: infinities and NaNs are ordinary values here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, explain
from .lanes import count_nonzero


def require(fine: object, what: str, came: object, allowed: str, advice: str = "") -> None:
    """Raise ArgumentValueError unless it is ``fine``."""
    if not fine:
        raise ArgumentValueError(explain(what, came, allowed, advice))


MODES = ("rn", "rna", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A binary format of sign, exponent field and fraction field, from the top bit down.

    ``precision`` counts the hidden bit, ``emin`` is the exponent of the smallest normal number. ``max_code`` is the
    magnitude code of the largest finite number; ``inf_code`` is None where the format has no infinity (e4m3). ``nan``
    is the NaN that operations make. ``pad`` low bits below the code are zero (tf32 sits in the top 19 bits of a 32-bit
    register).
    """

    name: str
    bits: int
    precision: int
    emin: int
    max_code: int
    inf_code: Any  # int | None
    nan: int
    pad: int = 0

    @cached_property
    def dtype(self) -> Any:
        return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[self.bits]

    @cached_property
    def real(self) -> Any:
        """NumPy's type of this format, or of the one that holds its values in as many bits (tf32)."""
        return {16: np.float16, 32: np.float32, 64: np.float64}[self.bits]

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


F64 = Format("f64", 64, 53, -1022, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF8000000000000)
F32 = Format("f32", 32, 24, -126, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
TF32 = Format("tf32", 32, 11, -126, 0x3FBFF, 0x3FC00, 0x7FFFE000, pad=13)
F16 = Format("f16", 16, 11, -14, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = Format("bf16", 16, 8, -126, 0x7F7F, 0x7F80, 0x7FFF)
E4M3 = Format("e4m3", 8, 4, -6, 0x7E, None, 0x7F)
E5M2 = Format("e5m2", 8, 3, -14, 0x7B, 0x7C, 0x7F)
FORMATS = {f.name: f for f in (F64, F32, TF32, F16, BF16, E4M3, E5M2)}


def _byte_table(fmt: Format) -> np.ndarray:
    """All 256 values of an 8-bit format."""
    code = np.arange(128)
    fraction_bits = fmt.precision - 1
    field, fraction = code >> fraction_bits, code & ((1 << fraction_bits) - 1)
    normal = np.ldexp(1.0 + fraction / (1 << fraction_bits), field - 1 + fmt.emin)
    values = np.where(field == 0, np.ldexp(fraction.astype(np.float64), fmt.emin - fraction_bits), normal)
    values[fmt.max_code + 1 :] = np.nan
    if fmt.inf_code is not None:
        values[fmt.inf_code] = np.inf
    return np.concatenate([values, -values])


_BYTE_VALUES = {f.name: _byte_table(f) for f in (E4M3, E5M2)}


def decode(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """Raw bits of ``fmt`` (any shape; ``fmt.dtype``) -> the same values in float64, exactly."""
    if fmt is F64:
        return bits.view(np.float64)
    if fmt is F32 or fmt is F16:
        return bits.view(fmt.real).astype(np.float64)
    if fmt is BF16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if fmt is TF32:
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return _BYTE_VALUES[fmt.name][bits]


def encode(fmt: Format, values: np.ndarray, mode: str = "rn", *, satfinite: bool = False) -> np.ndarray:
    """float64 values -> raw bits of ``fmt``, rounded once in ``mode``.

    Overflow goes to infinity or to the largest finite number as the mode says; always to the latter with ``satfinite``
    (which clamps infinities too). NaN becomes the canonical NaN of the format. Formats without infinity need
    ``satfinite``.
    """
    if mode not in MODES:
        raise ArgumentValueError(explain("rounding mode", repr(mode), " or ".join(MODES)))
    if fmt is F64:
        raw = values.view(np.uint64)
        if satfinite:
            raw = np.where(np.isinf(values), raw - np.uint64(1), raw)
        return np.where(np.isnan(values), np.uint64(fmt.nan), raw)
    if mode == "rn" and not satfinite and fmt in (F32, F16):
        return canonical(fmt, values.astype(fmt.real))
    quick = _encode_normal(fmt, values) if mode == "rn" else None
    return _encode_any(fmt, values, mode, satfinite) if quick is None else quick


QUIET = np.uint64(1 << 51)


def canonical(fmt: Format, values: np.ndarray, *sources: np.ndarray) -> np.ndarray:
    """Numbers in the format's NumPy type -> bits, with one NaN; f64 keeps the last NaN of ``sources``, made quiet."""
    lost, bits = np.isnan(values), values.view(fmt.dtype)
    if not count_nonzero(lost):
        return bits
    nan = fmt.dtype(fmt.nan)
    for source in sources if fmt is F64 else ():
        nan = np.where(np.isnan(source.view(np.float64)), source | QUIET, nan)
    return np.where(lost, nan, bits)


def _encode_normal(fmt: Format, values: np.ndarray) -> np.ndarray | None:
    """Round to nearest even by carry, where every result is zero or a normal number; None otherwise."""
    raw = values.view(np.uint64)
    magnitude = raw & np.uint64((1 << 63) - 1)
    cut = np.uint64(53 - fmt.precision)
    nudge = ((magnitude >> cut) & np.uint64(1)) + np.uint64((1 << (52 - fmt.precision)) - 1)
    smallest = (1023 + fmt.emin) << 52
    code = ((magnitude + nudge) >> cut) - np.uint64((smallest >> int(cut)) - (1 << (fmt.precision - 1)))
    zero = magnitude == 0
    awkward = ((magnitude < np.uint64(smallest)) & ~zero) | ((code > np.uint64(fmt.max_code)) & ~zero)
    if count_nonzero(awkward):
        return None
    if count_nonzero(zero):
        code = np.where(zero, np.uint64(0), code)
    sign = (raw >> np.uint64(63)) << np.uint64(fmt.bits - 1)
    return ((code << np.uint64(fmt.pad)) | sign).astype(fmt.dtype)


def _encode_any(fmt: Format, values: np.ndarray, mode: str, satfinite: bool) -> np.ndarray:
    raw = values.view(np.uint64)
    negative = (raw >> np.uint64(63)).astype(bool)
    field = ((raw >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    significand = (raw & np.uint64((1 << 52) - 1)).astype(np.int64) | ((field > 0).astype(np.int64) << 52)
    exponent = np.maximum(field, 1) - 1023
    base = np.maximum(exponent, fmt.emin)
    shift = np.minimum(53 - fmt.precision + (base - exponent), 62)
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = np.int64(1) << (shift - 1)
    if mode == "rn":
        up = (rest > half) | ((rest == half) & ((kept & 1) == 1))
    elif mode == "rna":
        up = rest >= half
    elif mode == "rz":
        up = np.zeros(values.shape, bool)
    else:
        up = (rest != 0) & (negative if mode == "rm" else ~negative)
    code = ((base - fmt.emin) << (fmt.precision - 1)) + kept + up

    infinite = np.isinf(values)
    if satfinite:
        over_code: Any = np.int64(fmt.max_code)
    else:
        came = "a conversion without .satfinite"
        require(fmt.inf_code is not None, fmt.name, came, ".satfinite: it has no infinity")
        stays = {"rn": False, "rna": False, "rz": True, "rm": ~negative, "rp": negative}[mode] & ~infinite
        over_code = np.where(stays, np.int64(fmt.max_code), np.int64(fmt.inf_code))
    code = np.where((code > fmt.max_code) | infinite, over_code, code)
    result = ((code << fmt.pad) | np.where(negative, np.int64(fmt.sign), np.int64(0))).astype(fmt.dtype)
    return np.where(np.isnan(values), fmt.dtype(fmt.nan), result)


def bf16_from_f32(bits: np.ndarray) -> np.ndarray:
    """float32 bits -> bf16 bits, rounded to nearest even by carry: bf16 is the upper half of f32."""
    rounded = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    lost = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (np.where(lost, np.uint32(BF16.nan), rounded) if count_nonzero(lost) else rounded).astype(np.uint16)


def flush_subnormals(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """``.ftz``: subnormal numbers become zero of the same sign."""
    small = (bits & fmt.dtype(fmt.inf_code << fmt.pad)) == 0
    return np.where(small, bits & fmt.dtype(fmt.sign), bits) if count_nonzero(small) else bits


def saturate_unit(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """``.sat``: clamp to [+0.0, 1.0]; NaN becomes +0.0."""
    values = decode(fmt, bits)
    one = encode(fmt, np.ones(1))[0]
    return np.where(values >= 1.0, one, np.where(values > 0.0, bits, fmt.dtype(0)))


def clamp_negative(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """``.relu``: negative numbers (and -0.0) become +0.0; NaN becomes the canonical NaN."""
    magnitude = bits & fmt.dtype(fmt.sign - 1)
    is_nan = magnitude > fmt.dtype((fmt.max_code if fmt.inf_code is None else fmt.inf_code) << fmt.pad)
    positive = np.where((bits & fmt.dtype(fmt.sign)) != 0, fmt.dtype(0), bits)
    return np.where(is_nan, fmt.dtype(fmt.nan), positive)


def two_sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x + y, and the exact error of this sum."""
    total = x + y
    y_part = total - x
    return total, (x - (total - y_part)) + (y - y_part)


def round_to_odd_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """float64 x + y, which must not overflow; an inexact sum is rounded to the neighbour whose last bit is 1."""
    total, error = two_sum(x, y)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total)
    away = (error > 0) == (total > 0)
    odd = np.where(away, bits | 1, (bits - 1) | 1)
    return np.where(inexact & ((bits & 1) == 0), odd, bits).view(np.float64)


def round_to_odd_integer(magnitude: np.ndarray) -> np.ndarray:
    """uint64 -> float64, rounded to odd where it needs more than 53 bits."""
    low = magnitude & np.uint64(0x7FF)
    squeezed = (magnitude & ~np.uint64(0x7FF)) | ((low != 0).astype(np.uint64) << np.uint64(11))
    return np.where(magnitude >> np.uint64(53), squeezed, magnitude).astype(np.float64)
