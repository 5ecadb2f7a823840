"""Scans: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py scan``.

Every element is counted once in and once out. Groups: ``sum`` (inclusive sums, dtype x size), ``ways`` (exclusive,
reverse, in place), ``operator`` (max, mul, a Python lambda, a Python callable that does not commute), ``rows`` (2-D
arrays along either axis), ``misaligned`` (views off by one element) and ``big`` (more than 2**31 elements).

A bar of ``ways`` and ``operator`` compares with our inclusive sum of the same array ("plain"). The libraries do not sum
in the same types: CUB sums 16-bit floats in 16 bits, and 8- and 16-bit integers in 32. cutesync, torch and CuPy sum in
the type of the element, 16-bit floats in float32 where the library does so. A "!" beside CUB's time therefore says that
its float16 sums are outside the allowed error.

The in-place case uses max: the running maximum of a running maximum is itself, so calls may repeat on one array.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import numpy as np
from case import GRAPH_BYTES, Bar, Case
from gpu import Array
from reduce import numpy_dtype, power

DTYPES = ("int8", "uint8", "int16", "float16", "bfloat16", "int32", "float32", "int64", "float64")
USUAL_DTYPES = tuple(
    dtype for dtype in DTYPES if dtype != "bfloat16" or find_spec("ml_dtypes")
)  # NumPy alone does not know it
SIZES = tuple(1 << k for k in range(12, 25, 2))
QUICK_DTYPES = ("int8", "float16", "float32")
QUICK_SIZES = (1 << 12, 1 << 18, 1 << 24)
SIZED_DTYPES = ("int32", "float32")
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
ROWS = (
    ((65536, 4096), 1),
    ((1 << 20, 256), 1),
    ((1 << 24, 16), 1),
    ((16, 1 << 24), 1),
    ((1000, 100001), 1),
    ((4096, 65536), 0),
)
NARROW = (((10_000_001, 5), 0), ((1 << 20, 64), 0))  # torch takes seconds
QUICK_ROWS = (((16384, 4096), 1), ((4096, 16384), 0))
MISALIGNED = ("float32", "int8", "float16")

GROUPS = ("sum", "ways", "operator", "rows", "misaligned", "big")
OURS = "cutesync"
BASELINES = ("plain", "aligned")  # our own other calls that a bar compares with
ROOFS = ("copy",)
RIVALS = ("cub", "torch", "cupy", "compute")
QUICK_RIVALS = RIVALS[:3]  # cuda.compute compiles for each type and size
WORDS = {"in place": "max in place", "lambda": "sum by a lambda", "fill": "forward fill (Python)"}  # in names of cases

ADD = lambda a, b: a + b  # noqa: E731  the bar is about a lambda


def fill(a, b):
    """The last element that is not zero (of int32): it does not commute."""
    mask = (b | -b) >> 31
    return (a & ~mask) | b


BY_SIZE = {1: 1 / 3.4, 2: 1 / 2.2, 4: 1 / 1.28, 8: 1 / 1.2}  # of CUB's time for a large array, by bytes an element


def large(dtype: str) -> int:
    return LARGE // 2 if numpy_dtype(dtype).itemsize == 8 else LARGE


def sum_bars(dtype: str, n: int) -> tuple[Bar, ...]:
    size = numpy_dtype(dtype).itemsize
    if n == large(dtype):
        return (Bar("copy", 0.85 if dtype == "int8" else 0.92, "rate"), Bar("cub", BY_SIZE[size]))
    if dtype in SIZED_DTYPES and n in SIZES:
        measures = ("event", "graph") if 2 * n * size <= GRAPH_BYTES else ("event",)
        return tuple(Bar("cub", 0.70 if n <= 1 << 18 else 0.90, "time", measure) for measure in measures)
    return ()


def vector(group: str, op: str, n: int, dtype: str, bars, extra=(), rivals=RIVALS, offset: int = 0) -> Case:
    """A case on a vector. ``extra``: our own calls beside it. ``offset``: elements past an aligned address."""
    array = ((n,), dtype)
    name = f"{WORDS.get(op, op)} {dtype} {power(n)}" + (f" off by {offset}" if offset else "")
    moved = 2 * n * numpy_dtype(dtype).itemsize
    outputs = (array, array) if "plain" in extra else (array,)
    contestants = (OURS, *extra, *ROOFS, *rivals)
    return Case(group, name, op, (array,), outputs, moved, contestants, tuple(bars), offset=offset)


def rows(shape: tuple[int, int], axis: int, rivals=("torch",)) -> Case:
    name = f"sum float32 ({power(shape[0])}, {power(shape[1])}) axis {axis}"
    array = (shape, "float32")
    bars = (Bar("copy", 0.88, "rate"), *(Bar(rival, 1.00) for rival in rivals)) if rivals else ()
    return Case(
        "rows", name, "sum", (array,), (array,), 8 * shape[0] * shape[1], (OURS, *ROOFS, *rivals), bars, axis=axis
    )


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` and ``dtypes`` replace those of the ``sum`` group."""
    found = []
    for dtype in dtypes or (QUICK_DTYPES if quick else USUAL_DTYPES):
        small = (QUICK_SIZES if quick else SIZES) if dtype in (SIZED_DTYPES[1:] if quick else SIZED_DTYPES) else ()
        for n in sizes or (*small, QUICK_LARGE if quick else large(dtype)):
            compiled = ("compute",) if dtype in SIZED_DTYPES and n >= 1 << 20 else ()
            found.append(vector("sum", "sum", n, dtype, sum_bars(dtype, n), (), ("cub", "torch", "cupy", *compiled)))
    near, close = (Bar("plain", 1.03),), (Bar("plain", 1.05),)
    beside = [
        vector(group, op, QUICK_LARGE if quick else LARGE, dtype, bars, ("plain",), rivals)
        for group, op, dtype, bars, rivals in (
            ("ways", "exclusive", "float32", near, ("cub",)),
            ("ways", "reverse", "float32", near, ()),
            ("ways", "in place", "float32", near, ()),
            ("operator", "max", "float32", close, ("cub",)),
            ("operator", "mul", "int32", close, ("cub",)),
            ("operator", "lambda", "float32", close, ()),
            ("operator", "lambda", "int32", close, ()),
            ("operator", "fill", "int32", close, ("cub",)),
        )
    ]
    off = [
        vector("misaligned", "sum", LARGE, dtype, (Bar("aligned", 0.90, "rate"),), ("aligned",), ("cub",), offset=1)
        for dtype in MISALIGNED
    ]
    if quick:
        found += [case for case in beside if case.op in ("exclusive", "fill")]
        found += [rows(shape, axis) for shape, axis in QUICK_ROWS]
    else:
        found += [*beside, *(rows(*row) for row in ROWS), *(rows(*row, ()) for row in NARROW), *off]
        found.append(vector("big", "sum", (1 << 31) + 5, "int8", (Bar("copy", 0.85, "rate"),), (), ("cub",)))
    return [case for case in found if not dtypes or case.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=2)
