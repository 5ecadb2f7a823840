"""What goes wrong in a user's callable is an OperatorError in every family: it names the line, and nothing of the
DSL."""

from __future__ import annotations

import functools
import inspect
import traceback

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest

import cutesync as cs
from cutesync import block, dtypes, warp
from cutesync.errors import OperatorError
from cutesync.monoid import traced

X, F, A = np.arange(8, dtype=np.int32), np.arange(8, dtype=np.float32), np.ones((2, 2), np.float16)


@cute.jit
def _in_a_block(x: cute.Tensor, op: cutlass.Constexpr, collective: cutlass.Constexpr):
    _collect(x, op, collective).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def _collect(x: cute.Tensor, op: cutlass.Constexpr, collective: cutlass.Constexpr):
    collective(cutlass.Int32(x[cute.arch.thread_idx()[0]]), op)


def in_a_block(collective):
    return lambda op: cs.emulator.check(_in_a_block, np.zeros(32, np.int32), op, collective, schedules=1)


def _flags(value, op):
    items = cute.make_rmem_tensor((1,), cutlass.Int32)
    items[0] = value
    return block.Discontinuity(cutlass.Int32, (32,)).flag_heads(items, op)


TWO = {
    "reduce": lambda f: cs.reduce(X, f),
    "scan": lambda f: cs.scan(X, f),
    "flags": lambda f: cs.flag_heads(X, f),
    "difference": lambda f: cs.adjacent_difference(X, f),
    "block.Reduce": in_a_block(lambda value, op: block.Reduce(cutlass.Int32, (32, 1, 1))(value, op)),
    "block.Discontinuity": in_a_block(_flags),
    "warp.scan": in_a_block(lambda value, op: warp.scan(value, op)),
}
ONE = {
    "transform": lambda f: cs.reduce(F, "add", transform=f),
    "activation": lambda f: cs.matmul(A, A, activation=f),
    "parity": lambda f: cs.patterns.producer_consumer.run(F, f, form="parity"),
    "bulk": lambda f: cs.patterns.producer_consumer.run(F, f, form="bulk"),
    "list": lambda f: cs.patterns.output_list.run(F, f),
    "channel": lambda f: cs.patterns.Channel(9, "float32").give(F, f),
}


def endless(a, b=0):
    while a < 3:  # a loop
        a = a + 1
    return a


def deep(a, b=0):
    return _helper(a)


def _helper(value):
    return value.nothing  # a helper's line


def refused(call, *words) -> OperatorError:
    with pytest.raises(OperatorError) as caught:
        call()
    message = str(caught.value)
    assert [word for word in ("could not be traced on", f"{__file__}:", *words) if word not in message] == [], message
    assert "\x1b" not in message and "\n" not in message and "DSL" not in message
    return caught.value


@pytest.mark.parametrize("family", [*TWO, *ONE])
def test_every_family_names_the_line(family, on_emulator):
    call = (TWO | ONE)[family]
    refused(lambda: call(endless), "while a < 3:  # a loop", "@cute.jit")
    refused(lambda: call(lambda *operands: "text"), "it returned str, not a number")


@pytest.mark.parametrize("family", ["reduce", "scan", "flags"])
@pytest.mark.parametrize(
    ("op", "words"),
    [
        (lambda a, b: {}["the original message"], "KeyError.*the original message"),
        (lambda a: a, "argument"),
        (lambda a, b, c, d: a, "argument"),
        (lambda a, b: [0, 1][a], "index"),
        (lambda a, b: None, "not a number"),
        (lambda a, b: "text", "not a number"),
    ],
    ids=["raises", "one argument", "four arguments", "indexes", "nothing", "text"],
)
def test_operators_that_cannot_be_traced(family, op, words, on_emulator):
    with pytest.raises(OperatorError, match=words):
        TWO[family](op)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "NoneType"),
        ("x", "str"),
        ((1, 2), "tuple"),
        (np.ones(3), "ndarray"),
        (1j, "complex"),
        (np.complex64(1), "complex"),
        (np.str_("1"), "str"),
        (float("nan"), "NaN"),
        (float("inf"), "infinity"),
        (2**40, "1099511627776"),
        (2**70, "64 bits"),
        (np.int64(2**40), "1099511627776"),
    ],
)
def test_results_that_are_no_value_of_the_register(result, words, on_emulator):
    refused(lambda: cs.reduce(X, lambda a, b: result), words)


