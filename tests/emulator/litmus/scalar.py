"""One instruction a lane: float arithmetic, conversions, approximate functions, integers, comparisons."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from cutesync.emulator.instructions import arithmetic, special
from cutesync.emulator.instructions.convert import conversion

from ..exact import SPECIALS_32
from .case import HEADER, Case, stream, within

LANES = 512
SMALL_SPECIALS = {
    16: "0 8000 1 8001 3FF 400 3C00 BC00 7BFF FBFF 7C00 FC00 7E00 7C01 FFFF 80 3F80 7F7F 7F80 FF80",
    32: "0 80000000 1 7FFFFF 800000 3F800000 BF800000 7F7FFFFF 7F800000 FF800000 7FC00000 FF812345 3F800001 33800000",
    64: "0 8000000000000000 1 FFFFFFFFFFFFF 10000000000000 3FF0000000000000 BFF0000000000000 7FEFFFFFFFFFFFFF "
    "7FF0000000000000 7FF8000000000123 FFF0000000000001 41E0000000000000 43E0000000000000 "
    "C3E0000000000000",
}  # in base 16
DTYPES = {16: np.uint16, 32: np.uint32, 64: np.uint64}
EXPONENT_MIDDLE = {"f16": (15, 10), "bf16": (127, 7), "f32": (127, 23), "f64": (1023, 52)}


def words(text: str) -> list[str]:
    return text.split()


def bits_of(kind: str) -> int:
    """Register width for a PTX type; 8-bit integers travel in 32-bit registers."""
    wide = dict.fromkeys(("f16x2", "bf16x2", "tf32", "s8", "u8", "b8"), 32)
    return (wide | dict.fromkeys(("e4m3x2", "e5m2x2", "bf16", "f16"), 16)).get(kind) or int(kind[1:])


def inputs(name: str, kinds: list[str], lanes: int = LANES) -> list[np.ndarray]:
    """Raw bits for each source: special values against each other, numbers of ordinary size, anything."""
    arrays = []
    for place, kind in enumerate(kinds):
        width = bits_of(kind)
        raw = stream(f"{name}/{place}", lanes)
        if kind.startswith(("e4m3", "e5m2")) or (kind[0] in "sub" and not kind.startswith("bf")):
            shift = stream(f"{name}/{place}/shift", lanes) % np.uint64(width)
            values = np.where(np.arange(lanes) % 2, raw >> shift, raw)
            if kind[0] == "s":
                values = np.where(np.arange(lanes) % 4 == 1, np.uint64(0) - values, values)
            arrays.append(values.astype(DTYPES[width]))
            continue
        scalar = kind.removesuffix("x2")
        middle, fraction = EXPONENT_MIDDLE[scalar]
        unit = np.uint64(1 << fraction)
        spread = np.uint64(24 if scalar != "f16" else 10)
        exponent = np.uint64(middle) - spread // np.uint64(2) + stream(f"{name}/{place}/exponent", 2 * lanes) % spread
        sign = np.uint64(1 << ({"f64": 64, "f32": 32}.get(scalar, 16) - 1))
        pool = stream(f"{name}/{place}/pool", 2 * lanes)
        ordinary = (pool % unit) | exponent * unit | np.where(pool >> np.uint64(63), sign, np.uint64(0))
        values = np.where(np.arange(2 * lanes) % 4 == 3, pool, ordinary)
        special_bits = (
            SPECIALS_32
            if scalar == "f32" and len(kinds) == 1
            else [int(code, 16) for code in SMALL_SPECIALS[{"f64": 64, "f32": 32}.get(scalar, 16)].split()]
        )
        table = np.array(special_bits, np.uint64)
        count = min(lanes // 2, len(table) ** len(kinds))
        values[:count] = table[np.arange(count) // len(table) ** place % len(table)]
        if kind.endswith("x2"):
            values = values.astype(np.uint16)
            arrays.append(np.ascontiguousarray(np.stack([values[:lanes], values[lanes:]], 1)).view(np.uint32)[:, 0])
        else:
            arrays.append(values[:lanes].astype(DTYPES[width]))
    return arrays


def kernel(body: str, source_bits: list[int], result_bits: int) -> str:
    """Every thread loads its sources a, b, c, runs ``body``, which sets d, and stores it."""
    names = "abc"[: len(source_bits)]
    lines = [f".param .u64 in_{n}" for n in names] + [".param .u64 out"]
    text = [
        HEADER,
        ".visible .entry litmus(" + ", ".join(lines) + ")\n{",
        ".reg .b64 p0, p1, n;",
        ".reg .b32 i, t0, t1, t2;",
        ".reg .pred p, q;",
    ]
    text += [f".reg .b{bits} {n};" for n, bits in zip(names, source_bits)] + [f".reg .b{result_bits} d;"]
    text += ["mov.u32 t0, %ctaid.x;", "mov.u32 t1, %ntid.x;", "mov.u32 t2, %tid.x;", "mad.lo.u32 i, t0, t1, t2;"]
    for n, bits in zip(names, source_bits):
        text += [
            f"ld.param.u64 p0, [in_{n}];",
            f"mul.wide.u32 p1, i, {bits // 8};",
            "add.u64 p0, p0, p1;",
            f"ld.global.b{bits} {n}, [p0];",
        ]
    text += [
        body,
        "ld.param.u64 p0, [out];",
        f"mul.wide.u32 p1, i, {result_bits // 8};",
        "add.u64 p0, p0, p1;",
        f"st.global.b{result_bits} [p0], d;",
        "ret;\n}\n",
    ]
    return "\n".join(text)


def scalar_case(
    name: str, body: str, kinds: list[str], result_bits: int, expected: Callable | None, agree: Callable = np.equal
) -> Case:
    sources = inputs(name, kinds)
    out = np.zeros(LANES, DTYPES[result_bits])
    judge = (lambda: expected(*sources)) if expected else None
    return Case(
        name,
        kernel(body, [bits_of(k) for k in kinds], result_bits),
        (*sources, out),
        len(sources),
        judge,
        agree,
        block=LANES,
    )


def instruction_case(
    opcode: str, kinds: list[str], result: str, expected: Callable | None, agree: Callable = np.equal
) -> Case:
    body = f"{opcode} d, {', '.join('abc'[: len(kinds)])};"
    return scalar_case(opcode, body, kinds, bits_of(result), expected, agree)


# --- families
# -----------------------------------------------------------------------------------------------------------------

MODES = ("rn", "rz", "rm", "rp")
ARITHMETIC = (
    [f"{n}.{m}.{k}" for n in ("add", "sub", "mul", "fma") for m in MODES for k in ("f32", "f64")]
    + [f"{n}.{m}.f32" for n in ("add", "mul", "fma") for m in ("rn.ftz", "rn.sat", "rz.ftz.sat")]
    + [f"{n}.rn.{k}" for n in ("add", "sub", "mul", "fma") for k in ("f16", "f16x2", "bf16", "bf16x2")]
    + [f"{n}.rn.{m}.f16x2" for n in ("add", "sub", "mul", "fma") for m in ("ftz", "sat", "ftz.sat")]
    + ["fma.rn.relu.f16x2", "fma.rn.ftz.relu.f16x2", "fma.rn.relu.bf16x2"]
    + [
        f"{n}.{m}{k}"
        for n in ("min", "max")
        for m in ("", "NaN.", "xorsign.abs.", "NaN.xorsign.abs.")
        for k in ("f16", "f16x2", "bf16x2", "f32")
    ]
    + words(
        "min.ftz.f16x2 max.ftz.NaN.f32 min.f64 max.f64 neg.f16x2 neg.bf16x2 abs.f16x2 abs.bf16x2 neg.ftz.f32 "
        "abs.ftz.f32 abs.f64 neg.f64"
    )
    + [f"{n}.{k}" for n in ("neg", "abs") for k in ("f32", "f16", "bf16")]
)
ROUNDED = [f"{n}.{m}.{k}" for n in ("div", "rcp", "sqrt") for m in MODES for k in ("f32", "f64")] + [
    "div.rn.ftz.f32",
    "rcp.rn.ftz.f32",
    "sqrt.rn.ftz.f32",
]
APPROXIMATE = {
    "div.approx.f32": (2**-22, 0),
    "div.approx.ftz.f32": (2**-22, 0),
    "div.full.f32": (2**-22, 2**-148),
    "rcp.approx.f32": (2**-23, 0),
    "rcp.approx.ftz.f32": (2**-23, 0),
    "sqrt.approx.f32": (2**-22, 0),
    "sqrt.approx.ftz.f32": (2**-22, 0),
    "rsqrt.approx.f32": (2**-22.4, 0),
    "rsqrt.approx.ftz.f32": (2**-22.4, 0),
    "ex2.approx.f32": (2**-22, 2**-148),
    "ex2.approx.ftz.f32": (2**-22, 0),
    "lg2.approx.f32": (2**-22, 2**-22),
    "lg2.approx.ftz.f32": (2**-22, 2**-22),
    "tanh.approx.f32": (2**-10.9, 0),
    "tanh.approx.f16x2": (0, 2**-10.9),
    "tanh.approx.bf16x2": (2**-7, 2**-8),
    "ex2.approx.f16x2": (2**-9.8, 2**-24),
    "ex2.approx.ftz.bf16x2": (2**-6.9, 0),
    "rcp.approx.ftz.f64": (2**-19, 0),
    "rsqrt.approx.f64": (2**-19, 0),
    "rsqrt.approx.ftz.f64": (2**-19, 0),
}
SOURCES = {"fma": 3} | dict.fromkeys(words("neg abs rcp sqrt rsqrt ex2 lg2 sin cos tanh"), 1)

INTEGER_TYPES = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
CONVERSIONS = (
    [f"cvt.{m}.{t}.{f}" for t in INTEGER_TYPES for f in ("f16", "f32", "f64") for m in ("rni", "rzi")]
    + [f"cvt.{m}.{t}.bf16" for t in INTEGER_TYPES[2:] for m in ("rni", "rzi")]
    + [f"cvt.{m}.bf16.{t}" for t in INTEGER_TYPES[2:] for m in ("rn", "rz")]
    + [f"cvt.{m}.{t}.f32" for t in ("s32", "u64") for m in ("rmi", "rpi", "rpi.ftz")]
    + [f"cvt.{m}.{f}.{t}" for t in INTEGER_TYPES for f in ("f16", "f32", "f64") for m in ("rn", "rz")]
    + [f"cvt.{m}.f32.{t}" for t in ("s64", "u64", "s32") for m in ("rm", "rp")]
    + [f"cvt.{t}.{s}" for t in INTEGER_TYPES for s in INTEGER_TYPES if t != s]
    + [
        f"cvt.sat.{t}.{s}"
        for t, s in (
            ("s8", "s32"),
            ("u8", "s32"),
            ("u32", "s32"),
            ("s32", "u32"),
            ("s32", "s64"),
            ("u16", "u64"),
            ("s64", "u64"),
        )
    ]
    + [
        f"cvt.{m}.{t}.f32"
        for t in ("f16", "bf16")
        for m in (*MODES, "rn.relu", "rz.relu", "rn.satfinite", "rz.satfinite", "rn.relu.satfinite")
    ]
    + [f"cvt.{m}.{t}.f32" for t in ("f16x2", "bf16x2") for m in ("rn", "rz", "rn.relu", "rn.satfinite")]
    + [f"cvt.{m}.{t}.f64" for t in ("f16", "bf16", "f32") for m in ("rn", "rz", "rm")]
    + words(
        "cvt.f32.f16 cvt.f32.bf16 cvt.f64.f16 cvt.f64.bf16 cvt.f64.f32 cvt.rn.f16.bf16 cvt.rn.bf16.f16 "
        "cvt.rn.ftz.f32.f64 cvt.ftz.f32.f16"
    )
    + words(
        "cvt.rn.sat.f16.f32 cvt.sat.f32.f16 cvt.sat.f32.f32 cvt.ftz.f32.f32 cvt.rni.f32.f32 cvt.rpi.ftz.f32.f32 "
        "cvt.rmi.f16.f16 cvt.rzi.f64.f64"
    )
    + ["cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32", "cvt.rn.relu.tf32.f32", "cvt.rna.satfinite.tf32.f32"]
    + [f"cvt.rn.satfinite{r}.{t}.{s}" for t in ("e4m3x2", "e5m2x2") for s in ("f32", "f16x2") for r in ("", ".relu")]
    + [f"cvt.rn{r}.f16x2.{s}" for s in ("e4m3x2", "e5m2x2") for r in ("", ".relu")]
    + ["cvt.pack.sat.s16.s32", "cvt.pack.sat.u16.s32"]
)
INTEGERS = {  # how many sources
    **dict.fromkeys(
        words(
            "abs.s32 neg.s64 popc.b32 popc.b64 clz.b32 clz.b64 bfind.u32 bfind.s32 bfind.shiftamt.u32 bfind.s64 "
            "brev.b32 brev.b64"
        ),
        1,
    ),
    **dict.fromkeys(
        words(
            "mul.hi.u32 mul.hi.s32 mul.hi.u64 mul.hi.s64 mul.lo.u64 mul24.lo.s32 div.s32 div.u64 rem.s32 rem.u32 "
            "add.sat.s32 sub.sat.s32 min.s64 max.u16 bmsk.clamp.b32 bmsk.wrap.b32 szext.wrap.s32 shl.b32 shr.s32"
        ),
        2,
    ),
    **dict.fromkeys(
        words(
            "mad.lo.s32 mad.hi.u32 mad.hi.sat.s32 sad.s32 fns.b32 bfe.u32 bfe.s32 shf.l.wrap.b32 shf.l.clamp.b32 "
            "shf.r.wrap.b32 shf.r.clamp.b32 prmt.b32 prmt.b32.f4e prmt.b32.rc16 dp4a.s32.s32 dp4a.u32.s32 "
            "dp2a.lo.s32.u32"
        ),
        3,
    ),
}
COMPARISONS = [f"{r}.{k}" for r in ("eq", "ne", "lt", "geu", "ltu", "nan") for k in ("f16x2", "bf16x2")]


def arithmetic_cases() -> Iterator[Case]:
    for door, opcodes in ((arithmetic, ARITHMETIC), (special, ROUNDED)):
        for opcode in opcodes:
            name, kind = opcode.split(".")[0], opcode.split(".")[-1]
            yield instruction_case(opcode, [kind] * SOURCES.get(name, 2), kind, door.operation(opcode))
    for opcode, (relative, absolute) in APPROXIMATE.items():
        name, kind = opcode.split(".")[0], opcode.split(".")[-1]
        agree = (
            _pairwise(relative, absolute, kind)
            if kind.endswith("x2")
            else within(relative, absolute, {"f32": np.float32, "f64": np.float64}[kind])
        )
        yield instruction_case(opcode, [kind] * SOURCES.get(name, 2), kind, special.operation(opcode), agree)
    for name in ("sin", "cos"):
        yield _trigonometric(name)


NANS = {
    64: [
        0x7FF8000000000123,
        0xFFF0000000000001,
        0x7FF5A5A5A5A5A5A5,
        0xFFFC000000000777,
        0x7FF0000000000000,
        0x8000000000000000,
        0x4008000000000000,
    ],
    32: [0x7FC00123, 0xFF800001, 0x7FA5A5A5, 0xFFE00777, 0x7F800000, 0x80000000, 0x40400000],
    16: [0x7E12, 0xFF81, 0x7FA5, 0xFFF7, 0x7F80, 0x8000, 0x4040],
}
NAN_CASES = (
    [f"{n}.{m}.f64" for n in ("add", "sub", "mul", "fma", "div", "rcp", "sqrt") for m in ("rn", "rz")]
    + [f"{n}.{k}" for n in ("min", "max", "neg", "abs") for k in ("f64", "f32", "bf16")]
    + words(
        "cvt.f64.f32 cvt.f64.bf16 cvt.rn.f32.f64 cvt.rz.bf16.f64 cvt.rn.f16.f64 cvt.f32.bf16 cvt.f32.f16 "
        "cvt.rna.tf32.f32"
    )
)


def nan_cases() -> Iterator[Case]:
    """Which of several NaNs a result is, and what is left of it: every triple of a few values."""
    for opcode in NAN_CASES:
        name, kind = opcode.split(".")[0], opcode.split(".")[-1]
        result = opcode.split(".")[-2] if name == "cvt" else kind
        count = 1 if name == "cvt" else SOURCES.get(name, 2)
        table = np.array(NANS[bits_of(kind)], DTYPES[bits_of(kind)])
        sources = [table[np.arange(LANES) // len(table) ** place % len(table)] for place in range(count)]
        function = (
            conversion(opcode)
            if name == "cvt"
            else (special if name in ("div", "rcp", "sqrt") else arithmetic).operation(opcode)
        )
        text = kernel(f"{opcode} d, {', '.join('abc'[:count])};", [bits_of(kind)] * count, bits_of(result))
        out = np.zeros(LANES, DTYPES[bits_of(result)])
        yield Case(f"nan.{opcode}", text, (*sources, out), count, lambda f=function, s=sources: f(*s), block=LANES)


def _pairwise(relative: float, absolute: float, kind: str) -> Callable:
    one = within(relative, absolute, np.float16 if kind == "f16x2" else "bf16")
    return lambda got, want: one(got.view(np.uint16), want.view(np.uint16))


def _trigonometric(name: str) -> Case:
    """Only angles within one turn have a stated accuracy."""
    opcode = f"{name}.approx.ftz.f32"
    angles = (
        ((stream(opcode, LANES) >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 4 * np.pi - 2 * np.pi)
        .astype(np.float32)
        .view(np.uint32)
    )
    out = np.zeros(LANES, np.uint32)
    return Case(
        opcode,
        kernel(f"{opcode} d, a;", [32], 32),
        (angles, out),
        1,
        lambda: special.operation(opcode)(angles),
        within(0, 2**-20.4),
        block=LANES,
    )


def conversion_cases() -> Iterator[Case]:
    for opcode in CONVERSIONS:
        target, source = opcode.split(".")[-2:]
        two = (target in ("f16x2", "bf16x2", "e4m3x2", "e5m2x2") and source == "f32") or "pack" in opcode
        result = 32 if "pack" in opcode else bits_of(target)
        body = f"{opcode} d, a, b;" if two else f"{opcode} d, a;"
        yield scalar_case(opcode, body, [source] * (1 + two), result, conversion(opcode, result))


def integer_cases() -> Iterator[Case]:
    for opcode, count in INTEGERS.items():
        kind = next(p for p in opcode.split(".") if p[1:] in ("16", "32", "64"))
        kinds, result = [kind] * count, kind
        if opcode.split(".")[0] in ("popc", "clz", "bfind"):
            result = "u32"
        if opcode.startswith(("bfe", "shl", "shr", "bmsk", "szext")):
            kinds = [kind] + ["u32"] * (count - 1)
        yield instruction_case(opcode, kinds, result, None)


def both_truths(relation: str, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arithmetic.compare(relation, kind, a, b) @ np.array([1, 2], np.uint32)


def chosen(relation: str, kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arithmetic.select_truth(arithmetic.compare(relation, kind, a, b), kind)


def comparison_cases() -> Iterator[Case]:
    body = "setp.{0} p|q, a, b;\nselp.b32 t0, 1, 0, p;\nselp.b32 t1, 2, 0, q;\nor.b32 d, t0, t1;"
    for spelled in COMPARISONS:
        relation, kind = spelled.split(".")
        judge = partial(both_truths, relation, kind)
        yield scalar_case(f"setp.{spelled}", body.format(spelled), [kind] * 2, 32, judge)
    for relation, kind in (("lt", "f16x2"), ("geu", "bf16x2")):
        yield instruction_case(f"set.{relation}.{kind}.{kind}", [kind] * 2, kind, partial(chosen, relation, kind))


def cases() -> Iterator[Case]:
    yield from arithmetic_cases()
    yield from nan_cases()
    yield from conversion_cases()
    yield from integer_cases()
    yield from comparison_cases()
