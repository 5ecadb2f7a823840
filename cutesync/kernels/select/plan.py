"""From the spec of a selection to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from ...dtypes import BY_NAME, INT32, INT64
from ...ops import operator
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...runtime.layout import Axis
from ...runtime.view import View, is_c_contiguous
from ...sizes import ceil_div
from ..axes import numbers as numbers_of, parameters
from ..hardware import LANES
from ..layouts import Strided, strided
from ..scan.plan import plan as plan_scan
from ..scan.spec import ScanSpec
from ..states import Single, numbered
from .policy import (
    MIN_COLUMN,
    MIN_COLUMNS,
    MIN_LENGTH,
    Choice,
    ColumnCountPolicy,
    PipelinePolicy,
    Problem,
    choose,
    choose_columns,
)
from .spec import Selection, SelectSpec

ALIGNED = 256  # an address of temporaries
GROUP = 128  # tiles per group of sync.lookback: there is a multiple of this many slots


def kernel_spec(policy: PipelinePolicy | ColumnCountPolicy, selection: Selection) -> KernelSpec:
    """Return the kernel of a policy."""
    results = selection.results
    arrays = [
        Pointer("where", BY_NAME["uint32" if selection.kind == "bits" else "uint8"]),
        *(Pointer(name, INT64) for name in ("n", *places_of(selection, True), "ranks", "count")),
        Pointer("lengths", selection.lengths or INT64),
        *([Pointer("starts", INT64)] if selection.begins else []),
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
    key = ("select", policy, *selection.key)
    return KernelSpec(key, (arrays, numbers, *rest), lambda: policy.make(selection), policy.cluster)


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
    """Prepare the launches that select. The inputs are the arrays of elements, then ``where``, ``n`` and run-time
    arguments, as far as there are any."""
    selection, outer = replace(spec.selection, stepped=not all(out.contiguous for out in outs)), None
    by_rows = _by_rows(selection, outs)
    if selection.stepped and by_rows:
        outer = strided(tuple(_rows_of(out, len(spec.outer)) for out in by_rows), True, "outer")
    selection = replace(selection, outer=outer.layout if outer else None, columns=in_columns(spec))
    names = list(numbered("x", selection.sources))
    names += ["where"] if selection.kind in ("mask", "bits") else []
    names += ["n"] if selection.counted else []
    names += numbered("arg", selection.args)
    ranks, lengths = ["ranks"] * selection.inverse, ["lengths"] * (selection.lengths is not None)
    names += [*numbered("out", selection.results), *places_of(selection), *ranks, *lengths]
    names += ["starts", "count"] if selection.rows == "packed" else ["count"]
    values, device = _values(spec, selection, outs, outer), views[0].device
    problem = Problem(
        spec.length,
        tuple(source.size for source in selection.sources),
        selection.kind == "mask",
        selection.layout is not None,
        selection.kind == "heads",
        selection.located,
        selection.inverse,
        spec.rows if selection.rows else None,
        selection.filled,
        selection.rejects,
        selection.values,
    )

    def prepared(choice: Choice) -> Run:
        claim = functools.partial(workspace.counters_and_slots, slots=-(-choice.tiles // GROUP) * GROUP)
        kernel = kernel_spec(choice.policy, selection)
        claimed = claim if isinstance(choice.policy, PipelinePolicy) else None
        return Launch(kernel, device, choice.grid, values, names, claimed, stream).run

    if not selection.columns:
        return prepared(choose(problem))
    assert spec.strided is not None
    *others, across, down = spec.strided.axes[0]
    columns = math.prod(axis.extent for axis in (*others, across))
    groups = math.prod(axis.extent for axis in others) * ceil_div(across.extent, LANES)
    counts, selects = choose_columns(problem, lambda chunk: groups * ceil_div(down.extent, chunk))
    names.append("starts")
    chunks = columns * ceil_div(down.extent, selects.policy.chunk)
    every = tuple(range(len(names)))
    steps = [(prepared(counts), every), (summed(chunks, device, stream), every[-1:] * 2), (prepared(selects), every)]
    return in_turn(steps, (8 * chunks,), device)


def _values(spec: SelectSpec, selection: Selection, outs: Views, outer: Strided | None) -> dict[str, Any]:
    """Return the constant parameters of a launch."""
    values: dict[str, Any] = {"length": spec.length, "capacity": spec.capacity, "rows": spec.rows, "pitch": spec.whole}
    fills = [*numbered("fill", selection.results), *["fill_place"] * selection.indices]
    values |= dict(zip((*fills, *["fill_length"] * (selection.lengths is not None)), spec.fill))
    if selection.stepped:
        steps = [step for out in outs[:-1] for step in out.steps[-1 - selection.together :]]
        values |= {f"step{i}": step for i, step in enumerate(steps)}
        values |= outer.values if outer else {}
    axes = [Axis(extent, ()) for extent in spec.shape[len(spec.shape) - selection.axes :]]
    coordinates = parameters("axis", selection.axes, 0, selection.wide)
    values |= dict(zip((p.name for p in coordinates), numbers_of(axes, selection.axes, 0, selection.wide)))
    return values | (spec.strided.values if spec.strided else {})


def in_columns(spec: SelectSpec) -> bool:
    """Whether arrays are read in columns: elements are neighbours in memory along the last axis but one."""
    chosen = spec.selection
    if spec.strided is None or chosen.rows:
        return False
    layout, (axes, *more) = spec.strided
    if chosen.kind not in ("mask", "callable", "nonzero") or not (chosen.values or chosen.indices):
        return False
    if more or layout.wide or len(axes) < 2 or spec.length < MIN_LENGTH:
        return False
    (across, steps), (down, others) = axes[-2:]
    return abs(steps[0]) == 1 != abs(others[0]) and across >= MIN_COLUMNS and down >= MIN_COLUMN


def summed(length: int, device: int, stream: int) -> Run:
    """Prepare a launch that makes running sums of an array of int64 of it, in place."""
    add = Single(operator("add"), INT64, INT64, INT64)
    view = View(ALIGNED, (length,), INT64, device, True)
    return plan_scan(ScanSpec(add, False, False, shape=(length,), lengths=(length,)), (view,), (view,), stream)[0]
