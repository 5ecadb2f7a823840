"""Integer, bit and selection instructions, one lane at a time against Python's own integers."""

import numpy as np
import pytest

from cutesync.emulator.instructions.registry import UnknownInstruction

from .support import kernel_text, lanes, launch

EDGES = [
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    32,
    33,
    255,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
random = np.random.default_rng(7)
A = np.array(EDGES + random.integers(0, 1 << 32, 14).tolist(), np.uint32)
B = np.array(random.permutation(A))
C = np.array(random.permutation(A))
WIDE = (A.astype(np.uint64) << np.uint64(32)) | B
WIDE2 = (C.astype(np.uint64) << np.uint64(32)) | A


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def clamp_shift(value: int, amount: int, bits: int, left: bool) -> int:
    if left:
        return value << amount if amount < bits else 0
    return value >> min(amount, bits - 1 if value < 0 else bits)


def funnel(low: int, high: int, n: int, left: bool) -> int:
    both = (high << 32) | low
    return (both << n) >> 32 if left else both >> n


def bfe(value: int, position: int, length: int, sign: bool) -> int:
    position, length = position & 255, length & 255
    if not sign:
        return (value >> position) & ((1 << length) - 1) if position < 32 else 0
    if not length:
        return 0
    top = min(position + length - 1, 31)
    bits = [
        (value >> min(position + i, 31)) & 1 if position + i <= 31 else (value >> top) & 1
        for i in range(min(length, 32))
    ]
    fill = (value >> top) & 1
    return sum((bits[i] if i < len(bits) else fill) << i for i in range(32))


TABLE = {
    "add.u32 $0, $1, $2;": lambda a, b, c: a + b,
    "sub.s32 $0, $1, $2;": lambda a, b, c: a - b,
    "add.sat.s32 $0, $1, $2;": lambda a, b, c: max(-(1 << 31), min((1 << 31) - 1, signed(a) + signed(b))),
    "mul.lo.s32 $0, $1, $2;": lambda a, b, c: a * b,
    "mul.hi.u32 $0, $1, $2;": lambda a, b, c: (a * b) >> 32,
    "mul.hi.s32 $0, $1, $2;": lambda a, b, c: (signed(a) * signed(b)) >> 32,
    "mad.lo.s32 $0, $1, $2, $3;": lambda a, b, c: a * b + c,
    "mad.hi.u32 $0, $1, $2, $3;": lambda a, b, c: ((a * b) >> 32) + c,
    "mad.hi.sat.s32 $0, $1, $2, $3;": lambda a, b, c: max(
        -(1 << 31), min((1 << 31) - 1, ((signed(a) * signed(b)) >> 32) + signed(c))
    ),
    "mul24.lo.u32 $0, $1, $2;": lambda a, b, c: (a % 2**24) * (b % 2**24),
    "mul24.hi.s32 $0, $1, $2;": lambda a, b, c: (signed(a, 24) * signed(b, 24)) >> 16,
    "mad24.lo.s32 $0, $1, $2, $3;": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "mad24.hi.u32 $0, $1, $2, $3;": lambda a, b, c: ((a % 2**24) * (b % 2**24) >> 16) + c,
    "mad24.hi.sat.s32 $0, $1, $2, $3;": lambda a, b, c: max(
        -(1 << 31), min((1 << 31) - 1, ((signed(a, 24) * signed(b, 24)) >> 16) + signed(c))
    ),
    "div.u32 $0, $1, $2;": lambda a, b, c: a // b if b else 0xFFFFFFFF,
    "div.s32 $0, $1, $2;": lambda a, b, c: truncated(signed(a), signed(b)) if b else -1,
    "rem.u32 $0, $1, $2;": lambda a, b, c: a % b if b else a,
    "rem.s32 $0, $1, $2;": lambda a, b, c: signed(a) - truncated(signed(a), signed(b)) * signed(b) if b else a,
    "min.s32 $0, $1, $2;": lambda a, b, c: min(signed(a), signed(b)),
    "max.u32 $0, $1, $2;": lambda a, b, c: max(a, b),
    "neg.s32 $0, $1;": lambda a, b, c: -a,
    "abs.s32 $0, $1;": lambda a, b, c: abs(signed(a)),
    "and.b32 $0, $1, $2;": lambda a, b, c: a & b,
    "not.b32 $0, $1;": lambda a, b, c: ~a,
    "shl.b32 $0, $1, $2;": lambda a, b, c: clamp_shift(a, b, 32, True),
    "shr.u32 $0, $1, $2;": lambda a, b, c: clamp_shift(a, b, 32, False),
    "shr.s32 $0, $1, $2;": lambda a, b, c: clamp_shift(signed(a), b, 32, False),
    "shf.l.wrap.b32 $0, $1, $2, $3;": lambda a, b, c: funnel(a, b, c & 31, True),
    "shf.r.clamp.b32 $0, $1, $2, $3;": lambda a, b, c: funnel(a, b, min(c, 32), False),
    "lop3.b32 $0, $1, $2, $3, 0x6a;": lambda a, b, c: (a & b) ^ c,
    "lop3.and.b32 $0|%p1, $1, $2, $3, 0x80, 1; selp.b32 $0, $0, 77, %p1;": lambda a, b, c: (a & b & c) or 77,
    "lop3.or.b32 _|%p1, $1, $2, $3, 0x80, 0; selp.b32 $0, $1, 77, %p1;": lambda a, b, c: a if a & b & c else 77,
    "add.u16x2 $0, $1, $2;": lambda a, b, c: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) << 16),
    "lop3.b32 $0, $1, $2, $3, 0xe8;": lambda a, b, c: (a & b) | (a & c) | (b & c),
    "popc.b32 $0, $1;": lambda a, b, c: bin(a).count("1"),
    "clz.b32 $0, $1;": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32 $0, $1;": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 $0, $1;": lambda a, b, c: a.bit_length() - 1,
    "bfind.s32 $0, $1;": lambda a, b, c: (~signed(a) if signed(a) < 0 else a).bit_length() - 1,
    "bfe.u32 $0, $1, $2, $3;": lambda a, b, c: bfe(a, b, c, False),
    "bfe.s32 $0, $1, $2, $3;": lambda a, b, c: bfe(signed(a), b, c, True),
    "sad.u32 $0, $1, $2, $3;": lambda a, b, c: abs(a - b) + c,
    "slct.b32.s32 $0, $1, $2, $3;": lambda a, b, c: a if signed(c) >= 0 else b,
    "dp4a.s32.s32 $0, $1, $2, $3;": lambda a, b, c: (
        c + sum(signed(a >> 8 * i, 8) * signed(b >> 8 * i, 8) for i in range(4))
    ),
    "{ .reg .pred q; setp.lt.s32 q, $1, $2; selp.b32 $0, $3, 17, q; }": lambda a, b, c: (
        c if signed(a) < signed(b) else 17
    ),
    "{ .reg .pred q, t; setp.hi.u32 q|t, $1, $2; @t mov.u32 $0, 5; @q mov.u32 $0, 6; }": lambda a, b, c: (
        6 if a > b else 5
    ),
    "{ .reg .pred q, t; setp.eq.u32 t, $3, 0; setp.le.and.s32 q, $1, $2, !t; selp.b32 $0, 1, 0, q; }": lambda a, b, c: (
        signed(a) <= signed(b) and c != 0
    ),
    "{ .reg .b64 w; mov.b64 w, {$1, $2}; shr.u64 w, w, 16; cvt.u32.u64 $0, w; }": lambda a, b, c: ((b << 32) | a) >> 16,
    "{ .reg .b16 l, h; mov.b32 {l, h}, $1; mov.b32 $0, {h, l}; }": lambda a, b, c: (a >> 16) | (a << 16),
    "cvt.s32.s8 $0, $1;": lambda a, b, c: signed(a, 8),
    "cvt.u32.u16 $0, $1;": lambda a, b, c: a & 0xFFFF,
    "set.lt.u32.s32 $0, $1, $2;": lambda a, b, c: 0xFFFFFFFF if signed(a) < signed(b) else 0,
    "{ .reg .b32 x; add.cc.u32 x, $1, $2; addc.u32 $0, $3, 0; }": lambda a, b, c: c + ((a + b) >> 32),
    "{ .reg .b32 x; sub.cc.u32 x, $1, $2; subc.u32 $0, $3, 0; }": lambda a, b, c: c - (a < b),
}


