"""Scans agree with the reference: sizes, types, operators, directions, offsets, axes and options."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.scan.policy import Problem, choose

from ..cases import (
    DTYPES,
    adjacent,
    bicyclic,
    brackets,
    check_scan,
    data,
    has_meaning,
    matrices,
    matrix,
    numpy_dtype,
    running,
    same,
    scanned,
    segments,
)
from .kernels import force, pipeline, slabs, wave

OPS = ("add", "mul", "min", "max", "and", "or", "xor")
WAYS = [{}, {"exclusive": True}, {"reverse": True}, {"reverse": True, "exclusive": True}]
INIT = {"init": 3}


def some(place, all_of_them, few):
    """Everything on a GPU. On the emulator a kernel that is not cached must be compiled first, so a few stand for the rest."""
    return few if place.name == "emulator" else all_of_them


SMALL = (1, 2, 3, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1009)
LARGE = (4099, 20011, 65537, 300007, 1299709, 10**7 + 19)


def edges(dtype: str) -> list[int]:
    """Around the tiles of the configurations chosen for long rows: one, two and nine of them."""
    size = numpy_dtype(dtype).itemsize
    tiles = {
        int(np.prod(kernel[-4:-2])) * 512 // size
        for kernel in (("wave", 8, 4, 0, 0), ("wave", 4, 4, 0, 0), ("wave", 8, 16, 0, 0))
    }
    return sorted({k * tile + d for tile in tiles for k in (1, 2, 9) for d in (-1, 0, 1)})


def test_the_quick_reference_is_the_reference():
    """``running`` is what the long arrays below are judged by."""
    for dtype in ("bool", "uint8", "int32", "float16", "float64"):
        for options in (*WAYS, INIT | {"exclusive": True, "axis": 0}, INIT | {"reverse": True, "axis": None}):
            for op in ("add", "max", "mul") if "init" in options else ("add", "mul"):
                x = data((7, 13), dtype, op)
                if not (dtype == "bool" and "init" in options):
                    same(running(x, op, **options), reference.scan(x, op, **options), f"{op} {options}")
    x = matrices((3, 21))
    for options in ({}, {"reverse": True}, {"axis": 0, "dtype": "int64"}):
        same(running(x, matrix, **options), reference.scan(x, matrix, **options))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("reverse", [False, True])
def test_sum_at_every_edge_size(place, dtype, reverse):
    if place.name == "emulator" and dtype not in ("int8", "int64")[reverse:]:
        pytest.skip("left to the GPU")
    for n in place.sizes(sorted({*SMALL, *LARGE, *edges(dtype)})):
        check_scan(data(n, dtype), reverse=reverse)


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
def test_small_tiles_at_every_edge_size(place, dtype, monkeypatch):
    """On every machine: tiles of 64 and 32 vectors, several of them, one element less or more."""
    items = 16 // numpy_dtype(dtype).itemsize
    for choice, tile in ((wave(2, 1), 64 * items), (pipeline(4, 2, 4, 1, 2, 3), 128 * items)):
        force(monkeypatch, choice)
        for n in sorted({k * tile + d for k in (1, 2, 5) for d in (-1, 0, 1)}):
            check_scan(data(n, dtype))


@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_nothing_to_scan(place, dtype):
    for shape, axis in (((0,), -1), ((0,), None), ((3, 0), 1), ((3, 0), 0), ((0, 3), 1), ((2, 0, 4), 2)):
        for options in WAYS:
            check_scan(data(shape, dtype), axis=axis, **options)


@pytest.mark.parametrize(("dtype", "op"), [(d, o) for d in DTYPES for o in OPS if has_meaning(o, d)])
def test_every_operator_on_every_type(place, dtype, op):
    place.covers(dtype)
    if place.name == "emulator" and (
        (dtype in ("bool", "float16") and op != "add") or (dtype == "float64" and op not in ("min", "max"))
    ):
        pytest.skip("left to the GPU")
    for n in place.sizes([37, 1000, 70001]):
        check_scan(data(n, dtype, op), op)


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("op", ["add", "mul", "and", "xor"])
def test_every_way_with_and_without_an_identity(place, op, options):
    if place.name == "emulator" and op != "mul":
        pytest.skip("left to the GPU")
    for shape, axis in (
        ((1000,), -1),
        ((40, 25), 0),
        ((40, 25), 1),
        ((70001,), 0),
        ((300, 4097), 1),
        ((4097, 300), 0),
        ((3, 100_003), 1),
        ((20_000, 64), 1),
    ):
        if np.prod(shape) <= place.largest:
            check_scan(data(shape, "int32", op), op, axis=axis, **options)


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("op", ["min", "max", "add"])
def test_init_comes_first_in_every_way(place, op, options):
    """``min`` and ``max`` have no identity: an exclusive scan needs ``init``."""
    if place.name == "emulator" and (op != "max" or options not in WAYS[::3]):
        pytest.skip("left to the GPU")
    for shape, axis in (((1000,), -1), ((40, 25), 0), ((5, 200), 1), ((70001,), 0), ((4097, 300), 0)):
        if np.prod(shape) <= place.largest:
            check_scan(data(shape, "int16", op), op, axis=axis, init=-7, **options)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool"])
def test_init_may_lie_on_the_device(place, dtype):
    if place.name == "emulator" and dtype != "int8":
        pytest.skip("left to the GPU")
    one, zero = cs.asarray(np.ones(1, numpy_dtype(dtype))), cs.asarray(np.zeros((), numpy_dtype(dtype)))
    for shape, axis, options in (
        ((1000,), -1, {}),
        ((40, 25), 1, {"reverse": True}),
        ((40, 25), 0, {"exclusive": True}),
        ((3, 70001), 1, {"exclusive": True}),
    ):
        if np.prod(shape) <= place.largest:
            x = data(shape, dtype)
            for chosen, value in ((one, 1), (zero, 0)):
                same(
                    cs.scan(cs.asarray(x), axis=axis, init=chosen, **options),
                    scanned(x, axis=axis, init=value, **options),
                    f"{shape} {options} from {value}",
                )


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [40, 1001, 150_001, 7_000_001])
def test_views_that_begin_anywhere(place, dtype, count):
    """Offsets of 0 to 16 elements break every alignment of the vectors; guard bands around the result stay."""
    place.fits(count)
    if place.name == "emulator" and dtype != "float32":
        pytest.skip("left to the GPU")
    x = data(count + 16, dtype)
    whole, band = cs.asarray(x), 32
    for offset in range(17) if count < 10**6 else (0, 1, 5):
        for shift in some(place, {0, 1, offset}, {0, 1} if offset in (0, 4) else {offset % 4}):
            memory = cs.asarray(np.full(count + 16 + 2 * band, 77, numpy_dtype(dtype)))
            out = memory[band + shift : band + shift + count]
            check_scan(x[offset : offset + count], on=whole[offset : offset + count], out=out, reverse=bool(offset & 1))
            around = np.asarray(memory)
            assert (around[: band + shift] == 77).all() and (around[band + shift + count :] == 77).all(), (
                f"offset {offset}, out {shift} off"
            )


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((21, 37), 1),
        ((21, 37), 0),
        ((40, 24), 1),
        ((3, 301), 1),
        ((50_000, 19), 0),
        ((50_000, 19), 1),
        ((7, 90_001), 1),
    ],
    ids=str,
)
def test_guard_bands_around_rows_and_columns(place, shape, axis):
    place.fits(int(np.prod(shape)))
    x, band = data(shape, "float32"), 32
    count = x.size
    whole = cs.asarray(np.concatenate([np.zeros(3, np.float32), x.ravel()]))
    np_whole = np.asarray(whole)
    for offset, shift in ((3, 0), (3, 3), (3, 2)):
        memory = cs.asarray(np.full(count + 2 * band, 77, np.float32))
        out = memory[band + shift : band + shift + count].reshape(*shape)
        check_scan(x, on=whole[offset : offset + count].reshape(*shape), out=out, axis=axis)
        around = np.asarray(memory)
        assert (around[: band + shift] == 77).all() and (around[band + shift + count :] == 77).all()
    same(np.asarray(whole), np_whole, "the input stays")


@pytest.mark.parametrize("dtype", ["int8", "float32", "int64"])
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"exclusive": True}], ids=str)
def test_in_place(place, dtype, options):
    if place.name == "emulator" and (dtype != "float32" or options == {"exclusive": True}):
        pytest.skip("left to the GPU")
    for shape, axis in (
        ((1003,), 0),
        ((30, 36), 1),
        ((30, 35), 0),
        ((200_003,), 0),
        ((300, 5001), 1),
        ((5001, 300), 0),
        ((14_000_003,), 0),
    ):
        if np.prod(shape) <= place.largest:
            x = data(shape, dtype)
            array = cs.asarray(x)
            assert cs.scan(array, axis=axis, out=array, **options) is array
            same(array, scanned(x, axis=axis, **options), f"{shape} along {axis}")


def test_in_place_in_small_tiles(place, monkeypatch):
    """Every kernel for long rows, on every machine, ragged ends included."""
    for choice in (wave(2, 1), pipeline(4, 2, 4, 1, 3, 2)):
        force(monkeypatch, choice)
        for offset in (0, 1):
            x = data(3604, "int32")[offset:]
            whole = cs.asarray(data(3604, "int32"))
            array = whole[offset:]
            cs.scan(array, out=array)
            same(array, scanned(x))


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("int8", "int64"),
        ("uint8", "int32"),
        ("bool", "int32"),
        ("bool", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float64"),
        ("int32", "float64"),
        ("float32", "float16"),
        ("int64", "int16"),
        ("uint16", "uint64"),
    ],
)
def test_dtype_is_the_type_of_the_operation(place, source, result):
    """The base of a wider result may lie anywhere."""
    if place.name == "emulator" and source in ("uint8", "int32", "uint16", "bfloat16"):
        pytest.skip("left to the GPU")
    for shape, axis in some(
        place,
        [((1001,), 0), ((45, 20), 0), ((45, 20), 1), ((300_007,), 0)],
        [((1001,), 0)] if source != "int8" else [((45, 20), 0)],
    ):
        if np.prod(shape) <= place.largest:
            x = np.abs(data(shape, source)) if source.startswith(("float", "bf")) else data(shape, source)
            check_scan(x, axis=axis, dtype=result)
            memory = cs.empty(x.size + 8, result)
            for shift in some(place, (1, 2, 3), (1,) if source in ("int8", "float16") else ()):
                check_scan(
                    x, axis=axis, dtype=result, out=memory[shift : shift + x.size].reshape(*shape), reverse=shift == 3
                )


@pytest.mark.parametrize(
    "shape", [(3, 5), (1, 7), (7, 1), (130, 8), (2, 3, 4), (4, 1, 9), (1, 1, 1), (5, 6, 7, 3), (2, 1, 33, 1)], ids=str
)
def test_every_axis(place, shape):
    if place.name == "emulator" and shape not in ((2, 3, 4), (1, 1, 1)):
        pytest.skip("left to the GPU")
    x = data(shape, "int32")
    for axis in (*range(-len(shape), len(shape)), None):
        check_scan(x, axis=axis)
    check_scan(x, "max", axis=None, reverse=True)


def test_an_array_of_no_dimensions(place):
    for dtype in ("int32", "float16"):
        check_scan(np.array(5, numpy_dtype(dtype)), axis=None)


LONG = [
    (65536, 40),
    (40, 65536),
    (4096, 513),
    (1000, 1000),
    (3, 100_000),
    (100_000, 3),
    (20_000, 16),
    (16, 20_000),
    (300, 2, 300),
    (33, 129, 65),
    (2, 1 << 22),
    (1 << 22, 2),
    (2_200_001, 3),
    (9, 10_001),
]


@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_rows_and_columns(place, shape, dtype):
    place.fits(int(np.prod(shape)))
    x = data(shape, dtype)
    for axis in range(len(shape)):
        check_scan(x, axis=axis)
        check_scan(x, axis=axis, reverse=True, exclusive=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slabs_of_every_type(dtype, on_emulator, monkeypatch):
    """Tiles of 64 rows in groups of two, the last tile not whole."""
    force(monkeypatch, slabs(4, 16, 3, 2, 2))
    x = data((203, 5), dtype)
    check_scan(x, axis=0)
    check_scan(x, axis=0, reverse=True, exclusive=True)
    check_scan(x, axis=0, init=1)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((40, 300_007), 1),
        ((700, 17_001), 1),
        ((9, 1_000_003), 1),
        ((1_500_001, 5), 0),
        ((1_000_003, 16), 0),
        ((400_001, 37), 0),
        ((250_000, 64), 0),
        ((2, 300_002, 24), 1),
    ],
    ids=str,
)
def test_large_arrays_of_odd_rows_and_narrow_ones(shape, axis):
    """Rows of which only the ends are not whole vectors, and columns side by side, both in tiles that stream through shared memory."""
    for dtype in ("int8", "int16", "float32", "int64"):
        x = data(shape, dtype)
        forward, backward = (
            np.cumsum(x, axis, dtype=x.dtype),
            np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis),
        )
        same(cs.scan(cs.asarray(x), axis=axis), forward, dtype)
        same(cs.scan(cs.asarray(x), axis=axis, reverse=True, exclusive=True), backward - x, f"{dtype} in reverse")
    x = segments(shape, axis)
    same(
        cs.scan(cs.asarray(x), adjacent, axis=axis), (x.take([0], axis) & ~0xFFFFFFFF) | (x & 0xFFFFFFFF), "neighbours"
    )


@pytest.mark.parametrize("length", [*range(2, 18), 33, 64, 129])
def test_short_rows_and_few_columns(place, length):
    if place.name == "emulator" and length not in (3, 8):
        pytest.skip("left to the GPU")
    for rows in place.sizes(some(place, [1, 8, 1000 // length], [8])):
        check_scan(data((rows, length), "int32"), axis=1)
        check_scan(data((length, rows), "int32"), axis=0)


@pytest.mark.parametrize(
    ("shape", "dtype", "result"),
    [
        ((2801, 3), "float32", "float32"),
        ((3000, 3), "int8", "int32"),
        ((9001, 4), "uint8", "uint8"),
        ((3, 4000, 2), "int16", "int32"),
        ((2101, 2), "float64", "float64"),
        ((2_100_001, 4), "int32", "int32"),
        ((3, 1_000_000, 3), "float32", "float32"),
        ((7_000_001, 3), "float16", "float16"),
    ],
    ids=str,
)
def test_few_columns_side_by_side(place, shape, dtype, result):
    """Positions of a few elements, whose vectors hold one or several; from an address that is no boundary another kernel does it."""
    if place.name == "emulator" and shape != (2801, 3):
        pytest.skip("left to the GPU")
    x, axis = data(shape, dtype), len(shape) - 2
    check_scan(x, axis=axis, dtype=result)
    check_scan(x, axis=axis, dtype=result, exclusive=True, reverse=True, init=3)
    if place.name == "gpu":
        whole = cs.asarray(np.concatenate([x.ravel()[:1], x.ravel()]))
        check_scan(x, on=whole[1:].reshape(*shape), axis=axis, dtype=result)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("op", "make"),
    [(bicyclic, brackets), (matrix, matrices), (adjacent, segments)],
    ids=["bicyclic", "matrix", "adjacent"],
)
class TestOperatorsThatDoNotCommute:
    @pytest.fixture(autouse=True)
    def _one_on_the_emulator(self, place, op):
        if place.name == "emulator" and op is not adjacent:  # test_schedules.py has the others
            pytest.skip("left to the GPU")

    def test_one_dimension(self, place, op, make, reverse):
        for n in place.sizes([1, 2, 33, 600, 1050, 20_011, 300_007, 5_000_011]):
            check_scan(make(n), op, reverse=reverse)

    def test_rows_and_columns(self, place, op, make, reverse):
        for shape in ((40, 27), (3, 350), (1000, 3), (64, 2048), (4000, 65), (5, 50_001)):
            if shape[0] * shape[1] <= place.largest:
                for axis in (0, 1):
                    x = segments(shape, axis) if op is adjacent else make(shape)
                    check_scan(x, op, axis=axis, reverse=reverse)

    def test_exclusive_from_a_first_operand(self, place, op, make, reverse):
        """It comes before the lowest index, in reverse after the highest."""
        for n in place.sizes([5, 600, 300_007]):
            x = make(n + 1)
            start, rest = (x[-1], x[:-1]) if reverse else (x[0], x[1:])
            check_scan(rest, op, reverse=reverse, exclusive=True, init=int(start))


def test_the_operator_sees_every_operand_once_in_order(place):
    """What ``adjacent`` makes of n elements, written down without any scan."""
    for n in place.sizes([1, 500, 300_007]):
        inclusive = np.asarray(cs.scan(cs.asarray(segments(n)), adjacent))
        same(inclusive, np.int64(1 << 32) | np.arange(2, n + 2))
        reverse = np.asarray(cs.scan(cs.asarray(segments(n)), adjacent, reverse=True))
        same(reverse, (np.arange(1, n + 1) << 32) | np.int64(n + 1))


def test_a_lambda_equals_the_named_operator(place):
    for dtype in some(place, ("int32", "float32", "uint8"), ("uint8",)):
        for n in place.sizes([37, 1000, 70_001]):
            x = cs.asarray(data(n, dtype))
            same(cs.scan(x, lambda a, b: a + b), cs.scan(x, "add"))


def test_an_identity_is_only_the_first_result(place):
    """It is no operand where there are elements before: of an exclusive scan it is what the first fold begins with."""
    x = np.arange(1, 40, dtype=np.int32)
    same(cs.scan(cs.asarray(x), lambda a, b: a + b, identity=100), np.cumsum(x, dtype=np.int32))
    same(cs.scan(cs.asarray(x), lambda a, b: a + b, identity=0, exclusive=True), np.cumsum(x, dtype=np.int32) - x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float32"])
def test_numpys_names_follow_numpys_promotion(place, name, dtype):
    if place.name == "emulator" and dtype != "bool":
        pytest.skip("left to the GPU")
    x = data((21, 50), dtype, "add" if name == "cumsum" else "mul")
    for axis in (None, 0, 1):
        actual = getattr(cs, name)(cs.asarray(x), axis=axis)
        same(actual, getattr(reference, name)(x, axis=axis), f"{name} axis={axis}")
        assert np.asarray(actual).dtype == getattr(np, name)(x, axis=axis).dtype


def test_numpy_in_numpy_out():
    x = np.arange(100, dtype=np.int64).reshape(4, 25)
    with cs.emulate():
        result = cs.cumsum(x, axis=1)
        assert type(result) is np.ndarray and np.array_equal(result, np.cumsum(x, 1))
        out = np.empty_like(x)
        assert cs.cumsum(x, axis=1, out=out) is out and np.array_equal(out, result)
        assert cs.cumsum(x, axis=1, out=x) is x and np.array_equal(x, result)


def test_random_shapes(place):
    rng = np.random.default_rng(7)
    for _ in range(some(place, 40, 2)):
        shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 5)))
        check_scan(data(shape, "float32"), axis=int(rng.integers(len(shape))), reverse=bool(rng.integers(2)))


def test_every_kernel_is_among_the_shapes_above():
    """Otherwise they would say less than they seem to."""
    shapes = (
        [(1, n, 1) for n in (*SMALL, *LARGE)]
        + [(s[0], s[1], 1) for s in LONG]
        + [(1, *s[:2]) for s in LONG]
        + [(21, 37, 1), (3, 350, 1)]
    )
    kinds = {choose(Problem(*shape, 4, 4, 0, 0)).policy.kernel for shape in shapes}
    assert kinds == {"ShortRowScan", "RowScan", "WaveScan", "ColumnScan", "SlabScan", "PipelineScan"}
