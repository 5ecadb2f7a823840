"""Selections and runs: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py selection``.

Counted are the elements, the mask (a byte an element) and the selected elements; of runs, the elements, the first of
each run, and its length in int32. Groups: ``mask`` (dtype x size, half selected), ``share`` (1 % and 99 %), ``forms``
(a callable, indices), ``runs`` (unique elements and lengths, runs of 8 on average) ``keys`` (sums and running sums
of the same runs by key; of these, the values and the sums are counted, too), ``partition``, ``places`` (``argwhere`` of
rows of 2**14), ``strided`` (a mask, of a transposed array), ``rows`` (a callable, by rows of 2**14: packed, and each
to its own row, filled) and ``small`` (selections, runs and keys from 2**12 to 2**22, into arrays of the caller, also
in graphs; CUB takes part in these).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from case import Bar, Case
from reduce import numpy_dtype, power

DTYPES, QUICK_DTYPES = ("int8", "int16", "int32", "float32", "int64"), ("int32",)
SIZES, QUICK_SIZES = tuple(1 << k for k in (12, 16, 20, 22, 24)), (1 << 16, 1 << 22)
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
GROUPS = ("mask", "share", "forms", "runs", "keys", "partition", "places", "strided", "rows", "small")
ROW = 1 << 14
SMALL, SMALL_OPS = tuple(1 << k for k in range(12, 23, 2)), ("callable", "mask", "unique", "lengths", "sums", "running")
SMALL_BARS = Bar("cub", 0.85), Bar("cub", 0.75, measure="graph")
OURS, BASELINES, ROOFS, RIVALS, QUICK_RIVALS = "cutesync", (), ("copy",), ("cub", "torch", "cupy"), ("torch", "cupy")
BYTES = {
    "mask": 1.0,
    "callable": 0.0,
    "indices": 5.0,
    "unique": 0.0,
    "lengths": 0.5,
    "sums": 4.5,
    "running": 7.5,
    "partition": 4.0,
    "places": 6.0,
    "transposed": 1.0,
    "packed": 0.0,
    "apart": 2.0,
}  # an element, besides its own


def positive(value):
    return value > 0


def case(group: str, op: str, n: int, dtype: str, share: float = 0.5, bar: float = 0.0) -> Case:
    size = numpy_dtype(dtype).itemsize
    moved = int(n * (size * (1 + share) + BYTES[op]))
    name = f"{op} {dtype} {power(n)}" + ("" if share in (0.5, 0.125) else f", {share:.0%}")
    second = {"mask": "bool", "indices": "bool", "sums": dtype, "running": dtype}
    second = second.get(op, "bool" if op in ("partition", "transposed") else None)
    inputs = (((n,), dtype), *((((n,), second),) if second else ()))
    bars = (Bar("floor", bar, "rate"),) if bar else ()
    rivals = QUICK_RIVALS if op in ("mask", "partition", "places", "transposed") else ()
    output = ((n,), "int64") if op == "places" else ((n,), dtype)
    return Case(group, name, f"{op} {share}", inputs, (output,), moved, (OURS, *ROOFS, *rivals), bars, once=True)


def small_case(op: str, n: int) -> Case:
    """A case whose results, the number of them, and lengths or keys are in arrays of the caller."""
    found = case("small", op, n, "int32", 0.5 if op in ("callable", "mask") else 0.125)
    outputs = (*found.outputs, ((), "int64"), ((n,), "int32"))
    return replace(found, outputs=outputs, contestants=(OURS, *ROOFS, "cub"), bars=SMALL_BARS, once=False)


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
    found += [case("partition", "partition", large, "int32"), case("places", "places", large, "int32")]
    found += [case("strided", "transposed", large, "int32"), case("rows", "packed", large, "int32")]
    found += [case("rows", "apart", large, "int32")]
    found += [small_case(op, n) for op in SMALL_OPS for n in (QUICK_SIZES if quick else SMALL)]
    return [one for one in found if not dtypes or one.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=4)
def block(dtype: str, share: float, other: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Elements of which a ``share`` is positive and the rest negative (0 with ``other`` 0), in runs of 1 / ``share``
    where that is 8, and the mask of these."""
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    mask = random.random(count) < share
    if share == 0.125:
        return (np.cumsum(mask) % 100).astype(numpy_dtype(dtype)), mask
    values = random.integers(1, 100, count)
    return np.where(mask, values, -values * other).astype(numpy_dtype(dtype)), mask


def parts(case: Case) -> tuple[str, float]:
    op, share = case.op.split()
    return op, float(share)


