"""Reductions: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py reduce``.

Bytes are counted once in and once out. Groups: ``sum`` (dtype x size), ``operator`` (a Python lambda against the
built-in name), ``argmax``, ``transform`` (sum of squares, the map fused into the load), ``rows`` (2-D arrays along
either axis), ``misaligned`` (views off by some elements) and ``big`` (more than 2**31 and 2**32 elements).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from case import GRAPH_BYTES, Bar, Case
from gpu import Array
from rivals import numpy_dtype

DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
USUAL_DTYPES = DTYPES[:-1]  # bfloat16 is timed when it is asked for: NumPy alone does not know it
SIZES = tuple(1 << k for k in range(12, 29, 2))
QUICK_DTYPES = ("int8", "float16", "float32")
QUICK_SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
QUICK_ROWS = ((16384, 4096), (1 << 22, 3))
ROWS = ((65536, 4096), (4096, 65536), (16, 1 << 24), (1 << 24, 16), (1 << 22, 3))
MISALIGNED = (("float32", 1), ("float32", 3), ("float16", 1), ("int8", 1), ("int8", 5))

GROUPS = ("sum", "operator", "argmax", "transform", "rows", "misaligned", "big")
OURS = "cutesync"
BASELINES = ("plain", "aligned")  # our own other calls that a bar compares with
ROOFS = ("copy", "read")
RIVALS = ("cub", "torch", "cupy", "compute")
QUICK_RIVALS = RIVALS[:3]  # cuda.compute compiles for each type and size
WORDS = {"lambda": "sum by a lambda", "squares": "sum of squares"}  # in names of cases

ADD = lambda a, b: a + b  # noqa: E731  the bar is about a lambda
SQUARE = lambda v: v * v  # noqa: E731

BAR_DTYPES = ("int8", "int16", "float16", "int32", "float32", "float64")
SMALL_LIMITS = {1 << 12: 1.00} | {1 << k: 0.87 for k in (16, 18, 20, 22, 24)}  # of CUB's time
AS_FAST_AS_CUB = (Bar("cub", 1.00, "rate"), Bar("read", 0.98, "rate"))


def power(n: int) -> str:
    """2^20, 2^32+7, or the plain number."""
    k = n.bit_length() - 1
    above = n - (1 << k)
    return str(n) if n < 256 or above > 99 else f"2^{k}+{above}" if above else f"2^{k}"


def sum_bars(dtype: str, n: int) -> tuple[Bar, ...]:
    if dtype in BAR_DTYPES and (n == LARGE or (dtype == "float64" and n == LARGE // 2)):
        return AS_FAST_AS_CUB
    if dtype in ("int32", "float32") and n in SMALL_LIMITS:
        return tuple(Bar("cub", SMALL_LIMITS[n], "time", measure) for measure in ("event", "graph"))
    return ()


def vector(group: str, op: str, n: int, dtype: str, bars, extra=(), offset: int = 0) -> Case:
    """A case on a vector. ``extra``: our own calls beside it. ``offset``: elements past an aligned address."""
    result = ((), "int64" if op == "argmax" else dtype)
    outputs = (result, ((), dtype)) if "plain" in extra else (result,)
    moved = n * numpy_dtype(dtype).itemsize + numpy_dtype(result[1]).itemsize
    name = f"{WORDS.get(op, op)} {dtype} {power(n)}" + (f" off by {offset}" if offset else "")
    contestants = (OURS, *extra, *ROOFS, *RIVALS)
    return Case(group, name, op, (((n,), dtype),), outputs, moved, contestants, bars, offset=offset)


def rows(shape: tuple[int, int], axis: int) -> Case:
    kept = shape[1 - axis]
    name = f"sum float32 ({power(shape[0])}, {power(shape[1])}) axis {axis}"
    moved = 4 * (shape[0] * shape[1] + kept)
    measures = ("event", "graph") if moved <= GRAPH_BYTES else ("event",)
    bars = [Bar("floor", 0.90, "rate", measure) for measure in measures]
    bars += [Bar(rival, 1.00, "time", measure) for rival in ("torch", "cupy") for measure in measures]
    contestants = (OURS, *ROOFS, "torch", "cupy")
    return Case(
        "rows", name, "sum", ((shape, "float32"),), (((kept,), "float32"),), moved, contestants, tuple(bars), axis=axis
    )


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` and ``dtypes`` replace those of the ``sum`` group."""
    found = []
    for dtype in dtypes or (QUICK_DTYPES if quick else USUAL_DTYPES):
        lengths = sizes or ((QUICK_SIZES if dtype == "float32" else QUICK_SIZES[-1:]) if quick else SIZES)
        doubled = (LARGE // 2,) if dtype == "float64" and not sizes else ()
        found += [vector("sum", "sum", n, dtype, sum_bars(dtype, n)) for n in sorted({*lengths, *doubled})]
    large, plain = QUICK_LARGE if quick else LARGE, (Bar("plain", 0.97, "rate"),)
    for dtype, n in (("float32", large), ("int32", large), ("float32", 1 << 20))[: 1 if quick else 3]:
        found.append(vector("operator", "lambda", n, dtype, (Bar("plain", 1.03),), ("plain",)))
    found.append(vector("argmax", "argmax", large, "float32", plain, ("plain",)))
    found.append(vector("transform", "squares", large, "float32", plain, ("plain",)))
    found += [rows(shape, axis) for shape in (QUICK_ROWS if quick else ROWS) for axis in (0, 1)]
    for dtype, offset in MISALIGNED[: 1 if quick else None]:
        bars = (Bar("cub", 1.00, "rate"), Bar("aligned", 0.95, "rate"))
        found.append(vector("misaligned", "sum", large, dtype, bars, ("aligned",), offset))
    if not quick:
        found += [vector("big", "sum", n, "int8", AS_FAST_AS_CUB) for n in ((1 << 31) + 5, (1 << 32) + 7)]
    return [case for case in found if not dtypes or case.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=2)
def block(dtype: str) -> np.ndarray:
    """Random elements. The count is odd, so that its repeats do not line up with tiles."""
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    if np.issubdtype(numpy_dtype(dtype), np.integer):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, count, dtype, endpoint=True)
    largest = 2**-6 if dtype == "float16" else 1  # keeps a sum of 2**28 repeated elements below 65504
    return (largest * (2 * random.random(count) - 1)).astype(numpy_dtype(dtype))


