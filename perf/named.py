"""Reductions with names of their own, and one with a payload. Run by ``python perf/sweep.py named``.

Bytes are those of the input and of the results. Groups: ``whole`` (a long array), ``rows``, and ``payload`` (the
largest key, with the value that lies beside it: a callable on states of two arrays). torch reads only the keys there:
it looks the value up after an argmax. Of pairs of results the first is checked here, both of them in tests/reduce.
"""

from __future__ import annotations

from importlib.util import find_spec

import cutlass
import numpy as np
from case import Bar, Case
from rivals import numpy_dtype

DTYPES = ("float32", "bfloat16")
LARGE, QUICK_LARGE = 1 << 28, 1 << 26
ROWS, QUICK_ROWS = (1 << 16, 1 << 12), (1 << 14, 1 << 12)
GROUPS = ("whole", "rows", "payload")
OURS = "cutesync"
BASELINES = ()
ROOFS = ("copy", "read")
RIVALS = ("torch", "cupy")
LIMITS = {"logsumexp": 0.95}
USUAL_LIMIT = 0.97  # of the best read
PAIRS = ("var_mean", "minmax")
COUNTED = ("argmax",)

LATER = lambda p, q: (  # noqa: E731
    cutlass.select_(q[0] > p[0], q[0], p[0]),
    cutlass.select_(q[0] > p[0], q[1], p[1]),
)


def case(group: str, op: str, shape: tuple[int, ...], dtype: str) -> Case:
    kept, inputs = shape[:-1], 2 if op == "payload" else 1
    result = "int64" if op in COUNTED else dtype
    outputs = ((kept, result),) * (2 if op in (*PAIRS, "payload") else 1)
    moved = int(np.prod(shape)) * inputs * numpy_dtype(dtype).itemsize
    moved += int(np.prod(kept)) * len(outputs) * numpy_dtype(result).itemsize
    name = f"{op} {dtype} " + " x ".join(map(str, shape))
    bars = (Bar("read", LIMITS.get(op, USUAL_LIMIT), "rate"),)
    partial = RIVALS if op == "payload" else ()
    given, who = ((shape, dtype),) * inputs, (OURS, *ROOFS, *RIVALS)
    return Case(group, name, op, given, outputs, moved, who, bars, axis=-1, partial=partial)


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replace the long array's."""
    found, rows = [], QUICK_ROWS if quick else ROWS
    for n in sizes or [QUICK_LARGE if quick else LARGE]:
        found += [case("whole", op, (n,), "float32") for op in ("var", "minmax", "argmax")]
        found.append(case("payload", "payload", (n,), "float32"))
    if find_spec("ml_dtypes"):
        found += [case("rows", op, rows, "bfloat16") for op in ("mean", "var", "var_mean")]
    found += [case("rows", op, rows, "float32") for op in ("var_mean", "logsumexp")]
    return [one for one in found if not dtypes or one.dtype in dtypes]


def data(case: Case) -> list[np.ndarray]:
    random, (shape, dtype) = np.random.default_rng(2026), case.inputs[0]
    block = (4 * random.random((1 << 22) + 3, np.float32) - 2).astype(numpy_dtype(dtype))
    host = np.resize(block, shape)
    if case.op in ("argmax", "payload"):
        host[case.size // 3] = 3.0
    return [host] if case.op != "payload" else [host, np.resize(block[::-1], shape)]


def reference(case: Case, hosts: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """NumPy's result in float64, and the relative error allowed: 0 where nothing is rounded."""
    x, last = hosts[0], -1
    if case.op == "argmax":
        return np.argmax(x), 0.0
    if case.op in ("minmax", "payload"):
        return (np.min if case.op == "minmax" else np.max)(x), 0.0
    half = 2.0**-7 if case.dtype == "bfloat16" else 1e-5
    if case.op == "logsumexp":
        return np.log(np.exp(x).sum(last, dtype=np.float64)), half
    mean = np.mean(x, last, dtype=np.float64)
    if case.op == "mean":
        return mean, half
    parts = np.array_split(x, 64)  # of rows, or of the only one
    means = np.array_split(mean, 64) if mean.ndim else [mean] * 64
    squares = [np.square(p - m[..., None], dtype=np.float64).sum(last) for p, m in zip(parts, means)]
    return (np.concatenate(squares) / x.shape[last] if mean.ndim else np.sum(squares) / x.size), half


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    """The largest error relative to numbers of about 1, the deviation of the data, and whether it is allowed."""
    wanted, allowed = expected
    error = float(np.max(np.abs(np.asarray(got, np.float64) - wanted)))
    return error, error <= allowed


def ours(case, slot, libraries):
    cs, how = libraries.cutesync, {"axis": case.axis, "stream": libraries.stream}
    xs = tuple(map(libraries.ours, slot.inputs))
    outs = tuple(map(libraries.ours, slot.outputs))
    if case.op == "payload":
        return lambda: cs.reduce(xs, LATER, out=outs, **how)
    out = outs if case.op in PAIRS else outs[0]
    function = getattr(cs, case.op)
    return lambda: function(xs[0], out=out, **how)


def torch(case, slot, libraries):
    library = libraries.torch
    x, *others = (libraries.torch_view(a) for a in slot.inputs)
    outs = [libraries.torch_view(a) for a in slot.outputs]
    if case.op == "payload":

        def call():
            best, place = library.max(x, 0)
            outs[0].copy_(best), library.index_select(others[0], 0, place[None], out=outs[1][None])

        return call
    if case.op == "minmax":
        return lambda: library.aminmax(x, dim=case.axis, out=tuple(outs))
    if case.op == "var_mean":

        def both():
            slot.result = library.var_mean(x, case.axis, correction=0)[0]

        return both
    if case.op == "var":
        return lambda: library.var(x, case.axis, correction=0, out=outs[0])
    return lambda: getattr(library, case.op)(x, case.axis, out=outs[0])


def cupy(case, slot, libraries):
    library = libraries.cupy
    if case.dtype != "float32" or case.op not in ("var", "argmax"):
        return None
    x, out = libraries.cupy_view(slot.inputs[0]), libraries.cupy_view(slot.outputs[0])
    return lambda: getattr(library, case.op)(x, axis=case.axis, out=out)


CONTESTANTS = {OURS: ours, "torch": torch, "cupy": cupy}
