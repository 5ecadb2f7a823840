"""``cp.async.bulk.tensor``: types, ranks, edges, swizzles, strides and fills, both ways, and reductions into global
memory.
"""

from collections.abc import Iterator
from itertools import product, starmap

import numpy as np

from cutesync.emulator.im2col import Im2colMap
from cutesync.emulator.instructions.arithmetic import operation
from cutesync.emulator.tensor_map import ELEMENT_BYTES, ELEMENTS, TensorMap

from .case import HEADER, Case, MapOf, integers, stream

REGION = 1 << 14
POISON = 0xA5
COORDINATES = tuple(f"c{d}" for d in range(5))

HEAD = """.extern .shared .align 1024 .b8 image[];
.visible .entry litmus(.param .align 64 .b8 map[128], .param .u64 in_data, \
.param .u64 c0, .param .u64 c1, .param .u64 c2, .param .u64 c3, .param .u64 c4,
 .param .u64 offset, .param .u64 bytes, .param .u64 out)
{
.reg .b64 p0, p1, p2, m; .reg .b32 i, t0, t1, t2, bar, place, count, \
x0, x1, x2, x3, x4, w0, w1, w2, w3; .reg .pred p, q;
mov.u64 m, map; cvta.param.u64 m, m;
mov.u32 i, %tid.x; mov.u32 t0, image; ld.param.u64 p0, [offset]; cvt.u32.u64 t1, p0; add.u32 place, t0, t1;
ld.param.u64 p0, [bytes]; cvt.u32.u64 count, p0;
"""


def read_coordinates() -> str:
    return "".join(f"ld.param.u64 p0, [{c}]; cvt.u32.u64 x{d}, p0;\n" for d, c in enumerate(COORDINATES))


def coordinates(rank: int) -> str:
    return "{" + ", ".join(f"x{d}" for d in range(rank)) + "}"


def load_kernel(rank: int, mode: str = "tile", offsets: str = "") -> str:
    """Poisons shared memory, loads one box at image + offset, and copies the whole image out; a copy that never
    completes leaves 1. The barrier follows the image."""
    return "\n".join(
        [
            HEADER,
            HEAD,
            f"add.u32 bar, t0, {REGION};",
            read_coordinates(),
            f"shl.b32 t1, i, 4; mov.b32 w0, {POISON * 0x01010101};",
            "FILL:",
            "add.u32 t2, t0, t1; st.shared.v4.b32 [t2], {w0, w0, w0, w0}; add.u32 t1, t1, 2048;",
            f"setp.lt.u32 p, t1, {REGION};",
            "@p bra FILL;",
            "setp.eq.u32 q, i, 0;",
            "@q mbarrier.init.shared::cta.b64 [bar], 1;",
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async.shared::cta;",
            "bar.sync 0;",
            "@!q bra WAIT;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], count;",
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [place], [m, "
            f"{coordinates(rank)}], [bar]{offsets};",
            "WAIT:",
            "mov.u32 t1, 0;",
            "AGAIN:",
            "mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;",
            "@p bra DONE;",
            "add.u32 t1, t1, 1;",
            "setp.lt.u32 p, t1, 2000;",
            "@p bra AGAIN;",
            "DONE:",
            "setp.ge.u32 p, t1, 2000;",
            "selp.b32 w3, 1, 0, p;",
            "bar.sync 0;",
            "ld.param.u64 p0, [out];",
            "shl.b32 t1, i, 4;",
            "COPY:",
            "add.u32 t2, t0, t1; ld.shared.v4.b32 {w0, w1, w2, x0}, [t2]; cvt.u64.u32 p1, t1; add.u64 p1, p0, p1; "
            "st.global.v4.b32 [p1], {w0, w1, w2, x0};",
            "add.u32 t1, t1, 2048;",
            f"setp.lt.u32 p, t1, {REGION};",
            "@p bra COPY;",
            f"@q st.global.b32 [p0+{REGION}], w3;",
            "ret;\n}\n",
        ]
    )


def store_kernel(rank: int, reduction: str = "") -> str:
    """Fills shared memory from the data, then stores one box (or reduces it) into the tensor, which is the output."""
    operation_name = (
        f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduction}.tile"
        if reduction
        else f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile"
    )
    return "\n".join(
        [
            HEADER,
            HEAD,
            read_coordinates(),
            "ld.param.u64 p0, [in_data];",
            "shl.b32 t1, i, 4;",
            "COPY:",
            "cvt.u64.u32 p1, t1; add.u64 p1, p0, p1; ld.global.v4.b32 {w0, w1, w2, w3}, [p1]; add.u32 t2, t0, t1; "
            "st.shared.v4.b32 [t2], {w0, w1, w2, w3};",
            "add.u32 t1, t1, 2048;",
            f"setp.lt.u32 p, t1, {REGION};",
            "@p bra COPY;",
            "fence.proxy.async.shared::cta;",
            "bar.sync 0;",
            "setp.ne.u32 q, i, 0;",
            "@q ret;",
            f"{operation_name}.bulk_group [m, {coordinates(rank)}], [place];",
            "cp.async.bulk.commit_group;",
            "cp.async.bulk.wait_group 0;",
            "ret;\n}\n",
        ]
    )


