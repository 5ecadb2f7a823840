"""``wgmma``: every type, both majors, all swizzles, both sources of A, and numbers for which the order of summation
matters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from cutesync.emulator import wgmma

from .case import HEADER, Case, stream, within
from .warp import small_numbers

IMAGE_BYTES = 1 << 15
SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}


def descriptor(start: int, leading: int, stride: int, swizzle: int, base_offset: int = 0) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 | SWIZZLE_CODE[swizzle] << 62


def kernel(opcode: str, immediates: tuple[int, ...], count_a: int, count_d: int, accumulate: bool) -> str:
    """Copies the image to shared memory, multiplies once, stores D. Descriptors are relative to the image."""
    names = [f"rd{r}" for r in range(count_d)]
    left = "{" + ", ".join(f"ra{r}" for r in range(count_a)) + "}" if count_a else "da"
    tail = "".join(f", {i}" for i in immediates)
    text = [
        HEADER,
        ".extern .shared .align 1024 .b8 image[];",
        ".visible .entry litmus(.param .u64 in_image, .param .u64 in_a, .param .u64 in_d, .param .u64 desc_a, "
        ".param .u64 desc_b, .param .u64 out)\n{",
        ".reg .b64 p0, p1, da, db, base;",
        ".reg .b32 i, t0, t1, t2;",
        ".reg .b32 ra<4>, w<4>;",
        f".reg .b32 rd<{count_d}>;",
        ".reg .pred p;",
        "mov.u32 i, %tid.x;",
        "mov.u32 t0, image;",
        "shl.b32 t1, i, 4;",
        "ld.param.u64 p0, [in_image];",
        "COPY:",
        "cvt.u64.u32 p1, t1;",
        "add.u64 p1, p0, p1;",
        "ld.global.v4.b32 {w0, w1, w2, w3}, [p1];",
        "add.u32 t2, t0, t1;",
        "st.shared.v4.b32 [t2], {w0, w1, w2, w3};",
        "add.u32 t1, t1, 2048;",
        f"setp.lt.u32 p, t1, {IMAGE_BYTES};",
        "@p bra COPY;",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "shr.u32 t1, t0, 4;",
        "cvt.u64.u32 base, t1;",
        "ld.param.u64 da, [desc_a];",
        "add.u64 da, da, base;",
        "ld.param.u64 db, [desc_b];",
        "add.u64 db, db, base;",
        "mul.wide.u32 p1, i, 4;",
        "ld.param.u64 p0, [in_a];",
        "add.u64 p0, p0, p1;",
    ]
    text += [f"ld.global.b32 ra{r}, [p0+{512 * r}];" for r in range(count_a)]
    text += ["ld.param.u64 p0, [in_d];", "add.u64 p0, p0, p1;"] + [
        f"ld.global.b32 {n}, [p0+{512 * r}];" for r, n in enumerate(names)
    ]
    text += [
        f"setp.ne.b32 p, {int(accumulate)}, 0;",
        "wgmma.fence.sync.aligned;",
        f"{opcode} {{{', '.join(names)}}}, {left}, db, p{tail};",
    ]
    text += [
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "ld.param.u64 p0, [out];",
        "add.u64 p0, p0, p1;",
    ]
    return "\n".join([*text, *(f"st.global.b32 [p0+{512 * r}], {n};" for r, n in enumerate(names)), "ret;\n}\n"])


@dataclass(frozen=True)
class Setting:
    """One multiplication: names as in ``wgmma.instruction``; a swizzle of -1 says that A comes from registers."""

    n: int = 64
    types: str = "f32.f16.f16"
    swizzle_a: int = 128
    swizzle_b: int = 128
    transpose_a: int = 0
    transpose_b: int = 0
    scales: tuple[int, int] = (1, 1)
    accumulate: bool = True
    start_a: int = 0
    start_b: int = 4096
    base_offset: int = 0
    suffix: str = ""
    exact: bool = True
    zeros: bool = False

    @property
    def name(self) -> str:
        sources = "registers" if self.swizzle_a < 0 else f"a{self.swizzle_a}{'t' * self.transpose_a}+{self.start_a}"
        place_b = f"b{self.swizzle_b}{'t' * self.transpose_b}+{self.start_b}.o{self.base_offset}"
        details = f"{sources}.{place_b}.{'add' if self.accumulate else 'set'}.{self.scales[0]}.{self.scales[1]}"
        ends = f"{'' if self.exact else '.floats'}{'.zeros' * self.zeros}"
        return f"wgmma.n{self.n}.{self.types}{self.suffix}.{details}{ends}"


def strides(transposed: int, swizzle: int, extent: int) -> tuple[int, int]:
    """(leading, stride) byte offsets of a compact layout: 8-row groups follow each other; MN-major atoms follow along m
    or n.
    """
    row = swizzle or 16
    if not transposed:
        return (16 if swizzle else 8 * 16 * (extent // 8)), 8 * row
    if swizzle:
        return 16 * row, 8 * row  # two groups of 8 k to an atom, then the next atom along m or n
    return 8 * 16 * (extent // 8), 8 * 16


def build(setting: Setting) -> Case:
    d_type, a_type, _ = setting.types.split(".")
    k = wgmma.K_BYTES * 8 // wgmma.ELEMENT_BITS[a_type]
    opcode = f"wgmma.mma_async.sync.aligned.m64n{setting.n}k{k}.{setting.types}{setting.suffix}"
    in_registers = setting.swizzle_a < 0
    halves = wgmma.ELEMENT_BITS[a_type] == 16
    immediates = () if d_type == "s32" else setting.scales
    immediates += (
        () if not halves else (setting.transpose_b,) if in_registers else (setting.transpose_a, setting.transpose_b)
    )
    step = wgmma.instruction(opcode, in_registers, immediates)
    count = step.d_registers
    fill = small_numbers if setting.exact else any_numbers
    image = fill(setting.name + "/image", a_type, IMAGE_BYTES // 4)
    a = fill(setting.name + "/a", a_type, 512).reshape(4, 128)
    d = fill(setting.name + "/d", {"s32": "u8", "f32": "f32", "f16": "f16"}[d_type], 128 * count).reshape(count, 128)
    if setting.zeros:
        image, a, d = (
            v & np.uint32(0x80008000 if v is not d or d_type == "f16" else 0x80000000) for v in (image, a, d)
        )
    if setting.suffix == ".satfinite":
        d = (d & np.uint32(0x80003FFF)) ^ np.uint32(0x7FFFC000)
    desc_a = descriptor(
        setting.start_a,
        *strides(setting.transpose_a, max(setting.swizzle_a, 0), 64),
        max(setting.swizzle_a, 0),
        setting.base_offset,
    )
    desc_b = descriptor(
        setting.start_b,
        *strides(setting.transpose_b, setting.swizzle_b, setting.n),
        setting.swizzle_b,
        setting.base_offset,
    )

    def judge() -> np.ndarray:
        data = image.view(np.uint8)

        def read(operand: str, desc: int) -> np.ndarray:
            return wgmma.matrix(step, operand, data[wgmma.addresses(step, operand, desc)[..., None] + np.arange(16)])

        left = wgmma.registers(step, a) if in_registers else read("a", desc_a)
        return wgmma.multiply(step, left, read("b", desc_b), d if setting.accumulate else None)

    arguments = (image, a, d, desc_a, desc_b, np.zeros((count, 128), np.uint32))
    text = kernel(opcode, immediates, 4 if in_registers else 0, count, setting.accumulate)
    agree = np.equal if setting.exact else _close(d_type, a_type)
    return Case(setting.name, text, arguments, 5, judge, agree, block=128, shared_bytes=IMAGE_BYTES)


def any_numbers(name: str, kind: str, count: int) -> np.ndarray:
    """32-bit registers of numbers of ``kind`` between 2**-4 and 2**4, all fraction bits in use."""
    raw = stream(name, count).astype(np.uint32)
    if kind in ("tf32", "f32"):
        return (raw & np.uint32(0x83FFFFFF)) | np.uint32(0x3C000000)
    if kind == "f16":
        return (raw & np.uint32(0x8FFF8FFF)) | np.uint32(0x30003000)
    if kind == "bf16":
        return (raw & np.uint32(0x83FF83FF)) | np.uint32(0x3C003C00)
    return raw & np.uint32(0xBFBFBFBF)


def _close(d_type: str, a_type: str) -> Callable:
    """Sums of up to 32 products of size up to 2**8, in an order and with a truncation of the hardware's own."""
    if d_type == "f16":
        one = within(2**-8, 0.5, np.float16)
        return lambda got, want: one(got.view(np.uint16), want.view(np.uint16))
    return within(2**-12 if a_type in wgmma.FP8 else 2**-18, 2**-4 if a_type in wgmma.FP8 else 2**-10)


