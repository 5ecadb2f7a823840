"""The reductions of the demo: names, callables, axes, a fused map, argmax."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import reference
from ..dtypes import dtype as parse_dtype

if TYPE_CHECKING:
    from .demo import Case

_SINGLE, _DOUBLE = 1e-5, 1e-13  # relative; the sums below have no cancellation


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
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 16,), (10007,))
    yield _case("sum", "float32", full, tolerance=_SINGLE)
    yield _case("sum", "float64", full, tolerance=_DOUBLE)
    yield _case("sum", "int32", full)
    yield _case("sum in float32", "float16", full, dtype="float32", tolerance=_SINGLE)
    yield _case("sum in int64", "int8", full, dtype="int64")
    yield _case("sum", "float32", odd, tolerance=_SINGLE)
    yield _case("sum", "uint16", odd)
    yield _case("product", "int64", odd, "mul")
    yield _case("min", "float16", odd, "min")
    yield _case("max", "float32", full, "max")
    yield _case("any", "bool", full, "any")
    yield _case("argmax", "float32", full, "argmax")
    yield _case("sum of squares", "float32", full, transform=square, tolerance=_SINGLE)
    yield _case("Python: affine maps in order", "uint64", odd, compose)
    if large:  # on the emulator compiling takes most of the time, so the types above represent these
        if importlib.util.find_spec("ml_dtypes") is not None:
            yield _case("sum in float32", "bfloat16", full, dtype="float32", tolerance=_SINGLE)
        yield _case("max", "uint8", odd, "max")
        yield _case("bitwise xor", "uint32", odd, "xor")
        yield _case("argmin", "int16", odd, "argmin")
        yield _case("Python: a + b + a*b", "int32", full, successors)
    rows = (
        ((4099, 4097), (65536, 256), (1 << 22, 3), (61, 67, 4099))
        if large
        else ((67, 131), (64, 16), (1000, 3), (5, 7, 131))
    )
    for shape in rows[:3]:
        for axis in (1, 0):
            yield _case(f"sum, axis {axis}", "float32", shape, axis=axis, tolerance=_SINGLE)
    yield _case("max, axes 0 and 2", "float32", rows[3], "max", axis=(0, 2))
    yield _case("argmax, axis 1", "float32", rows[0], "argmax", axis=1)
    yield _case("Python: affine maps, axis 0", "uint64", rows[0], compose, axis=0)


def _case(
    operation: str, source: str, shape: tuple[int, ...], op="add", *, axis=None, tolerance: float = 0.0, **options
) -> Case:
    from .demo import Case

    return Case(
        operation,
        source,
        _words(shape),
        lambda generator: (_random(generator, source, shape),),
        _call(op, axis, options),
        _expected(op, axis, options),
        tolerance,
    )


def _call(op, axis, options) -> Callable:
    import cutesync as cs

    if op in ("argmin", "argmax"):
        return lambda x, out=None: getattr(cs, op)(x, axis, out=out)
    return lambda x, out=None: cs.reduce(x, op, axis=axis, out=out, **options)


def _expected(op, axis, options) -> Callable:
    if op in ("argmin", "argmax"):
        return lambda x: getattr(reference, op)(x, axis)
    if callable(op) and axis is None:
        return lambda x: _reduce_by_rows(x, op)
    return lambda x: reference.reduce(x, op, axis=axis, **options)


def _reduce_by_rows(x: np.ndarray, op, width: int = 256) -> np.ndarray:
    """Compute ``reference.reduce`` of a long vector with a callable fast: reduce rows, then their results. By
    associativity the result is the same."""
    while x.size > 1:
        whole = x.size // width * width
        parts = [x[:whole].reshape(-1, width)] if whole else []
        parts += [x[whole:].reshape(1, -1)] if whole < x.size else []
        x = np.concatenate([np.atleast_1d(reference.reduce(part, op, axis=1)) for part in parts])
    return x[0]


def _random(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return data for which sums do not cancel, products stay odd, and small types have many ties."""
    kind = parse_dtype(name)
    if kind.kind == "f":
        return generator.random(shape, np.float32).astype(kind.numpy)
    if kind.kind == "b":
        return generator.random(shape) < 1e-6
    info = np.iinfo(kind.numpy)
    values = generator.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
    return values | kind.numpy.type(1) if name == "int64" else values


def _words(shape: tuple[int, ...]) -> str:
    known = {1 << 24: "2^24", 10**7 + 19: "10^7+19", 1 << 22: "2^22", 1 << 16: "2^16"}
    return " x ".join(known.get(extent, str(extent)) for extent in shape)
