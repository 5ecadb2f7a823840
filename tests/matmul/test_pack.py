"""Packing: operands of any strides become rows of whole cache lines, float32 the terms of 3xTF32; the memory is the
stream's."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.emulator import DEVICE
from cutesync.kernels.matmul import MatmulPolicy
from cutesync.kernels.matmul.pack_job import PackJob
from cutesync.kernels.matmul.pack_plan import make_pack
from cutesync.runtime import device, device_array, emulated, workspace

from ..cases import SCHEDULES
from ..faults import RESULT, Bench, every, only, op
from .support import SMALL, agrees, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

CONFIG = MatmulPolicy(*SMALL, load_a="tma", load_b="tma")


def packed(
    x: np.ndarray, first: int, shape: tuple[int, int, int], strides: tuple[int, int, int], side: str = ""
) -> np.ndarray:
    """What the kernel makes of ``shape`` = (items, rows, inner) of the elements of ``x`` from ``first`` on, and 64
    bytes after it."""
    element, (items, rows, inner) = BY_NAME[x.dtype.name], shape
    unit = 128 // x.itemsize
    job = PackJob(items, rows, inner, strides, -(-inner // unit) * unit, side)
    held, out = cs.asarray(x), cs.asarray(np.full(job.elements + 64 // x.itemsize, 77, x.dtype))
    make_pack(job, element, device.HOST, 0).run((held.ptr + first * x.itemsize, out.ptr), 0)
    whole = np.asarray(out)
    assert (whole[job.elements :] == 77).all(), "something behind the copy was written"
    return whole[: job.elements].reshape(items, rows, 3 if side else 1, job.span)


@pytest.mark.drawn(12)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("items", "rows", "inner", "first"), [(1, 70, 300, 3), (2, 33, 31, 1), (1, 1, 129, 0), (3, 40, 1, 5)]
)
def test_any_strides(items, rows, inner, first, transposed, size):
    """Several tiles each way with ragged ends, from a base of any alignment; zeros behind each row."""
    strides = (rows * inner + 7, 1, rows + 2) if transposed else (rows * (inner + 3), inner + 3, 1)
    x = (
        np.random.default_rng(size)
        .integers(1, 100, 2 + first + sum(s * e for s, e in zip(strides, (items, rows, inner))))
        .astype(f"uint{8 * size}")
    )
    wanted = np.lib.stride_tricks.as_strided(x[first:], (items, rows, inner), [s * size for s in strides])
    with cs.emulate(schedules=SCHEDULES if items == 2 else 1):
        got = packed(x, first, (items, rows, inner), strides)[:, :, 0]
    assert np.array_equal(got[:, :, :inner], wanted) and not got[:, :, inner:].any()


def check_at_edges(size: int, rows: int, inner: int, pitch: int, skew: int, schedules: int = 1) -> None:
    """The copy of rows whose first and last elements are at the very edges of the memory there is, which begins
    ``skew`` bytes behind a vector."""
    count = (rows - 1) * abs(pitch) + inner
    memory = np.random.default_rng(skew).integers(1, 256, count * size + 32).astype(np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 16 + skew
    x = memory[start - memory.ctypes.data :][: count * size].view(f"uint{8 * size}")
    job = PackJob(1, rows, inner, (0, pitch, 1), -(-inner * size // 128) * 128 // size)
    out = cs.asarray(np.full(job.elements, 77, x.dtype))
    first = (rows - 1) * -pitch if pitch < 0 else 0
    DEVICE.register(start, count * size, "an operand")
    try:
        with cs.emulate(schedules=schedules):
            make_pack(job, BY_NAME[x.dtype.name], device.HOST, 0).run((start + first * size, out.ptr), 0)
    finally:
        DEVICE.unregister(start)
    wanted = np.lib.stride_tricks.as_strided(x[first:], (rows, inner), (pitch * size, size))
    got = np.asarray(out).reshape(rows, job.span)
    assert np.array_equal(got[:, :inner], wanted), "other elements"
    assert not got[:, inner:].any(), "no zeros behind a row"


@pytest.mark.drawn(16)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    ("rows", "inner", "pitch"),
    [
        (5, 301, 333),
        (5, 301, -333),
        (4, 301, 301),
        (2, 1101, 1103),  # in bytes, two runs and more of elements of 4, or of all
        (3, 301, 0),
        (4, 301, 7),
        (150, 3, 5),
        (40, 37, -37),
        (1, 1, 1),
        (1, 15, 15),
        (1, 2500, 2500),
    ],
)
def test_nothing_beside_the_array_is_read(rows, inner, pitch, size):
    """Rows that begin anywhere in a vector: far apart, backwards, side by side, in one another; of less than a vector,
    and a single one."""
    for skew in range(0, 16, size):
        check_at_edges(size, rows, inner, pitch, skew, schedules=SCHEDULES if skew == 8 and inner == 301 else 1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_parts_of_float32(side):
    """Of random bits and all borders: the parts hold the number to 2**-22, big ones fit in 11 bits, infinities and NaN
    are in the last alone."""
    borders = np.uint32(
        [
            0,
            1,
            0x7FFFFF,
            0x800000,
            0x3F800FFF,
            0x3F801000,
            0x3F801001,
            0x3F803000,
            0x7F7FEFFF,
            0x7F7FF000,
            0x7F7FFFFF,
            0x7F800000,
            0x7FC00000,
            0x7F800001,
        ]
    )
    bits = np.concatenate(
        [borders, borders | np.uint32(1 << 31), np.random.default_rng(2).integers(0, 2**32, 1000, np.uint32)]
    )
    x = bits.view(np.float32)
    parts = packed(np.append(np.uint32([7] * 3), bits), 3, (1, 1, len(bits)), (0, len(bits), 1), side)[
        0, 0, :, : len(bits)
    ].view(np.float32)
    small, bounded, big = parts if side == "left" else parts[[1, 0, 2]]
    finite = np.isfinite(x)
    assert (
        np.array_equal(big[~finite], x[~finite], equal_nan=True)
        and not bounded[~finite].any()
        and not small[~finite].any()
    )
    assert np.array_equal(bounded[finite], big[finite]) and not (big[finite].view(np.uint32) & 0x1FFF).any()
    exact = big[finite].astype(np.float64) + small[finite]
    assert (np.abs(exact - x[finite]) <= np.abs(x[finite].astype(np.float64)) * 2.0**-22).all()
    usual = finite & (np.abs(x) < 3.4e38)
    assert (np.abs(small[usual]) <= np.abs(x[usual]) * 2.0**-11 + 2.0**-149).all() or (
        np.abs(x[usual]) < 2.0**-126
    ).any()


@pytest.mark.parametrize(("dtype", "transposed"), [("int8", (False, False)), ("float8_e5m2", (True, True))])
def test_eight_bits_of_all_majors(dtype, transposed):
    a, b = operand(80, 48, transposed[0], dtype), operand(48, 96, transposed[1], dtype)
    out = "int32" if dtype == "int8" else "float32"
    multiplied(a, b, out_dtype=out, config=CONFIG)


def test_packing_takes_no_memory_of_its_own(monkeypatch):
    """So that it may be captured in a graph: with arrays that exist, nothing is allocated, and the workspace is the
    stream's."""
    a, b = operand(65, 37, False), operand(37, 67, False)
    in_a, in_b, out = cs.asarray(a), cs.asarray(b), cs.empty((65, 67), "float16")
    cs.matmul(in_a, in_b, out=out, config=CONFIG)
    held = dict(workspace._by_stream)
    monkeypatch.setattr(device_array, "allocate", None)
    assert cs.matmul(in_a, in_b, out=out, config=CONFIG) is out
    agrees(np.asarray(out), a, b)
    assert workspace._by_stream == held


