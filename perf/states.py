"""States of several values: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py states``.

Bytes are counted once in and once out. Groups: ``recurrence`` (h = a h + b along one long array, rows and columns),
``segments`` (sums that start anew at flags; both values of the state stored, or the sum alone), ``argument`` (an
operator with a run-time argument against the same with a constant, "constant").

Coefficients lie below 0.1, so a recurrence forgets what lies ``MEMORY`` positions back, and its reference is a sum of
as many products. JAX's ``associative_scan`` runs on a stream of its own and waits for its result: its case is timed in
single calls, its host time included.
"""

from __future__ import annotations

import cutlass
import numpy as np
from case import Bar, Case

DTYPES = ("float32",)
LARGE, QUICK_LARGE = 1 << 27, 1 << 25
ROWS, COLUMNS = (1 << 12, 1 << 15), (1 << 15, 1 << 12)
MEMORY = 10
GROUPS = ("recurrence", "segments", "argument")
OURS = "cutesync"
BASELINES = ("constant",)
ROOFS = ("copy",)
RIVALS = ("jax",)
QUICK_RIVALS = ()

AFFINE = lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1])  # noqa: E731
ANEW = lambda p, q: (p[0] | q[0], cutlass.select_(q[0] != 0, q[1], p[1] + q[1]))  # noqa: E731
SECOND = lambda state: state[1]  # noqa: E731
SCALED = lambda a, b: a + b * 1.0  # noqa: E731
SCALED_BY = lambda a, b, t: a + b * t  # noqa: E731


def case(group: str, op: str, shape, types: tuple, limit: float, axis: int = -1, rivals=()) -> Case:
    """``types`` are those of the inputs and of the outputs; a case with rivals is timed in single calls."""
    inputs, outputs = types
    sizes = [np.dtype(t).itemsize for t in (*inputs, *outputs)]
    name = f"{op} {', '.join(inputs)} " + " x ".join(map(str, shape)) + (f" axis {axis}" if axis >= 0 else "")
    beside = BASELINES if group == "argument" else ()
    bars = (Bar("constant", 1.02),) if beside else (Bar("floor", limit, "rate"),)
    return Case(
        group,
        name,
        op,
        tuple((shape, t) for t in inputs),
        tuple((shape, t) for t in outputs) * (1 + len(beside)),
        int(np.prod(shape)) * sum(sizes),
        (OURS, *beside, *ROOFS, *rivals),
        bars,
        axis=axis,
        once=bool(rivals),
    )


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replace the long array's."""
    pair, one = ("float32", "float32"), ("float32",)
    found = [
        case("recurrence", "recurrence", (n,), (pair, one), 0.92) for n in sizes or [QUICK_LARGE if quick else LARGE]
    ]
    n = found[-1].inputs[0][0]
    found.append(case("recurrence", "recurrence", ROWS, (pair, one), 0.92))
    found.append(case("recurrence", "recurrence", COLUMNS, (pair, one), 0.88, axis=0))
    if not quick:
        found.append(case("recurrence", "recurrence", (1 << 24,), (pair, one), 0.92, rivals=RIVALS))
    flags = ("uint8", "float32")
    found.append(case("segments", "segments both", n, (flags, flags), 0.90))
    found.append(case("segments", "segments", n, (flags, one), 0.90))
    found.append(case("argument", "argument", n, (one, one), 0))
    return found


def data(case: Case) -> list[np.ndarray]:
    shape, random = case.inputs[0][0], np.random.default_rng(2026)
    block = random.integers(0, 8, (1 << 22) + 3).astype(np.float32)
    values = np.resize(block, shape)
    if case.op == "recurrence":
        return [np.resize(random.random((1 << 22) + 1, np.float32) / 10, shape), values]
    if case.op == "argument":
        return [values]
    return [np.resize((random.random((1 << 22) + 1) < 0.1).astype(np.uint8), shape), values]


def reference(case: Case, hosts: list[np.ndarray]) -> np.ndarray:
    if case.op == "argument":
        return np.cumsum(hosts[0], dtype=np.float64)
    if case.op != "recurrence":
        flags, values = hosts
        if case.op.endswith("both"):
            return np.maximum.accumulate(flags)
        sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        starts = np.maximum.accumulate(np.where(flags != 0, np.arange(len(flags)), 0))
        return sums[1:] - sums[starts]
    axis = case.axis % hosts[0].ndim
    a, b = (np.moveaxis(x, axis, 0) for x in hosts)
    total, term = b.copy(), b
    for back in range(1, MEMORY):
        term = a[back:] * term[:-1]
        total[back:] += term
    return np.moveaxis(total, 0, axis)


def accuracy(expected: np.ndarray, got: np.ndarray) -> tuple[float, bool]:
    """The largest difference relative to the largest of the absolute values so far."""
    error = float(np.max(np.abs(got - expected) / np.maximum(np.abs(expected), 1.0)))
    return error, error <= 1e-4


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    xs = tuple(map(libraries.ours, slot.inputs))
    outs = tuple(map(libraries.ours, slot.outputs))
    if case.op == "argument":
        return lambda: cs.scan(xs[0], SCALED_BY, args=(1.0,), out=outs[0], stream=stream)
    if case.op.endswith("both"):
        return lambda: cs.scan(xs, ANEW, out=outs, stream=stream)
    op = AFFINE if case.op == "recurrence" else ANEW
    how = {"axis": case.axis, "finish": SECOND, "out_dtype": "float32"}
    return lambda: cs.scan(xs, op, out=outs[0], stream=stream, **how)


def constant(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[1])
    return lambda: cs.scan(x, SCALED, out=out, stream=stream)


def jax(case, slot, libraries):
    library = libraries.jax
    a, b = (library.numpy.from_dlpack(libraries.torch_view(x)) for x in slot.inputs)
    combine = lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1])  # noqa: E731
    scan = library.jit(lambda a, b: library.lax.associative_scan(combine, (a, b))[1])

    def call():
        slot.result = scan(a, b).block_until_ready()

    call.waits = True  # type: ignore[attr-defined]
    return call


CONTESTANTS = {OURS: ours, "constant": constant, "jax": jax}
