"""Bad input gets a typed error that says what came, what is allowed and what to do, before anything is launched or written."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError
from cutesync.runtime import arrays, call, device
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from ..cases import is_refused

X = np.arange(12, dtype=np.int32).reshape(3, 4)
F = X.astype(np.float32)


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


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


BAD = {
    "None": (lambda: cs.reduce(None), TypeError, ["None", "NumPy", "np.asarray"]),
    "a list": (lambda: cs.reduce([1, 2]), TypeError, ["a list", "np.asarray"]),
    "a tuple": (lambda: cs.argmin((1, 2)), TypeError, ["a tuple", "np.asarray"]),
    "a number": (lambda: cs.sum(3), TypeError, ["a int", "np.asarray"]),
    "a string": (lambda: cs.max("abc"), TypeError, ["a str"]),
    "complex": (lambda: cs.reduce(X.astype(np.complex64)), TypeError, ["complex64", "float64"]),
    "objects": (lambda: cs.reduce(X.astype(object)), TypeError, ["float64"]),
    "strings": (lambda: cs.reduce(X.astype("U3")), TypeError, ["float64"]),
    "dates": (lambda: cs.reduce(X.astype("M8[s]")), TypeError, ["float64"]),
    "long double": (lambda: cs.reduce(X.astype(np.longdouble)), TypeError, ["float64"]),
    "big-endian": (lambda: cs.reduce(X.astype(">i4")), TypeError, [">i4", "float64"]),
    "a record": (lambda: cs.reduce(np.zeros(3, [("a", "i4")])), TypeError, ["float64"]),
    "not contiguous": (lambda: cs.reduce(Capsule(X.T)), ValueError, ["non-contiguous", "(4, 3)", "C-contiguous", "opy"]),
    "negative stride": (lambda: cs.reduce(Capsule(X[::-1])), ValueError, ["non-contiguous"]),
    "broadcast": (lambda: cs.reduce(Capsule(np.broadcast_to(np.int32(1), (5,)).view())), ValueError, []),
    "axis type": (lambda: cs.reduce(X, axis="0"), TypeError, ["axis", "'0'", "tuple of ints"]),
    "axis float": (lambda: cs.reduce(X, axis=1.0), TypeError, ["axis", "1.0"]),
    "axis bool": (lambda: cs.reduce(X, axis=True), TypeError, ["axis", "True"]),
    "axis list": (lambda: cs.reduce(X, axis=[0]), TypeError, ["axis", "tuple of ints"]),
    "axis too large": (lambda: cs.reduce(X, axis=2), ValueError, ["axis", "2", "-2 to 1", "2 dimensions"]),
    "axis too small": (lambda: cs.reduce(X, axis=-3), ValueError, ["axis", "-3", "-2 to 1"]),
    "axis twice": (lambda: cs.reduce(X, axis=(0, -2)), ValueError, ["axis", "each axis once"]),
    "axis of arg": (lambda: cs.argmax(X, axis=(0, 1)), TypeError, ["axis", "None or an int"]),
    "operator name": (lambda: cs.reduce(X, "plus"), ValueError, ["'plus'", "add", "callable"]),
    "operator type": (lambda: cs.reduce(X, 3), TypeError, ["3", "callable"]),
    "and of floats": (lambda: cs.reduce(F, "and"), TypeError, ["float32", "integer"]),
    "or of floats": (lambda: cs.reduce(F, "or"), TypeError, ["float32", "integer"]),
    "xor of floats": (lambda: cs.reduce(X, "xor", dtype="float64"), TypeError, ["float64", "integer"]),
    "algorithm": (lambda: cs.reduce(X, algorithm="fastest"), ValueError, ["'fastest'", "'auto'", "'atomic'", "'multi_launch'"]),
    "algorithm and axis": (lambda: cs.reduce(X, axis=0, algorithm="atomic"), ValueError, ["'atomic'", "axis=None", "'auto'"]),
    "levels and axis": (lambda: cs.reduce(X, axis=1, algorithm="multi_launch"), ValueError, ["'multi_launch'", "axis=None"]),
    "atomic operator": (lambda: cs.reduce(X, "mul", algorithm="atomic"), ValueError, ["mul of int32", "add", "'auto'"]),
    "atomic type": (lambda: cs.reduce(X.astype(np.int8), algorithm="atomic"), ValueError, ["add of int8", "'auto'"]),
    "atomic float min": (lambda: cs.reduce(F, "min", algorithm="atomic"), ValueError, ["min of float32", "'auto'"]),
    "atomic callable": (lambda: cs.reduce(X, lambda a, b: a + b, algorithm="atomic"), ValueError, ["<lambda> of int32", "'auto'"]),
    "transform": (lambda: cs.reduce(X, transform=2), TypeError, ["transform", "2", "callable"]),
    "dtype": (lambda: cs.reduce(X, dtype="float8"), TypeError, ["dtype", "float8", "float64"]),
    "dtype complex": (lambda: cs.reduce(X, dtype=complex), TypeError, ["dtype", "complex", "float64"]),
    "dtype of any": (lambda: cs.reduce(X, "any", dtype="int32"), TypeError, ["dtype", "int32", "bool"]),
    "empty min": (lambda: cs.min(X[:0]), ValueError, ["'min'", "identity", "init="]),
    "empty argmax": (lambda: cs.argmax(X[:0], axis=0), ValueError, ["'argmax'", "at least one element"]),
    "empty callable": (lambda: cs.reduce(X[:0], lambda a, b: a + b, axis=0), ValueError, ["identity"]),
    "init type": (lambda: cs.reduce(X, init="1"), TypeError, ["init", "'1'", "int32"]),
    "init float for int": (lambda: cs.reduce(X, init=1.5), TypeError, ["init", "1.5", "int32"]),
    "init array": (lambda: cs.reduce(X, init=np.ones(3)), TypeError, ["init"]),
    "init range": (lambda: cs.reduce(X.astype(np.int8), init=128), ValueError, ["init", "128", "-128 to 127"]),
    "init negative": (lambda: cs.reduce(X.astype(np.uint32), init=-1), ValueError, ["init", "-1", "0 to 4294967295"]),
    "stream type": (lambda: cs.reduce(X, stream="0"), TypeError, ["stream", "a str", "__cuda_stream__"]),
    "stream object": (lambda: cs.reduce(X, stream=NotAStream()), TypeError, ["stream", "NotAStream"]),
    "stream bool": (lambda: cs.reduce(X, stream=True), TypeError, ["stream", "a bool"]),
    "out None-like": (lambda: cs.reduce(X, out=[0]), (TypeError, ValueError), ["out", "a list"]),
    "out shape": (lambda: cs.reduce(X, axis=1, out=np.zeros(4, np.int32)), ValueError, ["out", "(4,)", "(3,)"]),
    "out kept dims": (lambda: cs.reduce(X, axis=1, keepdims=True, out=np.zeros(3, np.int32)), ValueError, ["out", "(3,)", "(3, 1)"]),
    "out dtype": (lambda: cs.reduce(X, axis=1, out=np.zeros(3, np.int64)), TypeError, ["out", "int64", "int32"]),
    "out read-only": (lambda: cs.reduce(X, axis=1, out=read_only(np.zeros(3, np.int32))), ValueError, ["out", "read-only"]),
    "out overlaps": (lambda: cs.reduce(X, axis=1, out=X[0, :3]), ValueError, ["out", "overlap"]),
    "out elsewhere": (lambda: cs.reduce(X, axis=1, out=cs.empty(3, "int32")), ValueError, ["out", "DeviceArray", "NumPy"]),
    "out not contiguous": (lambda: cs.reduce(cs.asarray(X), axis=1, out=Capsule(np.zeros(6, np.int32)[::2])), ValueError, ["out", "non-contiguous"]),
    "own out shape": (lambda: cs.reduce(cs.asarray(X), axis=1, out=cs.empty(4, "int32")), ValueError, ["out", "(4,)", "(3,)"]),
    "own out dtype": (lambda: cs.reduce(cs.asarray(X), axis=1, out=cs.empty(3, "int16")), TypeError, ["out", "int16", "int32"]),
    "other GPU": (lambda: cs.reduce(DeviceArray(4096, (4,), dtypes.INT32, 0, None)), ValueError, ["GPU 0", "CUTESYNC_BACKEND=gpu"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, launches):
    before = X.copy()
    is_refused(*BAD[case], launches)
    assert np.array_equal(X, before)


def test_a_pointer_that_is_not_aligned_to_its_element(launches):
    memory = cs.empty(64, "uint8")
    with pytest.raises(ArgumentValueError, match="multiple of 4"):
        cs.reduce(DeviceArray(memory.ptr + 1, (8,), dtypes.INT32, HOST, memory))
    assert launches == []


def test_own_out_that_overlaps_at_either_end(launches):
    memory = cs.empty(100, "int32")
    x = memory[20:60].reshape(4, 10)
    for first, refused in ((16, False), (17, True), (20, True), (40, True), (59, True), (60, False)):
        out = memory[first : first + 4]
        if refused:
            with pytest.raises(ArgumentValueError, match="overlap"):
                cs.reduce(x, axis=1, out=out)
        else:
            assert cs.reduce(x, axis=1, out=out) is out
    assert len(launches) == 2


def test_a_large_out_around_a_small_input_overlaps(launches):
    """A reduction over no axis writes as much as it reads."""
    memory = cs.empty(100, "int8")
    with pytest.raises(ArgumentValueError, match="overlap"):
        cs.reduce(memory[40:50], axis=(), dtype="int64", out=DeviceArray(memory.ptr + 8 - memory.ptr % 8, (10,), dtypes.INT64, HOST, memory))
    assert launches == []


def test_arrays_on_two_devices():
    x, out = (DeviceArray(4096 * (1 + ordinal), (), dtypes.INT32, ordinal, None) for ordinal in (0, 1))
    with device.forced("gpu"), pytest.raises(DeviceError, match=r"device 1; needs the device of x, 0"):
        cs.reduce(x, out=out)


@pytest.mark.parametrize("make", [lambda: Capsule(X), lambda: cs.empty(3, "int32")], ids=["DLPack", "DeviceArray"])
def test_host_memory_where_there_is_a_gpu(make, on_emulator):
    x = make()
    with device.forced("gpu"), pytest.raises(DeviceError, match="host memory"):
        cs.reduce(x)


def test_somebody_elses_host_memory_on_the_emulator(launches):
    with pytest.raises(DeviceError, match=r"a Capsule in host memory.*np\.asarray"):
        cs.reduce(Capsule(X))


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [((3, 4), {}, ()), ((3, 4), {"axis": 0}, (4,)), ((3, 4), {"axis": -1}, (3,)), ((3, 4), {"axis": (0, 1)}, ()), ((3, 4), {"axis": ()}, (3, 4)),
     ((3, 4), {"axis": 1, "keepdims": True}, (3, 1)), ((3, 4), {"keepdims": True}, (1, 1)), ((2, 3, 4), {"axis": (0, 2)}, (3,)), ((), {}, ()),
     ((0, 4), {"axis": 0}, (4,)), ((0, 4), {"axis": 1}, (0,)), ((3, 4), {"axis": np.int64(1)}, (3,)), ((1, 1), {"axis": 0}, (1,))],
)  # fmt: skip
def test_shapes_of_results(shape, options, expected, launches):
    result = cs.reduce(DeviceArray(cs.empty(64, "int32").ptr, shape, dtypes.INT32, HOST, None), **options)
    assert result.shape == expected and result.dtype is dtypes.INT32


def test_an_empty_result_launches_nothing(launches):
    """A grid of no blocks is an error of CUDA's."""
    assert cs.reduce(cs.empty((0, 5), "int32"), axis=1).shape == (0,)
    assert cs.reduce(cs.empty((3, 0, 5), "int32"), "min", axis=(0, 2)).shape == (0,)
    assert launches == []


