"""Bad input gets a typed error that says what came, what is allowed and what to do, before anything is launched or
written. What reductions and scans refuse alike stands in tests/test_arguments.py."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.runtime import call
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from ..cases import data, is_refused, same, scanned
from .kernels import force, pipeline

X = np.arange(12, dtype=np.int32).reshape(3, 4)


def plus(a, b):
    return a + b


BAD = {
    "a list in cumsum": (lambda: cs.cumsum([1, 2]), TypeError, ["a list", "np.asarray"]),
    "a number": (lambda: cs.cumprod(3), TypeError, ["a int", "np.asarray"]),
    "axis type": (lambda: cs.scan(X, axis="0"), TypeError, ["axis", "'0'", "None or an int"]),
    "axis tuple": (lambda: cs.scan(X, axis=(0, 1)), TypeError, ["axis", "(0, 1)", "None or an int"]),
    "axis list": (lambda: cs.scan(X, axis=[0]), TypeError, ["axis", "[0]", "None or an int"]),
    "axis of no dimensions": (lambda: cs.scan(np.array(3)), ValueError, ["axis", "-1", "no dimensions", "None"]),
    "operator of reductions": (lambda: cs.scan(X, "any"), ValueError, ["got 'any'", "add", "callable"]),
    "exclusive": (lambda: cs.scan(X, exclusive=1), TypeError, ["exclusive", "1", "True or False"]),
    "reverse": (lambda: cs.scan(X, reverse="yes"), TypeError, ["reverse", "'yes'", "True or False"]),
    "exclusive min": (
        lambda: cs.scan(X, "min", exclusive=True),
        ValueError,
        ["exclusive", "'min'", "identity", "init="],
    ),
    "exclusive callable": (lambda: cs.scan(X, plus, exclusive=True), ValueError, ["exclusive", "'plus'", "identity="]),
    "init type": (lambda: cs.scan(X, init="1"), TypeError, ["init", "a str"]),
    "init list": (lambda: cs.scan(X, init=[1]), TypeError, ["init", "a list"]),
    "init NumPy array": (
        lambda: cs.scan(X, init=np.ones(1, np.int32)),
        TypeError,
        ["init", "NumPy array", "init.item()"],
    ),
    "init shape": (
        lambda: cs.scan(cs.asarray(X), init=cs.empty(2, "int32")),
        ValueError,
        ["init", "(2,)", "broadcasts to (3,)"],
    ),
    "init dtype": (lambda: cs.scan(cs.asarray(X), init=cs.empty(1, "int64")), TypeError, ["init", "int64", "int32"]),
    "init dtype of a wider result": (
        lambda: cs.scan(cs.asarray(X), init=cs.empty(1, "int32"), dtype="int64"),
        TypeError,
        ["init", "int32", "int64"],
    ),
    "init elsewhere": (lambda: cs.scan(X, init=cs.empty(1, "int32")), ValueError, ["init", "device", "NumPy x"]),
    "identity range": (
        lambda: cs.scan(X.astype(np.int8), plus, exclusive=True, identity=1000),
        ValueError,
        ["identity", "1000", "-128 to 127"],
    ),
    "identity type": (lambda: cs.scan(X, plus, exclusive=True, identity=0.5), TypeError, ["identity", "0.5", "int32"]),
    "out shape": (lambda: cs.scan(X, out=np.zeros(12, np.int32)), ValueError, ["out", "(12,)", "(3, 4)"]),
    "out flat": (lambda: cs.scan(X, axis=None, out=np.zeros((3, 4), np.int32)), ValueError, ["out", "(3, 4)", "(12,)"]),
    "out of a promoted sum": (
        lambda: cs.cumsum(X, axis=0, out=np.zeros((3, 4), np.int32)),
        TypeError,
        ["out", "int32", "int64"],
    ),
    "out overlaps": (lambda: cs.scan(X[:2], axis=None, out=X.reshape(-1)[2:10]), ValueError, ["out", "overlap"]),
    "own out shape": (
        lambda: cs.scan(cs.asarray(X), out=cs.empty(12, "int32")),
        ValueError,
        ["out", "(12,)", "(3, 4)"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case, launches):
    is_refused(*BAD[case], launches, X)


def test_a_numpy_out_may_be_x_by_another_name(on_emulator):
    for name, view in {
        "x": lambda x: x,
        "x[:]": lambda x: x[:],
        "a reshape": lambda x: x.reshape(-1).reshape(x.shape),
    }.items():
        x = X.copy()
        out = view(x)
        assert cs.scan(x, out=out) is out
        same(x, scanned(X), name)
    square = X[:, :3].copy()
    for out in (square[::-1], square.T):
        with pytest.raises(ArgumentValueError, match="overlap"):
            cs.scan(square, out=out)
    assert np.array_equal(square, X[:, :3])


def test_a_wider_out_may_not_begin_where_x_does(launches):
    memory = cs.empty(64, "int64")
    x = DeviceArray(memory.ptr, (10,), dtypes.INT32, HOST, memory)
    with pytest.raises(ArgumentValueError, match="overlap"):
        cs.scan(x, dtype="int64", out=memory[:10])
    assert launches == []


def test_init_on_the_device_may_not_lie_in_out(launches):
    """Blocks would read it before or after its place is written."""
    memory = cs.empty(100, "int32")
    with pytest.raises(ArgumentValueError, match="init"):
        cs.scan(memory[:40], init=memory[45:46], out=memory[40:80])
    with pytest.raises(ArgumentValueError, match="init"):
        cs.scan(memory[:40], init=memory[7:8], out=memory[:40])
    assert launches == []


def test_init_on_another_device_than_x(on_emulator):
    from cutesync.runtime import device

    x, init = (DeviceArray(4096 * (1 + ordinal), (1,), dtypes.INT32, ordinal, None) for ordinal in (0, 1))
    with device.forced("gpu"), pytest.raises(DeviceError, match=r"init.*device 1; needs the device of x, 0"):
        cs.scan(x, init=init)


def test_a_reduction_and_a_scan_of_equal_arguments_are_two_plans(launches):
    x = cs.empty(1000, "float32")
    assert cs.scan(x).shape == (1000,)
    assert cs.reduce(x).shape == ()
    assert cs.scan(x).shape == (1000,)


def test_a_first_operand_on_the_device_that_only_the_call_holds(on_emulator):
    x = data(1000, "int32")
    same(np.asarray(cs.scan(cs.asarray(x), init=cs.asarray(np.array([7], np.int32)))), scanned(x, init=7))


def test_device_scalars_share_a_plan(on_emulator):
    """Those that are aligned alike do: the address is an argument of each launch. One of another type is refused
    whatever came before."""
    x, starts = data(1000, "int32"), np.repeat(np.array([7, -9, 1 << 20], np.int32), 4)
    array, held = cs.asarray(x), cs.asarray(starts)
    call._plans.clear()
    for i in (0, 4, 8, 0):
        same(np.asarray(cs.scan(array, init=held[i : i + 1])), scanned(x, init=int(starts[i])))
    assert len(call._plans) == 1
    with pytest.raises(ArgumentTypeError, match="init"):
        cs.scan(array, init=cs.empty(1, "int64"))


def test_rings_that_those_who_take_turns_do_not_divide(on_emulator, monkeypatch):
    """A warp that visits a stage in every second phase only cannot tell the phases apart by their parity."""
    for stages, squads, look_aheads in ((3, 2, 1), (4, 3, 1), (3, 1, 2)):
        force(monkeypatch, pipeline(4, squads, 4, 1, stages, 2, look_aheads))
        with pytest.raises(ArgumentValueError, match="stages"):
            cs.scan(np.ones(3000, np.int32))
