"""What ``cs.launch`` and ``cs.compile`` refuse, before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, CutesyncError, DeviceError

from ..cases import Capsule
from . import kernels_host as own

X = np.arange(100, dtype=np.float32)
DEVICE = Capsule(X)
REFUSED = {
    "too few": (lambda: cs.launch(own.scale, X), ArgumentTypeError, r"of scale: got 1; needs 3 to 4 \(x, y, by, thr"),
    "too many": (lambda: cs.launch(own.copy, X, X, X), ArgumentTypeError, "got 3; needs 2 .*the stream is given as"),
    "no array": (lambda: cs.launch(own.copy, "x", X), ArgumentTypeError, "x: got a str; needs an array, a number"),
    "a dict": (lambda: cs.launch(own.copy, {"a": X}, X), ArgumentTypeError, "x: got a dict; needs an array"),
    "an array for a number": (
        lambda: cs.launch(own.numbers, X, *([X] * 10)),
        ArgumentTypeError,
        "a: got an array; needs a n",
    ),
    "a number for an array": (
        lambda: cs.launch(own.copy_matrix, 3, X),
        ArgumentTypeError,
        "x: got a number; needs an array",
    ),
    "a list for an array": (
        lambda: cs.launch(own.copy_matrix, [X], X),
        ArgumentTypeError,
        "x: got a list or tuple; needs an",
    ),
    "complex": (lambda: cs.launch(own.copy, X.astype(complex), X), ArgumentTypeError, "complex128"),
    "host memory": (lambda: cs.launch(own.copy, DEVICE, DEVICE), DeviceError, "x: got a Capsule in host memory"),
    "mixed": (lambda: cs.launch(own.copy, X, cs.asarray(X)), DeviceError, "NumPy arrays beside arrays on a device"),
    "kernel": (
        lambda: cs.launch(own.copy_kernel, X, X),
        ArgumentTypeError,
        "got the kernel copy_kernel; needs a @cute",
    ),
    "function": (lambda: cs.launch(lambda x: None, X), ArgumentTypeError, "without @cute.jit"),
    "number": (lambda: cs.compile(5, X), ArgumentTypeError, "without @cute.jit"),
    "keywords": (lambda: cs.launch(own.keyword, X, X), ArgumentTypeError, "parameter y of keyword: got a keyword"),
    "strided pointer": (
        lambda: cs.launch(own.Adder(1), cs.asarray(X)[::2], cs.asarray(X)),
        ArgumentValueError,
        "x: got strides .* a pointer has no strides",
    ),
    "stream": (lambda: cs.launch(own.scale, X, X, 1.0, stream="a"), ArgumentTypeError, "stream: got a str"),
    "no stream": (
        lambda: cs.launch(own.without_stream, X, np.zeros(100, np.float32), stream=77),
        ArgumentValueError,
        "stream 77; needs the default stream: without_stream has no parameter stream",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(on_emulator, name):
    call, error, words = REFUSED[name]
    with cs.emulate() as run, pytest.raises(error, match=words):
        call()
    assert run.launches == 0


@pytest.mark.parametrize(("at", "value"), [(0, 128), (1, -1), (2, 1 << 63), (4, 1e6), (7, 1 << 31), (2, 1.5)], ids=str)
def test_numbers_that_do_not_fit(on_emulator, at, value):
    values: list = [0, 0, 0, 0, 0.0, 0.0, 0.0, 0, 0.0, 0]
    values[at] = value
    with pytest.raises(CutesyncError, match=rf"{'abcdefghij'[at]}: got .*; needs a value of cutlass\."):
        cs.launch(own.numbers, np.zeros(10), *values)