def test_neighbouring_axes_need_one_launch_and_others_two(launches):
    x = cs.empty((4, 5, 6, 7), "int32")
    for axis, count in (((0, 1), 1), ((1, 2), 1), (None, 1), ((0, 3), 2), ((0, 2), 2)):
        launches.clear()
        cs.reduce(x, axis=axis)
        assert len(launches) == count, axis


def test_the_second_call_makes_no_new_plan(launches, monkeypatch):
    x = cs.empty(1000, "float32")
    cs.reduce(x)
    monkeypatch.setattr(arrays, "checked", None)  # would fail if called
    cs.reduce(x)
    assert len(launches) == 2


@pytest.mark.parametrize("options", [{"axis": 0}, {"op": "max"}, {"init": 1}, {"dtype": "float64"}, {"keepdims": True}, {"transform": abs}], ids=str)
def test_other_options_are_another_plan(options, launches):
    x = cs.empty(1000, "float32")
    cs.reduce(x)
    cs.reduce(x, **options)
    assert len({id(launch) for launch in launches}) == 2


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0)])
def test_init_values_that_are_equal_but_mean_different_bits(one, other, launches):
    """1, True and 1.0 are one key of a dictionary; the plans they share must fold in the same value."""
    x = cs.empty(1000, "float32")
    slots = []
    for init in (one, other):
        cs.reduce(x, init=init)
        slots.append(launches[-1].parameters[2])
    assert slots[0] == slots[1]