HALVES = ("f32.f16.f16", "f16.f16.f16", "f32.bf16.bf16")
EIGHT_BITS = ("f32.e4m3.e4m3", "f32.e4m3.e5m2", "f32.e5m2.e4m3", "f32.e5m2.e5m2", "f16.e4m3.e5m2")
INTEGERS = ("s32.s8.s8", "s32.s8.u8", "s32.u8.s8", "s32.u8.u8")
ROUNDED = ("f32.f16.f16", "f32.bf16.bf16", "f16.f16.f16", "f32.tf32.tf32", "f32.e4m3.e4m3", "f32.e5m2.e5m2")
SETTINGS = [
    *(
        Setting(swizzle_a=swizzle, swizzle_b=swizzle, transpose_a=a, transpose_b=b)
        for a, b, swizzle in product((0, 1), (0, 1), (0, 32, 64, 128))
    ),
    *(Setting(n=n, types="f32.bf16.bf16", start_b=0) for n in (8, 24, 40, 96, 200, 256)),
    *(Setting(n=n, types="f16.f16.f16", swizzle_b=32, start_b=1024) for n in (8, 24, 40, 96, 200, 256)),
    *(Setting(n=n, swizzle_a=64, swizzle_b=64, transpose_b=1, start_b=0) for n in (72, 256)),
    *(
        Setting(types=types, **fields)
        for types in ("f32.tf32.tf32", *EIGHT_BITS, *INTEGERS)
        for fields in (
            {"n": 32, "swizzle_a": 0, "swizzle_b": 0},
            {"n": 32, "swizzle_a": 128, "swizzle_b": 128},
            {"n": 16, "swizzle_a": -1, "swizzle_b": 64},
        )
    ),
    Setting(types="s32.b1.b1", suffix=".and.popc"),
    Setting(n=8, types="s32.b1.b1", suffix=".and.popc", swizzle_a=-1),
    *(
        Setting(types=types, **fields)
        for types in HALVES
        for fields in (
            {"swizzle_a": -1, "transpose_b": 1},
            {"scales": (-1, 1), "accumulate": False},
            {"scales": (-1, -1)},
            {"scales": (1, -1), "swizzle_a": -1},
            {"n": 8, "zeros": True},
            {"n": 8, "zeros": True, "scales": (1, -1), "accumulate": False},
        )
    ),
    Setting(types="s32.s8.s8", accumulate=False),
    Setting(types="s32.s8.s8", suffix=".satfinite"),
    *(Setting(start_a=start, start_b=4096 + start) for start in (32, 64, 96)),
    *(
        Setting(start_a=start, start_b=8192 + start, base_offset=offset)
        for start, offset in ((128, 0), (384, 0), (384, 3), (512 + 32, 0), (512 + 32, 4), (896, 7))
    ),
    Setting(start_a=128, start_b=4096 + 128, swizzle_a=64, swizzle_b=64),
    Setting(start_a=128, start_b=4096 + 128, swizzle_a=32, swizzle_b=32, transpose_a=1, transpose_b=1),
    *(
        Setting(n=16, types=types, exact=False, accumulate=accumulate)
        for types, accumulate in product(ROUNDED, (True, False))
    ),
]


def cases() -> Iterator[Case]:
    yield from map(build, SETTINGS)
