"""Columns of small elements that are combined as words: every type and operator that has word arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import plan
from cutesync.kernels.scan.packed import Packed

from ..cases import data, same, scanned

OPERATORS = {
    "bool": ("add", "mul", "min", "max", "and", "or", "xor"),
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), ("add", "min", "max", "and", "or", "xor")),
    **dict.fromkeys(("float16", "bfloat16"), ("min", "max")),
}
QUICK = ("int8",)


@pytest.fixture
def operations(monkeypatch):
    """The operations of the launches of a test."""
    found = []
    launch = plan.launch

    def seen(choice, spec, *more):
        found.append(spec.operation)
        return launch(choice, spec, *more)

    monkeypatch.setattr(plan, "launch", seen)
    return found


def check(x: np.ndarray, op: str, **options) -> None:
    found = cs.scan(cs.asarray(x), op, axis=1, **options)
    same(np.asarray(found), scanned(x, op, axis=1, **options), f"{op} of {x.dtype} {options}")


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "dtype", [t if t in QUICK else pytest.param(t, marks=pytest.mark.slow) for t in OPERATORS if t != "int16"]
)
def test_every_operator(dtype, on_emulator, operations):
    """No carry leaves its element, and a first operand is that of every column."""
    for op in OPERATORS[dtype] if dtype not in QUICK else ("add", "max"):
        x = data((2, 21, 12), dtype, "xor" if dtype == "bool" else op)
        check(x, op)
        if "float" not in dtype and op in ("add", "max"):
            check(x, op, init=1 if dtype == "bool" else 5, exclusive=True, reverse=True)
    assert all(isinstance(operation, Packed) for operation in operations)


def test_bytes_that_are_true(on_emulator, operations):
    """Bools may be any byte that is not 0; results are 0 or 1."""
    x = np.random.default_rng(1).integers(0, 3, (40, 8)).astype(np.uint8) * 127
    for op in ("or", "and", "xor"):
        found = np.asarray(cs.scan(cs.asarray(x.view(np.bool_)), op, axis=0))
        same(found.view(np.uint8), scanned(x != 0, op, axis=0).view(np.uint8))
    assert all(isinstance(operation, Packed) for operation in operations)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nan_propagates(dtype, on_emulator, operations):
    x = data((3, 17, 8), dtype, "max")
    x[:, 5, ::3] = np.nan
    for op in ("min", "max"):
        check(x, op)
    assert all(isinstance(operation, Packed) for operation in operations)


@pytest.mark.slow
def test_strided_words(on_emulator, operations):
    """Rows apart, reversed outer axes, and in place; columns that no words hold stay elements."""
    x = data((3, 19, 24), "int8")
    whole = cs.asarray(x)
    for view, array in ((whole[:, :, 4:16], x[:, :, 4:16]), (whole[::-1, ::-1, :8], x[::-1, ::-1, :8])):
        same(np.asarray(cs.scan(view, axis=1)), np.cumsum(array, 1, dtype=np.int8))
    assert all(isinstance(operation, Packed) for operation in operations)
    cs.scan(whole[:, :, 8:20], axis=1, out=whole[:, :, 8:20])
    same(np.asarray(whole)[:, :, 8:20], np.cumsum(x[:, :, 8:20], 1, dtype=np.int8))
    operations.clear()
    for view in (whole[:, :, 1:5], whole[:, :, :6], whole[:, :, ::2]):
        cs.scan(view, axis=1)
    cs.scan(whole, axis=1, init=cs.asarray(np.ones(1, np.int8)))
    assert not any(isinstance(operation, Packed) for operation in operations)
