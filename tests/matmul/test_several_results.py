"""Epilogues with a second array: activations of two values, results before the activation, the largest magnitude."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import FLOAT8, element_type
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.kernels.matmul import MatmulPolicy, tune
from cutesync.kernels.matmul.plan import Problem
from cutesync.runtime import call
from cutesync.runtime.emulated import EMULATOR

from ..cases import with_slow
from ..faults import RESULT, Bench, each, every, op
from .support import SMALL, few_blocks, integers, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

CONFIG = MatmulPolicy(*SMALL)
BOTH = {"pre_activation": True, "amax": True}


def gate(v, c):
    return v * c - 2.0


def same(got, a, b, c=None, **terms) -> None:
    """Every result is the reference's, in its type."""
    wanted = cs.reference.matmul(*(None if x is None else np.asarray(x) for x in (a, b, c)), **terms)
    several = isinstance(wanted, tuple)
    assert isinstance(got, tuple) == several
    for x, y in zip(got, wanted, strict=True) if several else ((got, wanted),):
        x = np.asarray(x)
        assert x.shape == y.shape and x.dtype == y.dtype
        assert np.array_equal(x.astype(np.float64), y.astype(np.float64), equal_nan=True)


def agree(a, b, c=None, config=CONFIG, **terms) -> None:
    same(cs.matmul(a, b, c, config=config, **terms), a, b, c, **terms)


# --- the second value of an activation -------------------------------------------------------------------------------


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "dtype",
    with_slow(["float32", "bfloat16", *list(FLOAT8)[:1], "uint8", "int32", "bool"], {"bfloat16", "int32"}),
)
def test_the_second_value_has_a_type_of_its_own(dtype):
    """Every bit pattern of 8 bits, infinities and NaN included."""
    a, b = integers(40, 24), integers(24, 72)
    kind = np.dtype(bool) if dtype == "bool" else element_type(dtype).numpy
    c = np.arange(40 * 72).reshape(40, 72)
    if dtype == "bool":
        c = c % 3 == 0
    else:
        c = c.astype(np.uint8).view(kind) if kind.itemsize == 1 else (c - 999).astype(kind)
    agree(a, b, c, activation=lambda v, c: v + c, out_dtype="float32")


@pytest.mark.slow
def test_forms_of_the_second_value():
    """Broadcast, strided, the result itself; a plain function that has a default is one of one value."""
    a, b, c = integers(3, 70, 40), integers(3, 40, 72), integers(3, 70, 72, seed=2)
    for second in (c, c[0], c[:, :1], c[0, 0], c[:1, :, ::-1].copy()[..., ::-1]):
        agree(a, b, second, activation=gate, bias=integers(72), alpha=0.5)
    place = cs.asarray(c)
    cs.matmul(cs.asarray(a), cs.asarray(b), place, activation=gate, out=place, config=CONFIG)
    same(place, a, b, c, activation=gate)
    agree(a[0], b[0], c[0], activation=lambda v, scale=2.0: v * scale)


