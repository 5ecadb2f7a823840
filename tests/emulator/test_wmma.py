"""``wmma``: products of all shapes and types against NumPy, from and to all kinds of memory."""

import numpy as np
import pytest

from cutesync import emulator
from cutesync.errors import CutesyncError

from .support import kernel_text, reported

WIDE = ("m16n16k16", "m8n32k16", "m32n8k16")
REGISTERS = {  # of A, B and C for each shape
    "f16": dict.fromkeys(WIDE, (8, 8, None)),
    "bf16": dict(zip(WIDE, ((4, 4, 8), (2, 8, 8), (8, 2, 8)))),
    "s8": dict(zip(WIDE, ((2, 2, 8), (1, 4, 8), (4, 1, 8)))),
    "u8": dict(zip(WIDE, ((2, 2, 8), (1, 4, 8), (4, 1, 8)))),
    "tf32": {"m16n16k8": (4, 4, 8)},
    "f64": {"m8n8k4": (1, 1, 2)},
}
SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "s8": ("s32",), "u8": ("s32",), "tf32": ("f32",), "f64": ("f64",)}
DTYPES = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "s32": np.int32, "f64": np.float64}
DTYPES |= {"s8": np.int8, "u8": np.uint8, "bf16": np.uint16}
CASES = [(kind, shape, total) for kind, shapes in REGISTERS.items() for shape in shapes for total in SUMS[kind]]


def vector(first: int, count: int, kind: str) -> str:
    letter = "%rd" if kind == "f64" else "%r"
    return "{" + ", ".join(f"{letter}{first + i}" for i in range(count)) + "}"


def product(kind: str, shape: str, total: str, layouts: str, strides, space: str = ".global") -> str:
    """D = A * B + C, each an array of its own. A and B are staged in shared memory if they are read from there."""
    a, b, c = REGISTERS[kind][shape]
    c = c or {"f16": 4, "f32": 8}[total]
    places, staged = ["%a1", "%a2"], ""
    if space == ".shared":
        places = ["%r60", "%r61"]
        staged = "mov.u32 %r60, smem;\nadd.u32 %r61, %r60, 4096;\nmov.u32 %r62, %tid.x;\nmul.wide.u32 %rd20, %r62, 4;\n"
        for source, target in zip(("%a1", "%a2"), places):
            for i in range(0, 2048, 128):
                staged += f"add.u64 %rd21, {source}, %rd20;\nld.global.b32 %r63, [%rd21+{i}];\n"
                staged += f"mad.lo.u32 %r59, %r62, 4, {target};\nst.shared.b32 [%r59+{i}], %r63;\n"
        staged += "SYNC\n"
    inputs = "" if kind == "f16" else f".{kind}.{kind}"
    whole = f"{total}{inputs}.{total}"
    strides = [f", {stride}" if stride else "" for stride in strides]
    one, two, three = layouts.split(".")
    rounding = ".rn" if kind == "f64" else ""
    d = vector(25 if kind == "f64" else 31, c, kind)
    return f"""{staged}
    wmma.load.a.sync.aligned.{one}.{shape}{space}.{kind} {vector(1, a, kind)}, [{places[0]}]{strides[0]};
    wmma.load.b.sync.aligned.{two}.{shape}{space}.{kind} {vector(11, b, kind)}, [{places[1]}]{strides[1]};
    wmma.load.c.sync.aligned.{three}.{shape}.global.{total} {vector(21, c, kind)}, [%a3]{strides[2]};
    wmma.mma.sync.aligned.{one}.{two}.{shape}{rounding}.{whole} {d}, {vector(1, a, kind)}, {vector(11, b, kind)},
        {vector(21, c, kind)};
    wmma.store.d.sync.aligned.{three}.{shape}.global.{total} [%a0], {d}{strides[2]};"""


