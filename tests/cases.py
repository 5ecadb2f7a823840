"""Data, operators and comparisons the tests share.

The data is chosen so that results are exact: floats hold small integers, whose sums no order of additions rounds. So
tests compare bits, and only those about rounding itself use a tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes, reference
from cutesync.errors import CutesyncError
from cutesync.ops import operator

DTYPES = tuple(dtypes.BY_NAME)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(name for name in DTYPES if dtypes.BY_NAME[name].kind in "iu")
NAMES = ("add", "mul", "min", "max", "and", "or", "xor", "any", "all")
BITWISE = ("and", "or", "xor")


def has_meaning(op: str, dtype: str) -> bool:
    return not (op in BITWISE and dtype in FLOATS)


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's type of that name; where NumPy has none (bfloat16 without ml_dtypes), the test is skipped."""
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return dtypes.dtype(name).numpy


def data(shape, dtype: str, op: str = "add", seed: int = 0) -> np.ndarray:
    """Values for which ``op`` is exact in ``dtype`` and whose result depends on every element."""
    rng = np.random.default_rng([seed, *np.atleast_1d(shape)])
    element = dtypes.dtype(dtype)
    numpy_dtype(dtype)
    if element.kind == "b":
        rare = {"all": 1.0, "mul": 1.0, "min": 1.0, "and": 1.0, "any": 0.0, "max": 0.0, "or": 0.0, "add": 0.0}.get(
            op, 0.5
        )
        return rng.random(shape) < rare
    if element.kind in "iu":
        info = np.iinfo(element.numpy)
        if op == "mul":
            return rng.integers(0, info.max, shape, element.numpy, endpoint=True) | element.numpy.type(
                1
            )  # odd: never all zeros
        if op in ("any", "all"):
            return rng.integers(0, 2, shape).astype(element.numpy) * element.numpy.type(64)
        return rng.integers(info.min, info.max, shape, element.numpy, endpoint=True)
    if op == "mul":
        return rng.choice([-1.0, 1.0], shape).astype(element.numpy)
    if op == "add":
        return rng.integers(-3, 4, shape).astype(element.numpy)
    return rng.standard_normal(shape).astype(element.numpy)


def same(actual, expected, message: str = "") -> None:
    """Equal shape, dtype and values; any NaN equals any NaN, either zero equals either zero."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"{message}: dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{message}: shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind == "f" or actual.dtype.name == "bfloat16":
        nan = np.isnan(expected.astype(np.float64))
        wrong = (nan != np.isnan(actual.astype(np.float64))) | (~nan & (actual != expected))
    else:
        wrong = actual != expected
    if np.any(wrong):
        first = tuple(int(i) for i in np.argwhere(wrong)[0]) if actual.ndim else ()
        raise AssertionError(
            f"{message}: {int(np.sum(wrong))} of {actual.size} differ; first at {first}: "
            f"{actual[first]!r}, expected {expected[first]!r}"
        )


def check(x: np.ndarray, op="add", *, on=None, **options) -> None:
    """``cs.reduce`` of ``x`` (or of ``on``, a device array of the same values) agrees with the reference."""
    expected = reference.reduce(x, op, **options)
    actual = cs.reduce(cs.asarray(x) if on is None else on, op, **options)
    same(np.asarray(actual), expected, f"{op} of {x.dtype}{list(x.shape)} {options}")


def check_scan(x: np.ndarray, op="add", *, on=None, out=None, **options) -> None:
    """``cs.scan`` of ``x`` (or of ``on``, a device array of the same values) agrees with the reference."""
    actual = cs.scan(cs.asarray(x) if on is None else on, op, out=out, **options)
    same(np.asarray(actual), scanned(x, op, **options), f"scan, {op} of {x.dtype}{list(x.shape)} {options}")


def scanned(x: np.ndarray, op="add", **options) -> np.ndarray:
    """``cs.reference.scan``, or for long axes what is equal to it and quicker."""
    axis = options.get("axis", -1)
    long = (x.size if axis is None else x.shape[axis]) > 3000
    return running(x, op, **options) if long else reference.scan(x, op, **options)


def running(x: np.ndarray, op="add", *, axis=-1, exclusive=False, reverse=False, init=None, dtype=None) -> np.ndarray:
    """A scan by an exact operator, in log2(n) passes over the array: distances 1, 2, 4, ..."""
    result = dtypes.dtype(x.dtype if dtype is None else dtype)
    parsed, accumulate = operator(op), result.accumulator
    values = np.moveaxis(x.reshape(-1) if axis is None else x, -1 if axis is None else axis, -1).astype(
        accumulate.numpy
    )
    values = values[..., ::-1] if reverse else values
    if exclusive and init is None:
        init = parsed.identity(accumulate)
    if init is not None:
        values = np.concatenate([np.full((*values.shape[:-1], 1), init, values.dtype), values], -1)
    with np.errstate(all="ignore"):
        distance = 1
        while distance < values.shape[-1]:
            earlier, later = values[..., :-distance], values[..., distance:]
            joined = parsed.numpy(*((later, earlier) if reverse else (earlier, later))).astype(values.dtype)
            values = np.concatenate([values[..., :distance], joined], -1)
            distance *= 2
        values = values[..., :-1] if exclusive else values[..., init is not None :]
        values = values[..., ::-1] if reverse else values
        return (values if axis is None else np.moveaxis(values, -1, axis)).astype(result.numpy)


def fold(fn, values: np.ndarray) -> np.ndarray:
    """Reduce the last axis by an associative operator of two arrays, neighbours first: in logarithmic depth."""
    while values.shape[-1] > 1:
        even = values.shape[-1] // 2 * 2
        pairs = fn(values[..., 0:even:2], values[..., 1:even:2]).astype(values.dtype)
        values = np.concatenate([pairs, values[..., even:]], axis=-1)
    return values[..., 0]


def reduced(x: np.ndarray, op="add", *, axis=None) -> np.ndarray:
    """``cs.reference.reduce``, or for callables what is equal to it and quicker."""
    if callable(op):
        return fold(op, x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1))
    return reference.reduce(x, op, axis=axis)


# Operators that are associative and not commutative. Each works on NumPy arrays and on the DSL's registers.


def first(a, b):
    """The leftmost element wins."""
    return a


def last(a, b):
    """The rightmost element wins."""
    return b


def bicyclic(p, q):
    """The bicyclic monoid: runs of closing and opening brackets, (closing, opening) in the halves of an int64."""
    closing, opening = p >> 32, p & 0xFFFFFFFF
    more_closing, more_opening = q >> 32, q & 0xFFFFFFFF
    difference = opening - more_closing
    unmatched = difference & (difference >> 63)  # the difference where negative, else 0
    return ((closing - unmatched) << 32) | (more_opening + difference - unmatched)


def brackets(shape, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 3, shape, np.int64) << 32) | rng.integers(0, 3, shape, np.int64)


def matrix(p, q):
    """The product of 2x2 matrices modulo 13, four bits an entry, row by row from the high end."""
    a, b, c, d = (p >> 12) & 15, (p >> 8) & 15, (p >> 4) & 15, p & 15
    e, f, g, h = (q >> 12) & 15, (q >> 8) & 15, (q >> 4) & 15, q & 15
    return (
        (((a * e + b * g) % 13) << 12)
        | (((a * f + b * h) % 13) << 8)
        | (((c * e + d * g) % 13) << 4)
        | ((c * f + d * h) % 13)
    )


def matrices(shape, dtype="int32", seed: int = 0) -> np.ndarray:
    """Random matrices that can be inverted, so that no product forgets its factors."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(1, 13, shape) for _ in range(3))
    d = (b * c + 1) * np.array([0, 1, 7, 9, 10, 8, 11, 2, 5, 3, 4, 6, 12])[a] % 13  # a * d - b * c = 1 modulo 13
    return ((a << 12) | (b << 8) | (c << 4) | d).astype(dtype)


