"""The scans of the demo: sums and other operators, callables, both directions, inclusive and exclusive, either axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from .. import reference
from ..dtypes import dtype as parse_dtype
from ..ops import operator
from .demo_case import DOUBLE, SINGLE, Case, of_array
from .demo_reduce import compose, successors

_WIDTH = 256


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``: "gpu" (2**24 elements and irregular sizes), "emulator" (small sizes), or
    "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 14,), (10007,))
    yield from (
        _case("running sum", "float32", full, tolerance=SINGLE),
        _case("running sum", "float64", full, tolerance=DOUBLE),
        _case("running sum", "int32", full),
        _case("running sum in float32", "float16", full, dtype="float32", tolerance=SINGLE),
        _case("running sum in int64", "int8", odd, dtype="int64"),
        _case("running product", "int64", odd, "mul"),
        _case("running max", "float32", odd, "max"),
        _case("Python: affine maps in order", "uint64", odd, compose),
    )
    if large:  # on the emulator compiling takes most of the time, so the types above represent these
        yield from (
            _case("running min", "float16", full, "min"),
            _case("running xor", "uint32", odd, "xor"),
            _case("Python: a + b + a*b", "int32", full, successors),
        )
    rows = ((4099, 4097), (65536, 256), (1 << 22, 3)) if large else ((37, 131), (64, 16), (500, 3))
    yield from (_case("running sum, axis 1", "float32", shape, axis=1, tolerance=SINGLE) for shape in rows)
    yield from (
        _case("running sum, axis 0", "float32", rows[0], axis=0, tolerance=SINGLE),
        _case("exclusive sum, axis 1", "int32", rows[0], axis=1, exclusive=True),
        _case("exclusive sum from 7, axis 0", "int32", rows[0], axis=0, exclusive=True, init=7),
        _case("max from the end, axis 1", "float16", rows[0], "max", axis=1, reverse=True),
        _case("Python: affine maps, axis 0", "uint64", rows[0], compose, axis=0),
    )


def _case(
    operation: str, source: str, shape: tuple[int, ...], op="add", *, axis: int = 0, tolerance: float = 0.0, **options
) -> Case:
    case = of_array(operation, source, shape, "scan", op=op, axis=axis, **options)
    expected = (lambda x: _by_rows(x, op, options.get("dtype"))) if len(shape) == 1 else case.expected
    return dataclasses.replace(case, expected=expected, tolerance=tolerance)


def _by_rows(x: np.ndarray, op, dtype=None) -> np.ndarray:
    """Compute ``reference.scan`` of a long vector fast: scan rows, scan their last results, and combine these with the
    rows that follow."""
    result = parse_dtype(x.dtype if dtype is None else dtype)
    parsed, accumulate = operator(op), result.accumulator
    wide = np.float64 if accumulate.kind == "f" and op == "add" else accumulate.numpy
    whole = x.size // _WIDTH * _WIDTH
    values = x.astype(wide)
    with np.errstate(all="ignore"):
        rows = reference.scan(values[:whole].reshape(-1, _WIDTH), op, axis=1)
        if len(rows) > 1:
            before = _by_rows(rows[:, -1], op)[:-1, None]
            rows[1:] = parsed.numpy(before, rows[1:])
        rest = reference.scan(values[whole:], op)
        if whole:
            rest = parsed.numpy(rows[-1, -1], rest).astype(wide)
        return np.concatenate([rows.reshape(-1), rest]).astype(result.numpy)
