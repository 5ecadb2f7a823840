"""mean, var, std, var_mean, logsumexp, count_nonzero, minmax, and argmin and argmax over several axes agree with the
reference."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.kernels.reduce import plan
from cutesync.kernels.reduce.problem import Choice, ColumnPolicy, SegmentPolicy
from cutesync.runtime import call as calls

from ..cases import DTYPES, SCHEDULES, data, everywhere, numpy_dtype, same

FLOATING, EXACT = ("mean", "var", "std", "var_mean", "logsumexp"), ("count_nonzero", "minmax")
NAMES = (*FLOATING, *EXACT)
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}


def close(name: str, x, *, on=None, **options) -> None:
    """The result is the reference's: to the rounding of its type, or exactly."""
    found = getattr(cs, name)(cs.asarray(x) if on is None else on, **options)
    expected = getattr(reference, name)(x, **options)
    for a, b in zip(found, expected, strict=True) if isinstance(expected, tuple) else ((found, expected),):
        a, b, text = np.asarray(a), np.asarray(b), f"{name} of {x.dtype}{x.shape} {options}"
        if name in EXACT:
            same(a, b, text)
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape), text
        rtol = TOLERANCE[str(b.dtype)]
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol, rtol, err_msg=text)


AXES_ON_EMULATOR = (
    ("var", 0),
    ("var", (0, 2)),
    ("var_mean", 0),
    ("logsumexp", 0),
    ("count_nonzero", 1),
    ("minmax", (0, 2)),
    ("argmin", (-1, 0, 1)),
)
ON_EMULATOR = {
    "mean": ("bool", "int64"),
    "var": ("uint16", "bfloat16"),
    "std": ("float32",),
    "var_mean": ("float16",),
    "logsumexp": ("bfloat16",),
    "count_nonzero": ("float64",),
    "minmax": ("bool", "int64"),
}


@pytest.mark.drawn(5)
@everywhere(
    "name, dtype",
    [
        (name, dtype)
        for i, name in enumerate(NAMES)
        for dtype in dict.fromkeys((*DTYPES[i % 3 :: 3], *ON_EMULATOR[name]))
    ],
    emulator=lambda name, dtype: dtype in ON_EMULATOR[name],
)
def test_types(place, name, dtype):
    """Rows of whole chunks and ragged ends, which begin at any address."""
    x = data((2, 1291), dtype, "min")
    if numpy_dtype(dtype).itemsize == 8 and numpy_dtype(dtype).kind in "iu":
        x = x >> 8  # the squares of all differences are exact to float64
    x.reshape(-1)[::3] = 0
    close(name, x, axis=1)


@pytest.mark.drawn(4)
@everywhere(
    "name, axis",
    [(name, axis) for name in (*NAMES, "argmin") for axis in (None, 0, 1, (0, 2), (-1, 0, 1))],
    emulator=lambda name, axis: (name, axis) in AXES_ON_EMULATOR,
)
def test_axes(place, name, axis):
    x = data((5, 130, 12), "float32", "min")
    if name == "argmin":
        same(np.asarray(cs.argmin(cs.asarray(x), axis=axis)), reference.argmin(x, axis=axis))
    else:
        close(name, x, axis=axis, keepdims=axis == 1)


@pytest.mark.parametrize(("name", "shape"), [("var", (37, 3)), ("std", (20, 64)), ("minmax", (37, 4)), ("var", (9, 1))])
def test_short_rows(place, name, shape):
    close(name, data(shape, "float32", "min"), axis=-1)


@everywhere("dtype", ["int16", "float32"], emulator=lambda dtype: dtype == "float32")
def test_places_over_axes_that_are_not_neighbours(place, dtype):
    x = data((3, 4, 5, 2, 3), dtype, "min")
    x[1:] = x[:1]  # ties
    for axis, name in (((0, 2), "argmin"), ((0, 2, 4), "argmax")):
        found = getattr(cs, name)(cs.asarray(x), axis=axis, keepdims=axis == (0, 2))
        same(np.asarray(found), getattr(reference, name)(x, axis=axis, keepdims=axis == (0, 2)))
    if dtype == "float32":
        x[2, :, 1] = np.nan
        same(np.asarray(cs.argmax(cs.asarray(x), axis=(0, 2))), reference.argmax(x, axis=(0, 2)))


