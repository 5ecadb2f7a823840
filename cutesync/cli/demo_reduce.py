"""The reductions of the demo: names, callables, axes, a fused map, argmax."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator

import numpy as np

from .. import reference
from .demo_case import DOUBLE, SINGLE, Case, of_array


def successors(a, b):
    """Return (1 + a)(1 + b) - 1, an example of an arithmetic operator."""
    return a + b + a * b


def compose(f, g):
    """Compose the affine maps f, then g: x -> m x + c modulo 2**32, packed as m << 32 | c. The order matters."""
    return (((f >> 32) * (g >> 32)) << 32) | (((f & 0xFFFFFFFF) * (g >> 32) + (g & 0xFFFFFFFF)) & 0xFFFFFFFF)


def square(x):
    return x * x


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``: "gpu" (2**24 elements and irregular sizes), "emulator" (small sizes), or
    "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 14,), (10007,))
    yield from (
        _case("sum", "float32", full, tolerance=SINGLE),
        _case("sum", "float64", full, tolerance=DOUBLE),
        _case("sum", "int32", full),
        _case("sum in float32", "float16", full, dtype="float32", tolerance=SINGLE),
        _case("sum in int64", "int8", full, dtype="int64"),
        _case("sum", "float32", odd, tolerance=SINGLE),
        _case("sum", "uint16", odd),
        _case("product", "int64", odd, "mul"),
        _case("min", "float16", odd, "min"),
        _case("max", "float32", full, "max"),
        _case("any", "bool", full, "any"),
        _case("argmax", "float32", full, "argmax"),
        _case("sum of squares", "float32", full, transform=square, tolerance=SINGLE),
        _case("Python: affine maps in order", "uint64", odd, compose),
    )
    if large:  # on the emulator compiling takes most of the time, so the types above represent these
        if importlib.util.find_spec("ml_dtypes") is not None:
            yield _case("sum in float32", "bfloat16", full, dtype="float32", tolerance=SINGLE)
        yield from (
            _case("max", "uint8", odd, "max"),
            _case("bitwise xor", "uint32", odd, "xor"),
            _case("argmin", "int16", odd, "argmin"),
            _case("Python: a + b + a*b", "int32", full, successors),
        )
    rows = (
        ((4099, 4097), (65536, 256), (1 << 22, 3), (61, 67, 4099))
        if large
        else ((67, 131), (64, 16), (1000, 3), (5, 7, 131))
    )
    for shape in rows[:3]:
        yield from (_case(f"sum, axis {axis}", "float32", shape, axis=axis, tolerance=SINGLE) for axis in (1, 0))
    yield _case("max, axes 0 and 2", "float32", rows[3], "max", axis=(0, 2))
    yield _case("argmax, axis 1", "float32", rows[0], "argmax", axis=1)
    yield _case("Python: affine maps, axis 0", "uint64", rows[0], compose, axis=0)


def _case(
    operation: str, source: str, shape: tuple[int, ...], op="add", *, axis=None, tolerance: float = 0.0, **options
) -> Case:
    if op in ("argmin", "argmax"):
        case = of_array(operation, source, shape, op, axis=axis)
    else:
        case = of_array(operation, source, shape, "reduce", op=op, axis=axis, **options)
    expected = (lambda x: _reduce_by_rows(x, op)) if callable(op) and axis is None else case.expected
    return dataclasses.replace(case, expected=expected, tolerance=tolerance)


def _reduce_by_rows(x: np.ndarray, op, width: int = 256) -> np.ndarray:
    """Compute ``reference.reduce`` of a long vector with a callable fast: reduce rows, then their results. By
    associativity the result is the same."""
    while x.size > 1:
        whole = x.size // width * width
        parts = [x[:whole].reshape(-1, width)] if whole else []
        parts += [x[whole:].reshape(1, -1)] if whole < x.size else []
        x = np.concatenate([np.atleast_1d(reference.reduce(part, op, axis=1)) for part in parts])
    return x[0]