def numbers(rng, shape: tuple[int, int], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Values, and the array that holds them."""
    values = rng.integers(0 if kind == "u8" else -4, 5, shape)
    if kind == "bf16":
        return values, (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values, values.astype(DTYPES[kind])


def placed(rng, values: np.ndarray, by_rows: bool, padding: int) -> tuple[np.ndarray, int]:
    """The matrix in memory with that layout, and its stride in elements."""
    lines = values if by_rows else values.T
    held = np.zeros((lines.shape[0], lines.shape[1] + padding), values.dtype)
    held[:, : lines.shape[1]] = lines
    room = np.zeros(max(held.size, 4096), values.dtype)
    room[: held.size] = held.reshape(-1)
    return room, held.shape[1]


def run(kind: str, shape: str, total: str, layouts: str, seed: int, space: str = ".global", edit=lambda text: text):
    """What the kernel leaves, and what NumPy computes."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(word) for word in shape[1:].replace("n", " ").replace("k", " ").split())
    padding = 0 if seed % 2 else 16
    values, arrays, strides = [], [], []
    for (rows, columns), name, layout in zip(((m, k), (k, n), (m, n)), (kind, kind, total), layouts.split(".")):
        value, held = numbers(rng, (rows, columns), name)
        room, stride = placed(rng, held, layout == "row", padding)
        values.append(value)
        arrays.append(room)
        strides.append(stride if padding else 0)
    out = np.zeros_like(arrays[2])
    text = product(kind, shape, total, layouts, strides, space).replace("SYNC", "bar.warp.sync -1;")
    emulator.check_ptx(kernel_text(edit(text), 4, shared=8192), None, 1, 32, [out, *arrays], schedules=2)
    by_rows = layouts.endswith("row")
    lines, stride = ((m, n) if by_rows else (n, m)), strides[2] or (n if by_rows else m)
    found = np.lib.stride_tricks.as_strided(out, lines, (stride * out.itemsize, out.itemsize))
    return (found if by_rows else found.T), values[0] @ values[1] + values[2]


@pytest.mark.parametrize(("kind", "shape", "total"), CASES)
@pytest.mark.parametrize("layouts", ("row.col.row", "col.row.col"))
def test_products(kind, shape, total, layouts):
    for seed in (0, 1):
        found, wanted = run(kind, shape, total, layouts, seed)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ("f16", "tf32"))
def test_operands_in_shared_memory(kind):
    shape = next(iter(REGISTERS[kind]))
    found, wanted = run(kind, shape, "f32", "row.row.row", 3, ".shared")
    assert np.array_equal(found, wanted)
    found, wanted = run(kind, shape, "f32", "row.row.row", 2, "")  # generic addresses
    assert np.array_equal(found, wanted)
    how = kind, shape, "f32", "row.row.row", 3, ".shared"
    reported("race", "wmma.load.a", run, *how, lambda text: text.replace("bar.warp", "// "))


def test_integers_saturate():
    body = """
    wmma.load.a.sync.aligned.row.m16n16k16.global.u8 {%r1, %r2}, [%a1];
    wmma.load.c.sync.aligned.row.m16n16k16.global.s32 {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10}, [%a2];
    wmma.mma.sync.aligned.row.col.m16n16k16.satfinite.s32.u8.u8.s32 {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10},
        {%r1, %r2}, {%r1, %r2}, {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10};
    wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%a0], {%r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10};"""
    big = np.iinfo(np.int32).max
    for text, wanted in ((body, big), (body.replace(".satfinite", ""), big + 16 - (1 << 32))):
        out = np.zeros(256, np.int32)
        arrays = [out, np.ones(256, np.uint8), np.full(256, big, np.int32)]
        emulator.check_ptx(kernel_text(text, 3), None, 1, 32, arrays, schedules=1)
        assert (out == wanted).all()


@pytest.mark.parametrize(
    "text",
    (
        "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r1, %r2}, [%a0];",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%r1, %r2}, [%a0];",
        "wmma.load.a.sync.aligned.row.m8n8k32.global.u4 %r1, [%a0];",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.f16.f32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, "
        "{%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4};",
    ),
)
def test_other_forms_are_refused(text):
    with pytest.raises(CutesyncError, match="wmma"):
        emulator.check_ptx(kernel_text(text, 1), None, 1, 32, [np.zeros(512, np.float32)])
