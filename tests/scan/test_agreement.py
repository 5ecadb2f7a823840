"""Scans agree with the reference: sizes, types, operators, directions and options."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.scan.policy import choose
from cutesync.kernels.scan.problem import Problem

from ..cases import (
    DTYPES,
    adjacent,
    bicyclic,
    brackets,
    check_scan,
    data,
    everywhere,
    has_meaning,
    matrices,
    matrix,
    numpy_dtype,
    places,
    running,
    same,
    scanned,
    segments,
)
from .kernels import LARGE, LONG, SMALL, force, pipeline, wave

OPS = ("add", "mul", "min", "max", "and", "or", "xor")
WAYS = [{}, {"exclusive": True}, {"reverse": True}, {"reverse": True, "exclusive": True}]
INIT = {"init": 3}


def edges(dtype: str) -> list[int]:
    """Around the tiles of the configurations chosen for long rows: one, two and nine of them."""
    size = numpy_dtype(dtype).itemsize
    tiles = {vectors * 512 // size for vectors in (16, 32, 128)}
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


@everywhere(
    "dtype, reverse",
    product(["int8", "float16", "float32", "int64"], [False, True]),
    emulator=lambda dtype, reverse: dtype == ("int8", "int64")[reverse],
)
def test_sum_at_every_edge_size(place, dtype, reverse):
    for n in place.sizes(sorted({*SMALL, *LARGE, *edges(dtype)})):
        check_scan(data(n, dtype), reverse=reverse)


@everywhere("dtype", ["int8", "float32", "float64"], emulator=lambda dtype: dtype == "int8")
def test_small_tiles_at_every_edge_size(place, dtype, monkeypatch):
    """On every machine: tiles of 64 and 32 vectors, several of them, one element less or more."""
    items = 16 // numpy_dtype(dtype).itemsize
    for choice, tile in ((wave(2, 1), 64 * items), (pipeline(4, 2, 4, 1, 2, 3), 128 * items)):
        force(monkeypatch, choice)
        for n in sorted({k * tile + d for k in (1, 2, 5) for d in (-1, 0, 1)}):
            check_scan(data(n, dtype))


EMPTY = [((0,), -1), ((0,), None), ((3, 0), 1), ((3, 0), 0), ((0, 3), 1), ((2, 0, 4), 2)]  # shapes and axes


@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_nothing_to_scan(place, dtype):
    for (shape, axis), options in product(EMPTY, WAYS):
        check_scan(data(shape, dtype), axis=axis, **options)


STAND_FOR_ALL = {"bool": ("add",), "int8": OPS, "float16": ("add",), "float64": ("max",)}


FULL = ("bool", "int8", "uint16", "float32", "int64")  # on a GPU every operator; of other types two


@pytest.mark.drawn(5)
@everywhere(
    "dtype, op",
    [(d, o) for d in DTYPES for o in OPS if has_meaning(o, d) and (d in FULL or o in ("add", "max"))],
    emulator=lambda dtype, op: op in STAND_FOR_ALL.get(dtype, ()),
)
def test_every_operator_on_every_type(place, dtype, op):
    for n in place.sizes([37, 1000, 70001]):
        check_scan(data(n, dtype, op), op)


@everywhere("op, options", product(["add", "mul", "and", "xor"], WAYS), emulator=lambda op, options: op == "mul")
def test_every_way_with_and_without_an_identity(place, op, options):
    tall, wide = [(40, 25), (4097, 300)], [(40, 25), (300, 4097), (3, 100_003), (20_000, 64)]
    for axis, shapes in place.some(((-1, [(1000,), (70001,)]), (0, tall), (1, wide)), first=len(options)):
        for shape in place.sizes(shapes):
            check_scan(data(shape, "int32", op), op, axis=axis, **options)


@everywhere(
    "op, options",
    product(["min", "max", "add"], WAYS),
    emulator=lambda op, options: op == "max" and options in WAYS[::3],
)
def test_init_comes_first_in_every_way(place, op, options):
    """``min`` and ``max`` have no identity: an exclusive scan needs ``init``."""
    for axis, shapes in ((-1, [(1000,), (5, 200), (70001,)]), (0, [(40, 25), (4097, 300)])):
        for shape in place.sizes(shapes):
            check_scan(data(shape, "int16", op), op, axis=axis, init=-7, **options)


@everywhere("dtype", ["int8", "float16", "float32", "float64", "bool"], emulator=lambda dtype: dtype == "int8")
def test_init_may_lie_on_the_device(place, dtype):
    one, zero = cs.asarray(np.ones(1, numpy_dtype(dtype))), cs.asarray(np.zeros((), numpy_dtype(dtype)))
    ways = {
        (1000,): {},
        (40, 25): {"reverse": True},
        (25, 40): {"exclusive": True, "axis": 0},
        (3, 70001): {"exclusive": True},
    }
    for shape in place.sizes(ways):
        x = data(shape, dtype)
        for chosen, value in ((one, 1), (zero, 0)):
            wanted = scanned(x, init=value, **ways[shape])
            same(cs.scan(cs.asarray(x), init=chosen, **ways[shape]), wanted, f"{shape} from {value}")


TYPES = [
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
]
# the shapes and axes, and how many elements the base of the result is shifted by
ON_A_GPU = [((1001,), 0, (1, 2, 3)), ((45, 20), 0, (1, 2, 3)), ((45, 20), 1, (1, 2, 3)), ((300_007,), 0, (1, 2, 3))]
ON_THE_EMULATOR = {
    "int8": ((45, 20), 0, (1,)),
    "float16": ((1001,), 0, (1,)),
    **dict.fromkeys(("float32", "int64"), ((1001,), 0, ())),
}


@places(
    "source, result, shape, axis, shifts",
    gpu=[(*types, *case) for i, types in enumerate(TYPES) for case in ON_A_GPU[i % 2 :: 2]],
    emulator=[(*types, *ON_THE_EMULATOR[types[0]]) for types in TYPES if types[0] in ON_THE_EMULATOR],
)
def test_dtype_is_the_type_of_the_operation(place, source, result, shape, axis, shifts):
    """The base of a wider result may lie anywhere."""
    x = np.abs(data(shape, source)) if source.startswith(("float", "bf")) else data(shape, source)
    check_scan(x, axis=axis, dtype=result)
    memory = cs.empty(x.size + 8, result)
    for shift in shifts:
        check_scan(x, axis=axis, dtype=result, out=memory[shift : shift + x.size].reshape(*shape), reverse=shift == 3)


GRIDS = [(40, 27), (3, 350), (1000, 3), (64, 2048), (4000, 65), (5, 50_001)]


@everywhere(
    "op, make, reverse",
    [
        (op, make, reverse)
        for op, make in ((bicyclic, brackets), (matrix, matrices), (adjacent, segments))
        for reverse in (False, True)
    ],
    emulator=lambda op, make, reverse: op is adjacent,  # test_schedules.py has the others
)
class TestOperatorsThatDoNotCommute:
    def test_one_dimension(self, place, op, make, reverse):
        for n in place.sizes([1, 2, 33, 600, 1050, 20_011, 300_007, 5_000_011]):
            check_scan(make(n), op, reverse=reverse)

    def test_rows_and_columns(self, place, op, make, reverse):
        for shape, axis in product(place.sizes(GRIDS), (0, 1)):
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
        same(np.asarray(cs.scan(cs.asarray(segments(n)), adjacent)), np.int64(1 << 32) | np.arange(2, n + 2))
        reverse = np.asarray(cs.scan(cs.asarray(segments(n)), adjacent, reverse=True))
        same(reverse, (np.arange(1, n + 1) << 32) | np.int64(n + 1))


@everywhere("dtype", ["int32", "float32", "uint8"], emulator=lambda dtype: dtype == "uint8")
def test_a_lambda_equals_the_named_operator(place, dtype):
    for n in place.sizes([37, 1000, 70_001]):
        x = cs.asarray(data(n, dtype))
        same(cs.scan(x, lambda a, b: a + b), cs.scan(x, "add"))


def test_an_identity_is_only_the_first_result(place):
    """It is no operand where elements come before: an exclusive scan starts with it."""
    x = np.arange(1, 40, dtype=np.int32)
    same(cs.scan(cs.asarray(x), lambda a, b: a + b, identity=100), np.cumsum(x, dtype=np.int32))
    same(cs.scan(cs.asarray(x), lambda a, b: a + b, identity=0, exclusive=True), np.cumsum(x, dtype=np.int32) - x)


@everywhere(
    "name, dtype",
    product(["cumsum", "cumprod"], ["bool", "int8", "uint16", "float32"]),
    emulator=lambda name, dtype: dtype == "bool",
)
def test_numpys_names_follow_numpys_promotion(place, name, dtype):
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


def test_every_kernel_is_among_the_shapes():
    """Otherwise they would say less than they seem to."""
    shapes = [(1, n, 1) for n in (*SMALL, *LARGE)] + [(s[0], s[1], 1) for s in LONG] + [(1, *s[:2]) for s in LONG]
    shapes += [(21, 37, 1), (3, 350, 1), (300, 7, 5)]
    kinds = {choose(Problem(*shape, (4,), (4,), (0,), (0,))).policy.kernel.rpartition(":")[2] for shape in shapes}
    assert kinds == {
        "ShortRowScan",
        "RowScan",
        "WaveScan",
        "ColumnScan",
        "ColumnTileScan",
        "ColumnClusterScan",
        "NarrowScan",
        "PipelineScan",
        "SliceScan",
        "SingleScan",
    }