def tensor_map(element: str, extents: tuple[int, ...], box: tuple[int, ...], **fields) -> TensorMap:
    """A compact tensor with every stride rounded up to 16 bytes, one row of slack."""
    pitch, strides = extents[0] * ELEMENT_BYTES[element], []
    for extent in extents[1:]:
        pitch = -(-pitch // 16) * 16 + (16 if not strides else 0)
        strides.append(pitch)
        pitch *= extent
    return TensorMap(element, 0, extents, tuple(strides), box, **fields)


def total_bytes(m: TensorMap | Im2colMap) -> int:
    sizes = (m.element_bytes, *m.strides)
    return -(-sum(e * s for e, s in zip(m.extents, sizes)) // 16) * 16 + 64


def coordinate_arguments(at: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(c & 0xFFFFFFFF for c in (*at, *(0,) * (5 - len(at))))


def load_case(
    name: str,
    m: TensorMap | Im2colMap,
    at: tuple[int, ...],
    offset: int = 0,
    taps: tuple[int, ...] = (),
    faults: bool = False,
) -> Case:
    data = stream(name, total_bytes(m) // 8).view(np.uint8)
    column = isinstance(m, Im2colMap)

    def judge() -> np.ndarray:
        copy = m.transfer(at, offset, taps) if column else m.transfer(at, offset)
        image = np.full(REGION + 16, POISON, np.uint8)
        image[REGION:] = 0
        byte = np.arange(copy.element_bytes)
        value = np.tile(
            np.frombuffer(int(copy.fill).to_bytes(8, "little"), np.uint8)[: copy.element_bytes],
            (copy.in_bounds.size, 1),
        )
        held = data[copy.global_addresses[copy.in_bounds][:, None] + byte]
        value[copy.in_bounds] = m.loaded(held.reshape(-1)).reshape(held.shape)
        image[copy.shared_addresses[:, None] + byte] = value
        return image

    expect = (m.pixels * m.channels if column else int(np.prod(m.tile))) * m.element_bytes
    arguments = (MapOf(1, m), data, *coordinate_arguments(at), offset, expect, np.zeros(REGION + 16, np.uint8))
    text = load_kernel(m.rank, "im2col", f", {{{', '.join(map(str, taps))}}}") if column else load_kernel(m.rank)
    return Case(
        f"tensor.load.{name}",
        text,
        arguments,
        9,
        None if faults else judge,
        block=128,
        shared_bytes=REGION + 16,
        faults=faults,
    )


def store_case(
    name: str, m: TensorMap, at: tuple[int, ...], offset: int = 0, reduction: str = "", faults: bool = False
) -> Case:
    data, before = stream(name, REGION // 8).view(np.uint8), np.full(total_bytes(m), POISON, np.uint8)
    if reduction:
        real = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "u32": np.uint32}.get(m.element, np.uint16)
        real = np.uint32 if name.endswith("subnormal") else real
        data, before = (
            integers(f"{name}/{part}", 0, 200, (size // m.element_bytes,)).astype(real).view(np.uint8)
            for part, size in (("data", REGION), ("before", total_bytes(m)))
        )

    def judge() -> np.ndarray:
        copy = m.transfer(at, offset, store=True)
        after, byte = before.copy(), np.arange(copy.element_bytes)
        places = copy.global_addresses[copy.in_bounds][:, None] + byte
        value = data[copy.shared_addresses[copy.in_bounds][:, None] + byte]
        if reduction:
            raw = {2: np.uint16, 4: np.uint32}[copy.element_bytes]
            old, new = (np.ascontiguousarray(v).view(raw)[:, 0] for v in (after[places], value))
            value = _reduced(m.element, reduction, old, new).astype(raw)[:, None].view(np.uint8)
        after[places] = value
        return after

    arguments = (MapOf(9, m), data, *coordinate_arguments(at), offset, 0, before)
    return Case(
        f"tensor.{'reduce.' + reduction if reduction else 'store'}.{name}",
        store_kernel(m.rank, reduction),
        arguments,
        9,
        None if faults else judge,
        block=128,
        shared_bytes=REGION,
        faults=faults,
    )


def _reduced(element: str, reduction: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    if element[0] in "su":
        signed = (lambda v: v.view(np.int32)) if element[0] == "s" else (lambda v: v)
        return {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "xor": np.bitwise_xor}[
            reduction
        ](signed(old), signed(new))
    return operation(f"{reduction}.{element}")(old, new)


def step_of(element: str) -> int:
    """Boxes start at multiples of 16 bytes."""
    return 16 // ELEMENT_BYTES[element]


def two_rows(element: str, **fields) -> TensorMap:
    return tensor_map(element, (50, 30), (64 // ELEMENT_BYTES[element], 8), **fields)


def swizzled(element: str, swizzle: int, extents: tuple[int, int], rows: int) -> TensorMap:
    """Boxes as wide as the swizzle."""
    return tensor_map(element, extents, (swizzle // ELEMENT_BYTES[element], rows), swizzle=swizzle)


def load_cases() -> Iterator[tuple]:
    """Arguments of ``load_case``."""
    line, swizzles = tensor_map("f32", (120,), (32,)), (32, 64, 128)
    yield from ((f"1d.f32.{start}", line, (start,)) for start in (0, 40, -8, 100, 200, -40))
    for element in ELEMENTS:
        m, step = two_rows(element), step_of(element)
        places = {"inside": (step, 5), "corner": (48, 26), "before": (-step, -2)}
        yield from ((f"2d.{element}.{name}", m, at) for name, at in places.items())
    for swizzle, element in product(swizzles, ("u8", "bf16", "f32", "f64")):
        m, step = swizzled(element, swizzle, (300, 40), 20), step_of(element)
        yield f"swizzle{swizzle}.{element}", m, (48, 9)
        yield f"swizzle{swizzle}.{element}.edge", m, ((300 - m.box[0] // 2) // step * step, 30), 2048
    yield from (
        (f"swizzle{swizzle}.at{offset}", swizzled("f16", swizzle, (100, 40), 24), (0, 0), offset)
        for swizzle, offset in product(swizzles, (128, 384, 896))
    )
    yield from (
        (f"swizzle{swizzle}.narrow{inner}", tensor_map("u8", (300, 40), (inner, 16), swizzle=swizzle), (0, 0))
        for swizzle, inner in ((64, 32), (128, 32), (128, 64), (128, 96), (64, 48))
    )
    yield from (
        (f"steps{steps[0]}{steps[1]}.{at[0]}.{at[1]}", tensor_map("f32", (60, 60), (16, 20), element_strides=steps), at)
        for steps, at in (((1, 2), (0, 0)), ((1, 3), (4, 4)), ((1, 2), (4, -3)), ((2, 2), (0, 0)), ((1, 8), (0, 7)))
    )
    yield from (
        (f"nan.{element}", two_rows(element, nan_fill=True), (48, 26))
        for element in ("f16", "bf16", "f32", "f64", "tf32")
    )
    yield from (
        ("3d.edges", tensor_map("f16", (40, 7, 9), (16, 4, 5)), (32, -2, 6)),
        ("3d.swizzled", tensor_map("bf16", (100, 9, 5), (64, 8, 3), swizzle=128), (-8, 4, 3), 1024),
        ("4d.edges", tensor_map("u32", (20, 5, 4, 6), (8, 3, 2, 4)), (16, 3, -1, 4)),
        ("5d.edges", tensor_map("f32", (20, 5, 4, 3, 6), (8, 3, 2, 2, 3)), (16, -1, 3, 2, 4)),
        ("5d.swizzled", tensor_map("f16", (40, 5, 4, 3, 6), (32, 3, 2, 2, 3), swizzle=64), (8, -1, 3, 2, 4)),
        ("small.tensor", tensor_map("f16", (5, 3), (16, 8)), (0, 0)),
        ("wide.box", tensor_map("u8", (400, 60), (256, 50)), (48, 20)),
        ("steps.3d", tensor_map("f16", (40, 20, 20), (16, 7, 9), element_strides=(1, 2, 4)), (8, 2, 3)),
        ("1d.f32.-5", line, (-5,), 0, (), True),
        ("2d.u8.3", tensor_map("u8", (50, 30), (64, 8)), (3, 5), 0, (), True),
    )


def image(element: str, extents: tuple[int, ...], *box: tuple[int, ...] | int, **fields) -> Im2colMap:
    """A compact tensor; ``box``: lower and upper corner, channels, pixels."""
    sizes = np.cumprod((ELEMENT_BYTES[element], *extents[:-1]))[1:]
    return Im2colMap(element, 0, extents, tuple(int(s) for s in sizes), *box, **fields)


PLAIN = image("f16", (32, 11, 4), (-1,), (-1,), 16, 30)
SQUARE = image("bf16", (64, 11, 9, 3), (-1, -1), (-1, -1), 64, 64, swizzle=128)
STEPPED = image("f16", (32, 14, 12, 3), (-2, -1), (-3, 0), 32, 60, element_strides=(1, 2, 3, 1), swizzle=64)
VOLUME = image("f32", (16, 6, 5, 4, 3), (-1, 0, -1), (-1, -1, 0), 8, 100, swizzle=32)
FILLED = image("f16", (16, 6, 5, 2), (-2, -2), (1, 1), 16, 64, nan_fill=True)
# columns that start inside a row, wrap around the box and on to the next image, with steps and taps
IM2COL = (
    ("im2col.3d", PLAIN, (0, 5, 1), 0, (2,)),
    ("im2col.3d.channels", PLAIN, (24, -1, 0), 0, (0,)),
    ("im2col.4d", SQUARE, (0, 3, 2, 0), 1024, (1, 0)),
    ("im2col.4d.next", SQUARE, (0, 7, 5, 1), 0, (2, 2)),
    ("im2col.4d.steps", STEPPED, (0, 0, 2, 0), 0, (3, 1)),
    ("im2col.4d.odd", STEPPED, (0, 1, -1, 1), 0, (0, 0)),
    ("im2col.5d", VOLUME, (8, 2, 1, 0, 0), 0, (1, 1, 0)),
    ("im2col.nan", FILLED, (0, -2, -2, 0), 0, (0, 1)),
)
REDUCTIONS = {
    "f32": ("add",),
    "f16": ("add", "min", "max"),
    "bf16": ("add",),
    "s32": ("add", "min", "max", "xor"),
    "u32": ("add", "and"),
}


def store_cases() -> Iterator[tuple]:
    """Arguments of ``store_case``."""
    small = {element: tensor_map(element, (50, 30), (16, 8)) for element in REDUCTIONS}
    for element in ("u8", "f16", "f32", "f64", "tf32", "f32_ftz"):
        m = two_rows(element)
        yield f"2d.{element}.corner", m, (48, 26)
        yield f"2d.{element}.inside", m, (step_of(element), 5), 256
    for swizzle in (32, 64, 128):
        m = swizzled("bf16", swizzle, (300, 40), 20)
        yield f"swizzle{swizzle}", m, (48, 9)
        yield f"swizzle{swizzle}.at384", m, (288, 30), 384
    yield from (
        ("1d", tensor_map("f32", (120,), (32,)), (100,)),
        ("3d", tensor_map("f16", (40, 7, 9), (16, 4, 5)), (32, 5, 6)),
        ("4d", tensor_map("u32", (20, 5, 4, 6), (8, 3, 2, 4)), (16, 3, 3, 4)),
        ("5d", tensor_map("f32", (20, 5, 4, 3, 6), (8, 3, 2, 2, 3)), (16, 3, 3, 2, 4)),
        ("steps", tensor_map("f32", (60, 60), (16, 20), element_strides=(1, 3)), (4, 4)),
        ("f32.subnormal", small["f32"], (48, 26), 0, "add"),
    )
    # unlike a load, a store may not start before the tensor
    yield from ((f"2d.f32.{x}.{y}", small["f32"], (x, y), 0, "", True) for x, y in ((3, 5), (-4, 5), (4, -5)))
    yield from (
        (element, small[element], (48, 26), 0, reduction)
        for element, reductions in REDUCTIONS.items()
        for reduction in reductions
    )


def cases() -> Iterator[Case]:
    yield from starmap(load_case, (*load_cases(), *IM2COL))
    yield from starmap(store_case, store_cases())
