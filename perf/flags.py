"""Discontinuity flags: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py flags``.

Bytes are counted once in and once out. Groups: ``heads`` (dtype x size), ``forms`` (tails, both at once, flags of other
types, packed bits), ``operator`` (a Python lambda with the index against "ne"), ``difference``, ``rows`` (2-D arrays
and tiles), ``misaligned`` (views off by some elements) and ``big`` (more than 2**32 elements). The rivals compute
``x[1:] != x[:-1]`` into an existing array, without the first flag.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from case import Bar, Case
from gpu import Array
from reduce import numpy_dtype, power

DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
USUAL_DTYPES = DTYPES[:-1]
SIZES = tuple(1 << k for k in range(12, 29, 2))
QUICK_DTYPES = ("int8", "int32", "int64")
QUICK_SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 26)
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
SMALL = 1 << 20  # up to here the bar is the time of a copy and a launch
ROWS = (((65536, 4096), None), ((1 << 24, 16), None), ((1 << 20, 250), None), ((LARGE,), 512), ((LARGE,), 1000))
MISALIGNED = ("int32", "int8", "int64")

GROUPS = ("heads", "forms", "operator", "difference", "rows", "misaligned", "big")
OURS = "cutesync"
BASELINES = ("plain",)
ROOFS = ("copy",)
RIVALS = ("torch", "cupy")

INDEXED = lambda a, b, index: (a != b) & (index >= 0)  # noqa: E731  the bar is about a lambda


def case(
    group: str, op: str, n, dtype: str, flag: str = "uint8", bars=(), rivals: tuple[str, ...] = (), offset: int = 0
) -> Case:
    """``op`` is the call: heads, tails, both, lambda, difference or a tile's "tile T". ``n`` is a length or a shape.

    The results of "both" are the rows of one array, checked together. "lambda" runs beside the operator "ne" ("plain").
    """
    shape = n if isinstance(n, tuple) else (n,)
    count = int(np.prod(shape))
    words = (*shape[:-1], -(-shape[-1] // 32)) if flag == "bits" else shape
    result = ((2, *words) if op == "both" else words, "uint32" if flag == "bits" else flag)
    moved = count * numpy_dtype(dtype).itemsize + int(np.prod(result[0])) * numpy_dtype(result[1]).itemsize
    name = f"{op} {dtype} to {flag} " + (power(count) if len(shape) == 1 else " x ".join(map(power, shape)))
    beside = ("plain",) if op == "lambda" else ()
    return Case(
        group,
        name + (f" off by {offset}" if offset else ""),
        op,
        ((shape, dtype),),
        (result,) * (1 + len(beside)),
        moved,
        (OURS, *beside, *ROOFS, *rivals),
        tuple(bars),
        offset=offset,
    )


def head_bars(dtype: str, n: int) -> list[Bar]:
    bars = [Bar(rival, 1.00) for rival in RIVALS]
    if n == LARGE and dtype in ("int8", "int32", "int64"):
        bars.append(Bar("floor", 0.95 if dtype == "int32" else 0.93, "rate"))
    if n <= SMALL:
        bars += [Bar("copy", 1.00, measure=measure, plus=1.5) for measure in ("event", "graph")]
    return bars


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` and ``dtypes`` replace those of the ``heads`` group."""
    found = [
        case("heads", "heads", n, dtype, bars=head_bars(dtype, n), rivals=RIVALS)
        for dtype in dtypes or (QUICK_DTYPES if quick else USUAL_DTYPES)
        for n in sizes or ((QUICK_SIZES if dtype == "int32" else QUICK_SIZES[-1:]) if quick else SIZES)
    ]
    n, near = QUICK_LARGE if quick else LARGE, (Bar("floor", 0.93, "rate"),)
    found.append(case("forms", "tails", n, "int32", "uint8", (Bar("floor", 0.95, "rate"),), RIVALS))
    found.append(case("forms", "both", n, "int32", bars=near))
    found.append(case("forms", "heads", n, "int32", "int32", near))
    packed = ("int32",) if quick else ("int32", "int8", "int64")
    found += [case("forms", "heads", n, dtype, "bits", near) for dtype in packed]
    found += [case("operator", "lambda", size, "int32", bars=(Bar("plain", 1.05),)) for size in (n, 1 << 20)]
    found += [case("difference", "difference", n, dtype, dtype, near) for dtype in ("int32", "float16")]
    for shape, tile in ((QUICK_LARGE, 1000),) if quick else ROWS:
        found.append(case("rows", f"tile {tile}" if tile else "heads", shape, "int32"))
    offsets = MISALIGNED[: 1 if quick else 3]
    found += [case("misaligned", "heads", n, dtype, rivals=RIVALS, offset=1) for dtype in offsets]
    if not quick:
        found.append(case("big", "heads", (1 << 32) + 7, "int8", "uint8", near, RIVALS))
    return [one for one in found if not dtypes or one.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=2)
