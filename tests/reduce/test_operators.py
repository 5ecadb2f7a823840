"""Python callables as operators: order is kept, so those that do not commute work too."""

import numpy as np
import pytest

import cutesync as cs

from ..cases import (
    bicyclic,
    brackets,
    check,
    data,
    everywhere,
    first,
    fold,
    last,
    matrices,
    matrix,
    same,
)

LENGTHS = (1, 2, 31, 33, 127, 129, 600, 2049, 20011, 300007)
GRIDS = ((40, 37), (130, 70), (1000, 3), (3, 900), (2000, 12), (64, 2048), (4000, 65))


@everywhere("op, make", [(bicyclic, brackets), (matrix, matrices)], emulator=lambda op, make: op is bicyclic)
class TestOperatorsThatDoNotCommute:
    def test_one_dimension(self, place, op, make):
        for n in place.sizes(LENGTHS):
            x = make(n)
            same(cs.reduce(cs.asarray(x), op), fold(op, x), f"{op.__name__} of {n}")

    def test_rows(self, place, op, make):
        for shape in place.sizes(GRIDS):
            x = make(shape)
            same(cs.reduce(cs.asarray(x), op, axis=1), fold(op, x), f"{op.__name__} of rows of {shape}")

    def test_columns(self, place, op, make):
        for shape in place.sizes(GRIDS):
            x = make(shape)
            same(cs.reduce(cs.asarray(x), op, axis=0), fold(op, x.T), f"{op.__name__} of columns of {shape}")

    def test_unaligned_views(self, place, op, make):
        for n in place.sizes([600, 2049, 50001]):
            x = make(n + 3)
            whole = cs.asarray(x)
            for offset in (1, 2, 3):
                same(cs.reduce(whole[offset:], op), fold(op, x[offset:]), f"{op.__name__} from {offset}")

    def test_init_is_leftmost(self, place, op, make):
        x, start = make(600), int(make(1, seed=5)[0])
        expected = op(np.asarray(start, x.dtype), fold(op, x)).astype(x.dtype)
        same(cs.reduce(cs.asarray(x), op, init=start), expected)


@everywhere(
    "dtype",
    ["int8", "uint16", "int32", "float16", "float32", "float64", "bool"],
    emulator=lambda dtype: dtype in ("bool", "float16"),
)
def test_first_and_last(place, dtype):
    """The plainest operators that do not commute: they name the ends, whatever the type."""
    for n in place.sizes([1, 50, 700, 2500, 100003]):
        x = data(n, dtype, "xor", seed=n)
        same(cs.reduce(cs.asarray(x), first), x[0])
        same(cs.reduce(cs.asarray(x), last), x[-1])


def test_axes_that_are_not_neighbours_fold_in_c_order(place):
    x = matrices((6, 5, 9))
    same(cs.reduce(cs.asarray(x), matrix, axis=(0, 2)), fold(matrix, x.transpose(1, 0, 2).reshape(5, -1)))


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_a_lambda_equals_the_named_operator(place, dtype):
    for n in place.sizes([37, 2500, 70001]):
        x = cs.asarray(data(n, dtype))
        same(cs.reduce(x, lambda a, b: a + b), cs.reduce(x, "add"))


def test_captured_numbers_are_part_of_the_operator(place):
    """Two closures of one source with different numbers are two operators."""

    def modular(m):
        return lambda a, b: (a + b) % m

    x = np.arange(1, 501, dtype=np.int32)
    for m in (7, 11):
        assert int(np.asarray(cs.reduce(cs.asarray(x % m), modular(m)))) == int((x % m).sum() % m)


def test_an_identity_serves_only_the_empty_axis(place):
    """The identity never takes part in a fold that has elements: a wrong one does no harm."""
    assert int(np.asarray(cs.reduce(cs.asarray(np.zeros(0, np.int32)), lambda a, b: a * b, identity=1))) == 1
    assert int(np.asarray(cs.reduce(cs.asarray(np.full(37, 2, np.int32)), lambda a, b: a + b, identity=999))) == 74
    same(
        cs.reduce(cs.asarray(np.zeros((0, 3), np.float32)), lambda a, b: a * b, axis=0, identity=1),
        np.ones(3, np.float32),
    )


def test_the_operator_never_sees_padding(place):
    """Every element is 3 and the operator spoils the result if it ever meets another value."""

    def only_threes(a, b):
        return a | b  # 3 | 3 = 3; padding by 0 would pass, so the transform maps 0 to 4

    for n in place.sizes([1, 5, 33, 129, 2049, 4099, 50001]):
        x = np.full(n, 3, np.int32)
        check(x, only_threes, transform=lambda v: v ^ 3)
        check(x, only_threes)
