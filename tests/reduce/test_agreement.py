"""Reductions agree with the reference: sizes, types, operators, offsets, axes and options."""

from itertools import combinations, product

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference

from ..cases import (
    DTYPES,
    NAMES,
    STAND_FOR_ALL,
    bicyclic,
    brackets,
    check,
    data,
    everywhere,
    fits,
    fold,
    has_meaning,
    numpy_dtype,
    places,
    same,
)

# around a vector (16 bytes), a short row (512 bytes), a chunk of a warp (2 KiB), a block's share, and primes
BYTES = [1, *(b + d for b in (16, 32, 128, 512, 2048, 8192) for d in (-1, 0, 1)), 65536, 262144, 2**20]
COUNTS = (1, 2, 3, 31, 32, 33, 127, 128, 129, 1009, 4099, 20011, 65537, 300007, 1299709)


@everywhere("dtype", ["int8", "float16", "float32", "int64"], emulator=lambda dtype: dtype == "int8")
def test_sum_at_every_edge_size(place, dtype):
    size = numpy_dtype(dtype).itemsize
    edges = {b // size + d for b in BYTES for d in (-1, 0, 1)} | set(COUNTS)
    for n in place.sizes(sorted(n for n in edges if n > 0)):
        check(data(n, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_sum_of_ten_million_and_nineteen(dtype):
    check(data(10**7 + 19, dtype))


FULL = ("bool", "int8", "uint16", "float32", "int64")  # on a GPU every operator; of other types two


@pytest.mark.drawn(6)
@everywhere(
    "dtype, op",
    [(d, o) for d in DTYPES for o in NAMES if has_meaning(o, d) and (d in FULL or o in ("add", "max"))],
    emulator=lambda dtype, op: dtype == "int8" or (dtype in STAND_FOR_ALL and op == "add"),
)
def test_every_operator_on_every_type(place, dtype, op):
    for n in place.sizes([37, 2500, 70001]):
        check(data(n, dtype, op), op)


@pytest.mark.drawn(4)
@everywhere("op, dtype", product(["any", "all"], STAND_FOR_ALL))
def test_one_element_decides(place, op, dtype):
    """A single deviating element at any place turns the answer."""
    for n in place.sizes([1, 37, 2500, 70001]):
        for at in {0, n // 2, n - 1}:
            x = np.full(n, op == "all").astype(numpy_dtype(dtype))
            x[at] = 1 - x[at]
            check(x, op)


@everywhere(
    "dtype, count",
    product(["int8", "bfloat16", "float32", "float64"], [40, 3001, 150001]),
    emulator=lambda dtype, count: fits(count),
)
def test_views_that_begin_anywhere(place, dtype, count):
    """Offsets of 1 to 15 elements break every alignment of the vector loads."""
    x = data(count + 15, dtype)
    whole = cs.asarray(x)
    for offset in range(16):
        check(x[offset : offset + count], on=whole[offset : offset + count])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_rows_that_begin_anywhere(dtype):
    """Rows of odd length have a different alignment each."""
    for shape in ((50, 37), (21, 133), (7, 301), (5, 4099)):
        x = data(shape, dtype)
        check(x, axis=1)
        check(x, "max", axis=1)


SHAPES = [
    (3, 5),
    (1, 7),
    (7, 1),
    (130, 70),
    (2, 3, 4),
    (4, 1, 9),
    (1, 1, 1),
    (5, 6, 7, 3),
    (2, 1, 33, 1),
    (3, 0),
    (0, 3),
    (2, 0, 4),
]


@pytest.mark.drawn(6)
@everywhere("shape", SHAPES, emulator=fits)
def test_every_combination_of_axes(place, shape):
    x = data(shape, "int32")
    for count in range(len(shape) + 1):
        for axes in place.some(combinations(range(len(shape)), count)):
            check(x, axis=axes)
            check(x, axis=axes, keepdims=True)
    for axis in range(-len(shape), 0):
        check(x, axis=axis)


def test_a_scalar_array_is_its_own_sum(place):
    for dtype in ("int32", "float16"):
        check(np.array(5, numpy_dtype(dtype)))


LONG = [
    (65536, 40),
    (40, 65536),
    (4096, 513),
    (1000, 1000),
    (3, 100000),
    (100000, 3),
    (20000, 16),
    (16, 20000),
    (300, 2, 300),
    (33, 129, 65),
]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_rows_and_columns(shape, dtype):
    x = data(shape, dtype)
    for axis in range(len(shape)):
        check(x, axis=axis)


@pytest.mark.drawn(2)
@everywhere("columns", (2, 3, 4, 5, 7, 8, 13, 16, 17), emulator=lambda columns: columns in (2, 13, 17))
def test_few_columns(place, columns):
    """Arrays of few columns have kernels of their own: each width, reduced down and across."""
    for rows in place.sizes([1, 2, 33, 150, 5000]):
        x = data((rows, columns), "float32")
        check(x, axis=0)
        if rows == 150:
            check(x, axis=1)


@everywhere(
    "dtype, columns",
    product(["int8", "float64", "bool"], [3, 8]),
    emulator=lambda dtype, columns: (dtype == "int8") == (columns == 3),
)
def test_few_columns_of_other_types(place, dtype, columns):
    for rows in place.sizes([33, 5000]):
        check(data((rows, columns), dtype), axis=0)


@everywhere("dtype", ["int8", "float16", "float32", "float64"], emulator=lambda dtype: dtype == "int8")
def test_init_comes_first(place, dtype):
    for shape, axis in (((37,), None), ((2500,), None), ((40, 7), 0), ((40, 70), 1), ((0, 4), 0)):
        check(data(shape, dtype), axis=axis, init=3)
    check(data(2500, dtype, "min"), "min", init=-100)
    check(data((0,), dtype), "max", init=5)


@everywhere(
    "source, result",
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
    emulator=lambda source, result: source in ("int8", "float32", "int64"),
)
def test_dtype_is_the_type_of_the_operation(place, source, result):
    for shape, axis in place.some((((2500,), None), ((45, 20), 0), ((45, 20), 1)), first=len(source)):
        x = np.abs(data(shape, source)) if source.startswith(("float", "bf")) else data(shape, source)
        check(x, axis=axis, dtype=result)


@pytest.mark.drawn(2)
@everywhere(
    "op, source, result",
    [
        (op, *types)
        for op in ("min", "max", "any")
        for types in (("int32", "int8"), ("int16", "uint8"), ("int64", "int32"), ("float32", "float16"))
    ],
    emulator=lambda op, source, result: source == {"min": "int32", "max": "float32", "any": "int32"}[op],
)
def test_values_are_converted_before_they_are_compared(place, op, source, result):
    """300 is 44 as an int8, and that is what takes part."""
    x = np.array(
        [300, 44, -200, 7, 256, 65536 + 3, -129] * 20, numpy_dtype(source).type if source != "int16" else np.int64
    ).astype(source)
    options = {} if op == "any" else {"dtype": result}
    check(x, op, **options)
    check(np.full(64, 16, "int8"), op, transform=square)  # 16 * 16 is 0 as an int8


def square(v):
    return v * v


@everywhere(
    "dtype",
    ["int8", "int32", "float16", "float32", "float64"],
    emulator=lambda dtype: dtype == "int8",
)
def test_transform_is_fused_into_the_load(place, dtype):
    for shape, axis in (((37,), None), ((2500,), None), ((45, 20), 0), ((2, 5, 6), (0, 2))):
        check(data(shape, dtype), axis=axis, transform=square)
    check(data(2500, dtype), "max", transform=lambda v: -v)


def test_transform_sees_each_element_once_when_axes_are_not_neighbours(place):
    """A reduction of two launches maps in the first one only."""
    x = data((6, 7, 8), "int64")
    same(cs.reduce(cs.asarray(x), axis=(0, 2), transform=lambda v: v + 1), (x + 1).sum((0, 2)))


def test_out_is_written_and_returned(place):
    x = data((45, 20), "int32")
    out = cs.empty((45,), "int32")
    assert cs.reduce(cs.asarray(x), axis=1, out=out) is out
    same(out, x.sum(1, dtype=np.int32))


PROMOTED = {("sum", "uint16"), ("prod", "int8"), ("max", "int8"), ("any", "uint16"), ("argmin", "int8")}


@pytest.mark.drawn(3)
@everywhere(
    "name, dtype",
    product(["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"], ["bool", "int8", "uint16"]),
    emulator=lambda name, dtype: (name, dtype) in PROMOTED,
)
def test_numpys_names_follow_numpys_promotion(place, name, dtype):
    x = data((21, 50), dtype, {"sum": "add", "prod": "mul"}.get(name, name))
    for axis, keepdims in place.some(product((None, 0, 1), (False, True)), 3, len(name)):
        actual = getattr(cs, name)(cs.asarray(x), axis=axis, keepdims=keepdims)
        same(actual, getattr(reference, name)(x, axis=axis, keepdims=keepdims), f"{name} axis={axis}")
        assert np.asarray(actual).dtype == getattr(np, name)(x, axis=axis).dtype


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_the_lowest_index_wins_a_tie(place, name, dtype):
    for n in place.sizes([40, 2500, 100003]):
        x = np.zeros(n, dtype)
        for lowest in ([n - 1], [n // 3, n - 1], [0, n // 2], [7, 8, 9]):
            x[:] = 0
            x[lowest] = -1 if name == "argmin" else 1
            assert int(np.asarray(getattr(cs, name)(cs.asarray(x)))) == min(lowest)
        assert int(np.asarray(getattr(cs, name)(cs.asarray(np.zeros(n, dtype))))) == 0


@everywhere("name", ["argmin", "argmax"], emulator=lambda name: name == "argmin")
def test_argmin_and_argmax_along_axes(place, name):
    for shape in ((45, 20), (300, 3), (3, 800), (4, 5, 60)):
        x = data(shape, "int8")  # few values: many ties
        for axis in range(len(shape)):
            same(
                getattr(cs, name)(cs.asarray(x), axis=axis),
                getattr(np, name)(x, axis=axis),
                f"{name} {shape} axis={axis}",
            )


@places("count", gpu=[40], emulator=[8])
def test_random_shapes(place, count):
    rng = np.random.default_rng(7)
    for _ in range(count):
        shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 5)))
        axes = tuple(int(a) for a in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)])
        check(data(shape, "float32"), axis=axes)


def test_rounding_of_a_float_sum_stays_within_the_bound_of_a_tree(place):
    rng = np.random.default_rng(3)
    for n in place.sizes([2500, 100003, 2**22 + 5]):
        x = rng.standard_normal(n).astype(np.float32)
        error = abs(float(np.asarray(cs.reduce(cs.asarray(x)))) - float(x.astype(np.float64).sum()))
        assert error <= 64 * np.finfo(np.float32).eps / 2 * float(np.abs(x).astype(np.float64).sum())


LEVELS = [1, 31, 4095, 4097, 32767, 32768, 32769, 70001, 2**21 + 5]


@pytest.mark.drawn(2)
@everywhere(
    "algorithm, dtype",
    product(["atomic", "multi_launch"], ["int32", "uint64", "float32", "float64"]),
    emulator=lambda algorithm, dtype: dtype == "int32" or (algorithm, dtype) == ("atomic", "float64"),
)
def test_the_other_rungs_agree(place, algorithm, dtype):
    for op, n in place.some(product(("add", "max", "min", "xor"), place.sizes(LEVELS)), first=1):
        if op == "add" or (has_meaning(op, dtype) and not (algorithm == "atomic" and dtype.startswith("float"))):
            x = data(n, dtype, op)
            same(
                cs.reduce(cs.asarray(x), op, algorithm=algorithm),
                reference.reduce(x, op),
                f"{algorithm} {op} of {n}",
            )
            if n < 5000:
                same(
                    cs.reduce(cs.asarray(x), op, algorithm=algorithm, init=3),
                    reference.reduce(x, op, init=3),
                    f"{algorithm} {op} of {n} from 3",
                )


def test_levels_keep_the_order_of_operands(place):
    for n in place.sizes([100, 32769, 70001]):
        x = brackets(n)
        same(cs.reduce(cs.asarray(x), bicyclic, algorithm="multi_launch"), fold(bicyclic, x))


def test_levels_map_once_and_give_any_type(place):
    for n in place.sizes([100, 70001]):
        x = data(n, "int8")
        same(
            cs.reduce(cs.asarray(x), transform=square, dtype="int64", algorithm="multi_launch"),
            (x.astype(np.int64) ** 2).sum(),
        )
        same(cs.reduce(cs.asarray(x), "any", algorithm="multi_launch"), x.any())
