"""What reductions and scans refuse alike, and how both plan: a typed error says what came, what is allowed and what to
do, before anything is launched or written."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.runtime import call, device
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from .cases import Capsule, NotAStream, is_refused, read_only

X = np.arange(12, dtype=np.int32).reshape(3, 4)
F = X.astype(np.float32)


class Family:
    """``call(x, op)`` along axis 1, and the shape of its result for X."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.call, self.shape = partial(getattr(cs, name), axis=1), shape

    def out(self, dtype="int32") -> np.ndarray:
        return np.zeros(self.shape, dtype)


@pytest.fixture(params=[("reduce", (3,)), ("scan", (3, 4))], ids=lambda family: family[0])
def family(request):
    return Family(*request.param)


BAD = {
    "None": (lambda f: f.call(None), TypeError, ["None", "NumPy", "np.asarray"]),
    "a list": (lambda f: f.call([1, 2]), TypeError, ["a list", "np.asarray"]),
    "complex": (lambda f: f.call(X.astype(np.complex64)), TypeError, ["complex64", "float64"]),
    "objects": (lambda f: f.call(X.astype(object)), TypeError, ["float64"]),
    "strings": (lambda f: f.call(X.astype("U3")), TypeError, ["float64"]),
    "dates": (lambda f: f.call(X.astype("M8[s]")), TypeError, ["float64"]),
    "long double": (lambda f: f.call(X.astype(np.longdouble)), TypeError, ["float64"]),
    "big-endian": (lambda f: f.call(X.astype(">i4")), TypeError, [">i4", "float64"]),
    "a record": (lambda f: f.call(np.zeros((3, 2), [("a", "i4")])), TypeError, ["float64"]),
    "broadcast": (lambda f: f.call(Capsule(np.broadcast_to(np.int32(1), (5, 2)).view())), ValueError, []),
    "axis float": (lambda f: f.call(X, axis=1.0), TypeError, ["axis", "1.0"]),
    "axis bool": (lambda f: f.call(X, axis=True), TypeError, ["axis", "True"]),
    "axis too large": (lambda f: f.call(X, axis=2), ValueError, ["axis", "2", "-2 to 1", "2 dimensions"]),
    "axis too small": (lambda f: f.call(X, axis=-3), ValueError, ["axis", "-3", "-2 to 1"]),
    "operator name": (lambda f: f.call(X, "plus"), ValueError, ["'plus'", "add", "callable"]),
    "operator type": (lambda f: f.call(X, 3), TypeError, ["3", "callable"]),
    "and of floats": (lambda f: f.call(F, "and"), TypeError, ["float32", "integer"]),
    "or of floats": (lambda f: f.call(F, "or"), TypeError, ["float32", "integer"]),
    "xor of floats": (lambda f: f.call(X, "xor", dtype="float64"), TypeError, ["float64", "integer"]),
    "dtype": (lambda f: f.call(X, dtype="float8"), TypeError, ["dtype", "float8", "float64"]),
    "dtype complex": (lambda f: f.call(X, dtype=complex), TypeError, ["dtype", "complex", "float64"]),
    "init float for int": (lambda f: f.call(X, init=1.5), TypeError, ["init", "1.5", "int32"]),
    "init range": (lambda f: f.call(X.astype(np.int8), init=128), ValueError, ["init", "128", "-128 to 127"]),
    "init negative": (lambda f: f.call(X.astype(np.uint32), init=-1), ValueError, ["init", "-1", "0 to 4294967295"]),
    "stream type": (lambda f: f.call(X, stream="0"), TypeError, ["stream", "a str", "__cuda_stream__"]),
    "stream object": (lambda f: f.call(X, stream=NotAStream()), TypeError, ["stream", "NotAStream"]),
    "stream bool": (lambda f: f.call(X, stream=True), TypeError, ["stream", "a bool"]),
    "out None-like": (lambda f: f.call(X, out=[0]), (TypeError, ValueError), ["out", "a list"]),
    "out dtype": (lambda f: f.call(X, out=f.out("int64")), TypeError, ["out", "int64", "int32"]),
    "out read-only": (lambda f: f.call(X, out=read_only(f.out())), ValueError, ["out", "read-only"]),
    "out elsewhere": (lambda f: f.call(X, out=cs.empty(f.shape, "int32")), ValueError, ["out", "DeviceArray", "NumPy"]),
    "own out dtype": (
        lambda f: f.call(cs.asarray(X), out=cs.empty(f.shape, "int16")),
        TypeError,
        ["out", "int16", "int32"],
    ),
    "other GPU": (
        lambda f: f.call(DeviceArray(4096, (4, 4), dtypes.INT32, 0, None)),
        ValueError,
        ["GPU 0", "CUTESYNC_BACKEND=gpu"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, family, launches):
    made, error, words = BAD[case]
    is_refused(lambda: made(family), error, words, launches, X)


def test_a_pointer_that_is_not_aligned_to_its_element(family, launches):
    memory = cs.empty(64, "uint8")
    with pytest.raises(ArgumentValueError, match="multiple of 4"):
        family.call(DeviceArray(memory.ptr + 1, (2, 4), dtypes.INT32, HOST, memory))
    assert launches == []


def test_arrays_on_two_devices(family):
    x, out = (
        DeviceArray(4096 * (1 + ordinal), shape, dtypes.INT32, ordinal, None)
        for ordinal, shape in enumerate((X.shape, family.shape))
    )
    with device.forced("gpu"), pytest.raises(DeviceError, match=r"out.*device 1; needs the device of x, 0"):
        family.call(x, out=out)


# name: (call, type of out, its length, whether it is refused for an x of 40 elements from 40 on, by its first element)
OUTS = {
    "reduce": (
        lambda x, out: cs.reduce(x.reshape(4, 10), axis=1, out=out),
        "int32",
        4,
        {36: False, 37: True, 40: True, 60: True, 79: True, 80: False},
    ),
    "scan": (
        lambda x, out: cs.scan(x, out=out),
        "int32",
        40,
        {20: True, 39: True, 40: False, 41: True, 79: True, 80: False},
    ),
    "flags": (
        lambda x, out: cs.flag_heads(x, out=out),
        "uint8",
        40,
        {0: False, 1: True, 40: True, 79: True, 80: False},
    ),
    "second flags": (
        lambda x, out: cs.flag_heads_and_tails(x, out=(cs.empty(40, "uint8"), out))[1],
        "uint8",
        40,
        {0: False, 1: True, 40: True, 79: True, 80: False},
    ),
}


@pytest.mark.parametrize("name", OUTS)
def test_own_out_that_overlaps_at_either_end(name, launches):
    """A scan may write over ``x`` itself, and nothing may lie across it."""
    run, element, length, places = OUTS[name]
    memory = cs.empty(200, element)
    for first, refused in places.items():
        x, out = memory[40:80], memory[first : first + length]
        if refused:
            with pytest.raises(ArgumentValueError, match="overlap"):
                run(x, out)
        else:
            assert run(x, out) is out
    assert len(launches) == list(places.values()).count(False)


SHAPES = [
    (cs.reduce, (3, 4), {}, ()),
    (cs.reduce, (3, 4), {"axis": 0}, (4,)),
    (cs.reduce, (3, 4), {"axis": -1}, (3,)),
    (cs.reduce, (3, 4), {"axis": (0, 1)}, ()),
    (cs.reduce, (3, 4), {"axis": ()}, (3, 4)),
    (cs.reduce, (3, 4), {"axis": 1, "keepdims": True}, (3, 1)),
    (cs.reduce, (3, 4), {"keepdims": True}, (1, 1)),
    (cs.reduce, (2, 3, 4), {"axis": (0, 2)}, (3,)),
    (cs.reduce, (), {}, ()),
    (cs.reduce, (0, 4), {"axis": 0}, (4,)),
    (cs.reduce, (0, 4), {"axis": 1}, (0,)),
    (cs.reduce, (3, 4), {"axis": np.int64(1)}, (3,)),
    (cs.reduce, (1, 1), {"axis": 0}, (1,)),
    (cs.scan, (3, 4), {}, (3, 4)),
    (cs.scan, (3, 4), {"axis": 0}, (3, 4)),
    (cs.scan, (3, 4), {"axis": None}, (12,)),
    (cs.scan, (), {"axis": None}, (1,)),
    (cs.scan, (0, 4), {"axis": 0}, (0, 4)),
    (cs.scan, (3, 4), {"axis": np.int64(1)}, (3, 4)),
    (cs.scan, (2, 3, 4), {"axis": None, "dtype": "int64"}, (24,)),
]


@pytest.mark.parametrize(("run", "shape", "options", "expected"), SHAPES)
def test_shapes_of_results(run, shape, options, expected, launches):
    result = run(DeviceArray(cs.empty(64, "int32").ptr, shape, dtypes.INT32, HOST, None), **options)
    assert result.shape == expected and result.dtype is dtypes.dtype(options.get("dtype", "int32"))


@pytest.mark.parametrize(
    ("run", "shape", "options", "expected"),
    [
        (cs.reduce, (0, 5), {"axis": 1}, (0,)),
        (cs.reduce, (3, 0, 5), {"op": "min", "axis": (0, 2)}, (0,)),
        (cs.scan, (0, 5), {"axis": 1}, (0, 5)),
        (cs.scan, (0, 5), {"axis": 0}, (0, 5)),
        (cs.scan, (3, 0), {"axis": 0}, (3, 0)),
        (cs.scan, (0,), {"axis": None}, (0,)),
        (cs.flag_heads, (0, 5), {}, (0, 5)),
        (cs.flag_heads, (3, 0), {"dtype": "bits"}, (3, 0)),
    ],
)
def test_an_empty_result_launches_nothing(run, shape, options, expected, launches):
    """A grid of no blocks is an error of CUDA's."""
    assert run(cs.empty(shape, "int32"), **options).shape == expected and launches == []


OPTIONS = {
    cs.reduce: [{"op": "max"}, {"init": 1}, {"dtype": "float64"}, {"axis": 0}, {"keepdims": True}, {"transform": abs}],
    cs.scan: [
        {"op": "max"},
        {"init": 1},
        {"dtype": "float64"},
        {"exclusive": True},
        {"reverse": True},
        {"axis": 0},
        {"axis": None},
        {"init": -0.0},
        {"init": 0.0},
    ],
    cs.flag_heads: [{"op": "lt"}, {"predecessor": 1}, {"dtype": "int8"}, {"tile": 5}],
}


@pytest.mark.parametrize("run", OPTIONS)
def test_the_second_call_makes_no_new_plan_and_other_options_make_one(run, launches, monkeypatch):
    x = cs.empty((3, 1000), "float32")
    for options in ({}, *OPTIONS[run]):
        run(x, **options)
    assert len({id(launch) for launch in launches}) == len(OPTIONS[run]) + 1
    monkeypatch.setattr(call, "_make", None)  # would fail if called
    for options in ({}, *OPTIONS[run]):
        run(x, **options)
    assert len(launches) == 2 * len(OPTIONS[run]) + 2


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0)])
def test_init_values_that_are_equal_but_mean_different_bits(one, other, family, launches):
    """1, True and 1.0 are one key of a dictionary; the plans they share must fold in the same value."""
    x = cs.empty((1, 1000), "float32")
    slots = []
    for init in (one, other):
        family.call(x, init=init)
        slots.append(launches[-1].parameters["init"])
    assert slots[0] == slots[1] != 0 or one == 0