def data(case: Case) -> list[np.ndarray]:
    arrays = block(case.dtype, parts(case)[1], int(case.group != "places"))
    if parts(case)[0] in ("sums", "running"):
        arrays = arrays[0], arrays[0]
    return [np.resize(array, shape) for array, (shape, _) in zip(arrays, case.inputs)]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    """The selected elements; of runs, the first of each; of keys, sums or running sums."""
    x, (op, share) = hosts[0], parts(case)
    if op == "partition":
        return np.concatenate([x[hosts[1]], x[~hosts[1]]])
    if op == "places":
        return np.argwhere(x.reshape(-1, ROW)).ravel()
    if op == "transposed":
        return x.reshape(-1, ROW).T[hosts[1].reshape(-1, ROW).T]
    if op == "apart":
        return np.concatenate(
            [np.append(row[row > 0], np.zeros((row <= 0).sum(), x.dtype)) for row in x.reshape(-1, ROW)]
        )
    if op in ("sums", "running"):
        heads = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
        if op == "sums":
            return np.add.reduceat(hosts[1], heads, dtype=x.dtype)
        total = np.cumsum(hosts[1], dtype=x.dtype)
        return total - np.repeat((total - hosts[1])[heads], np.diff(np.append(heads, len(x))))
    return x[np.append(True, x[1:] != x[:-1])] if share == 0.125 else x[x > 0]


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """How many elements differ; what lies behind the selected ones is not looked at."""
    got = got.ravel()[: len(expected)]
    different = len(expected) - len(got) + int(np.count_nonzero(expected[: len(got)] != got))
    return float(different), different == 0


# The contestants: each factory returns a call


def ours_small(case, slot, libraries):
    """A call that writes to arrays of the caller."""
    cs, op = libraries.cutesync, parts(case)[0]
    x, out, count, more = map(libraries.ours, (slot.inputs[0], *slot.outputs))
    options = {"stream": libraries.stream}
    if op in ("unique", "lengths"):
        if op == "unique":
            return lambda: cs.unique_consecutive(x, out=(out, count), **options)
        return lambda: cs.run_length_encode(x, dtype="int32", out=(out, more, count), **options)
    if op == "callable":
        return lambda: cs.select(x, positive, out=(out, count), **options)
    y = libraries.ours(slot.inputs[1])
    if op == "mask":
        return lambda: cs.select(x, y, out=(out, count), **options)
    if op == "sums":
        return lambda: cs.reduce_by_key(x, y, out=(more, out, count), **options)
    return lambda: cs.scan_by_key(x, y, out=out, **options)


def cub(case, slot, libraries):
    op = parts(case)[0]
    out, count, more = (array.pointer for array in slot.outputs)
    results = [out] if op == "running" else [out, count] + [more] * (op in ("lengths", "sums"))
    return libraries.cub.call(op, [*(array.pointer for array in slot.inputs), *results], case.size)


def ours(case, slot, libraries):
    if case.group == "small":
        return ours_small(case, slot, libraries)
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
    if op in FORMS:
        arrays = [libraries.ours(array) for array in slot.inputs]

        def of_form():
            slot.result = FORMS[op](cs, stream, *arrays)

        return of_form
    where = positive if op == "callable" else libraries.ours(slot.inputs[1])
    if op == "indices":
        places = cs.empty(x.shape, "int64")
        return lambda: cs.select(x, where, indices=True, out=(out, places), stream=stream)
    return lambda: cs.select(x, where, out=out, stream=stream)


FORMS = {
    "partition": lambda cs, stream, x, mask: cs.partition(x, mask, stream=stream).values,
    "places": lambda cs, stream, x: cs.argwhere(x.reshape(-1, ROW), size=x.size * 9 // 16, stream=stream).values,
    "transposed": lambda cs, stream, x, mask: (
        cs.select(x.reshape(-1, ROW).T, mask.reshape(-1, ROW).T, stream=stream).values
    ),
    "packed": lambda cs, stream, x: cs.select(x.reshape(-1, ROW), positive, axis=1, packed=True, stream=stream).values,
    "apart": lambda cs, stream, x: cs.select(x.reshape(-1, ROW), positive, axis=1, size=ROW, stream=stream).values,
}


def rival(case, x, masks, library):
    """A rival's call of a case."""
    op = parts(case)[0]
    if op == "places":
        rows = x.reshape(-1, ROW)
        return lambda: library.argwhere(rows)
    (mask,) = masks
    if op == "partition":
        join = library.cat if hasattr(library, "cat") else library.concatenate
        return lambda: join([x[mask], x[~mask]])
    if op == "transposed":
        return lambda: x.reshape(-1, ROW).T[mask.reshape(-1, ROW).T]
    return lambda: x[mask]


def torch(case, slot, libraries):
    import torch as library

    x, *masks = map(libraries.torch_view, slot.inputs)
    found = rival(case, x, masks, library)

    def call():
        slot.result = found()

    return call


def cupy(case, slot, libraries):
    import cupy as library

    x, *masks = map(libraries.cupy_view, slot.inputs)
    found = rival(case, x, masks, library)

    def call():
        slot.result = found()

    return call


CONTESTANTS = {OURS: ours, "cub": cub, "torch": torch, "cupy": cupy}
