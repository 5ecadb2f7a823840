"""The matmuls of the demo: types, shapes that do not fit tiles, batches, and the terms of the epilogue."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator

import numpy as np

import cutesync as cs

from .. import reference
from ..dtypes import dtype as parse_dtype
from .demo_case import Case

_ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-5}  # relative: all products are positive


def cases(place: str) -> Iterator[Case]:
    """``place`` is "gpu" (large), "emulator" (a few tiles) or "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    square, odd = ((2048, 2048, 2048), (1023, 1025, 1027)) if large else ((128, 128, 64), (65, 67, 33))
    yield _case("matmul", "float16", square)
    if large and importlib.util.find_spec("ml_dtypes") is not None:
        yield _case("matmul", "bfloat16", square)
    long = (16, 1024, 4096) if large else (16, 64, 1024)  # its shares meet in clusters
    yield from (
        _case("matmul to float32", "float16", square, out_dtype="float32"),
        _case("matmul", "float32", square),
        _case("matmul, tf32", "float32", square, tolerance=2.0**-10, precision="tf32"),
        _case("matmul, odd rows", "float16", odd),
        _case("matmul, K = 8", "float16", (square[0], square[1], 8)),
        _case("matmul, one row", "float16", (1, square[1], square[2])),
        _case("matmul, long K", "float16", long),
        _case("batched matmul", "float16", odd[:1] * 3, batch=8 if large else 2),
        _case("matmul + bias, relu", "float16", square, bias=True, activation="relu"),
        _case("matmul, silu", "float16", odd, activation="silu", out_dtype="float32"),
    )


def _case(
    operation: str,
    source: str,
    shape: tuple[int, int, int],
    *,
    batch: int = 0,
    bias: bool = False,
    tolerance: float = 0.0,
    **options,
) -> Case:
    m, n, k = shape
    outer = (batch,) if batch else ()
    shapes = [(*outer, m, k), (*outer, k, n)] + ([(n,)] if bias else [])

    def multiply(function, a, b, *terms, **more):
        return function(a, b, bias=terms[0] if terms else None, **options, **more)

    def make(generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        kind = parse_dtype(source).numpy
        return tuple((generator.random(s, np.float32) / np.sqrt(k)).astype(kind) for s in shapes)

    words = " x ".join(map(str, shape)) if not batch else f"{batch} x {m}^3"
    call, expected = (functools.partial(multiply, home.matmul) for home in (cs, reference))
    bound = tolerance or _ROUNDING[options.get("out_dtype", source)]
    return Case(operation, source, words, make, call, expected, bound)
