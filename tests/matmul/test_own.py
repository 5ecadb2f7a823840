"""Operands that TMA refuses, loaded by the producer's threads: any strides, types and alignment, without a copy."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.emulator import DEVICE
from cutesync.errors import ArgumentValueError
from cutesync.kernels.matmul.candidates import OWN, PROMOTED_OWN
from cutesync.kernels.matmul.pack_job import PackJob
from cutesync.kernels.matmul.policy import SMEM_BYTES, MatmulPolicy
from cutesync.kernels.matmul.problem import Product, oriented
from cutesync.kernels.matmul.terms import TermsSpec
from cutesync.runtime import device
from cutesync.runtime.device_array import DeviceArray
from cutesync.runtime.view import View

from ..cases import with_slow
from ..faults import RESULT, Bench, Edit, every, first, op
from .mutation_cases import CONSUMERS, OVERLAP, PRODUCER, empty_count
from .support import agrees, few_blocks, integers, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

BOTH = {"load_a": "own", "load_b": "own", "swap_ab": False}
SMALL = MatmulPolicy((64, 64), "pingpong", stages=2, **BOTH)
MORE = {"float32": {"precision": "tf32"}, "int8": {"out_dtype": "int32"}, "float8_e4m3fn": {"out_dtype": "float32"}}
QUICK = {("float16", 0, 1), ("float16", 1, 0), ("int8", 1, 1)}


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("dtype", "of_a", "of_b"),
    [
        pytest.param(dtype, a, b, marks=[] if (dtype, a, b) in QUICK else [pytest.mark.slow])
        for dtype in ("float16", "int8", "float8_e4m3fn", "float32")
        for a in (0, 1)
        for b in (0, 1)
        if dtype == "float16" or (a == b) == (dtype != "float8_e4m3fn")  # each operand along K and along the rows
    ],
)
def test_every_layout_and_type(dtype, of_a, of_b):
    """Ends in M, N and K; rows of any alignment; one launch each."""
    for m, n, k in ((67, 71, 37), (5, 3, 1), (130, 33, 133)):
        a, b = operand(m, k, of_a, dtype), operand(k, n, of_b, dtype)
        with cs.emulate() as ran:
            multiplied(a, b, config=SMALL, what=f"{m}x{n}x{k}", **MORE.get(dtype, {}))
        assert ran.launches == 1, "nothing is packed"


def test_tfloat32_is_rounded_as_tma_rounds():
    """Random bits and borders, infinities and NaN among them, multiplied by 1."""
    bits = np.random.default_rng(2).integers(0, 2**32, 67, np.uint32)
    bits[:9] = 0, 1, 0x3F800FFF, 0x3F801000, 0x3F803000, 0x7F7FEFFF, 0x7F7FF000, 0x7F800000, 0x7FFFFFFF
    values, one = cs.asarray(bits.view(np.float32)[:, None]), np.ones((1, 1), np.float32)
    got = [
        np.asarray(cs.matmul(values, cs.asarray(one), precision="tf32", config=MatmulPolicy(*form)))
        for form in (
            ((64, 16), "pingpong", (1, 1), 0, 0, False, 1, None, False, False, load, load) for load in ("own", "tma")
        )
    ]
    assert np.isnan(got[0][8, 0]) and got[0].tobytes() == got[1].tobytes()


# name: configuration, (M, N, K), which are transposed, blocks that run at a time
KERNELS = {
    "dense": (replace(SMALL, stages=4), (330, 71, 37), (False, True), 1),
    "dense beside TMA": (replace(SMALL, stages=3), (136, 72, 45), (False, False), 1),
    "dense beside vectors": (
        MatmulPolicy((128, 48), "cooperative", stages=3, **BOTH),
        (300, 71, 63),
        (False, False),
        1,
    ),
    "both": (SMALL, (130, 71, 197), (False, True), 1),
    "A beside TMA": (SMALL, (131, 72, 200), (True, True), 1),
    "B beside TMA": (SMALL, (136, 71, 200), (False, False), 2),
    "both by elements": (SMALL, (67, 71, 37), (True, False), 2),
    "words": (replace(SMALL, stages=4), (67, 71, 330), (False, True), 1),
    "pairs beside TMA": (replace(SMALL, stages=4), (67, 72, 332), (False, False), 2),
    "cooperative": (MatmulPolicy((128, 32), "cooperative", stages=3, **BOTH), (140, 71, 133), (False, False), 1),
    "several batches": (MatmulPolicy((128, 64), "pingpong", stages=2, **BOTH), (140, 71, 133), (True, True), 1),
    "cluster split in 3": (MatmulPolicy((64, 32), "pingpong", stages=2, splits=3, **BOTH), (67, 35, 333), (0, 1), 3),
    "split in 9": (MatmulPolicy((64, 16), "pingpong", stages=2, splits=9, **BOTH), (67, 13, 581), (False, True), 5),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", with_slow(KERNELS, set(KERNELS) - {"A beside TMA"}))
def test_agrees_under_hostile_schedules(name, monkeypatch):
    config, (m, n, k), transposed, blocks = KERNELS[name]
    few_blocks(monkeypatch, blocks)
    dtype = "int8" if "elements" in name else "float16"
    with cs.emulate(schedules=9, seed=5) as ran:
        a, b = operand(m, k, transposed[0], dtype), operand(k, n, transposed[1], dtype)
        multiplied(a, b, config=config, what=name, **MORE.get(dtype, {}))
    assert ran.launches == 9, "nothing is packed"


@pytest.mark.drawn(2)
@pytest.mark.parametrize("steps", [(2, 3), (-1, 1), (1, -1), (3, 0)])
def test_any_strides_and_batches(steps):
    """Every second row, every third element, backwards, an element for all; a batch that B does not have."""
    a, b = integers(2, 140, 120), integers(39, 33)
    rows, elements = (slice(None, None, step) if step else slice(0, 1) for step in steps)

    def view(x, broadcast):
        part = x[:, rows, elements][:, :40, :39]
        return part if steps[1] else broadcast(part, (2, 40, 39))

    with cs.emulate() as ran:
        got = cs.matmul(view(cs.asarray(a), lambda x, shape: x.broadcast_to(shape)), cs.asarray(b), config=SMALL)
    agrees(np.asarray(got), view(a, np.broadcast_to), b)
    assert ran.launches == 1


def check_at_edges(dtype: str, rows: int, k: int, pitch: int, skew: int) -> None:
    """A product whose A has its first and last element at the very edges of the memory there is, which begins ``skew``
    bytes behind a vector."""
    size = BY_NAME[dtype].size
    count = (rows - 1) * abs(pitch) + k
    values = integers(count + 32, dtype=dtype)
    memory = np.zeros(count * size + 32, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 16 + skew
    memory[start - memory.ctypes.data :][: count * size] = values[:count].view(np.uint8)
    first = (rows - 1) * -pitch if pitch < 0 else 0
    a = DeviceArray(start + first * size, (rows, k), BY_NAME[dtype], device.HOST, memory, (pitch, 1))
    wanted = np.lib.stride_tricks.as_strided(values[first:], (rows, k), (pitch * size, size))
    b = integers(k, 17, dtype=dtype)
    DEVICE.register(start, count * size, "an operand")
    try:
        for x, y, by in ((a, cs.asarray(b), (wanted, b)), (cs.asarray(b).T, a.T, (b.T, wanted.T))):
            agrees(np.asarray(cs.matmul(x, y, config=SMALL, **MORE.get(dtype, {}))), *by, **MORE.get(dtype, {}))
    finally:
        DEVICE.unregister(start)


EDGES = [(5, 70, 77), (40, 37, -37), (9, 3, 5), (1, 15, 15), (3, 61, 61)]  # rows, k, pitch


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("rows", "k", "pitch", "dtype"),
    [(*case, dtype) for i, dtype in enumerate(("int8", "float16")) for case in (EDGES[i::2] if i else EDGES[:2])],
)
def test_nothing_beside_the_array_is_read(rows, k, pitch, dtype):
    """Rows far apart, backwards, side by side, of less than a vector, and a single one, at two alignments."""
    for skew in (2, 14):
        check_at_edges(dtype, rows, k, pitch, skew)


@pytest.mark.parametrize("extra", [1, 3])
def test_padding_is_not_read_and_nothing_beside_the_result_is_written(extra):
    """Padding is NaN, the result's surroundings are 7."""

    def padded(values, fill):
        whole = np.full((values.shape[0] + 2, values.shape[1] + 2 * extra), fill, values.dtype)
        whole[1:-1, extra:-extra] = values
        array = cs.asarray(whole)
        return array, array[1:-1, extra:-extra]

    a, b = integers(70, 45), integers(45, 67)
    whole, out = padded(np.zeros((70, 67), np.float16), 7)
    cs.matmul(padded(a, np.nan)[1], padded(b, np.nan)[1], out=out, config=SMALL)
    got = np.asarray(whole)
    agrees(got[1:-1, extra:-extra], a, b)
    got[1:-1, extra:-extra] = 7
    assert (got == 7).all(), "something beside the result was written"


