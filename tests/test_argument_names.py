"""Errors name the argument whose array is refused, as the caller knows it, on the host and on a device."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError

X, PLACES, MASK, MATRIX = np.arange(12, dtype=np.float32), np.arange(12), np.ones(12, bool), np.ones((4, 4), np.float32)
CALLS = [
    (cs.scan, {"x": X, "init": None, "out": None, "n": None}),
    (cs.reduce, {"x": X, "out": None, "n": None}),
    (cs.argmin, {"x": X, "out": None}),
    (cs.linear_recurrence, {"a": X, "b": X, "init": None, "out": None}),
    (cs.cummax, {"x": X, "n": None}),
    (cs.flag_heads, {"x": X, "out": None, "n": None}),
    (cs.adjacent_difference, {"x": X, "out": None}),
    (cs.select, {"x": X, "where": MASK, "out": None, "n": None}),
    (cs.partition3, {"x": X, "first": MASK, "second": MASK, "out": None}),
    (cs.compress, {"condition": MASK, "x": X, "out": None}),
    (cs.argwhere, {"x": MATRIX, "out": None}),
    (cs.run_length_encode, {"x": X, "out": None}),
    (cs.run_length_decode, {"values": X, "lengths": PLACES, "size": 12, "out": None}),
    (cs.repeat, {"x": X, "repeats": PLACES, "size": 12, "out": None}),
    (cs.reduce_by_key, {"keys": PLACES, "values": X, "out": None, "n": None}),
    (cs.scan_by_key, {"keys": PLACES, "values": X, "out": None}),
    (cs.segmented_reduce, {"x": (X,), "lengths": PLACES}),
    (cs.segmented_scan, {"x": X, "offsets": PLACES, "out": None}),
    (cs.segmented_scan, {"x": X, "heads": MASK}),
    (cs.topk, {"x": X, "k": 3, "out": None, "n": None}),
    (cs.searchsorted, {"a": X, "v": X, "sorter": None, "out": None}),
    (cs.bincount, {"x": PLACES, "length": 20, "weights": None, "out": None}),
    (cs.matmul, {"a": MATRIX, "b": MATRIX, "out": None}),
]
# None of them is an array that a function takes.
WRONG = {"a list": [1, 2], "an object": object(), "complex": np.ones(12, complex), "big-endian": X.astype(">f4")}


def on_device(value):
    if isinstance(value, tuple):
        return tuple(map(on_device, value))
    return cs.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("place", ["numpy", "device"])
@pytest.mark.parametrize(("function", "given"), CALLS, ids=lambda call: getattr(call, "__name__", ""))
def test_errors_name_the_argument(function, given, place):
    with cs.emulate(), warnings.catch_warnings():
        warnings.simplefilter("error")
        options = given if place == "numpy" else {name: on_device(value) for name, value in given.items()}
        for name in (name for name, value in given.items() if not isinstance(value, (int, tuple))):
            for wrong in WRONG.values():
                if place == "device" and isinstance(wrong, np.ndarray):
                    continue  # refused as a NumPy array
                with pytest.raises((ArgumentTypeError, ArgumentValueError, DeviceError)) as error:
                    function(**(options | {name: wrong}))
                assert str(error.value).startswith((f"{name}: got", f"{name}[")), error.value


@pytest.mark.parametrize("place", [np.asarray, cs.asarray], ids=["numpy", "device"])
def test_first_elements_of_a_recurrence_are_those_of_its_rows(place):
    with cs.emulate():
        a, init = place(MATRIX), place(np.ones(3, np.float32))
        for call, name in ((lambda: cs.linear_recurrence(a, a, init=init), "a"), (lambda: cs.scan(a, init=init), "x")):
            with pytest.raises(ArgumentValueError, match=f"init: got .* that of {name} without the axis"):
                call()