def block(dtype: str, zeros: bool = False) -> np.ndarray:
    """Random elements, with ``zeros`` half of them 0. The count is odd: its repeats do not line up with tiles."""
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    if np.issubdtype(numpy_dtype(dtype), np.integer):
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, count, dtype, endpoint=True)
        return values * random.integers(0, 2, count, dtype) if zeros else values
    return (largest(dtype) * (2 * random.random(count) - 1)).astype(numpy_dtype(dtype))


def largest(dtype: str) -> float:
    """Bound of the elements; of float16 it keeps a sum of 2**28 repeated ones below 65504."""
    return 2.0**-6 if dtype == "float16" else 1.0


def data(case: Case) -> list[np.ndarray]:
    values = block(case.dtype, case.op == "fill")
    return [np.resize(values | 1 if case.op == "mul" else values, case.inputs[0][0])]


def reference(case: Case, hosts: list[np.ndarray]) -> tuple[np.ndarray, float, float]:
    """NumPy's result in the element's type, and the errors allowed: absolute, and relative (integers: none).

    A running sum of n values of [-1, 1) is about sqrt(n/3), and its rounding scales with that. An element that is lost
    early shows in every result after it.
    """
    (x,), axis = hosts, case.axis or 0
    if case.op in ("max", "in place"):
        return np.maximum.accumulate(x), 0.0, 0.0
    if case.op == "fill":
        places = np.where(x != 0, np.arange(x.size, dtype=np.int32), np.int32(0))
        return x[np.maximum.accumulate(places)], 0.0, 0.0
    if np.issubdtype(x.dtype, np.integer):
        with np.errstate(over="ignore"):
            return (np.multiply if case.op == "mul" else np.add).accumulate(x, axis=axis, dtype=x.dtype), 0.0, 0.0
    # NumPy's float64 sums, taken one after the other, are less exact than any rival's
    wider = np.longdouble if case.dtype == "float64" else np.float64
    wanted = np.cumsum(x[::-1] if case.op == "reverse" else x, axis=axis, dtype=wider)
    if case.op == "exclusive":
        wanted = np.concatenate([[0.0], wanted[:-1]])
    unit = float(np.finfo(np.float64 if case.dtype == "float64" else np.float32).eps)
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(case.dtype, unit)
    wanted = (wanted[::-1] if case.op == "reverse" else wanted).astype(
        np.float64 if case.dtype == "float64" else np.float32
    )
    return wanted, 100 * unit * largest(case.dtype) * float(np.sqrt(x.shape[axis] / 3)), rounding


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    """The largest error of a result against what ``reference`` returned, and whether all errors are allowed."""
    wanted, absolute, relative = expected
    worst, right = 0.0, got.shape == wanted.shape
    wanted, got = wanted.reshape(-1), got.reshape(-1)
    for start in range(0, got.size if right else 0, 1 << 22):  # in parts that stay in the cache
        here, there = wanted[start : start + (1 << 22)], got[start : start + (1 << 22)]
        if absolute:
            error = np.abs(there.astype(here.dtype) - here)
            right &= bool(np.all(error <= absolute + relative * np.abs(here)))
            worst = max(worst, float(error.max()))
        elif not np.array_equal(here, there):
            right, worst = False, max(worst, float(np.count_nonzero(here != there)))
    return worst, right


