"""The scans of the demo: sums and other operators, callables, both directions, inclusive and exclusive, either axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import reference
from ..dtypes import dtype as parse_dtype
from .demo_reduce import compose, successors

if TYPE_CHECKING:
    from .demo import Case

_SINGLE, _DOUBLE = 1e-5, 1e-13  # relative; the sums below have no cancellation
_WIDTH = 256


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``: "gpu" (2**24 elements and irregular sizes), "emulator" (small sizes), or
    "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 14,), (10007,))
    yield _case("running sum", "float32", full, tolerance=_SINGLE)
    yield _case("running sum", "float64", full, tolerance=_DOUBLE)
    yield _case("running sum", "int32", full)
    yield _case("running sum in float32", "float16", full, dtype="float32", tolerance=_SINGLE)
    yield _case("running sum in int64", "int8", odd, dtype="int64")
    yield _case("running product", "int64", odd, "mul")
    yield _case("running max", "float32", odd, "max")
    yield _case("Python: affine maps in order", "uint64", odd, compose)
    if large:  # on the emulator compiling takes most of the time, so the types above represent these
        yield _case("running min", "float16", full, "min")
        yield _case("running xor", "uint32", odd, "xor")
        yield _case("Python: a + b + a*b", "int32", full, successors)
    rows = ((4099, 4097), (65536, 256), (1 << 22, 3)) if large else ((37, 131), (64, 16), (500, 3))
    for shape in rows:
        yield _case("running sum, axis 1", "float32", shape, axis=1, tolerance=_SINGLE)
    yield _case("running sum, axis 0", "float32", rows[0], axis=0, tolerance=_SINGLE)
    yield _case("exclusive sum, axis 1", "int32", rows[0], axis=1, exclusive=True)
    yield _case("exclusive sum from 7, axis 0", "int32", rows[0], axis=0, exclusive=True, init=7)
    yield _case("max from the end, axis 1", "float16", rows[0], "max", axis=1, reverse=True)
    yield _case("Python: affine maps, axis 0", "uint64", rows[0], compose, axis=0)


def _case(
    operation: str, source: str, shape: tuple[int, ...], op="add", *, axis: int = 0, tolerance: float = 0.0, **options
) -> Case:
    from .demo import Case
    from .demo_reduce import _random, _words

    return Case(
        operation,
        source,
        _words(shape),
        lambda generator: (_random(generator, source, shape),),
        _call(op, axis, options),
        _expected(op, axis, options),
        tolerance,
    )


def _call(op, axis: int, options: dict) -> Callable:
    import cutesync as cs

    return lambda x, out=None: cs.scan(x, op, axis=axis, out=out, **options)


def _expected(op, axis: int, options: dict) -> Callable:
    return lambda x: (
        _by_rows(x, op, options.get("dtype")) if x.ndim == 1 else reference.scan(x, op, axis=axis, **options)
    )


def _by_rows(x: np.ndarray, op, dtype=None) -> np.ndarray:
    """Compute ``reference.scan`` of a long vector fast: scan rows, scan their last results, and combine these with the
    rows that follow."""
    from ..ops import operator

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