@pytest.mark.parametrize("instruction", TABLE)
def test_32_bit(instruction):
    result = lanes(instruction, A, B, C, out="uint32")
    expected = [int(TABLE[instruction](int(a), int(b), int(c))) & 0xFFFFFFFF for a, b, c in zip(A, B, C)]
    assert result.tolist() == expected


TABLE64 = {
    "add.u64 $0, $1, $2;": lambda a, b: a + b,
    "mul.lo.u64 $0, $1, $2;": lambda a, b: a * b,
    "mul.hi.u64 $0, $1, $2;": lambda a, b: (a * b) >> 64,
    "mul.hi.s64 $0, $1, $2;": lambda a, b: (signed(a, 64) * signed(b, 64)) >> 64,
    "div.s64 $0, $1, $2;": lambda a, b: truncated(signed(a, 64), signed(b, 64)) if b else -1,
    "rem.u64 $0, $1, $2;": lambda a, b: a % b if b else a,
    "min.s64 $0, $1, $2;": lambda a, b: min(signed(a, 64), signed(b, 64)),
    "brev.b64 $0, $1;": lambda a, b: int(f"{a:064b}"[::-1], 2),
    "bfe.u64 $0, $1, 12, 40;": lambda a, b: (a >> 12) & ((1 << 40) - 1),
    "bfi.b64 $0, $1, $2, 8, 16;": lambda a, b: (b & ~(0xFFFF << 8)) | ((a & 0xFFFF) << 8),
    "{ .reg .b32 n; clz.b64 n, $1; cvt.u64.u32 $0, n; }": lambda a, b: 64 - a.bit_length(),
    "shr.s64 $0, $1, 33;": lambda a, b: signed(a, 64) >> 33,
}