# The contestants: each factory returns a call that only enqueues


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
    if case.op == "in place":

        def call():
            slot.result = cs.scan(x, "max", out=x, stream=stream)

        return call
    op = {"max": "max", "mul": "mul", "lambda": ADD, "fill": fill}.get(case.op, "add")
    axis = -1 if case.axis is None else case.axis
    return lambda: cs.scan(
        x, op, axis=axis, exclusive=case.op == "exclusive", reverse=case.op == "reverse", out=out, stream=stream
    )


def plain(case, slot, libraries):
    """The inclusive sum of the same data; in place, the maximum into another array."""
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[1])
    return lambda: cs.scan(x, "max" if case.op == "in place" else "add", out=out, stream=stream)


def aligned(case, slot, libraries):
    """The same sum from the aligned address below the misaligned view."""
    cs, stream, source = libraries.cutesync, libraries.stream, slot.inputs[0]
    x = libraries.ours(Array(source.pointer - case.offset * source.dtype.itemsize, source.shape, source.dtype))
    out = libraries.ours(slot.outputs[0])
    return lambda: cs.scan(x, out=out, stream=stream)


def torch(case, slot, libraries):
    library = libraries.torch
    x, out = libraries.torch_view(slot.inputs[0]), libraries.torch_view(slot.outputs[0])
    return lambda: library.cumsum(x, case.axis or 0, dtype=x.dtype, out=out)


def cupy(case, slot, libraries):
    if case.dtype == "bfloat16":
        return None
    library = libraries.cupy
    x, out = libraries.cupy_view(slot.inputs[0]), libraries.cupy_view(slot.outputs[0])
    return lambda: library.cumsum(x, dtype=x.dtype, out=out)


def compute(case, slot, libraries):
    library, stream = libraries.compute, libraries.gpu.stream
    source, out = slot.inputs[0], slot.outputs[0]
    init = np.zeros(1, source.dtype)
    scanner = library.make_inclusive_scan(d_in=source, d_out=out, op=library.OpKind.PLUS, init_value=init)
    arguments = {"d_in": source, "d_out": out, "op": library.OpKind.PLUS, "init_value": init, "stream": stream}
    arguments["num_items"] = case.size
    nbytes = scanner(temp_storage=None, **arguments)
    storage = Array(libraries.gpu.scratch(nbytes), (max(nbytes, 1),), np.uint8)
    return lambda: scanner(temp_storage=storage, **arguments)


def cub(case, slot, libraries):
    name = f"{case.op}_{case.dtype}"
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
