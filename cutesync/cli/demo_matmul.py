"""The matmuls of the demo: types, shapes that do not fit tiles, batches, and the terms of the epilogue."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import reference
from ..dtypes import dtype as parse_dtype

if TYPE_CHECKING:
    from .demo import Case

_ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-5}  # relative: all products are positive


def cases(place: str) -> Iterator[Case]:
    """``place`` is "gpu" (large), "emulator" (a few tiles) or "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    square, odd = ((2048, 2048, 2048), (1023, 1025, 1027)) if large else ((128, 128, 64), (65, 67, 33))
    yield _case("matmul", "float16", square)
    if large and importlib.util.find_spec("ml_dtypes") is not None:
        yield _case("matmul", "bfloat16", square)
    yield _case("matmul to float32", "float16", square, out_dtype="float32")
    yield _case("matmul", "float32", square)
    yield _case("matmul, tf32", "float32", square, tolerance=2.0**-10, precision="tf32")
    yield _case("matmul, odd rows", "float16", odd)
    yield _case("matmul, K = 8", "float16", (square[0], square[1], 8))
    yield _case("matmul, one row", "float16", (1, square[1], square[2]))
    yield _case("matmul, long K", "float16", (16, 1024, 4096) if large else (16, 64, 1024))  # cluster split-K
    yield _case("batched matmul", "float16", odd[:1] * 3, batch=8 if large else 2)
    yield _case("matmul + bias, relu", "float16", square, bias=True, activation="relu")
    yield _case("matmul, silu", "float16", odd, activation="silu", out_dtype="float32")


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
    from .demo import Case

    m, n, k = shape
    outer = (batch,) if batch else ()

    def call(a, b, *terms, out=None):
        import cutesync as cs

        return cs.matmul(a, b, bias=terms[0] if terms else None, out=out, **options)

    def make(generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        kind = parse_dtype(source).numpy
        shapes = [(*outer, m, k), (*outer, k, n)] + ([(n,)] if bias else [])
        return tuple((generator.random(s, np.float32) / np.sqrt(k)).astype(kind) for s in shapes)

    words = " x ".join(map(str, shape)) if not batch else f"{batch} x {m}^3"
    return Case(
        operation,
        source,
        words,
        make,
        call,
        lambda a, b, *terms: reference.matmul(a, b, bias=terms[0] if terms else None, **options),
        lambda: _kernels(source, outer, shape, bias, options),
        tolerance or _ROUNDING[options.get("out_dtype", source)],
    )


def _kernels(source: str, outer: tuple[int, ...], shape: tuple[int, int, int], bias: bool, options: dict) -> list:
    """Compile what the call on contiguous arrays launches."""
    from ..dtypes import FLOAT32
    from ..kernels.matmul.checks import element_types, result_type, terms_of
    from ..kernels.matmul.plan import decided, kernel_for, pack_kernel
    from ..kernels.matmul.problem import Product, steps_of
    from ..runtime.arrays import View
    from ..runtime.device_array import HOST

    m, n, k = shape
    kind = parse_dtype(source)
    a, b = View(0, (*outer, m, k), kind, HOST, True), View(0, (*outer, k, n), kind, HOST, True)
    out = View(0, (*outer, m, n), result_type(a, options.get("out_dtype")), HOST, True)
    terms = terms_of(
        1.0,
        0.0,
        None,
        View(0, (n,), kind, HOST, True) if bias else None,
        options.get("activation"),
        (None, None),
        out.dtype,
        (m, n),
    )
    found = []
    tf32x3 = kind is FLOAT32 and options.get("precision") != "tf32"
    elements = element_types(a, b, options.get("precision"))
    for step in steps_of(Product(a, b, None, out, terms, elements, tf32x3, promoted=tf32x3))[1]:
        problem = step.problem
        found += [pack_kernel(kind, job.form, job.side, 0) for job in step.packs if job is not None]
        config = decided(problem, None, HOST)
        found.append(
            kernel_for(config, problem.elements, out.dtype, (problem.a.k_major, problem.b.k_major), problem.terms)
        )
    return found