def test_flags_and_transforms_have_no_huge_results(on_emulator):
    for call in (TWO["flags"], ONE["transform"], ONE["list"]):
        refused(lambda: call(lambda *operands: 2**70), "64 bits")  # noqa: B023


INTS = [
    ("int32", lambda a: a + 2**40),
    ("int32", lambda a: 2**40 * a),
    ("int32", lambda a: a - np.int64(2**40)),
    ("int8", lambda a: a | 256),
    ("uint8", lambda a: a + 256),
    ("int32", lambda a: cutlass.Int32(2**40) + a),
    ("uint32", lambda a: a > -1),
    ("uint64", lambda a: a // -2),
    ("int64", lambda a: a < 2**63),
    ("float32", lambda a: a * 2**63),
    ("float32", lambda a: a + 10**400),
    ("bool", lambda a: a | 2**70),
]


@pytest.mark.parametrize(("dtype", "fn"), INTS)
def test_python_ints_that_no_register_holds(dtype, fn, on_emulator):
    refused(
        lambda: cs.reduce(np.ones(3, dtype), "add", transform=fn), "does not fit", inspect.getsource(fn).strip()[:20]
    )


def test_python_ints_that_fit(on_emulator):
    """As they are, wrapped as the register wraps, or where the callable asks for more bits itself."""
    x = np.array([1, -2, 3], np.int32)

    def mixed(a):
        return (a & 0xFFFFFFFF) + (a < 2**40) - (a > -1) + cutlass.Int32((cutlass.Int64(a) + 2**40) >> 40)

    assert cs.reduce(x, "add", transform=mixed) == sum((int(v)) + 1 - (v > -1) + ((int(v) + 2**40) >> 40) for v in x)
    unsigned = lambda a: cutlass.select_(a < 7, a & -2, a ^ 0xFF)  # noqa: E731
    assert cs.reduce(np.array([3, 9], np.uint8), "add", transform=unsigned) == 2 + (9 ^ 0xFF)


def test_a_helper_is_named_and_its_error_is_the_cause(on_emulator):
    error = refused(lambda: cs.reduce(X, deep), "AttributeError", "return value.nothing  # a helper's line")
    assert isinstance(error.__cause__, AttributeError)


def test_no_frame_of_the_dsl_is_shown(on_emulator):
    for fn in (deep, endless):
        error = refused(lambda: cs.reduce(X, fn))  # noqa: B023
        assert "nvidia_cutlass_dsl" not in "".join(traceback.format_exception(error))


def test_callables_that_are_no_functions(on_emulator):
    class Callable:
        def __call__(self, a, b):
            return a.nothing  # of an object

    refused(lambda: cs.reduce(X, Callable()), "a.nothing  # of an object")
    refused(lambda: cs.reduce(X, functools.partial(endless)), "# a loop")
    refused(lambda: cs.reduce(X, cute.jit(deep)), "# a helper's line")
    with pytest.raises(
        OperatorError, match="could not be traced on int32: TypeError: it returned ndarray, not a number; see [^;]*$"
    ):
        cs.reduce(X, np.vectorize(lambda a, b: a))


def test_the_dsl_is_as_it_was_afterwards(on_emulator):
    from cutlass.base_dsl import diagnostics, typing

    before = typing._binary_op, diagnostics.report_warning
    with pytest.raises(OperatorError):
        traced("op", lambda a: 1 / 0, (1,), None, dtypes.INT32)
    assert (typing._binary_op, diagnostics.report_warning) == before
