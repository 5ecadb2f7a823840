"""Branches in callables: the same code gives the same results in Python and in a kernel."""

from __future__ import annotations

import functools
import math
import types
from math import exp, sqrt as root

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import OperatorError
from cutesync.identity import identify

from .elementwise import apply

VALUES = [0.0, 1.0, -2.0, 3.5, np.nan, np.inf, -np.inf, 0.5, 100.0]
LIMITS = (1, 2.5)
VERBOSE = False


def sign(x, y):
    if x > 0:
        return 1
    elif x < 0:
        return -1
    return 0


def early(x, y):
    for i, limit in enumerate(LIMITS):
        if x > limit and y < limit:
            return i
    else:
        x = x + 1
    return x


def captured(x, y):
    if VERBOSE:
        return [].pop()
    return x if y > 1 else y


def nested(x, y):
    def larger(a, b):
        return a if a > b else b

    return larger(larger(x, y), 0.25)


def once(x, y):
    positive = x > 0
    return sum(2**i if positive else 3**i for i in range(8))  # two ways


def assigned(x, y):
    total = 0
    if x > y:
        total += x
    if (doubled := y * 2) > x:
        total -= doubled
    return total


PROGRAMS = [
    lambda x, y: x if x == x else y,
    lambda x, y: 0 < x < y,
    lambda x, y: (x > 0 and y) or 7,
    lambda x, y: not x > y,
    lambda x, y: x or y,
    lambda x, y: x in (1, 3.5),
    lambda x, y: sorted([x, y, 1.0])[1] if x == x and y == y else 0,
    lambda x, y: any(v > 2 for v in (x, y)) + 2 * all(v > 2 for v in (x, y)),
    lambda x, y: max(min(x, y), 0.5),
    lambda x, y: max((x, y), key=abs),
    lambda x, y: 1 if x > y else True if x < y else 2.5,
    sign,
    early,
    captured,
    nested,
    once,
    assigned,
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_programs(dtype):
    values = np.array([v for v in VALUES if dtype != "int32" or np.isfinite(v)]).astype(dtype)
    x, y = (np.ascontiguousarray(part.ravel()) for part in np.meshgrid(values, values))
    rows = apply(PROGRAMS, x, y)
    for fn, row in zip(PROGRAMS, rows):
        expected = [float(fn(a, b)) for a, b in zip(x.tolist(), y.tolist())]
        assert np.array_equal(row, expected, equal_nan=True), fn.__name__


def late(v):
    quotient = 7 // v
    return quotient if v else 5


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda v: 7 // v if v else 5, [5, 7, -4, 1]),
        (lambda v: 0 if v == 0 else 7 % v, [0, 0, 1, 2]),
        (lambda v: np.where(v != 0, 7 // v, 5), [5, 7, -4, 1]),
        (lambda v: v and 7 // v, [0, 7, -4, 1]),
        (late, [5, 7, -4, 1]),
    ],
    ids=["branch", "remainder", "where", "and", "before the branch"],
)
def test_a_division_by_zero_is_not_computed(fn, expected):
    """A compiler may conclude from a division that its divisor is not zero, and drop the condition."""
    assert apply([fn], np.array([0, 1, -2, 5], np.int32)).tolist() == [expected]


def test_values_below_the_registers_have_a_truth():
    x = np.array([0, -3, 2, 1], np.float32)
    fns = [
        lambda v: 1 if cutlass.select_(v > 1, v, -v) > 1 else 2,
        lambda v: 5 if cutlass.select_(v > 1, v, cutlass.Float32(0)) else 6,
    ]
    assert apply(fns, x).tolist() == [[2, 1, 1, 2], [6, 6, 5, 6]]


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return math.exp(x) * self.factor if x > 0 else 0


class Derived(Scaled):
    pass


def exponential(x, by=exp):
    return by(x)


def imports(x):
    import math as mathematics
    from math import sqrt

    return sqrt(mathematics.exp(x))


def recursive(x, depth=3):
    return x if depth == 0 else recursive(math.sqrt(x), depth - 1)


def test_functions_are_found_wherever_the_callable_reaches_them_by_name():
    module = types.ModuleType("of_the_user")
    exec("import math\ndef f(x):\n    return math.exp(x)", vars(module))
    power = exp
    x = np.array([0.5, 2], np.float32)
    fns = [
        exponential,
        imports,
        recursive,
        Scaled(2.0),
        Derived(2.0),
        Scaled(2.0).__call__,
        functools.partial(lambda f, v: f(v), exp),
        lambda v: power(v) + root(v),
        lambda v: module.f(v),
        lambda v: functools.reduce(max, (v, 1.0)),
    ]
    e = np.exp(x.astype(float))
    expected = [e, e**0.5, x**0.125, 2 * e, 2 * e, 2 * e, e, e + x**0.5, e, np.maximum(x, 1)]
    assert np.allclose(apply(fns, x), expected, rtol=1e-6)


def test_every_family_takes_branches(on_emulator):
    x, f = np.array([3, 1, 2, 2], np.int32), np.array([1, -2, 3], np.float32)
    smaller = lambda a, b: b if b < a else a  # noqa: E731
    relu = lambda v: v if v > 0 else 0  # noqa: E731
    assert cs.reduce(x, smaller) == 1 and cs.scan(x, smaller).tolist() == [3, 1, 1, 1]
    assert cs.reduce(x, min) == 1 and cs.reduce(f, np.maximum) == 3
    assert cs.reduce(f, "add", transform=relu) == 4
    assert cs.flag_heads(x, lambda a, b: a > b and b < 2).tolist() == [1, 1, 0, 0]
    assert cs.adjacent_difference(x, lambda a, b: a - b if a > b else 0).tolist() == [3, 0, 1, 0]
    assert cs.matmul(-np.eye(3, dtype=np.float16), np.eye(3, dtype=np.float16), activation=relu).max() == 0
    assert cs.patterns.producer_consumer.run(f, relu).tolist() == [1, 0, 3]
    largest = cs.scan(
        (f, x[:3]),
        lambda a, b: a if a[0] >= b[0] else b,
        finish=lambda s: s[1] if s[0] > 1 else -1,
        out_dtype="int32",
    )
    assert largest.tolist() == [-1, -1, 2]


def test_the_reference_takes_branches():
    x = np.array([1, np.nan, -3], np.float32)
    assert cs.reference.reduce(x, lambda a, b: b if b == b else a, transform=lambda v: abs(v) if v < 0 else v) == 3
    assert cs.reference.scan(x, lambda a, b: max(a, b)).tolist() == [1, 1, 1]


@cute.jit
def negative_above(x, limit: cutlass.Constexpr, fn: cutlass.Constexpr):
    result = x
    if x > limit:
        result = fn(x)
    return result


def test_functions_of_the_dsl_keep_their_branches():
    x = np.array([1, 2, 3], np.float32)
    found = apply([lambda v: negative_above(v, 1.5, lambda w: -w) if v < 2.5 else 0], x)
    assert found.tolist() == [[1, -2, 0]]


def endless(x):
    while x > 0:
        x = x - 1
    return x


class Reads:
    def method(self, x):
        return math.exp(x)


REFUSED = [
    (endless, "more than 64 ways", "while x > 0"),
    (lambda x: sum(1 if x > i else 0 for i in range(7)), "more than 64 ways", "numpy.where"),
    (lambda x: [1, 2][x], "index", "[1, 2][x]"),
    (lambda x: sum(range(x)), "argument of range", "range(x)"),
    (lambda x: float(x), "no Python float", "cutlass.Float32(x)"),
    (lambda x: int(x), "no Python int", "cutlass.Int32(x)"),
    (lambda x: {1: 2}.get(x, 3), "cannot be a key", "{1: 2}"),
    (lambda x: math.gamma(x), "math.gamma has no translation", "math.gamma(x)"),
    (lambda x: np.nextafter(x, 1), "numpy.nextafter has no translation", "np.nextafter(x, 1)"),
    (lambda x: np.exp(x, dtype=np.float32), "numpy.exp with dtype=", "np.exp(x"),
    (lambda x: np.average(x), "has no translation", "np.average(x)"),
    (lambda x: round(x, 2), "round to 2 digits", "round(x, 2)"),
    (lambda x: Reads().method(x), "no Python float", "numpy.exp(x)"),
    (lambda x: None if x > 1 else 1, "NoneType", "None if x > 1"),
    (lambda x: "a" if x > 1 else 1, "it returned str", '"a" if'),
    (lambda x: 1 / 0 if x > 1 else 1, "ZeroDivisionError", "1 / 0"),
    (lambda x: negative_above(x, 1, lambda v: 1 if v > 2 else v), "@cute.jit", "1 if v > 2"),
    (lambda x: max(cutlass.Int8(x), 1000), "1000 does not fit Int8", "1000)"),
    (lambda x: cutlass.range(x), "cutlass.range", "cutlass.range(x)"),
]


@pytest.mark.parametrize(("fn", "reason", "line"), REFUSED)
def test_what_cannot_be_traced(fn, reason, line, on_emulator):
    with pytest.raises(OperatorError) as caught:
        cs.reduce(np.ones(3, np.float32), "add", transform=fn)
    message = str(caught.value)
    assert reason in message and line in message and f"{__file__}:" in message
    assert message.endswith("; see cutesync/callables/README.md") and "DSL" not in message and "\n" not in message


def test_a_function_that_changes_is_refused(on_emulator):
    count = iter(range(100))

    def changing(x):
        return x if next(count) % 2 or x > 0 else -x

    with pytest.raises(OperatorError):
        cs.reduce(np.ones(3, np.float32), "add", transform=changing)


def test_a_changed_function_is_another_kernel(on_emulator):
    x, scope = np.array([4.0], np.float32), {"f": math.sqrt}
    call = eval("lambda v: f(v)", scope)
    first = identify(call).key
    assert cs.reduce(x, "add", transform=call) == 2
    scope["f"] = math.log2
    assert cs.reduce(x, "add", transform=call) == 2 and identify(call).key != first
    scope["f"] = math.fabs
    assert cs.reduce(x, "add", transform=call) == 4


def test_registers_are_as_they_were_afterwards(on_emulator):
    from cutlass._mlir_helpers.arith import ArithValue

    before = [dict(vars(kind)) for kind in (cutlass.Numeric, cutlass.Boolean, ArithValue)]
    cs.reduce(np.ones(5, np.float32), lambda a, b: a if a > b else b + 1)
    assert [dict(vars(kind)) for kind in (cutlass.Numeric, cutlass.Boolean, ArithValue)] == before