def data(case: Case) -> list[np.ndarray]:
    host = np.resize(block(case.dtype), case.inputs[0][0])
    if case.op == "argmax":
        host[case.size // 3] = 2.0
    return [host]


def reference(case: Case, hosts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray | float]:
    """NumPy's result and the error allowed: none for integers and indexes, rounding for floats.

    A sum of n values of [-1, 1) is about sqrt(n/3), and so is the scale of its rounding: a lost element shows at every
    size.
    """
    x, axis = hosts[0], case.axis
    if case.op == "argmax":
        return np.argmax(x), 0.0
    if np.issubdtype(x.dtype, np.integer):
        return np.sum(x, axis=axis, dtype=np.int64).astype(x.dtype), 0.0
    unit = float(np.finfo(np.float64 if case.dtype == "float64" else np.float32).eps)
    if case.op == "squares":
        wanted = sum(np.square(part, dtype=np.float64).sum() for part in np.array_split(x, 64))
        return wanted, 16 * unit * wanted
    wanted = np.sum(x, axis=axis, dtype=np.float64)
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(case.dtype, 0.0) * np.abs(wanted)
    return wanted, 100 * unit * np.sqrt(x.size / wanted.size / 3) + rounding


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    """The largest error of a result against what ``reference`` returned, and whether all errors are allowed."""
    wanted, allowed = expected
    kind = np.int64 if np.issubdtype(np.asarray(wanted).dtype, np.integer) else np.float64
    error = np.abs(got.astype(kind) - np.asarray(wanted, kind))
    return float(error.max()), bool(np.all(error <= allowed))


# The contestants: each factory returns a call that only enqueues


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
    if case.op == "argmax":

        def call():
            slot.result = cs.argmax(x, stream=stream)

        return call
    op = ADD if case.op == "lambda" else "add"
    transform = SQUARE if case.op == "squares" else None
    return lambda: cs.reduce(x, op, axis=case.axis, transform=transform, out=out, stream=stream)


def plain(case, slot, libraries):
    """The built-in sum of the same data."""
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[1])
    return lambda: cs.reduce(x, "add", out=out, stream=stream)


def aligned(case, slot, libraries):
    """The same sum from the aligned address below the misaligned view."""
    cs, stream, source = libraries.cutesync, libraries.stream, slot.inputs[0]
    x = libraries.ours(Array(source.pointer - case.offset * source.dtype.itemsize, source.shape, source.dtype))
    out = libraries.ours(slot.outputs[0])
    return lambda: cs.reduce(x, "add", out=out, stream=stream)


def torch(case, slot, libraries):
    library = libraries.torch
    x, out = libraries.torch_view(slot.inputs[0]), libraries.torch_view(slot.outputs[0])
    if case.op == "argmax":
        return lambda: library.argmax(x, 0, out=out)
    if case.op == "squares":
        return lambda: library.dot(x, x, out=out)
    return lambda: library.sum(x, case.axis or 0, dtype=x.dtype, out=out)


def cupy(case, slot, libraries):
    library = libraries.cupy
    x, out = libraries.cupy_view(slot.inputs[0]), libraries.cupy_view(slot.outputs[0])
    if case.op == "argmax":
        return lambda: library.argmax(x, axis=0, out=out)
    if case.op == "squares":
        kernel = library.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "sum_of_squares")
        return lambda: kernel(x, out)
    return lambda: library.sum(x, axis=case.axis, dtype=x.dtype, out=out)


def compute(case, slot, libraries):
    library, stream = libraries.compute, libraries.gpu.stream
    if case.op == "argmax":
        return None
    source, out = slot.inputs[0], slot.outputs[0]
    x = library.TransformIterator(source, SQUARE) if case.op == "squares" else source
    op = ADD if case.op == "lambda" else library.OpKind.PLUS
    init = np.zeros(1, source.dtype)
    reducer = library.make_reduce_into(d_in=x, d_out=out, op=op, h_init=init)
    arguments = {"d_in": x, "d_out": out, "num_items": case.size, "op": op, "h_init": init, "stream": stream}
    nbytes = reducer(temp_storage=None, **arguments)
    storage = Array(libraries.gpu.scratch(nbytes), (max(nbytes, 1),), np.uint8)
    return lambda: reducer(temp_storage=storage, **arguments)


def cub(case, slot, libraries):
    name = {"argmax": "argmax", "squares": "sumsq"}.get(case.op, "sum") + f"_{case.dtype}"
    return libraries.cub.from_one_to_one(name, slot, case.size)


CONTESTANTS = {
    OURS: ours,
    "plain": plain,
    "aligned": aligned,
    "cub": cub,
    "torch": torch,
    "cupy": cupy,
    "compute": compute,
}
