"""Rounding by definition, on fractions: the independent judge of the emulator's arithmetic. Slow, and meant to be."""

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Spec:
    """A binary float of IEEE form: exponent field, fraction field. ``top`` is the code of the largest finite number."""

    exponent_bits: int
    fraction_bits: int
    top: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.exponent_bits + self.fraction_bits)

    def value(self, code: int) -> Fraction:
        """The value of a positive finite code."""
        exponent, fraction = code >> self.fraction_bits, code & ((1 << self.fraction_bits) - 1)
        significand = fraction + ((1 << self.fraction_bits) if exponent else 0)
        return Fraction(significand) * Fraction(2) ** (max(exponent, 1) - self.bias - self.fraction_bits)

    def floor_code(self, magnitude: Fraction) -> int:
        """The largest code whose value is at most ``magnitude``; ``top`` for anything above it."""
        if magnitude >= self.value(self.top):
            return self.top
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length() if magnitude else -self.bias
        field = max(exponent - 1 + self.bias, 1)  # at most one too small
        code = max(
            int(magnitude / Fraction(2) ** (field - self.bias - self.fraction_bits))
            + ((field - 1) << self.fraction_bits),
            0,
        )
        if code >= (field + 1) << self.fraction_bits:
            code = int(magnitude / Fraction(2) ** (field + 1 - self.bias - self.fraction_bits)) + (
                field << self.fraction_bits
            )
        if not self.value(code) <= magnitude < self.value(code + 1):
            raise AssertionError(f"{code:#x} is not the floor of {magnitude}")
        return code


SPECS = {
    "e4m3": Spec(4, 3, 0x7E),
    "e5m2": Spec(5, 2, 0x7B),
    "f16": Spec(5, 10, 0x7BFF),
    "bf16": Spec(8, 7, 0x7F7F),
    "tf32": Spec(8, 10, 0x3FBFF),
    "f32": Spec(8, 23, 0x7F7FFFFF),
    "f64": Spec(11, 52, 0x7FEFFFFFFFFFFFFF),
}


def decode(kind: str, code: int) -> Fraction | float:
    """The exact value of a code: a fraction, or inf or nan. Negative zero gives 0."""
    spec = SPECS[kind]
    magnitude = code & (spec.sign - 1)
    if magnitude > spec.top:
        return (
            math.nan
            if kind == "e4m3" or magnitude > spec.top + 1
            else math.copysign(math.inf, -1 if code & spec.sign else 1)
        )
    return -spec.value(magnitude) if code & spec.sign else spec.value(magnitude)


def encode(kind: str, value: Fraction, mode: str = "rn", negative_zero: bool = False, satfinite: bool = False) -> int:
    """The code of ``value`` rounded once; overflow to infinity (top + 1) where the mode goes there."""
    spec = SPECS[kind]
    sign = spec.sign if value < 0 or (value == 0 and negative_zero) else 0
    magnitude = abs(value)
    code = spec.floor_code(magnitude)
    rest = magnitude - spec.value(code)
    step = spec.value(code) - spec.value(code - 1) if code == spec.top else spec.value(code + 1) - spec.value(code)
    if mode == "rn":
        up = rest * 2 > step or (rest * 2 == step and code & 1)
    elif mode == "rna":
        up = rest * 2 >= step
    else:
        up = rest > 0 and mode == ("rm" if value < 0 else "rp")
    if code == spec.top and rest >= step and mode in ("rn", "rna"):
        up = True
    code += bool(up)
    return (min(code, spec.top) if satfinite else code) | sign


SPECIALS_32 = [
    0x00000000,
    0x80000000,
    0x00000001,
    0x80000001,
    0x007FFFFF,
    0x00800000,
    0x80800000,
    0x3F800000,
    0xBF800000,
    0x3F000000,
    0xBF000000,
    0x3FC00000,
    0x40200000,
    0xC0200000,
    0x477FE000,
    0x477FEFFF,
    0x477FF000,
    0x477FF001,
    0xC77FF000,
    0x33800000,
    0x33000000,
    0x33000001,
    0x38800000,
    0x387FC000,
    0x387FE000,
    0x387FF000,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x7F7F0000,
    0x7F7F7FFF,
    0x7F7F8000,
    0x7F7F8001,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x7F800001,
    0xFFFFFFFF,
    0x4F000000,
    0xCF000000,
    0x4EFFFFFF,
    0x4F800000,
    0x5F000000,
    0xDF000000,
    0x5F800000,
    0x43E00000,
    0x43E80000,
    0x43E80001,
    0x47600000,
    0x47700000,
    0x477FFFFF,
    0x3C000000,
    0x3A800000,
    0x36800000,
    0x37000000,
    0x40490FDB,
    0xC0490FDB,
    0x3F801000,
    0x3F803000,
    0x3F800800,
    0x3F80FFFF,
    0x3F818000,
    0x42FF0000,
    0xC3008000,
    0x437F8000,
]
"""Single-precision bits worth trying everywhere: zeros, subnormals, ties, the edges of every narrower type, infinities,
NaNs.
"""
