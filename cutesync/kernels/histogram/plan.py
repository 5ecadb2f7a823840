"""From the spec of a count to its launches: one that clears the result and one that counts; for weights and densities
those that make results of sums."""

from __future__ import annotations

from typing import Any

from ...dtypes import INT64
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...sizes import ceil_div
from ..policy import Policy
from .policy import ClearPolicy, DensityPolicy, FinishPolicy, TotalPolicy, choose, kinds, window
from .spec import FLOAT64, Counting, CountSpec

NUMBERS = ("length", "bins", "digits", "exponent", "low", "scale", "slack", "out_step", "edges_step")
KINDS = ("Int64", "Int32", "Int32", "Int32", "Float64", "Float64", "Float64", "Int64", "Int64")
ROUNDED = {"float16": (9, -14), "float32": (22, -126), "float64": (50, -1022)}  # bits of edges; the least normal ones
WORDS, MORE_WORDS = 3, 1  # of 64 bits for a bin with weights: two sums, an exponent and bits; and limits of all


def kernel_spec(policy: Any, counting: Counting) -> KernelSpec:
    """Return the kernel of a policy."""
    types = counting.dtype, counting.weights or INT64, FLOAT64, counting.result, FLOAT64, INT64, INT64
    names = "x", "weights", "edges", "out", "out_edges", "words", "n"
    arrays = [Pointer(name, kind) for name, kind in zip(names, types)]
    numbers = [Scalar(name, kind) for name, kind in zip(NUMBERS, KINDS)]
    numbers += [] if counting.layout is None else counting.layout.parameters
    return KernelSpec(("histogram", policy, *counting.key), (arrays, numbers), lambda: policy.make(counting))


def slack(spec: CountSpec, scale: float) -> float:
    """How far edges at equal distances, and places of values, may be from the line through the first and the last edge,
    in bins: twice their rounding at least. NumPy rounds edges to the type of values."""
    x = spec.counting.dtype
    bits, least = ROUNDED.get(x.name, ROUNDED["float32"]) if x.kind == "f" else ROUNDED["float64"]
    return 2.0**-bits * max(abs(spec.low), abs(spec.high), 2.0**least) * scale + 2.0**-50 * spec.bins


def plan(spec: CountSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call. The inputs are ``x``, the edges if there are any, the weights, and ``n``."""
    counting, bins = spec.counting, spec.bins
    with_edges = counting.form != "index"
    if bins == 0:
        return nothing, None
    given = ["x", *(["edges"] if with_edges else [])]
    given += ["weights", "n"] if counting.counted else [] if counting.weights is None else ["weights"]
    names = [*given, "out", *(["out_edges"] if with_edges else []), *(["words"] if counting.finished else [])]
    words = bins * WORDS + MORE_WORDS if counting.weights is not None else bins
    form = None if counting.weights is None else window(counting.weights, spec.whole)
    cleared = words if counting.finished else bins
    scale = bins / (spec.high - spec.low) if spec.high > spec.low else 0.0
    steps = [(view.steps or (1,))[0] for view in outs]
    digits, exponent = (0, 0) if form is None else (form.digits, form.exponent)
    fixed = digits, exponent, spec.low, scale, slack(spec, scale), *steps
    launches: list[tuple[Run, tuple[int, ...]]] = []

    def add(policy: Policy, grid: int, length: int) -> None:
        values: dict[str, Any] = dict(zip(NUMBERS, (length, bins, *fixed)))
        values |= {} if spec.strided is None else spec.strided.values
        run = Launch(kernel_spec(policy, counting), views[0].device, grid, values, names, None, stream).run
        launches.append((run, tuple(range(len(names)))))

    clear, finish, density = ClearPolicy(), FinishPolicy(), DensityPolicy()
    add(clear, ceil_div(max(cleared, bins + 1), clear.threads), cleared)
    for kind in kinds(spec) if spec.length else ():
        choice = choose(kind, spec)
        add(choice.policy, choice.grid, spec.length)
    if counting.finished:
        add(finish, ceil_div(bins, finish.threads), bins)
    if counting.density:
        add(TotalPolicy(), 1, bins)
        add(density, ceil_div(bins, density.threads), bins)
    temporaries = [8 * words] if counting.finished else []
    return in_turn(launches, temporaries, views[0].device), None