@pytest.mark.parametrize("instruction", TABLE64)
def test_64_bit(instruction):
    result = lanes(instruction, WIDE, WIDE2, out="uint64")
    assert result.tolist() == [TABLE64[instruction](int(a), int(b)) & (2**64 - 1) for a, b in zip(WIDE, WIDE2)]


SELECTORS = [0x3210, 0x7654, 0x0123, 0x8888, 0xFBA0, 0x4444, 0xC000, 0x7777]


def permuted(a: int, b: int, selector: int) -> int:
    source, want = a.to_bytes(4, "little") + b.to_bytes(4, "little"), []
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = source[nibble & 7]
        want.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(want), "little")


def test_prmt_moves_bytes_and_repeats_signs():
    selector = np.array(SELECTORS * 4, np.uint32)
    result = lanes("prmt.b32 $0, $1, $2, $3;", A, B, selector, out="uint32")
    assert result.tolist() == [permuted(*x) for x in zip(A.tolist(), B.tolist(), selector.tolist())]


@pytest.mark.parametrize("second", ["$2", "0"])
def test_prmt_by_a_constant(second):
    selectors = [*SELECTORS, *np.random.default_rng(0).integers(0, 1 << 16, 24).tolist()]
    each = [f"prmt.b32 %r40, $1, {second}, {s}; mad.lo.u32 $0, $0, 7, %r40;" for s in selectors]
    result, want = lanes(f"mov.u32 $0, 0; {' '.join(each)}", A, B, out="uint32"), [0] * 32
    for s in selectors:
        want = [
            w * 7 + permuted(a, b if second == "$2" else 0, s) & 0xFFFFFFFF
            for w, a, b in zip(want, A.tolist(), B.tolist())
        ]
    assert result.tolist() == want


@pytest.mark.parametrize("bits", (8, 16))
def test_narrow_values_are_extended_when_loaded(bits):
    data = np.arange(-16, 16, dtype=f"int{bits}")
    out = np.zeros(32, np.int32)
    body = f"""
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, {bits // 8};
\tadd.u64 %rd1, %rd1, %a1;
\tld.global.s{bits} %rs1, [%rd1];
\tcvt.s32.s{bits} %r1, %rs1;
\tmul.wide.u32 %rd2, %r0, 4;
\tadd.u64 %rd2, %rd2, %a0;
\tst.global.b32 [%rd2], %r1;"""
    launch(kernel_text(body, 2), out, data)
    assert out.tolist() == data.tolist()


def test_an_unknown_opcode_names_itself_and_its_line():
    with pytest.raises(UnknownInstruction, match=r"tex\.2d"):
        lanes("tex.2d.v4.f32.s32 $0, $1;", A, out="uint32")