@pytest.mark.parametrize(
    ("c", "options", "error", "words"),
    [
        (None, {"activation": gate}, ArgumentValueError, "broadcasts to the result"),
        (integers(4, 8), {"activation": gate, "beta": 1.0}, ArgumentValueError, "second value"),
        (integers(4, 8), {"activation": gate, "beta": 0}, ArgumentValueError, "second value"),
        (integers(5, 8), {"activation": gate}, ArgumentValueError, "broadcasts to (4, 8)"),
        (np.zeros((4, 8)), {"activation": gate}, ArgumentTypeError, "bool"),
        (np.zeros((4, 8), bool), {}, ArgumentTypeError, "activation of two values"),
        (np.zeros((4, 8), np.int16), {"activation": gate}, ArgumentTypeError, "uint8"),
        (None, {"out_dtype": ("float16", "float32")}, ArgumentTypeError, "pre_activation=True"),
        (None, {"out_dtype": ("float16",), **BOTH}, ArgumentTypeError, "a pair of types"),
        (None, {"out_dtype": ("float16", "int8"), **BOTH}, ArgumentTypeError, "float8_e5m2"),
        (None, {"pre_activation": "yes"}, ArgumentTypeError, "True or False"),
        (None, {"amax": np.zeros((), np.float32)}, ArgumentTypeError, "True or False"),
        (None, {"out": np.zeros((4, 8), np.float16), **BOTH}, ArgumentTypeError, "a tuple of 3 arrays"),
        (None, {"out": (np.zeros((4, 8), np.float16), [0]), "amax": True}, DeviceError, "NumPy"),
        (
            None,
            {"out": (np.zeros((4, 8), np.float16), np.zeros(1, np.float32)), "amax": True},
            ArgumentValueError,
            "shape ()",
        ),
        (
            None,
            {"out": (np.zeros((4, 8), np.float16), np.zeros((4, 8), np.float32)), "pre_activation": True},
            ArgumentTypeError,
            "float16",
        ),
        (
            None,
            {"config": MatmulPolicy((128, 64), "cooperative", deferred=True), "pre_activation": True},
            ArgumentValueError,
            "deferred",
        ),
    ],
)
def test_refusals(c, options, error, words):
    with pytest.raises(error) as refused:
        cs.matmul(integers(4, 6), integers(6, 8), c, **options)
    assert words in str(refused.value)


def test_int32_stands_alone():
    a, b = integers(4, 6, dtype="int8"), integers(6, 8, dtype="int8")
    for option in BOTH:
        with pytest.raises(ArgumentValueError, match="out_dtype='?float32'?|'float32'"):
            cs.matmul(a, b, **{option: True})
    agree(a, b, **BOTH, out_dtype="uint8")


def test_results_that_overlap_are_refused():
    """Each result has memory of its own: neither of the other, nor of an input that is read."""
    whole = cs.asarray(integers(40, 8))
    a, b, y, z = whole[:8], whole[8:16], whole[16:24], whole[24:32]
    options = {"pre_activation": True, "activation": "relu", "config": CONFIG}
    for out, c, words in (
        ((y, whole[20:28]), None, "two arrays that overlap"),
        ((y, y), None, "two arrays that overlap"),
        ((y, whole[4:12]), None, "overlaps a;"),
        ((whole[12:20], z), None, "overlaps b;"),
        ((y, z), y, "overlaps c;"),
        ((y, z), z, "overlaps c;"),
    ):
        with pytest.raises(ArgumentValueError, match=words):
            cs.matmul(a, b, c, out=out, **options)
    assert cs.matmul(a, b, z, beta=0.0, out=(y, z), **options) == (y, z), "a C that is not read"


# --- several results -------------------------------------------------------------------------------------------------