def test_init_of_minus_zero_is_not_init_of_zero(family, launches):
    """0.0 == -0.0, but a sum of negative zeros tells them apart."""
    x = cs.empty((1, 1000), "float32")
    family.call(x, init=0.0)
    family.call(x, init=-0.0)
    assert launches[0].parameters["init"] != launches[1].parameters["init"]


ALIKE = [({"axis": 1}, {"axis": True}), ({"axis": 1}, {"axis": 1.0}), ({"init": 1}, {"init": 1.0})]
OWN = [
    ("reduce", {"axis": (0, 1)}, {"axis": (False, True)}),
    ("scan", {"exclusive": True}, {"exclusive": 1}),
    ("scan", {"reverse": False}, {"reverse": 0}),
]


@pytest.mark.parametrize(
    ("name", "good", "bad"), [*((name, *pair) for name in ("reduce", "scan") for pair in ALIKE), *OWN], ids=str
)
def test_what_is_refused_is_refused_after_its_lookalike_too(name, good, bad, launches):
    """1 == 1.0 == True: a plan that was made for one of them must not admit the others."""
    x, call_of = cs.empty((3, 4), "int32"), getattr(cs, name)
    call_of(x, **good)
    with pytest.raises(ArgumentTypeError):
        call_of(x, **bad)


def test_a_nan_init_does_not_make_a_plan_a_call(family, launches):
    x = cs.empty((1, 1000), "float32")
    for _ in range(5):
        family.call(x, init=float("nan"))
    assert len(call._plans) <= 5
