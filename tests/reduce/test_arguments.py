"""Bad input gets a typed error that says what came, what is allowed and what to do, before anything is launched or
written. What reductions and scans refuse alike stands in tests/test_arguments.py."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentValueError, DeviceError, OperatorError
from cutesync.kernels.reduce import plan
from cutesync.runtime import call, device
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from ..cases import Capsule, is_refused
from ..compiled import dry, needed

X = np.arange(12, dtype=np.int32).reshape(3, 4)
F = X.astype(np.float32)


BAD = {
    "a tuple": (lambda: cs.argmin((1, 2)), TypeError, ["a tuple", "np.asarray"]),
    "a number": (lambda: cs.sum(3), TypeError, ["a int", "np.asarray"]),
    "a string": (lambda: cs.max("abc"), TypeError, ["a str"]),
    "axis type": (lambda: cs.reduce(X, axis="0"), TypeError, ["axis", "'0'", "tuple of ints"]),
    "axis list": (lambda: cs.reduce(X, axis=[0]), TypeError, ["axis", "tuple of ints"]),
    "axis twice": (lambda: cs.reduce(X, axis=(0, -2)), ValueError, ["axis", "each axis once"]),
    "axis of arg": (lambda: cs.argmax(X, axis=0.5), TypeError, ["axis", "None, an int or a tuple of ints"]),
    "algorithm": (
        lambda: cs.reduce(X, algorithm="fastest"),
        ValueError,
        ["'fastest'", "'auto'", "'atomic'", "'multi_launch'"],
    ),
    "algorithm and axis": (
        lambda: cs.reduce(X, axis=0, algorithm="atomic"),
        ValueError,
        ["'atomic'", "axis=None", "'auto'"],
    ),
    "levels and axis": (
        lambda: cs.reduce(X, axis=1, algorithm="multi_launch"),
        ValueError,
        ["'multi_launch'", "axis=None"],
    ),
    "atomic operator": (lambda: cs.reduce(X, "mul", algorithm="atomic"), ValueError, ["mul of int32", "add", "'auto'"]),
    "atomic type": (lambda: cs.reduce(X.astype(np.int8), algorithm="atomic"), ValueError, ["add of int8", "'auto'"]),
    "atomic float min": (lambda: cs.reduce(F, "min", algorithm="atomic"), ValueError, ["min of float32", "'auto'"]),
    "atomic callable": (
        lambda: cs.reduce(X, lambda a, b: a + b, algorithm="atomic"),
        ValueError,
        ["<lambda> of int32", "'auto'"],
    ),
    "transform": (lambda: cs.reduce(X, transform=2), TypeError, ["transform", "2", "callable"]),
    "dtype of any": (lambda: cs.reduce(X, "any", dtype="int32"), TypeError, ["dtype", "int32", "bool"]),
    "empty min": (lambda: cs.min(X[:0]), ValueError, ["'min'", "identity", "init="]),
    "empty argmax": (lambda: cs.argmax(X[:0], axis=0), ValueError, ["'argmax'", "at least one element"]),
    "empty callable": (lambda: cs.reduce(X[:0], lambda a, b: a + b, axis=0), ValueError, ["identity"]),
    "init type": (lambda: cs.reduce(X, init="1"), TypeError, ["init", "'1'", "int32"]),
    "init array": (lambda: cs.reduce(X, init=np.ones(3)), TypeError, ["init"]),
    "out shape": (lambda: cs.reduce(X, axis=1, out=np.zeros(4, np.int32)), ValueError, ["out", "(4,)", "(3,)"]),
    "out kept dims": (
        lambda: cs.reduce(X, axis=1, keepdims=True, out=np.zeros(3, np.int32)),
        ValueError,
        ["out", "(3,)", "(3, 1)"],
    ),
    "out overlaps": (lambda: cs.reduce(X, axis=1, out=X[0, :3]), ValueError, ["out", "overlap"]),
    "own out shape": (
        lambda: cs.reduce(cs.asarray(X), axis=1, out=cs.empty(4, "int32")),
        ValueError,
        ["out", "(4,)", "(3,)"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, launches):
    is_refused(*BAD[case], launches, X)


def test_a_large_out_around_a_small_input_overlaps(launches):
    """A reduction over no axis writes as much as it reads."""
    memory = cs.empty(100, "int8")
    with pytest.raises(ArgumentValueError, match="overlap"):
        cs.reduce(
            memory[40:50],
            axis=(),
            dtype="int64",
            out=DeviceArray(memory.ptr + 8 - memory.ptr % 8, (10,), dtypes.INT64, HOST, memory),
        )
    assert launches == []


@pytest.mark.parametrize("make", [lambda: Capsule(X), lambda: cs.empty(3, "int32")], ids=["DLPack", "DeviceArray"])
def test_host_memory_where_there_is_a_gpu(make, on_emulator):
    x = make()
    with device.forced("gpu"), pytest.raises(DeviceError, match="host memory"):
        cs.reduce(x)


def test_somebody_elses_host_memory_on_the_emulator(launches):
    with pytest.raises(DeviceError, match=r"a Capsule in host memory.*np\.asarray"):
        cs.reduce(Capsule(X))


def test_axes_that_are_not_neighbours_need_two_launches_where_the_order_counts(launches, monkeypatch):
    """And where the array is not small."""
    x = cs.empty((4, 5, 6, 7), "int32")
    for least, twice in ((0, 2), (plan.MIN_BYTES_OF_PASSES, 1)):
        monkeypatch.setattr(plan, "MIN_BYTES_OF_PASSES", least)
        monkeypatch.setattr(call, "_plans", {})
        for axis, count in (((0, 1), 1), ((1, 2), 1), (None, 1), ((0, 3), twice), ((0, 2), twice)):
            for op, wanted in (("add", 1), (lambda a, b: a + b, count)):
                launches.clear()
                cs.reduce(x, op, axis=axis)
                assert len(launches) == wanted, axis


class TestTracedCallables:
    """Operators are traced by the DSL; what goes wrong inside is told with the original message."""

    pytestmark = pytest.mark.usefixtures("on_emulator")

    @staticmethod
    def compiles(op, transform=None):
        (spec,) = needed(cs.reduce, dry((1000,), "int32"), op, transform=transform)
        return spec.kernel()

    def test_an_operator_that_raises(self):
        def broken(a, b):
            raise KeyError("the original message")

        with pytest.raises(OperatorError, match=r"broken.*KeyError.*the original message") as caught:
            self.compiles(broken)
        assert isinstance(caught.value, TypeError)
        assert self.compiles(lambda a, b: a + b).name.startswith("cutesync_reduce")

    def test_a_transform_that_raises(self):
        with pytest.raises(OperatorError, match=r"transform.*ZeroDivisionError"):
            self.compiles("add", transform=lambda v: 1 // 0)