KERNELS = {
    "pingpong": MatmulPolicy((64, 64), "pingpong", stages=2),
    "cooperative, multicast": MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2),
    "turnstile": MatmulPolicy((64, 64), "pingpong", (1, 2), stages=2, splits=5),
    "cluster split": MatmulPolicy((128, 64), "cooperative", (1, 2), stages=2, splits=3),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("out", "pre", "columns"),
    [
        ("float16", "float32", 80),
        ("float32", "float8_e4m3fn", 72),
        ("float16", "float32", 67),
    ],
)
def test_types_of_both_results(out, pre, columns, monkeypatch):
    """80 columns are stored by TMA, 67 by threads. With 72 the rows of 8 bits are no multiples of 16 bytes: threads
    store them beside TMA."""
    few_blocks(monkeypatch, 2)
    bias = integers(columns)
    agree(integers(136, 40), integers(40, columns), activation="relu", bias=bias, out_dtype=(out, pre), **BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    """Tiles that end beside the result in both directions; each of the three results under every schedule."""
    few_blocks(monkeypatch, 6)
    a, b, c = operand(140, 200, False), operand(200, 72, True), integers(140, 72, dtype="int8", seed=3)
    with cs.emulate(schedules=3, seed=4):
        agree(a, b, c, config=KERNELS[name], activation=gate, out_dtype=("bfloat16", "float32"), **BOTH)


@pytest.mark.parametrize("out", ["float16", "float8_e4m3fn"])
def test_the_largest_magnitude_alone(out, monkeypatch):
    """Results of 16 bits have a deferred epilogue. Outside the result the activation is 100, within it is less."""
    few_blocks(monkeypatch, 2)
    a, b = np.abs(integers(200, 72)) + np.float16(1), np.abs(integers(72, 72)) + np.float16(1)
    config = MatmulPolicy((128, 64), "cooperative")
    agree(a, b, config=config, activation=lambda v: 100.0 - v * 0.125, amax=True, out_dtype=out)


@pytest.mark.parametrize(("m", "n"), [(1, 40), (200, 5)])
def test_few_rows_and_columns(m, n):
    """Computed as their transposes where rows are few, whose C and second result are transposed, too."""
    agree(integers(m, 40), integers(40, n), integers(m, n, seed=2), None, activation=gate, out_dtype="float32", **BOTH)


@pytest.mark.slow
def test_vectors_batches_and_empty_results():
    for a, b in (((5,), (5,)), ((2, 1, 20, 32), (3, 32, 72)), ((3, 0), (0, 8)), ((0, 3), (3, 8)), ((2, 3, 0), (0, 9))):
        agree(integers(*a), integers(*b), activation=lambda v: v * v + 1.0, **BOTH)


def test_results_of_any_strides():
    """One result by columns, the other by rows, with room between its elements; nothing beside them is written."""
    a, b, c = (cs.asarray(x) for x in (integers(72, 40), integers(40, 136), integers(72, 136, seed=1)))
    by_columns, spread = cs.asarray(np.zeros((136, 72), np.float16)), cs.asarray(np.full((72, 136, 2), 7, np.float32))
    largest = cs.asarray(np.float32(1e9))
    out = (by_columns.T, spread[..., 0], largest)
    for _ in range(2):  # the largest magnitude is that of this call
        cs.matmul(a, b, c, activation=gate, out=out, out_dtype=("float16", "float32"), config=CONFIG, **BOTH)
        stored = np.asarray(by_columns).T, np.asarray(spread)[..., 0], np.asarray(largest)
        same(stored, a, b, c, activation=gate, out_dtype=("float16", "float32"), **BOTH)
    assert (np.asarray(spread)[..., 1] == 7).all()


def test_arrays_of_numpy_are_written_and_returned():
    a, b = integers(40, 24), integers(24, 72)
    out = np.empty((40, 72), np.float16), np.empty((40, 72), np.float16), np.empty((), np.float32)
    got = cs.matmul(a, b, activation="relu", out=out, config=CONFIG, **BOTH)
    assert all(x is y for x, y in zip(got, out, strict=True))
    same(got, a, b, activation="relu", **BOTH)


def test_the_largest_magnitude_of_special_values():
    """NaN is the largest. An infinity is the largest but for NaN, also where it is stored as a finite float8."""
    a, b = integers(70, 8), np.ones((8, 72), np.float16)
    for value in (np.inf, np.nan):
        a[3, 4] = value
        got, largest = cs.matmul(a, b, out_dtype="float8_e4m3fn", amax=True, config=CONFIG)
        assert largest.dtype == np.float32 and largest.shape == ()
        assert np.array_equal(largest, value, equal_nan=True)
        assert np.array_equal(got[3].astype(np.float32), np.full(72, min(value, 448.0)), equal_nan=True)


@pytest.mark.slow
def test_precisions_and_scales():
    """Three products of float32, sums of float8 that are promoted, integers: the terms come before what is stored."""
    for dtype in ("float32", "float8_e4m3fn", "int8"):
        a, b = integers(66, 40, dtype=dtype), integers(40, 80, dtype=dtype)
        scales = {"scale_a": np.full((66, 1), 0.5, np.float32), "scale_b": 0.25}
        agree(a, b, integers(66, 80, dtype="float8_e5m2"), activation=gate, out_dtype="float32", **scales, **BOTH)


def test_measuring_writes_no_result(monkeypatch):
    """Every candidate is launched, into results of its own, before the call."""
    ran = []
    candidates = [MatmulPolicy(*SMALL, group=group) for group in (1, 2)]
    monkeypatch.setattr(Problem, "shortlist", lambda self, count=1: candidates[:count])
    monkeypatch.setattr(tune, "_answers", {})
    monkeypatch.setattr(tune.cache, "recall", lambda key: None)
    monkeypatch.setattr(tune.cache, "note", lambda key, value: None)
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(EMULATOR, "can_time", lambda stream: True)
    a, b = integers(100, 72), integers(72, 80)
    kinds = ((100, 80), np.float16), ((100, 80), np.float16), ((), np.float32)
    out = tuple(cs.asarray(np.full(shape, 7, kind)) for shape, kind in kinds)

    def measure(runs, ordinal, stream):
        for run in runs:
            run()
        ran.append(len(runs))
        assert all((np.asarray(x) == 7).all() for x in out)
        return [1.0, 2.0]

    monkeypatch.setattr(tune, "measure", measure)
    options = {"activation": "relu", **BOTH}
    same(cs.matmul(cs.asarray(a), cs.asarray(b), out=out, config="tune", **options), a, b, **options)
    same(cs.matmul(a, b, config="tune", **options), a, b, **options)
    assert ran == [2], "one problem, measured once"


# --- faults ----------------------------------------------------------------------------------------------------------


def _bench(columns: int) -> Bench:
    """Two results, in elements of 2 and of 4 bytes, several sub-tiles each; each magnitude may be the largest."""
    a, b = operand(70, 72, False), operand(72, columns, True)
    options = {"activation": "relu", "out_dtype": ("float16", "float32"), **BOTH}

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=4, seed=4):
            few_blocks(patch, 1)
            found = cs.matmul(a, b, config=MatmulPolicy((64, 64), "pingpong", stages=2), **options)
        return all(np.array_equal(x, y) for x, y in zip(found, cs.reference.matmul(a, b, **options), strict=True))

    return Bench(right, skip="cutesync_matmul_zero")