def adjacent(p, q):
    """Segments (begin, end) in the halves of an int64, joined where one ends where the other begins; anything else
    gives -1 for good. It finds operands in the wrong order, operands that are not neighbours, and everything that is no
    element."""
    gap = (p ^ (q >> 32)) & 0xFFFFFFFF
    return (p & ~0xFFFFFFFF) | (q & 0xFFFFFFFF) | ((gap | -gap) >> 63)


def segments(shape, axis: int = -1) -> np.ndarray:
    """Elements of length 1 along ``axis``; the first begins at 1, and rows do not join."""
    shape = tuple(np.atleast_1d(shape))
    length = shape[axis]
    row = np.arange(np.prod(shape, dtype=int) // length).reshape(
        *(1 if a == axis % len(shape) else n for a, n in enumerate(shape))
    )
    step = np.arange(length).reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
    begin = 1 + row * (length + 1) + step
    return (begin << 32) | (begin + 1)


# Bad arguments


class Capsule:
    """An array of which nothing is known but DLPack."""

    def __init__(self, array) -> None:
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class NotAStream:
    pass


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def is_refused(call, error: type, words: list[str], launches: list, x: np.ndarray) -> None:
    """The call raises an error of the project of that built-in kind, whose message holds the words, before anything is
    launched or ``x`` written."""
    before = x.copy()
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, CutesyncError), f"{type(caught.value).__name__}: {message}"
    assert ": got " in message and "; needs " in message, message
    assert [word for word in words if word not in message] == [], message
    assert launches == [] and np.array_equal(x, before)


LARGEST = {"gpu": 1 << 24, "emulator": 1100}  # elements of an array in a test that runs in both places


def fits(shape, place: str = "emulator") -> bool:
    return int(np.prod(shape)) <= LARGEST[place]


def places(names: str, gpu, emulator):
    """Parameters of a test that has a ``place``: the cases for the GPU and those for the emulator."""
    rows = []
    for place, cases, marks in (("gpu", gpu, pytest.mark.gpu), ("emulator", emulator, ())):
        rows += [pytest.param(place, *(case if "," in names else (case,)), marks=marks) for case in cases]

    def id_of(value) -> str | None:
        return None if isinstance(value, (list, set)) else getattr(value, "__name__", str(value))

    return pytest.mark.parametrize(f"place, {names}", rows, indirect=["place"], ids=id_of)


def everywhere(names: str, cases, emulator=lambda *case: True):
    """Every case on the GPU; on the emulator those that ``emulator`` accepts, because what is not cached is compiled
    there."""
    cases = list(cases)
    return places(names, cases, [case for case in cases if emulator(*(case if "," in names else (case,)))])


SCHEDULES = 9  # of a launch, in tests of agreement under hostile schedules: each policy
STAND_FOR_ALL = ("bool", "int8", "float16", "float64")  # on the emulator: a type of each class


def with_slow(names, slow: set[str]) -> list:
    """Parameters of a test, of which those that take long are marked ``slow``."""
    assert slow <= set(names)
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]