def test_init_of_minus_zero_is_not_init_of_zero(launches):
    """0.0 == -0.0, but a sum of negative zeros tells them apart."""
    x = cs.empty(1000, "float32")
    cs.reduce(x, init=0.0)
    cs.reduce(x, init=-0.0)
    assert launches[0].parameters[2] != launches[1].parameters[2]


@pytest.mark.parametrize(
    ("good", "bad"), [({"axis": 1}, {"axis": True}), ({"axis": 1}, {"axis": 1.0}), ({"init": 1}, {"init": 1.0}), ({"axis": (0, 1)}, {"axis": (False, True)})], ids=str
)  # fmt: skip
def test_what_is_refused_is_refused_after_its_lookalike_too(good, bad, launches):
    """1 == 1.0 == True: a plan that was made for one of them must not admit the others."""
    x = cs.empty((3, 4), "int32")
    cs.reduce(x, **good)
    with pytest.raises(ArgumentTypeError):
        cs.reduce(x, **bad)


def test_a_nan_init_does_not_make_a_plan_a_call(launches):
    x = cs.empty(1000, "float32")
    for _ in range(5):
        cs.reduce(x, init=float("nan"))
    assert len(call._plans) <= 5


class TestTracedCallables:
    """Operators are traced by the DSL; what goes wrong inside is told with the original message."""

    pytestmark = pytest.mark.usefixtures("on_emulator")

    @staticmethod
    def compiles(op, dtype="int32", transform=None):
        from cutesync.ops import operator
        from cutesync.reduce.config import Problem, choose
        from cutesync.reduce.plan import Folding, kernel_for

        element = dtypes.dtype(dtype)
        folding = Folding(operator(op), element, element.accumulator, element, transform)
        return kernel_for(choose(Problem(1, 1000, 1, element.size, 1, True, True)), folding, False)

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

    def test_an_operator_of_one_argument(self):
        with pytest.raises(OperatorError, match="argument"):
            self.compiles(lambda a: a)

    def test_an_operator_that_branches_on_a_value(self):
        """A Python ``if`` on a traced value cannot be compiled: an error, never a wrong kernel."""
        with pytest.raises(OperatorError):
            self.compiles(lambda a, b: a if a < b else b)

    def test_an_operator_that_returns_nothing(self):
        with pytest.raises(OperatorError):
            self.compiles(lambda a, b: None)

    def test_an_operator_that_returns_a_string(self):
        with pytest.raises(OperatorError):
            self.compiles(lambda a, b: "text")

    def test_the_public_call_raises_the_same(self):
        def broken(a, b):
            raise KeyError("the original message")

        with pytest.raises(OperatorError, match="the original message"):
            cs.reduce(X, broken)


def test_errors_are_built_in_types_too():
    assert issubclass(ArgumentTypeError, TypeError) and issubclass(ArgumentValueError, ValueError) and issubclass(DeviceError, ValueError)