SECOND = {
    "one sub-tile not stored": (each(op(r"cp\.async\.bulk\.tensor\.3d\.global")), {RESULT}),
    "a buffer stored before all threads have filled it": (each(op(r"bar\.sync \t%r\d+, 128")), {"race"}),
    "a buffer stored without a proxy fence": (each(op(r"fence\.proxy\.async")), {"proxy"}),
    "a buffer filled while TMA reads it": (every(op(r"cp\.async\.bulk\.wait_group\.read")), {"race", "barrier"}),
    "no largest magnitude": (every(op(r"(atom|red)\.[^\n]*max")), {RESULT}),
    "the largest magnitude of one lane": (
        every(r"redux\.sync\.max\.s32 (\s*%r\d+), (%r\d+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
}


@pytest.mark.slow
def test_planted_faults_are_found():
    bench = _bench(72)
    for name, (edit, kinds) in SECOND.items():
        found = bench.finds(edit)
        assert set(found) <= kinds, f"{name}: found {found}, expected {kinds}"


@pytest.mark.slow
def test_a_buffer_filled_while_tma_reads_it_beside_plain_stores():
    """The narrower result is stored by threads, the wider one by TMA."""
    _bench(68).check(every(op(r"cp\.async\.bulk\.wait_group\.read")), {"race", "barrier"})


@pytest.mark.slow
def test_a_magnitude_that_is_not_cleared():
    """The launch before the product stores 0; without it what was there counts."""
    a, b = cs.asarray(integers(40, 24)), cs.asarray(integers(24, 72))

    def right() -> bool:
        out = cs.asarray(np.zeros((40, 72), np.float16)), cs.asarray(np.float32(1e9))
        cs.matmul(a, b, amax=True, out=out, config=CONFIG)
        return np.asarray(out[1]) == cs.reference.matmul(np.asarray(a), np.asarray(b), amax=True)[1]

    bench = Bench(right)
    (zero,) = [text for text in bench.texts if "cutesync_matmul_zero" in text]
    for instruction, kind in ((r"st\.global", RESULT), (r"griddepcontrol\.wait", "race")):
        (changed,) = every(op(instruction))(zero)
        assert bench.judge(zero, changed) == kind
