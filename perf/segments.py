"""Segments: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py segments``.

Lengths of segments are equal, follow Zipf's law, are those of one giant among short ones, or of equal ones with a
million empty ones between, or those of a giant behind four million of one element ("ones"), or before a million empty
ones ("behind") (``MIXES``); no mix has more than 2**22 of them that are not empty. Counted are the elements,
the results, and the offsets. Groups: ``sums`` and ``scans`` by offsets, ``ranges`` (sums of the same segments by begins
and ends, in any order), ``windows`` (by begins and ends that overlap: each element lies in four of them) and ``decode``
(a run for each segment).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from case import Bar, Case
from reduce import power

DTYPES = ("float32",)
LARGE, QUICK_LARGE = 1 << 28, 1 << 24
EMPTY, SHORT = 1_000_000, 16
MIXES = ("64", "1000", "100000", "1000000", "zipf", "giant", "empty", "ones", "behind")
GROUPS = ("sums", "scans", "ranges", "windows", "decode")
OURS, BASELINES, ROOFS, RIVALS, QUICK_RIVALS = "cutesync", (), ("copy", "read"), ("torch",), ("torch",)
BARS = {"sums": Bar("read", 0.9, "rate"), "scans": Bar("floor", 0.88, "rate"), "decode": Bar("floor", 0.85, "rate")}
WINDOW, STEP = 1024, 256  # elements of a window, and from one to the next


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replace the number of elements."""
    found = []
    for n in sizes or [QUICK_LARGE if quick else LARGE]:
        for group in GROUPS:
            mixes = ("windows",) if group == "windows" else MIXES[:1] + MIXES[4:6] if group == "ranges" else MIXES
            found += [case(group, mix, n) for mix in mixes if group != "decode" or mix not in ("empty", "behind")]
    return found


def case(group: str, mix: str, n: int) -> Case:
    count = len(begins_of(mix, n))
    x, results, offsets = ((n,), "float32"), ((count,), "float32"), ((count + 1,), "int64")
    inputs = (x, offsets)
    if group in ("ranges", "windows"):
        inputs = (x, ((count,), "int64"), ((count,), "int64"))
    elif group == "decode":
        inputs = (results, ((count,), "int64"))
    outputs = (results if group in ("sums", "ranges", "windows") else x,)
    moved = sum(np.dtype(dtype).itemsize * shape[0] for shape, dtype in (*inputs, *outputs))
    name = f"{group} {power(n)} {mix if not mix.isdigit() else 'of ' + mix} ({count})"
    roofs = ROOFS if group == "sums" else ROOFS[:1]
    rivals = ("torch",) if group in ("sums", "decode") else ()
    bars = (BARS[group],) if group in BARS else ()
    return Case(group, name, mix, inputs, outputs, moved, (OURS, *roofs, *rivals), bars, once=True)


# Data and the NumPy reference


@lru_cache(maxsize=4)
def begins_of(mix: str, n: int) -> np.ndarray:
    """Where the segments begin."""
    if mix == "windows":
        return np.arange(0, n - WINDOW + 1, STEP)
    if mix == "zipf":
        weights = np.random.default_rng(2026).zipf(1.5, n >> 7).clip(max=1 << 20).astype(np.float64)
        cuts = np.floor(np.cumsum(weights) * (n / weights.sum())).astype(np.int64)
        return np.append(0, cuts[:-1])
    if mix == "giant":  # between short ones
        short = np.arange(0, n >> 5, SHORT)
        return np.concatenate([short, short + (n - (n >> 5))])
    if mix == "empty":
        begins = np.arange(0, n, n // (EMPTY // 4))
        return np.repeat(begins, 1 + EMPTY // len(begins))
    if mix == "ones":
        return np.arange(min(1 << 22, n // 4))
    if mix == "behind":
        return np.append(0, np.full(EMPTY, n))
    return np.arange(0, n, int(mix))


def ends_of(mix: str, n: int) -> np.ndarray:
    begins = begins_of(mix, n)
    return begins + WINDOW if mix == "windows" else np.append(begins[1:], n)


def data(case: Case) -> list[np.ndarray]:
    random, mix = np.random.default_rng(2026), case.op
    if case.group == "decode":
        n = case.outputs[0][0][0]
        return [np.resize(random.random((1 << 22) + 3, np.float32), case.size), ends_of(mix, n) - begins_of(mix, n)]
    n = case.size
    x = np.resize(random.random((1 << 22) + 3, np.float32), n)
    begins, ends = begins_of(mix, n), ends_of(mix, n)
    if case.group in ("ranges", "windows"):
        order = random.permutation(len(begins))
        return [x, begins[order], ends[order]]
    return [x, np.append(begins, n)]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    """Sums and running sums in float64."""
    if case.group == "decode":
        return np.repeat(*hosts)
    x, begins = hosts[0], hosts[1]
    total = np.append(0, np.cumsum(x, dtype=np.float64))
    if case.group != "scans":
        ends = hosts[2] if len(hosts) > 2 else begins[1:]
        return total[ends] - total[begins if len(hosts) > 2 else begins[:-1]]
    return total[1:] - np.repeat(total[begins[:-1]], np.diff(begins))


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """The largest difference, relative to sums above 1."""
    if len(got) != len(expected):
        return float("inf"), False
    worst = float(np.max(np.abs(expected - got) / np.maximum(np.abs(expected), 1), initial=0))
    return worst, worst < 1e-3


# The contestants: each factory returns a call


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    x, *where = map(libraries.ours, slot.inputs)
    out = libraries.ours(slot.outputs[0])
    if case.group == "decode":
        return lambda: cs.run_length_decode(x, where[0], out=out, stream=stream)
    offsets = where[0] if len(where) == 1 else tuple(where)
    call = cs.segmented_scan if case.group == "scans" else cs.segmented_reduce
    return lambda: call(x, offsets=offsets, out=out, stream=stream)


def torch(case, slot, libraries):
    import torch as library

    x, lengths = map(libraries.torch_view, slot.inputs)
    size = case.outputs[0][0][0]

    def call():
        if case.group == "decode":
            slot.result = library.repeat_interleave(x, lengths, output_size=size)
        else:
            slot.result = library.segment_reduce(x, "sum", offsets=lengths)

    return call


CONTESTANTS = {OURS: ours, "torch": torch}
