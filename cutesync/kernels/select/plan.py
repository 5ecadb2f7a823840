"""From the spec of a selection to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...dtypes import BY_NAME, INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...runtime.layout import Axis
from ...runtime.view import View, is_c_contiguous
from ..axes import numbers as numbers_of, parameters
from ..layouts import strided
from ..states import numbered
from .policy import PipelinePolicy, Problem, choose
from .spec import Selection, SelectSpec

GROUP = 128  # tiles per group of sync.lookback: there is a multiple of this many slots


def kernel_spec(policy: PipelinePolicy, selection: Selection) -> KernelSpec:
    """Return the kernel of a policy."""
    results = selection.results
    arrays = [
        Pointer("where", BY_NAME["uint32" if selection.kind == "bits" else "uint8"]),
        *(Pointer(name, INT64) for name in ("n", *places_of(selection, True), "ranks", "count")),
        Pointer("lengths", selection.lengths or INT64),
        *([Pointer("starts", INT64)] if selection.rows == "packed" else []),
        *(Pointer(name, t) for name, t in zip(numbered("x", selection.sources), selection.sources)),
        *(Pointer(name, t) for name, t in zip(numbered("out", results), results)),
    ]
    numbers: list[Pointer | Scalar] = [Scalar("length", "Int64"), Scalar("capacity", "Int64")]
    numbers += [Scalar("rows", "Int64"), Scalar("pitch", "Int64")] if selection.rows else []
    if selection.filled:
        numbers += [Scalar(name, t.dsl) for name, t in zip(numbered("fill", results), results)]
        numbers += [Scalar("fill_place", "Int64")] if selection.indices else []
        numbers += [] if selection.lengths is None else [Scalar("fill_length", selection.lengths.dsl)]
    numbers += [Scalar(f"step{i}", "Int64") for i in range(selection.steps)]
    numbers += parameters("axis", selection.axes, 0, selection.wide)
    numbers += [] if selection.outer is None else selection.outer.parameters
    numbers += [] if selection.layout is None else selection.layout.parameters
    numbers += [a.parameter(name) for name, a in zip(numbered("arg", selection.args), selection.args)]
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)

    def examples() -> Sequence:
        groups = (tuple(p.example() for p in group) for group in (arrays, numbers))
        return *groups, *(p.example() for p in rest)

    key = ("select", policy, *selection.key)
    return KernelSpec(key, (*arrays, *numbers, *rest), lambda: policy.make(selection), examples=examples)


def places_of(selection: Selection, parameters: bool = False) -> tuple[str, ...]:
    """Return the names of the arrays of indices; as parameters of the kernel, there is one at least."""
    several = selection.axes and not selection.together
    return numbered("places", range(selection.axes)) if several else ("places",) * (parameters or selection.indices)


def _by_rows(selection: Selection, outs: Views) -> Views:
    """Return the results that have a row, or a count, for each row of a selection by rows."""
    if selection.rows == "packed" and selection.inverse:
        return (outs[len(selection.results) + selection.places],)
    return outs if selection.rows == "apart" else ()


def _rows_of(out: View, axes: int) -> View:
    """Return the view of where the rows of a result begin, along its first ``axes`` axes."""
    shape, steps = out.shape[:axes], out.steps[:axes]
    return replace(out, shape=shape, strides=steps, contiguous=is_c_contiguous(shape, steps))


def plan(spec: SelectSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call."""
    if spec.selection.rows == "apart" and spec.rows == 0:
        return nothing, None
    run = launch(spec, views, outs, stream)
    if spec.counting is None:
        return run, None
    places, more = range(len(views)), len(spec.selection.sources) - len(spec.counting.selection.sources)
    count = launch(spec.counting, views[more:], outs[-1:], stream)
    last = len(views) + len(outs) - 1
    return in_turn([(count, (*places[more:], last)), (run, tuple(range(last + 1)))], (), views[0].device), None


def launch(spec: SelectSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare a launch. The inputs are the arrays of elements, then ``where``, ``n`` and run-time
    arguments, as far as there are any."""
    selection, outer = replace(spec.selection, stepped=not all(out.contiguous for out in outs)), None
    by_rows = _by_rows(selection, outs)
    if selection.stepped and by_rows:
        outer = strided(tuple(_rows_of(out, len(spec.outer)) for out in by_rows), True, "outer")
        selection = replace(selection, outer=outer.layout if outer else None)
    names = list(numbered("x", selection.sources))
    names += ["where"] if selection.kind in ("mask", "bits") else []
    names += ["n"] if selection.counted else []
    names += numbered("arg", selection.args)
    by_name = dict(zip(names, views))
    problem = Problem(
        spec.length,
        tuple(source.size for source in selection.sources),
        tuple(view.ptr for view in views[: len(selection.sources)]),
        by_name["where"].ptr if selection.kind == "mask" else None,
        selection.layout is not None,
        spec.rows if selection.rows else None,
        spec.whole,
    )
    choice = choose(problem)
    values: dict[str, Any] = {"length": spec.length, "capacity": spec.capacity, "rows": spec.rows, "pitch": spec.whole}
    ranks, lengths = ["ranks"] * selection.inverse, ["lengths"] * (selection.lengths is not None)
    fills = [*numbered("fill", selection.results), *["fill_place"] * selection.indices, *["fill_length"] * len(lengths)]
    values |= dict(zip(fills, spec.fill))
    if selection.stepped:
        steps = [step for out in outs[:-1] for step in out.steps[-1 - selection.together :]]
        values |= {f"step{i}": step for i, step in enumerate(steps)}
        values |= outer.values if outer else {}
    axes = [Axis(extent, ()) for extent in spec.shape[len(spec.shape) - selection.axes :]]
    coordinates = parameters("axis", selection.axes, 0, selection.wide)
    values |= dict(zip((p.name for p in coordinates), numbers_of(axes, selection.axes, 0, selection.wide)))
    values |= spec.strided.values if spec.strided else {}
    names += [*numbered("out", selection.results), *places_of(selection), *ranks, *lengths]
    names += ["starts", "count"] if selection.rows == "packed" else ["count"]
    claim = functools.partial(workspace.counters_and_slots, slots=-(-choice.tiles // GROUP) * GROUP)
    kernel = kernel_spec(choice.policy, selection)
    return Launch(kernel, views[0].device, choice.grid, values, names, claim, stream).run
