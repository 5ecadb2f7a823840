"""Top-k and counts: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py order``.

Counted are the elements. Groups: ``topk`` (dtype x k of one array), ``rows`` (k of each row), ``orders`` (data in
ascending order, and equal elements: the slowest for a limit that rises), ``bincount`` (bins, and elements that all
fall into one) and ``weights`` (the same with float32 weights, which torch and CuPy add in any order). The bar of a
top-k is the time of ``cutesync.max`` over the same array in the same run, that of a count the time of CUB's histogram
(32-bit counters), of torch's and of CuPy's. CUB's top-k, where the headers have one, gives values alone, in any order.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from case import Bar, Case
from gpu import Array
from reduce import numpy_dtype, power

DTYPES, QUICK_DTYPES = ("float32", "int8", "float16", "int32", "int64"), ("float32",)
SIZES, QUICK_SIZES = tuple(1 << k for k in (12, 16, 20, 24)), (1 << 16,)
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
GROUPS = ("topk", "rows", "orders", "bincount", "weights")
OURS, MAX = "cutesync", "max"
BASELINES, ROOFS, RIVALS, QUICK_RIVALS = (MAX,), ("read",), ("cub", "torch", "cupy"), ("torch",)
LIBRARIES = ("torch", "cupy")
BAR = 1.2  # times the time of max


def case(group: str, k: int, shape: tuple[int, ...], dtype: str, order: str = "random", bar: float = 0.0) -> Case:
    size = int(np.prod(shape))
    out = (*shape[:-1], k)
    name = f"k={k} {dtype} {' x '.join(map(power, shape))}" + ("" if order == "random" else f" {order}")
    bars = (Bar(MAX, bar),) if bar else ()
    rivals = ("torch",) if len(shape) > 1 else ("cub", "torch") if group == "orders" else RIVALS
    outputs = ((out, dtype), (out, "int64"), (shape[:-1] or (1,), dtype))
    contestants = (OURS, *BASELINES, *ROOFS, *rivals)
    return Case(
        group, name, f"{k} {order}", ((shape, dtype),), outputs, size * numpy_dtype(dtype).itemsize, contestants, bars
    )


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` and ``dtypes`` replace those of the ``topk`` group."""
    large = QUICK_LARGE if quick else LARGE
    found = []
    for dtype in dtypes or (QUICK_DTYPES if quick else DTYPES):
        small = (QUICK_SIZES if quick else SIZES) if dtype == "float32" else ()
        for n in sizes or (*small, large):
            for k in (k for k in (64, 2048) if k <= n):
                found.append(case("topk", k, (n,), dtype, bar=BAR if n == large and dtype == "float32" else 0.0))
    side = 1 << (12 if quick else 14)
    found.append(case("rows", 64, (side, side), "float32", bar=BAR))
    found += [case("rows", 8, (large >> 8, 256), "float32"), case("rows", 2048, (side, side), "float32")]
    found += [case("orders", k, (large,), "float32", order) for k in (64, 2048) for order in ("ascending", "equal")]
    found += [counts(bins, (large,), order) for bins in (256, 1 << 16) for order in ("random", "equal")]
    found += [sums(bins, (large,), order) for bins in (256, 1 << 16) for order in ("random", "equal")]
    return [one for one in found if not dtypes or one.dtype in dtypes]


def counts(bins: int, shape: tuple[int, ...], order: str) -> Case:
    """A count of int32."""
    name = f"{bins} bins int32 {power(shape[0])}" + (", one of them hot" if order == "equal" else "")
    bars = tuple(Bar(rival, 1.0) for rival in RIVALS)
    outputs = (((bins,), "int64"), ((bins,), "int64"), ((1,), "int32"))
    contestants = (OURS, *BASELINES, *ROOFS, *RIVALS)
    return Case("bincount", name, f"{bins} {order}", ((shape, "int32"),), outputs, 4 * shape[0], contestants, bars)


def sums(bins: int, shape: tuple[int, ...], order: str) -> Case:
    """Sums of float32 weights, by int32."""
    name = f"{bins} bins float32 weights {power(shape[0])}" + (", one of them hot" if order == "equal" else "")
    inputs, outputs = ((shape, "int32"), (shape, "float32")), (((bins,), "float64"),)
    bars = tuple(Bar(rival, 1.0) for rival in LIBRARIES)
    return Case("weights", name, f"{bins} {order}", inputs, outputs, 8 * shape[0], (OURS, *LIBRARIES), bars)


