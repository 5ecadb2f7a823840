"""The reference means what it says: against brute force with Python integers and fractions."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from cutesync import dtypes, reference

from .cases import DTYPES, NAMES, data, has_meaning, matrices, matrix, numpy_dtype

EXACT = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "any": lambda a, b: bool(a) or bool(b),
    "all": lambda a, b: bool(a) and bool(b),
}


def wrapped(value: int, element) -> int:
    """An unbounded integer as the element type stores it."""
    bits = 8 * element.size
    value &= (1 << bits) - 1
    return value - (1 << bits) if element.kind == "i" and value >> (bits - 1) else value


def brute(x: np.ndarray, op: str, result: str):
    """Fold in Python; the value that must be stored."""
    element = dtypes.dtype(result)
    kind = dtypes.dtype(x.dtype).kind
    values = [Fraction(float(v)) if kind == "f" else bool(v) if kind == "b" else int(v) for v in x.ravel()]
    name = {"add": "any", "mul": "all"}.get(op, op) if element.kind == "b" else op
    total = functools.reduce(EXACT[name], values)
    if op in ("any", "all") or element.kind == "b":
        return bool(total)
    return float(total) if element.kind == "f" else wrapped(int(total), element)


@pytest.mark.parametrize(("dtype", "op"), [(d, o) for d in DTYPES for o in NAMES if has_meaning(o, d)])
def test_every_operator_on_every_type(dtype, op):
    for n in (1, 2, 7, 100):
        x = data(n, dtype, op, seed=4)
        actual = reference.reduce(x, op)
        assert actual.dtype == (np.dtype(bool) if op in ("any", "all") else x.dtype)
        assert actual == brute(x, op, dtype)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("int8", "int64"),
        ("uint8", "int8"),
        ("bool", "int32"),
        ("int64", "int16"),
        ("float16", "float64"),
        ("int16", "float32"),
    ],
)
def test_dtype_converts_before_the_fold(source, result):
    x = data(50, source, seed=4)
    for op in ("add", "min", "max"):
        if result in ("int8", "int16") and op != "add":
            continue  # the conversion wraps, which brute force does after the fold
        assert reference.reduce(x, op, dtype=result) == brute(x, op, result)


def test_halves_accumulate_in_float32_and_round_once():
    assert reference.reduce(np.array([2048, *[0.25] * 100], np.float16)) == np.float16(2048 + 25)
    assert reference.reduce(np.array([60000, 60000, -60000], np.float16)) == np.float16(60000)


def test_float_sums_are_the_correctly_rounded_sums():
    x = np.random.default_rng(5).standard_normal(1000).astype(np.float32)
    assert reference.reduce(x) == np.float32(float(sum(map(Fraction, x.astype(float).tolist()))))


def test_nan_propagates_through_everything_but_the_logical():
    for op, at in itertools.product(("add", "mul", "min", "max"), range(4)):
        x = np.ones(4, np.float32)
        x[at] = np.nan
        assert np.isnan(reference.reduce(x, op))
    assert reference.any(np.array([np.nan])) and reference.all(np.array([np.nan]))


def test_infinities():
    x = np.array([1, np.inf, -np.inf], np.float64)
    assert np.isnan(reference.reduce(x)) and reference.max(x) == np.inf and reference.min(x) == -np.inf
    assert np.isnan(reference.reduce(np.array([0, np.inf]), "mul"))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "bool"])
@pytest.mark.parametrize("op", ["add", "mul", "min", "max", "any", "all"])
def test_init_is_one_more_element_in_front(dtype, op):
    x = data(30, dtype, op, seed=6)
    init = 1 if dtype == "bool" else 3
    longer = np.concatenate([np.array([init], x.dtype), x])
    assert reference.reduce(x, op, init=init) == reference.reduce(longer, op)


def test_an_empty_axis_gives_the_identity_or_init():
    empty = np.zeros((0, 3), np.int32)
    assert reference.reduce(empty, "add", axis=0).tolist() == [0, 0, 0]
    assert reference.reduce(empty, "mul", axis=0).tolist() == [1, 1, 1]
    assert reference.reduce(empty, "max", axis=0, init=7).tolist() == [7, 7, 7]
    assert reference.reduce(empty, lambda a, b: a + b, axis=0, identity=5).tolist() == [5, 5, 5]
    assert reference.reduce(empty.astype(np.uint8), "and", axis=0).tolist() == [255] * 3
    assert reference.reduce(empty, "and", axis=0).tolist() == [-1] * 3
    with pytest.raises(ValueError):
        reference.reduce(empty, "min", axis=0)


def test_transform_maps_each_element_in_the_accumulators_type():
    x = data(30, "int8", seed=7)
    assert reference.reduce(x, transform=lambda v: v * v, dtype="int64") == sum(int(v) ** 2 for v in x)
    halves = np.full(4, 300, np.float16)  # 300 * 300 overflows float16 and not float32
    assert reference.reduce(halves, transform=lambda v: v * v, dtype="float32") == 4 * 90000


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (3, 1, 2, 2)])
def test_a_callable_folds_in_c_order_along_any_axes(shape):
    x = matrices(shape)
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            kept = [a for a in range(len(shape)) if a not in axes]
            actual = np.asarray(reference.reduce(x, matrix, axis=axes))
            keep = reference.reduce(x, matrix, axis=axes, keepdims=True)
            assert keep.shape == tuple(1 if a in axes else n for a, n in enumerate(shape))
            assert np.array_equal(keep.ravel(), actual.ravel())
            for place in itertools.product(*(range(shape[a]) for a in kept)):
                index = [slice(None)] * len(shape)
                for a, i in zip(kept, place):
                    index[a] = i
                assert actual[place] == functools.reduce(
                    lambda p, q: int(matrix(p, q)), x[tuple(index)].ravel().tolist()
                )


def test_the_operators_of_the_tests_are_associative_and_do_not_commute():
    from .cases import bicyclic, brackets

    for op, values in ((matrix, matrices(60).tolist()), (bicyclic, brackets(60).tolist())):
        for a, b, c in zip(values, values[20:], values[40:]):
            assert op(op(a, b), c) == op(a, op(b, c))
        assert any(op(a, b) != op(b, a) for a, b in zip(values, values[1:]))


def test_bicyclic_counts_unmatched_brackets():
    from .cases import bicyclic

    for text in ("", "(", ")", "()", ")(", "(()", "())(", "((()))", ")))((("):
        closing = opening = 0
        for letter in text:
            if letter == "(":
                opening += 1
            elif opening:
                opening -= 1
            else:
                closing += 1
        packed = [(1 << 32) if letter == ")" else 1 for letter in text]
        assert functools.reduce(bicyclic, packed, 0) == (closing << 32) | opening


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_numpys_names_have_numpys_promotion(dtype):
    x = data((5, 6), dtype, "add")
    for name in ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax"):
        expected = getattr(np, name)(x, axis=1)
        actual = getattr(reference, name)(x, axis=1)
        assert actual.dtype == expected.dtype, name
        assert math.prod(actual.shape) == 5
        if dtype not in ("float16", "float32"):
            assert np.array_equal(actual, expected), name


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_argmin_and_argmax_by_brute_force(name):
    rng = np.random.default_rng(8)
    better = (lambda a, b: a < b) if name == "argmin" else (lambda a, b: a > b)
    for _ in range(50):
        x = rng.integers(0, 4, 12).astype(np.float32)
        if rng.integers(2):
            x[rng.integers(12)] = np.nan
        best = 0
        for i in range(1, 12):
            if not math.isnan(x[best]) and (math.isnan(x[i]) or better(x[i], x[best])):
                best = i
        assert getattr(reference, name)(x) == best
        assert getattr(reference, name)(x).dtype == np.int64


def test_zero_dimensions():
    x = np.array(5, np.int16)
    assert reference.reduce(x) == 5 and np.asarray(reference.reduce(x)).shape == ()
    assert numpy_dtype("int16") == np.asarray(reference.reduce(x)).dtype
