"""Columns of small elements that are combined as words: every type and operator that has word arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import packed, plan
from cutesync.kernels.scan.packed import Packed
from cutesync.runtime.kernel import collect

from ..cases import data, same, scanned
from ..compiled import dry

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


@pytest.mark.parametrize("dtype", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
def test_elements_one_by_one(dtype, on_emulator, operations, monkeypatch):
    """Callables, whose results wrap and which need not be commutative, and "mul"."""
    monkeypatch.setattr(packed, "MIN_POSITIONS", 0)
    x = data((2, 21, 12), dtype)
    wanted = np.cumsum(x, 1, dtype=dtype)
    same(np.asarray(cs.scan(cs.asarray(x), lambda a, b: a + b, axis=1)), wanted)
    same(np.asarray(cs.scan(cs.asarray(x), lambda a, b: b, axis=1)), x)
    found = cs.scan(
        cs.asarray(x), lambda a, b: a, axis=1, reverse=True, init=-3 if dtype == "int8" else 7, exclusive=True
    )
    wanted = np.concatenate([x[:, 1:], np.full((2, 1, 12), -3 if dtype == "int8" else 7, dtype)], 1)
    same(np.asarray(found), wanted)
    check(x, "mul")
    assert all(isinstance(operation, Packed) and operation.one_by_one for operation in operations)


def test_limits_of_elements_one_by_one(operations):
    """Few positions, few columns, and elements of two bytes are scanned as elements."""
    for shape, dtype, words in (
        ((256, 4096), "int8", True),
        ((255, 4096), "int8", False),
        ((65536, 12), "uint8", True),
        ((65536, 8), "uint8", False),
        ((65536, 64), "int16", False),
    ):
        cs.scan(dry(shape, dtype), "mul", axis=0, out=dry(shape, dtype, base=1 << 41))
        assert isinstance(operations.pop(), Packed) == words


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
    for view in (whole[:, :, 1:5], whole[:, :, :5], whole[:, :, ::2]):
        cs.scan(view, axis=1)
    cs.scan(whole, axis=1, init=cs.asarray(np.ones(1, np.int8)))
    assert not any(isinstance(operation, Packed) for operation in operations)


PAIRED = ((2, 300, 2), (3, 37, 6), (1, 3000, 2))


@pytest.fixture
def paired(monkeypatch):
    """Arrays of all sizes are scanned in pairs."""
    monkeypatch.setattr(packed, "MIN_PAIRED_BYTES", 0)
    monkeypatch.setattr(packed, "MIN_PAIRED_ROWS", 0)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
@pytest.mark.parametrize("shape", PAIRED, ids=str)
def test_pairs(dtype, shape, on_emulator, operations, paired):
    """Words of 16 bits: rows of pairs, whole vectors or not, and columns of them."""
    for op in OPERATORS[dtype]:
        x = data(shape, dtype, "xor" if dtype == "bool" else op)
        check(x, op)
        if op in ("add", "min", "max"):
            check(x, op, init=1 if dtype == "bool" else 5, exclusive=True, reverse=True)
    assert all(isinstance(operation, Packed) and operation.is_pair for operation in operations)


def test_pairs_that_run_backwards(on_emulator, operations, paired):
    """Rows of pairs apart, backwards, behind a boundary of a vector, and in place."""
    x = data((4, 64, 8), "uint8", "max")
    whole = cs.asarray(x)
    views = (np.s_[:, ::-1, 2:4], np.s_[:, :, 2:8], np.s_[::-1, :, 6:], np.s_[2:, :, :2])
    for view in views:
        for op in ("max", "add"):
            same(np.asarray(cs.scan(whole[view], op, axis=1)), scanned(x[view], op, axis=1), f"{op} of {view}")
    cs.scan(whole[:, :, 2:4], "max", axis=1, out=whole[:, :, 2:4])
    same(np.asarray(whole)[:, :, 2:4], np.maximum.accumulate(x[:, :, 2:4], 1))
    assert all(isinstance(operation, Packed) and operation.is_pair for operation in operations)
    operations.clear()
    for view in (np.s_[:, :, 1:3], np.s_[:, :15, :2], np.s_[:, :, :3]):
        cs.scan(whole[view], "max", axis=1)
    cs.scan(whole[:, :, 2:4], lambda a, b: a + b, axis=1)
    assert not any(isinstance(operation, Packed) for operation in operations)


@pytest.mark.parametrize(
    ("dtype", "shape", "pairs"),
    [
        ("int8", (300, 4096, 2), True),
        ("int8", (300, 4100, 2), False),
        ("bool", (1, 4_000_000, 2), True),
        ("bool", (1, 5_000_000, 2), False),
        ("int8", (1, 4_000_000, 2), False),
        ("bool", (90, 405, 6), False),
        ("bool", (164, 465, 2), True),
        ("int8", (164, 464, 2), False),
        ("int8", (600, 271, 2), False),
        ("uint8", (1, 98744, 6), True),
    ],
)
def test_which_are_pairs(dtype, shape, pairs, operations):
    with collect():
        cs.scan(dry(shape, dtype), axis=1, out=dry(shape, dtype, base=1 << 41))
    assert isinstance(operations[0], Packed) == pairs
