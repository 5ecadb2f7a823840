"""Bad input gets a typed error that says what came, what is allowed and what to do, before anything is launched or
written."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, DeviceError
from cutesync.runtime import device
from cutesync.runtime.device_array import DeviceArray

from ..cases import Capsule, NotAStream, is_refused, read_only

X = np.arange(12, dtype=np.int32).reshape(3, 4)
F = X.astype(np.float32)
OUT, LONG = np.zeros((3, 4), np.uint8), np.zeros((5, 4), np.uint8)


BAD = {
    "None": (lambda: cs.flag_heads(None), TypeError, ["None", "np.asarray"]),
    "a list": (lambda: cs.flag_tails([1, 2]), TypeError, ["a list", "np.asarray"]),
    "complex": (lambda: cs.flag_heads(X.astype(np.complex64)), TypeError, ["complex64", "float64"]),
    "big-endian": (lambda: cs.flag_heads(X.astype(">i4")), TypeError, [">i4"]),
    "no axes": (lambda: cs.flag_heads(np.array(3)), ValueError, ["no axes", "reshape"]),
    "in host memory": (lambda: cs.flag_heads(Capsule(X.T)), ValueError, ["a Capsule in host memory", "np.asarray"]),
    "no such axis": (lambda: cs.flag_heads(X, axis=2), ValueError, ["axis", "2", "-2 to 1"]),
    "axis type": (lambda: cs.adjacent_difference(X, axis="0"), TypeError, ["axis", "'0'", "an int"]),
    "two axes": (lambda: cs.flag_tails(X, axis=(0, 1)), TypeError, ["axis", "(0, 1)"]),
    "n type": (lambda: cs.flag_heads(X, n=1.0), TypeError, ["n", "1.0", "0-d array of int64"]),
    "n bool": (lambda: cs.adjacent_difference(X, n=True), TypeError, ["n", "True"]),
    "n of int32": (lambda: cs.flag_heads(X, n=np.array(1, np.int32)), TypeError, ["n", "int32", "int64"]),
    "n of an axis": (lambda: cs.flag_heads_and_tails(X, n=np.array([1])), TypeError, ["n", "(1,)", "0-d"]),
    "n elsewhere": (lambda: cs.flag_heads(X, n=cs.asarray(np.array(1))), ValueError, ["n", "a NumPy array"]),
    "out that repeats": (
        lambda: cs.flag_heads(cs.asarray(X), out=cs.empty((3, 1), "uint8").broadcast_to((3, 4))),
        ValueError,
        ["out", "share memory"],
    ),
    "operator name": (lambda: cs.flag_heads(X, "add"), ValueError, ["'add'", "ne, eq, lt", "callable"]),
    "operator type": (lambda: cs.flag_heads(X, 3), TypeError, ["3", "callable"]),
    "difference name": (lambda: cs.adjacent_difference(X, "ne"), ValueError, ["'ne'", "sub, add", "callable"]),
    "difference of bool": (lambda: cs.adjacent_difference(X > 3), TypeError, ["bool", "'xor'"]),
    "xor of floats": (lambda: cs.adjacent_difference(F, "xor"), TypeError, ["float32", "integer"]),
    "dtype": (lambda: cs.flag_heads(X, dtype="uint4"), TypeError, ["dtype", "uint4"]),
    "float flags": (lambda: cs.flag_heads(X, dtype="float32"), TypeError, ["dtype", "float32", "'bits'"]),
    "predecessor type": (lambda: cs.flag_heads(X, predecessor="1"), TypeError, ["predecessor", "'1'", "int32"]),
    "predecessor float": (lambda: cs.flag_heads(X, predecessor=1.5), TypeError, ["predecessor", "1.5", "int32"]),
    "predecessor array": (lambda: cs.flag_heads(X, predecessor=np.ones(3)), TypeError, ["predecessor"]),
    "successor range": (
        lambda: cs.flag_tails(X.astype(np.int8), successor=128),
        ValueError,
        ["successor", "128", "-128 to 127"],
    ),
    "successor negative": (
        lambda: cs.flag_heads_and_tails(X.astype(np.uint32), successor=-1),
        ValueError,
        ["successor", "-1"],
    ),
    "tile type": (lambda: cs.flag_heads(X, tile=1.0), TypeError, ["tile", "1.0", "an int"]),
    "tile bool": (lambda: cs.flag_heads(X, tile=True), TypeError, ["tile", "True"]),
    "tile of nothing": (lambda: cs.flag_heads(X, tile=0), ValueError, ["tile", "0", "1 to"]),
    "tile too large": (lambda: cs.flag_heads(X, tile=2**40), ValueError, ["tile", "1 to 1073741824"]),
    "stream": (lambda: cs.flag_heads(X, stream="0"), TypeError, ["stream", "a str"]),
    "stream object": (lambda: cs.flag_heads(X, stream=NotAStream()), TypeError, ["stream", "NotAStream"]),
    "out a list": (lambda: cs.flag_heads(X, out=[0]), (TypeError, ValueError), ["out", "a list"]),
    "out shape": (lambda: cs.flag_heads(X, out=np.zeros(12, np.uint8)), ValueError, ["out", "(12,)", "(3, 4)"]),
    "out of bits": (
        lambda: cs.flag_heads(X, dtype="bits", out=np.zeros((3, 4), np.uint32)),
        ValueError,
        ["out", "(3, 4)", "(3, 1)"],
    ),
    "out dtype": (lambda: cs.flag_heads(X, out=np.zeros((3, 4), np.int8)), TypeError, ["out", "int8", "uint8"]),
    "out read-only": (lambda: cs.flag_heads(X, out=read_only(OUT)), ValueError, ["out", "read-only"]),
    "out overlaps": (lambda: cs.adjacent_difference(X[:2], out=X[1:]), ValueError, ["out", "overlap"]),
    "out elsewhere": (
        lambda: cs.flag_heads(X, out=cs.empty((3, 4), "uint8")),
        ValueError,
        ["out", "DeviceArray", "NumPy"],
    ),
    "one out for both": (lambda: cs.flag_heads_and_tails(X, out=OUT), TypeError, ["out", "a pair of arrays"]),
    "half a pair": (lambda: cs.flag_heads_and_tails(X, out=(OUT, None)), TypeError, ["out", "a pair of arrays"]),
    "one out twice": (lambda: cs.flag_heads_and_tails(X, out=(OUT, OUT)), ValueError, ["out", "overlap"]),
    "outs that overlap": (
        lambda: cs.flag_heads_and_tails(X, out=(LONG[:3], LONG[2:])),
        ValueError,
        ["out", "two arrays that overlap"],
    ),
    "second out dtype": (
        lambda: cs.flag_heads_and_tails(X, out=(OUT, np.zeros((3, 4), np.int8))),
        TypeError,
        ["out", "int8", "uint8"],
    ),
    "other GPU": (
        lambda: cs.flag_heads(DeviceArray(4096, (4,), dtypes.INT32, 0, None)),
        ValueError,
        ["GPU 0", "CUTESYNC_BACKEND=gpu"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, launches):
    is_refused(*BAD[case], launches, X)


def test_arrays_on_two_devices():
    x, out = DeviceArray(4096, (4,), dtypes.INT32, 0, None), DeviceArray(8192, (4,), dtypes.BY_NAME["uint8"], 1, None)
    with device.forced("gpu"), pytest.raises(DeviceError, match=r"device 1; needs the device of x, 0"):
        cs.flag_heads(x, out=out)


def test_one_launch_whatever_the_shape(launches):
    for shape in ((1,), (100,), (7, 33), (2, 3, 64)):
        cs.flag_heads_and_tails(cs.empty(shape, "int32"))
        cs.flag_heads(cs.empty(shape, "int32"), dtype="bits", tile=5)
    assert len(launches) == 8 and all(launch.grid >= 1 for launch in launches)


def test_ends_that_are_equal_but_mean_different_bits(launches):
    """0.0 == -0.0 and 1 == 1.0 == True: one key of a dictionary, but not one parameter, or not one that is allowed."""
    x = cs.empty(1000, "float32")
    cs.flag_heads(x, predecessor=0.0)
    cs.flag_heads(x, predecessor=-0.0)
    assert launches[0].parameters["predecessor"] != launches[1].parameters["predecessor"]
    whole = cs.empty(1000, "int32")
    cs.flag_heads(whole, predecessor=1, tile=1)
    for bad in ({"predecessor": 1.0}, {"predecessor": 1, "tile": True}):
        with pytest.raises(ArgumentTypeError):
            cs.flag_heads(whole, **bad)