# Data and the NumPy reference


@lru_cache(maxsize=2)
def block(dtype: str) -> np.ndarray:
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    return (random.standard_normal(count) * 30).astype(numpy_dtype(dtype))


def data(case: Case) -> list[np.ndarray]:
    shape, dtype = case.inputs[0]
    k, order = case.op.split()
    if case.group in ("bincount", "weights"):
        x = np.random.default_rng(2026).integers(0, int(k), (1 << 22) + 3, np.int32)
        x = np.resize(x if order == "random" else np.ones(1, np.int32), shape)
        return [x] if case.group == "bincount" else [x, np.resize(np.abs(block("float32")), shape)]
    if order == "equal":
        return [np.ones(shape, numpy_dtype(dtype))]
    x = np.resize(block(dtype), shape)
    return [np.sort(x, axis=None) if order == "ascending" else x]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    """The values, the largest first; of a count, the counts, or the sums of weights (float64)."""
    k = int(case.op.split()[0])
    if case.group in ("bincount", "weights"):
        return np.bincount(*hosts, minlength=k)
    return np.sort(np.partition(hosts[0], -k, axis=-1)[..., -k:], axis=-1)[..., ::-1]


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """How many values differ, in whatever order CUB has them; of sums, which rivals round to float32, the largest
    relative difference."""
    if expected.dtype == np.float64:
        worst = float(np.max(np.abs(expected - got) / np.maximum(expected, 1)))
        return worst, worst < 1e-3
    if (expected[..., :-1] >= expected[..., 1:]).all():
        got = np.sort(got, axis=-1)[..., ::-1]
    different = float(np.count_nonzero(expected.ravel() != got.ravel()))
    return different, different == 0


# The contestants: each factory returns a call


def ours(case, slot, libraries):
    cs, stream, k = libraries.cutesync, libraries.stream, int(case.op.split()[0])
    x, *others = (libraries.ours(array) for array in (*slot.inputs, *slot.outputs[:2]))
    if case.group == "weights":
        weights, sums = others
        return lambda: cs.bincount(x, weights, length=k, out=sums, stream=stream)
    values, indices = others
    if case.group == "bincount":
        return lambda: cs.bincount(x, length=k, out=values, stream=stream)
    return lambda: cs.topk(x, k, out=(values, indices), stream=stream)


def largest(case, slot, libraries):
    """One element of each row: the pass that a top-k is measured by. Its result is not looked at."""
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[2])
    rows = x.reshape(out.shape[0], x.shape[-1])
    return lambda: cs.max(rows, 1, out=out, stream=stream)


def torch(case, slot, libraries):
    import torch as library

    x, *weights = map(libraries.torch_view, slot.inputs)
    k, counted = int(case.op.split()[0]), case.group in ("bincount", "weights")

    def call():
        slot.result = library.bincount(x, *weights, minlength=k) if counted else library.topk(x, k).values

    return call


def cupy(case, slot, libraries):
    import cupy as library

    x, *weights = map(libraries.cupy_view, slot.inputs)
    k, counted = int(case.op.split()[0]), case.group in ("bincount", "weights")

    def call():
        if counted:
            slot.result = library.bincount(x, *weights, minlength=k)
        else:
            slot.result = library.sort(library.partition(x, -k)[-k:])[::-1]

    return call


def cub(case, slot, libraries):
    """Values; or counts of 32 bits, in the memory of the second output."""
    if case.group != "bincount":
        name = f"topk_{case.op.split()[0]}_{case.dtype}"
        return libraries.cub.from_one_to_one(name, slot, case.size)
    name, spare = f"counts_{case.op.split()[0]}", slot.outputs[1]
    counts = Array(spare.pointer, spare.shape, "int32")
    count = libraries.cub.call(name, [slot.inputs[0].pointer, counts.pointer], case.size)
    view = libraries.torch_view(counts)

    def call():
        count()
        slot.result = view

    return call


CONTESTANTS = {OURS: ours, MAX: largest, "torch": torch, "cupy": cupy, "cub": cub}
