"""From the spec of a reduction to its launches: its axes become passes of (outer, length, inner), each with one
kernel."""

from __future__ import annotations

import importlib
from typing import Any

from ...dtypes import INT32, INT64, scalar
from ...errors import ArgumentValueError, explain
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Parameter, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ..policy import Policy
from .policy import Choice, FillPolicy, Problem, choose
from .spec import ReduceSpec, Reduction

_EXTENTS = ("outer", "length", "inner")
FILL_THREADS = 256


def kernel_spec(policy: Policy, reduction: Reduction, has_init: bool) -> KernelSpec:
    """Return the kernel of a policy."""
    parameters: tuple[Parameter, ...] = (
        Pointer("x", reduction.source),
        Pointer("out", reduction.result),
        Scalar("init", reduction.register),
        Pointer("scratch", INT64),
        Pointer("counters", INT32),
        *(Scalar(name, "Int64") for name in _EXTENTS),
        Scalar("splits", "Int32"),
        Scalar("tiles", "Int32"),
    )
    return KernelSpec(
        ("reduce", policy, has_init, *reduction.key), parameters, lambda: policy.make(reduction.monoid(), has_init)
    )


def launch(
    choice: Choice, reduction: Reduction, extents: tuple[int, int, int], init: Any, ordinal: int, stream: int
) -> Launch:
    """Prepare the launch of one pass over (outer, length, inner) elements; ``init`` is a number or None."""
    spec = kernel_spec(choice.policy, reduction, init is not None)
    values = dict(zip(_EXTENTS, extents)) | {"splits": choice.splits, "tiles": choice.tiles, "init": init}
    claim = workspace.counters_and_slots if choice.agrees else None
    return Launch(spec, ordinal, choice.grid, values, claim=claim, stream=stream)


def plan(spec: ReduceSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call."""
    (x,), (out,) = views, outs
    reduction = spec.reduction
    if out.size == 0:
        return nothing, None
    if x.size == 0:
        return fill(reduction, out.size, _empty_result(spec), x.device, stream).run, None
    if spec.algorithm != "auto":
        rungs = importlib.import_module("cutesync.patterns.reduce_rungs")
        return getattr(rungs, spec.algorithm)(spec, x, stream), None
    passes = spec.passes()
    runs, sizes = [], []
    for i, extents in enumerate(passes):
        outer, length, inner = extents
        current, last = reduction.of_pass(i, len(passes)), i == len(passes) - 1
        aligned = x.ptr % 16 == 0 or i > 0, out.ptr % 16 == 0 or not last
        choice = choose(Problem(outer, length, inner, current.source.size, current.slot_words, *aligned))
        runs.append(launch(choice, current, extents, spec.init if last else None, x.device, stream).run)
        sizes.append(outer * inner * current.result.size)
    return chained(runs, sizes[:-1], x.device), None


def chained(runs: list[Run], sizes: list[int], ordinal: int) -> Run:
    """Return one run of all passes. Each pass reads the result of the one before; these results have ``sizes``
    bytes."""
    places = [0, *range(2, 2 + len(sizes)), 1]
    return in_turn(list(zip(runs, zip(places, places[1:]))), sizes, ordinal)


def fill(reduction: Reduction, count: int, value: Any, ordinal: int, stream: int) -> Launch:
    """Prepare the launch that stores ``value`` in ``count`` results."""
    choice = Choice(FillPolicy(), 1, 1, -(-count // FILL_THREADS))
    return launch(choice, reduction, (count, 0, 1), value, ordinal, stream)


def _empty_result(spec: ReduceSpec) -> Any:
    """Return the result of an empty axis; raise ArgumentValueError if there is none."""
    reduction = spec.reduction
    if spec.init is not None:
        return spec.init
    value = reduction.identity()
    if value is None:
        came = f"an empty axis to reduce with {reduction.name!r}, which has no identity"
        raise ArgumentValueError(explain("x", came, "at least one element", "give init= or identity="))
    return scalar(value, reduction.value, "identity")
