"""Selections and runs: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py selection``.

Counted are the elements, the mask (a byte an element) and the selected elements; of runs, the elements, the first of
each run, and its length in int32. Groups: ``mask`` (dtype x size, half selected), ``share`` (1 % and 99 %), ``forms``
(a callable, indices), ``runs`` (unique elements and lengths, runs of 8 on average) and ``keys`` (sums and running sums
of the same runs by key; of these, the values and the sums are counted, too).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from case import Bar, Case
from reduce import numpy_dtype, power

DTYPES, QUICK_DTYPES = ("int8", "int16", "int32", "float32", "int64"), ("int32",)
SIZES, QUICK_SIZES = tuple(1 << k for k in (12, 16, 20, 22, 24)), (1 << 16, 1 << 22)
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
GROUPS = ("mask", "share", "forms", "runs", "keys")
OURS, BASELINES, ROOFS, RIVALS, QUICK_RIVALS = "cutesync", (), ("copy",), ("torch", "cupy"), ("torch", "cupy")
BYTES = {
    "mask": 1.0,
    "callable": 0.0,
    "indices": 5.0,
    "unique": 0.0,
    "lengths": 0.5,
    "sums": 4.5,
    "running": 7.5,
}  # an element, besides its own


def positive(value):
    return value > 0


def case(group: str, op: str, n: int, dtype: str, share: float = 0.5, bar: float = 0.0) -> Case:
    size = numpy_dtype(dtype).itemsize
    moved = int(n * (size * (1 + share) + BYTES[op]))
    name = f"{op} {dtype} {power(n)}" + ("" if share in (0.5, 0.125) else f", {share:.0%}")
    second = {"mask": "bool", "indices": "bool", "sums": dtype, "running": dtype}.get(op)
    inputs = (((n,), dtype), *((((n,), second),) if second else ()))
    bars = (Bar("floor", bar, "rate"),) if bar else ()
    rivals = RIVALS if op == "mask" else ()
    return Case(group, name, f"{op} {share}", inputs, (((n,), dtype),), moved, (OURS, *ROOFS, *rivals), bars, once=True)


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` and ``dtypes`` replace those of the ``mask`` group."""
    large = QUICK_LARGE if quick else LARGE
    found = []
    for dtype in dtypes or (QUICK_DTYPES if quick else DTYPES):
        small = (QUICK_SIZES if quick else SIZES) if dtype == "int32" else ()
        for n in sizes or (*small, large):
            found.append(
                case("mask", "mask", n, dtype, bar=(0.92 if dtype == "int32" else 0.85) if n == large else 0.0)
            )
    found += [case("share", "mask", large, "int32", share, 0.92) for share in (0.01, 0.99)]
    found += [case("forms", "callable", large, "int32", bar=0.92), case("forms", "indices", large, "int32", bar=0.88)]
    found += [case("runs", op, large, "int32", 0.125, 0.88) for op in ("unique", "lengths")]
    found += [case("keys", op, large, "int32", 0.125, 0.88) for op in ("sums", "running")]
    return [one for one in found if not dtypes or one.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=4)
def block(dtype: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Elements of which a ``share`` is positive, in runs of 1 / ``share`` where that is 8, and the mask of these."""
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    mask = random.random(count) < share
    if share == 0.125:
        return (np.cumsum(mask) % 100).astype(numpy_dtype(dtype)), mask
    values = random.integers(1, 100, count)
    return np.where(mask, values, -values).astype(numpy_dtype(dtype)), mask


def parts(case: Case) -> tuple[str, float]:
    op, share = case.op.split()
    return op, float(share)


def data(case: Case) -> list[np.ndarray]:
    arrays = block(case.dtype, parts(case)[1])
    if case.group == "keys":
        arrays = arrays[0], arrays[0]
    return [np.resize(array, shape) for array, (shape, _) in zip(arrays, case.inputs)]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    """The selected elements; of runs, the first of each; of keys, sums or running sums."""
    x = hosts[0]
    if case.group == "keys":
        heads = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
        if parts(case)[0] == "sums":
            return np.add.reduceat(hosts[1], heads, dtype=x.dtype)
        total = np.cumsum(hosts[1], dtype=x.dtype)
        return total - np.repeat((total - hosts[1])[heads], np.diff(np.append(heads, len(x))))
    return x[np.append(True, x[1:] != x[:-1])] if case.group == "runs" else x[x > 0]


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """How many elements differ; what lies behind the selected ones is not looked at."""
    got = got.ravel()[: len(expected)]
    different = len(expected) - len(got) + int(np.count_nonzero(expected[: len(got)] != got))
    return float(different), different == 0


# The contestants: each factory returns a call


def ours(case, slot, libraries):
    cs, stream, op = libraries.cutesync, libraries.stream, parts(case)[0]
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
    if op in ("sums", "running"):
        y = libraries.ours(slot.inputs[1])

        def by_key():
            reduced = op == "sums"
            slot.result = (
                cs.reduce_by_key(x, y, stream=stream).values if reduced else cs.scan_by_key(x, y, stream=stream)
            )

        return by_key
    if op in ("unique", "lengths"):
        call = cs.unique_consecutive if op == "unique" else cs.run_length_encode

        def of_runs():
            slot.result = call(x, stream=stream, **({"dtype": "int32"} if op == "lengths" else {})).values

        return of_runs
    where = positive if op == "callable" else libraries.ours(slot.inputs[1])
    if op == "indices":
        places = cs.empty(x.shape, "int64")
        return lambda: cs.select(x, where, indices=True, out=(out, places), stream=stream)
    return lambda: cs.select(x, where, out=out, stream=stream)


def torch(case, slot, libraries):
    x, mask = libraries.torch_view(slot.inputs[0]), libraries.torch_view(slot.inputs[1])

    def call():
        slot.result = x[mask]

    return call


def cupy(case, slot, libraries):
    x, mask = libraries.cupy_view(slot.inputs[0]), libraries.cupy_view(slot.inputs[1])

    def call():
        slot.result = x[mask]

    return call


CONTESTANTS = {OURS: ours, "torch": torch, "cupy": cupy}
