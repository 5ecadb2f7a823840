"""cummax, cummin, ffill and linear_recurrence agree with the reference."""

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import SCHEDULES, data, everywhere, same

SHAPES = (((2003,), -1), ((9, 40), 1), ((300, 12), 0), ((4, 0), -1), ((6, 50), None), ((300, 1000), 0), ((3, 10**6), 1))
ON_EMULATOR = ("bool", "float16")


def shapes(place) -> list:
    """Those that the emulator can do."""
    return [(shape, axis) for shape, axis in SHAPES if place.name == "gpu" or math.prod(shape) < 3000]


def with_nan(shape, dtype="float32", seed=0) -> np.ndarray:
    """Small integers with ties, and some NaN; the first element of each row may be one."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape).astype(dtype)
    return np.where(rng.random(shape) < 0.2, np.nan, x).astype(dtype) if x.dtype.kind == "f" else x


@pytest.mark.parametrize("name", ["cummax", "cummin"])
class TestExtremes:
    def test_shapes(self, place, name):
        for shape, axis in place.some(shapes(place), first=name == "cummin"):
            x = data(shape, "int32", "add") % 50
            for a, b in zip(getattr(cs, name)(cs.asarray(x), axis), getattr(reference, name)(x, axis)):
                same(np.asarray(a), b, f"{shape} along {axis}")

    @everywhere(
        "dtype", ["bool", "uint8", "float16", "float32", "float64"], emulator=lambda dtype: dtype in ON_EMULATOR
    )
    def test_ties_and_nan(self, place, name, dtype):
        x = np.concatenate([np.full(30, 2), np.full(400, 3), np.full(300, 1)]).astype(dtype)
        if x.dtype.kind == "f":
            x[[500, 600]] = np.nan
        for a, b in zip(getattr(cs, name)(cs.asarray(x)), getattr(reference, name)(x)):
            same(np.asarray(a), b)

    def test_outputs(self, place, name):
        x = cs.asarray(data((3, 40), "float32", "min"))
        out = cs.empty((3, 40), "float32"), cs.empty((3, 40), "int64")
        assert getattr(cs, name)(x, out=out)[0] is out[0]
        same(np.asarray(out[1]), getattr(reference, name)(np.asarray(x))[1])


@pytest.mark.parametrize("reverse", [False, True])
class TestFill:
    def test_shapes(self, place, reverse):
        for shape, axis in place.some(shapes(place), first=reverse):
            x = with_nan(shape)
            found = cs.ffill(cs.asarray(x), axis, reverse=reverse)
            same(np.asarray(found), reference.ffill(x, axis, reverse=reverse), f"{shape} along {axis}")

    @everywhere("dtype", ["int8", "float16", "float64"], emulator=lambda dtype: dtype in ON_EMULATOR)
    def test_types(self, place, reverse, dtype):
        x = with_nan((2, 700), dtype)
        same(np.asarray(cs.ffill(cs.asarray(x), reverse=reverse)), reference.ffill(x, reverse=reverse))

    def test_in_place(self, place, reverse):
        x = with_nan(900)
        own = cs.asarray(x)
        assert cs.ffill(own, reverse=reverse, out=own) is own
        same(np.asarray(own), reference.ffill(x, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
class TestRecurrence:
    def test_shapes(self, place, reverse):
        """Powers of -1 and small integers: every order of operations gives the same bits."""
        for shape, axis in place.some(shapes(place), first=reverse):
            a, b = data(shape, "float32", "mul"), data(shape, "float32")
            options = {"reverse": reverse, "init": None if axis == 1 else 3}
            found = cs.linear_recurrence(cs.asarray(a), cs.asarray(b), axis, **options)
            same(np.asarray(found), reference.linear_recurrence(a, b, axis, **options), f"{shape} along {axis}")

    @pytest.mark.gpu
    def test_down_strips(self, reverse):
        """Of lines of memory, as calls cut arrays of this many rows and columns."""
        for shape in ((1061, 3200), (4099, 4096), (2, 1024, 3168)):
            a, b = data(shape, "float32", "mul"), data(shape, "float32")
            found = cs.linear_recurrence(cs.asarray(a), cs.asarray(b), -2, reverse=reverse)
            same(np.asarray(found), reference.linear_recurrence(a, b, -2, reverse=reverse), str(shape))

    @everywhere(
        "types",
        [("int32", "int32"), ("float64", "float32"), ("float16", "float16")],
        emulator=lambda types: types != ("float16", "float16"),
    )
    def test_types(self, place, reverse, types):
        a, b = (np.random.default_rng(i).integers(-1, 2, 600).astype(t) for i, t in enumerate(types))
        found = cs.linear_recurrence(cs.asarray(a), cs.asarray(b), reverse=reverse)
        same(np.asarray(found), reference.linear_recurrence(a, b, reverse=reverse))

    def test_decay(self, place, reverse):
        a, b = np.full(3000, 0.9, np.float32), data(3000, "float32", "min")
        found = np.asarray(cs.linear_recurrence(cs.asarray(a), cs.asarray(b), reverse=reverse, init=100))
        np.testing.assert_allclose(found, reference.linear_recurrence(a, b, reverse=reverse, init=100), 1e-4, 1e-4)


def along_first(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    x = np.moveaxis(x, axis, 0)
    return x[::-1] if reverse else x


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("shape", "axis", "rows", "reverse"),
    [
        ((3, 70, 20), 1, (20,), False),
        pytest.param((4, 6, 90), 2, (6,), True, marks=pytest.mark.slow),
        pytest.param((9, 4000), 1, (9,), True, marks=pytest.mark.slow),
        pytest.param((5, 4), 1, (1,), False, marks=pytest.mark.slow),
        pytest.param((3, 1, 4), 1, (3, 1), True, marks=pytest.mark.slow),
    ],
)
def test_a_first_value_for_each_row(on_emulator, shape, axis, rows, reverse):
    """Of a recurrence, and of a sum into an array whose rows lie apart."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-1, 2, shape).astype(np.float32) for _ in range(2))
    init = rng.integers(-9, 9, rows).astype(np.float32)
    state = np.broadcast_to(init, along_first(a, axis, False).shape[1:])
    wanted = np.empty_like(a)
    for x, y, h in zip(*(along_first(z, axis, reverse) for z in (a, b, wanted))):
        state = x * state + y
        h[...] = state
    found = cs.linear_recurrence(cs.asarray(a), cs.asarray(b), axis, init=cs.asarray(init), reverse=reverse)
    same(np.asarray(found), wanted)
    same(cs.linear_recurrence(a, b, axis, init=init, reverse=reverse), wanted)
    out = cs.empty((*shape[:-1], shape[-1] + 3), "float32")[..., 3:]
    cs.scan(cs.asarray(b), axis=axis, init=cs.asarray(init), reverse=reverse, out=out)
    sums = np.flip(np.cumsum(np.flip(b, axis), axis), axis) if reverse else np.cumsum(b, axis)
    same(np.asarray(out), (sums + np.expand_dims(np.broadcast_to(init, state.shape), axis)).astype(np.float32))


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: cs.linear_recurrence(X, X[:1]), ArgumentValueError, "shape"),
        (lambda: cs.linear_recurrence(X, X.astype(np.int32)), ArgumentTypeError, "one type of numbers"),
        (lambda: cs.linear_recurrence(X != 0, X != 0), ArgumentTypeError, "one type of numbers"),
        (lambda: cs.linear_recurrence(X, X, init="0"), ArgumentTypeError, "init"),
        (lambda: cs.linear_recurrence(X, X, init=X), ArgumentValueError, "without the axis"),
        (lambda: cs.linear_recurrence(X, X, init=X[:, 0].astype(int)), ArgumentTypeError, "the result's type"),
        (lambda: cs.scan(X, init=X), ArgumentValueError, "without the axis"),
        (lambda: cs.linear_recurrence(X, X, reverse=1), ArgumentTypeError, "reverse"),
        (lambda: cs.cummax(X, axis=(0, 1)), ArgumentTypeError, "axis"),
        (lambda: cs.ffill(X, axis=2), ArgumentValueError, "axis"),
    ],
)
def test_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_recurrence", "cummax"])
def test_agrees_under_hostile_schedules(name):
    x = data(9001, "float32", "mul")
    with cs.emulate(schedules=SCHEDULES, seed=5) as ran:
        if name == "cummax":
            found, expected = cs.cummax(cs.asarray(x))[1], reference.cummax(x)[1]
        else:
            b = data(9001, "float32")
            found, expected = cs.linear_recurrence(cs.asarray(x), cs.asarray(b)), reference.linear_recurrence(x, b)
    assert ran.launches == SCHEDULES
    same(np.asarray(found), expected)