def test_scratch_grows_and_is_given_back():
    base = workspace.scratch(device.HOST, 91, 100).addresses
    held = len(emulated._workspaces)
    assert workspace.scratch(device.HOST, 91, 1 << 21).addresses == base, "2 MiB at least"
    larger = workspace.scratch(device.HOST, 91, (1 << 21) + 1)
    assert len(emulated._workspaces) == held and larger.addresses[0] in emulated._workspaces, "one for the other"
    assert workspace.scratch(device.HOST, 92, 100) is not larger and len(emulated._workspaces) == held + 1, (
        "another stream's"
    )


EDGES = r"or\.pred (\t%p\d+), (%p\d+), (%p\d+);"
ROWS = {
    "mask": (every(r"bmsk\.clamp\.b32 (%r\d+), 0, %r\d+;", r"mov.b32 \1, -1;"), {RESULT}),
    "vector behind": (every(r"(ld\.global\.v4[^\n]*)\+16\]", r"\1]"), {RESULT}),
    "shift": (every(r"shf\.r\.wrap\.b32 (%r\d+), (%r\d+),[^;]*;", r"mov.b32 \1, \2;"), {RESULT}),
    "end of memory": (every(EDGES, r"mov.pred \1, \2;"), {"out-of-bounds"}),
    "begin of memory": (every(EDGES, r"mov.pred \1, \3;"), {"out-of-bounds"}),
}


def test_a_tile_read_before_it_is_whole_is_found():
    """The fault: the only barrier of the kernel is removed."""
    bench = Bench(lambda: packed(np.ones(33 * 33, np.uint16), 0, (1, 33, 33), (0, 1, 33)).size)
    bench.check(only(op(r"bar\.sync")), {"uninitialised", "race"})


@pytest.mark.parametrize("fault", ROWS)
def test_faults_of_rows_are_found(fault):
    Bench(lambda: check_at_edges(2, 9, 301, 301, 6) is None).check(*ROWS[fault])