# --- the choice ----------------------------------------------------------------------------------------------------


def loads_of(m: int, n: int, k: int, config: MatmulPolicy | None = None, dtype: str = "bfloat16"):
    """How the operands of a product of rows side by side are loaded, and whether they are packed."""
    element = BY_NAME[dtype]

    def view(rows: int, columns: int, *steps: int) -> View:
        return View(1 << 40, (rows, columns), element, device.HOST, False, True, steps)

    product = Product(view(m, k, k, 1), view(k, n, 1, k), None, view(m, n, n, 1), TermsSpec(), (element, element))
    (step,) = oriented(product, config)[1]
    return step.problem.a.load, step.problem.b.load, *(job is not None for job in step.packs)


def test_small_and_thin_products_are_not_packed():
    """A copy costs a launch; the threads' loads cost more than TMA's for every k-tile. Of a short K only the smaller
    operand may be packed."""
    for shape, load in (((100, 100, 100), "pairs"), ((98, 98, 98), "words"), ((33, 4000, 33), "dense")):
        assert loads_of(*shape) == (load, load, False, False)
    assert loads_of(5695, 333, 39)[0] == "dense"
    for shape in ((4095, 4095, 4095), (1023, 2047, 4093)):
        assert loads_of(*shape) == ("tma", "tma", True, True)
    assert loads_of(64, 64, 64) == ("tma", "tma", False, False)
    assert loads_of(100, 100, 100, SMALL) == ("pairs", "pairs", False, False)
    assert loads_of(100, 100, 100, MatmulPolicy((64, 64), "pingpong", (1, 2))) == ("tma", "tma", True, True)
    one = MatmulPolicy((64, 64), "pingpong", load_a="own", load_b="tma", swap_ab=False)
    assert loads_of(100, 100, 100, one) == ("pairs", "tma", False, True)