def test_ddof_and_dtype(place):
    x = data(900, "float32", "min")
    for ddof in (1, 0.5, np.int32(2)):
        close("var", x, ddof=ddof)
        close("std", x, ddof=ddof)
    assert np.isnan(np.asarray(cs.var(cs.asarray(x[:1]), ddof=1))) and np.asarray(cs.var(cs.asarray(x[:1]))) == 0
    assert np.asarray(cs.var(cs.asarray(x[:2]), ddof=3)) == np.inf
    close("var", x, dtype="float64")
    close("mean", np.arange(1000, dtype=np.int32), dtype="float32")


def test_empty_axes(place):
    x = np.zeros((3, 0), np.float32)
    for name in (*FLOATING, "count_nonzero"):
        close(name, x, axis=1)
        close(name, x, axis=0)
    with pytest.raises(ArgumentValueError, match="'minmax'"):
        cs.minmax(cs.asarray(x), axis=1)
    with pytest.raises(ArgumentValueError, match="'argmax'"):
        cs.argmax(cs.asarray(x[:, None]), axis=(0, 2))


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", ["mean", "var_mean", "logsumexp", "minmax", "count_nonzero"])
def test_infinities_and_nan(place, name):
    """Where each stands alone, with its like, beside finite numbers, and beside the other."""
    rows = np.tile(np.linspace(-3, 3, 600, dtype=np.float32), (7, 1))
    rows[0, 17] = np.inf
    rows[1, 590] = -np.inf
    rows[2, [3, 400]] = np.inf
    rows[3, [3, 400]] = np.inf, -np.inf
    rows[4] = -np.inf
    rows[5, 599] = np.nan
    rows[6, [0, 300]] = np.nan, np.inf
    close(name, rows, axis=1)
    if name == "logsumexp":
        close(name, np.ascontiguousarray(rows.T), axis=0)


def test_a_mean_that_is_large_beside_the_deviation(place):
    x = (np.random.default_rng(1).standard_normal(30_000) + 1e6).astype(np.float32)
    expected = x.astype(np.float64).var()
    found, mean = cs.var_mean(cs.asarray(x))
    assert abs(float(found) - expected) < 1e-3 * expected and float(mean) == np.float32(x.mean(dtype=np.float64))
    assert abs(float(np.asarray(cs.var(cs.asarray(x.reshape(-1, 20)), axis=0)).mean()) - expected) < 0.01 * expected


def test_large_exponents_do_not_overflow(place):
    close("logsumexp", np.linspace(-1e5, 3e4, 5000, dtype=np.float32))
    close("logsumexp", np.linspace(-700, 9000, 700).reshape(2, 350), axis=1)


def test_sums_of_small_integers_are_exact(place):
    x = np.full(9_001, 32767, np.int16)
    assert np.asarray(cs.mean(cs.asarray(x))) == 32767 and np.asarray(cs.var(cs.asarray(x))) == 0
    x[::2] = -32768
    close("var", x)


def test_outputs(place):
    x = cs.asarray(data((4, 300), "float32", "min"))
    out = cs.empty((4,), "float32"), cs.empty((4,), "float32")
    found = cs.minmax(x, axis=1, out=out)
    assert found[0] is out[0] and found[1] is out[1]
    assert cs.var(x, axis=1, out=out[0]) is out[0]
    same(np.asarray(out[1]), np.asarray(x).max(1))
    with pytest.raises(ArgumentTypeError, match="out"):
        cs.minmax(x, axis=1, out=out[0])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ddof": "1"}, ArgumentTypeError, "ddof"),
        ({"ddof": np.inf}, ArgumentValueError, "finite"),
        ({"dtype": "int32"}, ArgumentTypeError, "floats"),
        ({"axis": (0, 0)}, ArgumentValueError, "each axis once"),
    ],
)
def test_arguments(options, error, words):
    with pytest.raises(error, match=words):
        cs.var(np.ones((2, 2), np.float32), **options)


@pytest.mark.parametrize(
    ("choice", "shape", "axis"),
    [
        (Choice(SegmentPolicy("grid", 2, 4, 2, False, True), 5, 1, 5), (14003,), None),
        (Choice(ColumnPolicy(True, 8, 4, 4, True, True), 3, 1, 3), (101, 24), 0),
    ],
)
@pytest.mark.parametrize("name", ["var", pytest.param("logsumexp", marks=pytest.mark.slow)])
def test_agrees_under_hostile_schedules(name, choice, shape, axis, monkeypatch):
    monkeypatch.setattr(plan, "choose", lambda problem: choice)
    monkeypatch.setattr(plan, "strided_is_faster", lambda problem: False)
    monkeypatch.setattr(calls, "_plans", {})
    with cs.emulate(schedules=SCHEDULES, seed=7) as ran:
        close(name, data(shape, "float32", "min"), axis=axis)
    assert ran.launches == SCHEDULES
