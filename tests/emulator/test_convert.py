"""``cvt`` against rounding by definition on fractions, and against ml_dtypes on whole 8- and 16-bit ranges."""

import math
from fractions import Fraction

import numpy as np
import pytest

from cutesync.emulator.instructions.convert import conversion
from cutesync.errors import ArgumentValueError

from . import exact

MODES = ("rn", "rz", "rm", "rp")
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFE000, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def singles(seed: int, count: int = 400) -> np.ndarray:
    """float32 bits: special values, any bits, and numbers of ordinary size."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    ordinary = (rng.standard_normal(count) * np.exp2(rng.integers(-20, 18, count))).astype(np.float32).view(np.uint32)
    return np.concatenate([np.array(exact.SPECIALS_32, np.uint32), anything, ordinary])


def expected_float(kind: str, source: str, code: int, mode: str, satfinite: bool = False) -> int:
    value = exact.decode(source, int(code))
    spec = exact.SPECS[kind]
    negative = bool(code & exact.SPECS[source].sign)
    if isinstance(value, float):
        if math.isnan(value):
            return NAN[kind]
        result = (spec.top + (0 if satfinite else 1)) | (spec.sign if negative else 0)
    else:
        result = exact.encode(kind, value, mode, negative, satfinite)
    return result << 13 if kind == "tf32" else result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_f32_to_half_types(kind, mode):
    bits = singles(1)
    got = conversion(f"cvt.{mode}.{kind}.f32")(bits)
    assert got.dtype == np.uint16
    assert got.tolist() == [expected_float(kind, "f32", c, mode) for c in bits]


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_satfinite_pairs_clamp_infinity_and_put_the_first_source_on_top(kind, mode):
    a, b = singles(2), singles(3)
    got = conversion(f"cvt.{mode}.satfinite.{kind}x2.f32")(a, b)
    want = [
        expected_float(kind, "f32", x, mode, True) << 16 | expected_float(kind, "f32", y, mode, True)
        for x, y in zip(a, b)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_f32_to_eight_bit_floats(kind):
    a, b = singles(4), singles(5)
    got = conversion(f"cvt.rn.satfinite.{kind}x2.f32")(a, b)
    want = [
        expected_float(kind, "f32", x, "rn", True) << 8 | expected_float(kind, "f32", y, "rn", True)
        for x, y in zip(a, b)
    ]
    assert got.dtype == np.uint16 and got.tolist() == want


@pytest.mark.parametrize("kind,name", [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_eight_bit_floats_and_f16_over_the_whole_range(kind, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(256, dtype=np.uint16)
    want = codes.astype(np.uint8).view(dtype).astype(np.float16)
    got = conversion(f"cvt.rn.f16x2.{kind}x2")(codes)
    low = (got & 0xFFFF).astype(np.uint16)
    assert np.array_equal(low, np.where(np.isnan(want), 0x7FFF, want.view(np.uint16)))
    assert not (got >> 16).any()

    halves = np.arange(1 << 16, dtype=np.uint32)
    back = conversion(f"cvt.rn.satfinite.{kind}x2.f16x2")(halves << np.uint32(16))
    values = halves.astype(np.uint16).view(np.float16)
    top = float(ml_dtypes.finfo(dtype).max)
    clamped = np.clip(values.astype(np.float32), -top, top).astype(dtype).view(np.uint8)
    assert np.array_equal(back >> 8, np.where(np.isnan(values), 0x7F, clamped))


def test_bf16_over_the_whole_range_and_rounding_against_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(1 << 16, dtype=np.uint16)
    values = codes.view(ml_dtypes.bfloat16).astype(np.float32)
    got = conversion("cvt.f32.bf16")(codes)
    assert np.array_equal(got, codes.astype(np.uint32) << 16) and np.array_equal(
        got, values.view(np.uint32)
    )  # NaNs as they are
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    floats = bits.view(np.float32)
    want = np.where(np.isnan(floats), 0x7FFF, floats.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.array_equal(conversion("cvt.rn.bf16.f32")(bits), want)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32_keeps_ten_fraction_bits(mode):
    bits = singles(6)
    if mode == "rna":
        bits = bits[~np.isnan(bits.view(np.float32))]
    assert conversion(f"cvt.{mode}.tf32.f32")(bits).tolist() == [expected_float("tf32", "f32", c, mode) for c in bits]


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


NANS = np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0xFF9ED4BA, 0x7FB1280B, 0x7F800000, 0xFF7FFFFF], np.uint32)
CODES = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFF7F, 0xFFFFFFFF], np.uint32)
SIGNED, BYTES = CODES.view(np.int32), CODES.astype(np.uint8).view(np.int8)
HIGH, LOW = np.array([-40000, 5, 70000], np.int32), np.array([1, -2, -70000], np.int32)
HALVES = floats(-0.5, 0.5, 1.5, 2.5, -2.5, 1e30, -0.0, 2.0**-140)
UNIT = floats(-1, -0.0, 0.25, 1, 2, np.nan, np.inf, 2.0**-140)
CONVERTED = [  # opcode, sources, result, all of which may be signed or floats
    # integers extend, truncate and saturate
    ("cvt.s64.s32", CODES, SIGNED.astype(np.int64)),
    ("cvt.u64.u32", CODES, CODES.astype(np.uint64)),
    ("cvt.s32.s8", CODES, BYTES.astype(np.int32)),
    ("cvt.s8.s32", CODES, BYTES.astype(np.int32)),
    ("cvt.sat.s8.s32", CODES, np.clip(SIGNED, -128, 127)),
    ("cvt.sat.u8.s32", CODES, np.clip(SIGNED, 0, 255)),
    ("cvt.sat.s32.u32", CODES, np.minimum(CODES, 2**31 - 1)),
    ("cvt.sat.u64.s64", SIGNED.astype(np.int64), np.maximum(SIGNED, 0).astype(np.uint64)),
    # saturated halves are joined
    ("cvt.pack.sat.s16.s32", HIGH, LOW, np.array([0x80000001, 0x0005FFFE, 0x7FFF8000], np.uint32)),
    (
        "cvt.pack.sat.u8.s32.b32",
        HIGH,
        LOW,
        np.array([0xAABB, 1, 2], np.uint32),
        np.array([0xAABB0001, 0x00010500, 0x0002FF00], np.uint32),
    ),
    # integral rounding keeps the type and the sign of zero
    ("cvt.rni.f32.f32", HALVES, floats(-0.0, 0, 2, 2, -2, 1e30, -0.0, 0)),
    ("cvt.rpi.f32.f32", HALVES[-1:], floats(1)),
    ("cvt.rpi.ftz.f32.f32", HALVES[-1:], floats(0)),
    ("cvt.sat.f32.f32", UNIT, floats(0, 0, 0.25, 1, 1, 0, 1, 2.0**-140)),
    ("cvt.ftz.sat.f32.f32", UNIT[-1:], floats(0)),
    # as on an H200: .rna cuts NaNs (0x7f800001 becomes an infinity), .satfinite takes one more, the others give one NaN
    (
        "cvt.rna.tf32.f32",
        NANS,
        np.array([0x7FC00000, 0x7F800000, 0xFFFFE000, 0xFF9EC000, 0x7FB12000, 0x7F800000, 0xFF800000], np.uint32),
    ),
    (
        "cvt.rna.satfinite.tf32.f32",
        NANS,
        np.array([0x7FBFE000, 0x7F7FE000, 0xFFFFC000, 0xFF9EA000, 0x7FB10000, 0x7F7FE000, 0xFF7FE000], np.uint32),
    ),
    *((f"cvt.{form}.tf32.f32", NANS[:5], np.full(5, 0x7FFFE000, np.uint32)) for form in ("rn", "rz", "rn.relu")),
]


@pytest.mark.parametrize("opcode, sources, want", [(opcode, values[:-1], values[-1]) for opcode, *values in CONVERTED])
def test_values(opcode, sources, want):
    *codes, expected = (v.view(UNSIGNED[8 * v.itemsize]) for v in (*sources, want))
    assert conversion(opcode, 8 * want.itemsize)(*codes).tolist() == expected.tolist()


PAYLOADS = [  # opcode, NaN, result
    ("cvt.rn.f16.f64", 0x7FF8000000000123, 0x7E00),
    ("cvt.rz.f16.f64", 0xFFF0000000000001, 0xFE00),
    ("cvt.rn.bf16.f64", 0xFFF0000000000001, 0xFFC0),
    ("cvt.rm.f32.f64", 0xFFF0000000000001, 0xFFC00000),
    ("cvt.rn.ftz.f32.f64", 0x7FF8000000000123, 0x7FC00000),
    ("cvt.rn.f32.f64", 0xFFFB8DB280000000, 0xFFDC6D94),
    ("cvt.f64.f16", 0x7C01, 0x7FF8040000000000),
    ("cvt.f64.f16", 0xFFFF, 0xFFFFFC0000000000),
    ("cvt.f64.bf16", 0x7FBB, 0x7FFF600000000000),
    ("cvt.f64.bf16", 0xFFFF, 0xFFFFE00000000000),
    ("cvt.f64.f32", 0x7F800001, 0x7FF8000020000000),
    ("cvt.f64.f32", 0xFF9C6D94, 0xFFFB8DB280000000),
    ("cvt.rzi.f64.f64", 0xFFF0000000000001, 0xFFF8000000000001),
    ("cvt.f32.bf16", 0xFFFF, 0xFFFF0000),
    ("cvt.rn.bf16.f16", 0xFC01, 0x7FFF),
    ("cvt.f32.f16", 0xFC01, 0x7FFFFFFF),
]


@pytest.mark.parametrize("opcode,nan,want", PAYLOADS)
def test_f64_keeps_the_payload_of_a_nan(opcode, nan, want):
    source = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}[opcode.split(".")[-1]]
    assert conversion(opcode)(np.array([nan], source)).tolist() == [want]


def test_relu_turns_negatives_to_plus_zero_and_keeps_nan():
    bits = singles(7)
    plain, relu = conversion("cvt.rn.f16.f32")(bits), conversion("cvt.rn.relu.f16.f32")(bits)
    nan = np.isnan(bits.view(np.float32))
    negative = np.signbit(bits.view(np.float32)) & ~nan
    assert np.array_equal(relu, np.where(nan, 0x7FFF, np.where(negative, 0, plain)))
    assert negative.any() and nan.any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_f64_to_narrow_and_back(source, mode):
    rng = np.random.default_rng(8)
    doubles = np.concatenate(
        [
            singles(8, 200).view(np.float32).astype(np.float64),
            rng.standard_normal(300) * np.exp2(rng.integers(-160, 140, 300)),
        ]
    )
    step = np.array(
        [
            1 + 2.0**-24,
            1 + 3 * 2.0**-24,
            1 + 2.0**-24 + 2.0**-52,
            2.0**-149,
            2.0**-150,
            2.0**-150 * (1 + 2.0**-50),
            5e-324,
        ]
    )
    bits = np.concatenate([doubles, step, -step]).view(np.uint64)
    got = conversion(f"cvt.{mode}.{source}.f64")(bits)
    want = np.array([expected_float(source, "f64", c, mode) for c in bits.tolist()])
    number = ~np.isnan(bits.view(np.float64))
    assert np.array_equal(got[number], want[number]) and all(
        math.isnan(exact.decode(source, c)) for c in got[~number].tolist()
    )
    finite = ~np.isnan(bits.view(np.float64))
    wide = conversion(f"cvt.f64.{source}")(got)
    values = [exact.decode(source, c) for c in got[finite].tolist()]
    assert wide[finite].view(np.float64).tolist() == [float(v) for v in values]


ROUND = {"rni": lambda v: round(v), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_float_to_integer_clamps(source, target, mode):
    bits = singles(9, 150)
    if source == "f64":
        bits = bits.view(np.float32).astype(np.float64).view(np.uint64)
    elif source == "f16":
        bits = (bits >> np.uint32(16)).astype(np.uint16)
    width = int(target[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if target[0] == "s" else (0, (1 << width) - 1)
    want = []
    for code in bits.tolist():
        value = exact.decode(source, code)
        if isinstance(value, float):
            nan = 1 << (width - 1) if source == "f64" or width == 64 else 0
            result = nan if math.isnan(value) else (high if value > 0 else low)
        else:
            result = min(max(ROUND[mode](value), low), high)
        want.append(result & ((1 << width) - 1))
    got = conversion(f"cvt.{mode}.{target}.{source}")(bits)
    assert (got & UNSIGNED[got.itemsize * 8]((1 << width) - 1)).tolist() == want


@pytest.mark.drawn(60)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_integer_to_float_rounds_once(target, source, mode):
    width = int(source[1:])
    rng = np.random.default_rng(width)
    numbers = [int(rng.integers(0, 1 << min(width, 62))) >> int(rng.integers(0, width)) for _ in range(120)]
    numbers += [(1 << k) + d for k in range(width) for d in (-1, 0, 1)]
    numbers += [
        (1 << 40) + (1 << 16),
        (1 << 63) + (1 << 39),
        (1 << 63) + (1 << 39) + 1,
        (1 << 62) + (1 << 38) - 1,
        (1 << 60) + (1 << 36) + 1,
    ]
    bits = np.array(
        [n & ((1 << width) - 1) for n in numbers] + [-n & ((1 << width) - 1) for n in numbers], UNSIGNED[width]
    )
    values = bits.view(np.dtype(f"i{width // 8}")) if source[0] == "s" else bits
    want = [exact.encode(target, Fraction(int(v)), mode) for v in values]
    assert conversion(f"cvt.{mode}.{target}.{source}")(bits).tolist() == want


@pytest.mark.parametrize(
    "opcode",
    [
        "cvt.f32",
        "cvt.rn.rz.f16.f32",
        "cvt.rn.e4m3x2.f32",
        "cvt.rn.f16.s7",
        "cvt.hot.f16.f32",
        "cvt.rn.f32.tf32",
        "cvt.pack.sat.s32.s32",
        "cvt.rn.bf16x2.e4m3x2",
    ],
)
def test_spellings_that_do_not_exist_are_refused(opcode):
    with pytest.raises(ArgumentValueError, match="cvt"):
        conversion(opcode)