def test_how_an_operand_is_loaded():
    """16 bits: along whichever of K and the rows is contiguous; others along K, or by elements."""
    ways = {
        (2, 67, 37, (37, 1)): (True, "dense"),
        (2, 67, 37, (63, 1)): (True, "dense"),
        (2, 67, 37, (65, 1)): (True, "vectors"),
        (2, 67, 37, (35, 1)): (True, "vectors"),
        (2, 67, 37, (-37, 1)): (True, "vectors"),
        (2, 67, 37, (1, 67)): (False, "vectors"),
        (2, 67, 1, (1, 5)): (False, "vectors"),
        (2, 67, 37, (74, 2)): (True, "elements"),
        (1, 67, 37, (37, 1)): (True, "dense"),
        (1, 67, 37, (1, 67)): (True, "elements"),
        (4, 67, 1, (3, 7)): (True, "dense"),
    }
    for (size, rows, k, steps), (k_major, load) in ways.items():
        found = PackJob(2, rows, k, (rows * k, *steps), 128 // size).operand(size)
        assert (found.k_major, found.load, found.items) == (k_major, load, 2), (size, steps)
    for grain, load in ((2, "dense"), (4, "words"), (8, "pairs")):
        job = PackJob(1, 67, 36, (0, 36, 1), 64, grain=grain)
        assert (job.operand(2).load, job.operand(4, rounded=True).load) == (load, "vectors")


def test_policies_that_cannot_load():
    for config in (*OWN, *PROMOTED_OWN):
        full = MatmulPolicy(config.tile, config.schedule, promoted=config.promoted, load_a="own").decided(4)
        assert config.can_load_own() and full.smem(4) <= SMEM_BYTES and full.stages >= 4 and not full.deferred
    for change in (
        {"cluster": (2, 1)},
        {"tile": (128, 256)},
        {"tile": (64, 128), "schedule": "pingpong", "promoted": True},
        {"tile": (64, 64), "schedule": "pingpong", "parts": True},
        {"load_a": "threads"},
    ):
        with pytest.raises(ArgumentValueError, match=r"config"):
            MatmulPolicy(**{"load_a": "own"} | change)


# --- planted faults ------------------------------------------------------------------------------------------------

BESIDE, BY_THREADS, BY_ELEMENTS, WORDS, DENSE = "A beside TMA", "both", "both by elements", "words", "dense"


def full_count(change: int) -> Edit:
    """The full barriers, initialised first, expect other arrivals."""
    return first(
        r"mov\.b32 \t%r\d+, (?P<n>\d+);(?=\s+mbarrier\.init)",
        lambda m: m[0].replace(f", {m['n']};", f", {int(m['n']) + change};"),
        before=r"fence\.mbarrier_init",
    )


FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "no proxy fence behind the threads' writes": (
        BESIDE,
        every(op(r"fence\.proxy\.async"), after=PRODUCER, before=CONSUMERS),
        {"proxy"},
    ),
    "the same without TMA": (
        BY_THREADS,
        every(op(r"fence\.proxy\.async"), after=PRODUCER, before=CONSUMERS),
        {"proxy"},
    ),
    "an arrival too many expected": (BESIDE, full_count(+1), {"deadlock"}),
    "the arrival of a warp not waited for": (BESIDE, full_count(-1), {"race", "uninitialised", "barrier"}),
    "the same, both by threads": (BY_THREADS, full_count(-1), {"race", "uninitialised", "barrier"}),
    "arrived before all lanes have written": (
        BY_THREADS,
        every(op(r"bar\.warp\.sync"), after=PRODUCER, before=CONSUMERS),
        {"race"},
    ),
    "written before the stage is empty": (
        BY_THREADS,
        first(r"bra\.uni\s+LAB_WAIT;", after=PRODUCER),
        {"race", "barrier"},
    ),
    "released before the tensor cores have read it": (
        BY_THREADS,
        every(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
        {"race"},
    ),
    "a whole warpgroup's releases not waited for": (BY_ELEMENTS, empty_count(-2), {"race", "barrier"}),
    "fewer bytes of TMA expected": (
        BESIDE,
        every(r"mov\.b32 (\t%r\d+), 8192;(\s+mbarrier\.arrive\.expect)", r"mov.b32 \1, 4096;\2"),
        {"uninitialised", "transaction"},
    ),
    "the launch before not waited for": (BY_THREADS, first(OVERLAP, after=PRODUCER), {"race"}),
    "nothing cut off at the end of K": (
        BY_THREADS,
        every(r"bmsk\.clamp\.b32 (%r\d+), 0, %r\d+;", r"mov.b32 \1, -1;"),
        {RESULT, "uninitialised", "registers"},
    ),
    "bytes not shifted": (
        BY_THREADS,
        every(r"shf\.r\.wrap\.b32 (%r\d+), (%r\d+),[^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "copies not waited for": (
        WORDS,
        every(r"cp\.async\.wait_group \t?\d+;", "cp.async.wait_group 9;", after=PRODUCER),
        {"race", "uninitialised"},
    ),
    "the oldest copies of several not waited for": (
        WORDS,
        every(r"cp\.async\.wait_group \t?2;", "cp.async.wait_group 3;", after=PRODUCER),
        {"race", "uninitialised"},
    ),
    "no proxy fence behind copies": (
        WORDS,
        every(op(r"fence\.proxy\.async"), after=PRODUCER, before=CONSUMERS),
        {"proxy"},
    ),
    "copies not cut off at the end of K": (
        WORDS,
        every(r"(cp\.async\.ca\.shared\.global \[[^,]*, \[[^,]*, 4), %r\d+;", r"\1;"),
        {RESULT, "out-of-bounds"},
    ),
    "the copy of the lines not waited for": (
        DENSE,
        every(op(r"mbarrier\.expect_tx"), after=PRODUCER, before=CONSUMERS),
        {"race", "uninitialised", "barrier", "transaction"},
    ),
    "written before all have read the lines": (
        DENSE,
        every(op(r"barrier\.sync|bar\.sync"), after=PRODUCER, before=CONSUMERS),
        {"race", RESULT},
    ),
    "no proxy fence behind lines that were shifted": (
        DENSE,
        every(op(r"fence\.proxy\.async"), after=PRODUCER, before=CONSUMERS),
        {"proxy"},
    ),
    "lines not cut off at the end of K": (
        DENSE,
        every(r"bmsk\.clamp\.b32 (%r\d+), 0, %r\d+;", r"mov.b32 \1, -1;"),
        {RESULT, "uninitialised"},
    ),
    "aligned vectors outside the memory copied": (
        DENSE,
        every(r"selp\.b32 (\t%r\d+), -16, 0, %p\d+;", r"mov.b32 \1, 0;"),
        {"out-of-bounds"},
    ),
    "not swizzled": (BY_THREADS, every(r"(and\.b32 \t%r\d+, %r\d+), 112;", r"\1, 96;"), {RESULT, "uninitialised"}),
}


@functools.cache
def bench(name: str) -> Bench:
    config, (m, n, k), transposed, blocks = KERNELS[name]
    dtype = "int8" if "elements" in name else "float16"
    a, b = operand(m, k, transposed[0], dtype), operand(k, n, transposed[1], dtype)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=6, seed=4):
            few_blocks(patch, blocks)
            got = cs.matmul(a, b, config=config, **MORE.get(dtype, {}))
        return np.array_equal(got, cs.reference.matmul(a, b, **MORE.get(dtype, {})))

    return Bench(right)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)