def block(dtype: str) -> np.ndarray:
    """Runs of random values, 4 long on average. The count is odd, so that its repeats do not line up with tiles."""
    random, count = np.random.default_rng(2026), (1 << 22) + 3
    values = random.integers(0, 100, count)
    return values[np.cumsum(random.random(count) < 0.25)].astype(numpy_dtype(dtype))


def data(case: Case) -> list[np.ndarray]:
    return [np.resize(block(case.dtype), case.inputs[0][0])]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    """NumPy's flags or differences, of the output's shape."""
    x = hosts[0]
    if case.op == "difference":
        return np.diff(x, prepend=x.dtype.type(0))
    kind, differs = case.outputs[0][1], x[..., 1:] != x[..., :-1]
    heads, tails = np.ones(x.shape, bool), np.ones(x.shape, bool)
    heads[..., 1:], tails[..., :-1] = differs, differs
    if case.op.startswith("tile"):
        heads[:: int(case.op.split()[1])] = True
    flags = np.stack([heads, tails]) if case.op == "both" else tails if case.op == "tails" else heads
    return np.packbits(flags, bitorder="little").view(np.uint32) if kind == "uint32" else flags.astype(kind)


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """How many entries differ. A rival has no first flag."""
    different = int(np.count_nonzero(got != (expected if got.shape == expected.shape else expected[1:])))
    return float(different), different == 0


# The contestants: each factory returns a call that only enqueues


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    x, target = libraries.ours(slot.inputs[0]), slot.outputs[0]
    flag = "bits" if target.dtype == np.uint32 else target.dtype.name
    if case.op == "both":
        each = target.nbytes // 2
        both = tuple(
            libraries.ours(Array(target.pointer + row * each, target.shape[1:], target.dtype)) for row in range(2)
        )
        return lambda: cs.flag_heads_and_tails(x, dtype=flag, out=both, stream=stream)
    out = libraries.ours(target)
    if case.op == "difference":
        return lambda: cs.adjacent_difference(x, out=out, stream=stream)
    if case.op == "tails":
        return lambda: cs.flag_tails(x, dtype=flag, out=out, stream=stream)
    op = INDEXED if case.op == "lambda" else "ne"
    tile = int(case.op.split()[1]) if case.op.startswith("tile") else None
    return lambda: cs.flag_heads(x, op, dtype=flag, tile=tile, out=out, stream=stream)


def plain(case, slot, libraries):
    """The operator "ne" on the same data."""
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[1])
    return lambda: cs.flag_heads(x, out=out, stream=stream)


def torch(case, slot, libraries):
    library = libraries.torch
    x, flags = libraries.torch_view(slot.inputs[0]), libraries.torch_view(slot.outputs[0]).view(library.bool)

    def call():
        slot.result = library.ne(x[1:], x[:-1], out=flags[1:])

    return call


def cupy(case, slot, libraries):
    library = libraries.cupy
    x, flags = libraries.cupy_view(slot.inputs[0]), libraries.cupy_view(slot.outputs[0]).view(bool)

    def call():
        slot.result = library.not_equal(x[1:], x[:-1], out=flags[1:])

    return call


CONTESTANTS = {OURS: ours, "plain": plain, "torch": torch, "cupy": cupy}
