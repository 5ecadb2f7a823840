"""From the spec of a reduction to its launches: its axes become passes of (outer, length, inner), each with one
kernel."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...dtypes import INT64
from ...errors import ArgumentValueError, explain
from ...ops import Operator
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...runtime.layout import Axis
from ...runtime.view import View, contiguous_strides
from .. import spread
from ..named import Named
from ..policy import Policy
from ..states import Argument, States, numbered, parameter_groups
from .folded import folded
from .launches import (
    MAX_FEW_POSITIONS,
    MIN_BYTES_OF_PASSES,
    axes_of_first_launch,
    columns_at_once,
    forwards_is_faster,
    is_small_in_order,
    memory_order_is_faster,
    ordered_runs_first_is_faster,
    runs_apart_first_is_faster,
    runs_first_is_faster,
)
from .normal import Normal, normal
from .policy import choose, strided_is_faster
from .problem import Choice, FillPolicy, Problem
from .repeated import repeats_first
from .spec import ReduceSpec, Reduction
from .strided_loads import runs_are_vectors
from .strided_plan import COUNTS, MEMORY, behind, form_of, of_nothing, order_of, problem_of_form, shifted, strided
from .strided_policy import choose as choose_strided

_EXTENTS = ("outer", "length", "inner")
_SHAPE = tuple(Scalar(name, "Int64") for name in _EXTENTS)
FILL_THREADS = 256
# Copies of a result by a launch of their own (H200, any float32 (4, 256, 262144) of (4, 256): 118 us, so 21 us).
MIN_COPIES, MIN_DENSE_COPIES = 64, 8
# Bytes read, of results that are equal, count as written: of rows all; of columns, fewer, of so many positions (H200,
# sum bool (9013, 2, 12728) of (2, 12728): 45 us, so 2.7 us; any int16 (4705, 4650, 20) along axis 0: 27.8 and 5.7 us;
# but max int8 (3, 2240, 69, 19) along axis 1: 3.4 and 5.4 us; any float32 (43, 22335, 33) along axis 0: 3.9 and 4.7
# us).
COLUMNS_AS_WRITTEN, MIN_COPIED_LENGTH = 4, 64
MAX_FEW_FILLED = 1 << 17  # results; with more, a thread stores several


def kernel_spec(policy: Policy, reduction: Reduction | States, has_init: bool) -> KernelSpec:
    """Return the kernel of a policy."""
    inputs, outputs, start, args = parameter_groups(reduction)
    given = inputs, outputs, [*start, *args], MEMORY, _SHAPE, COUNTS
    key = ("reduce", policy, has_init, *reduction.key)
    return KernelSpec(key, given, lambda: policy.make(reduction.monoid(), has_init))


def launch(
    choice: Choice,
    reduction: Reduction | States,
    extents: tuple[int, int, int],
    init: tuple | None,
    ordinal: int,
    stream: int,
    args: tuple = (),
    memory: Mapping[str, int] | None = None,
) -> Launch:
    """Prepare the launch of one pass over (outer, length, inner) elements. ``init`` has a number for each value of a
    state, or is None; ``args`` are the run-time arguments, None for one that each call gives. ``memory`` has the
    addresses of "counters" and "scratch", if they are not those of a workspace of the stream."""
    spec = kernel_spec(choice.policy, reduction, init is not None)
    values: dict[str, Any] = dict(zip(_EXTENTS, extents), splits=choice.splits, tiles=choice.tiles)
    values.update(zip(numbered("init", reduction.registers), init or ()))
    values.update(zip(numbered("arg", args), args))
    values.update(memory or {})
    claim = workspace.counters_and_slots if choice.agrees and memory is None else None
    in_memory = [name for name, value in zip(numbered("arg", args), args) if value is None]
    arrays = (*numbered("x", reduction.sources), *in_memory, *numbered("out", reduction.results))
    return Launch(spec, ordinal, choice.grid, values, arrays, claim, stream)


def plan(spec: ReduceSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call."""
    reduction, device = spec.reduction, views[0].device
    if outs[0].size == 0:
        return nothing, None
    count = len(reduction.sources)
    contiguous = all(view.contiguous for view in (*views[:count], *outs))
    if views[0].size == 0:
        return _empty(spec, views, outs, contiguous, stream), None
    if spec.algorithm != "auto":
        if not contiguous or spec.n is not None:
            came = f"{spec.algorithm!r} of strided arrays, or with n="
            raise ArgumentValueError(explain("algorithm", came, "contiguous arrays", "use algorithm='auto'"))
        rungs = importlib.import_module("cutesync.patterns.reduce_rungs")
        return getattr(rungs, spec.algorithm)(spec, views[0], stream), None
    if spec.n is not None or (contiguous and _runs_are_vectors(spec, views[0])):
        return strided(spec, form_of(spec, views[:count], outs), views, outs, stream), None
    if isinstance(reduction.op, str) and _is_first(spec, views[0]):
        return _zeros(spec, views, outs, stream), None
    fewer = None if contiguous else _copied(spec, views, outs, stream) or repeats_first(spec, views, outs, stream, plan)
    if fewer is not None:
        return fewer, None
    passes, form, original = spec.passes(), None, (views, outs)
    apart = len(passes) > 1 and not isinstance(reduction.op, str)  # axes that are not neighbours
    once = order_of(reduction)[1] or getattr(reduction, "takes_index", False) or views[0].nbytes < MIN_BYTES_OF_PASSES
    once |= math.prod(spec.shape[i] for i in spec.axes) <= MAX_FEW_POSITIONS
    once |= apart and columns_at_once(spec.groups, views[0].dtype.size)
    if apart and contiguous and isinstance(reduction, Reduction) and order_of(reduction)[0]:
        place = axes_of_first_launch(spec.groups, reduction.source.size, reduction.between.size)
        if place is not None:
            return _in_two_launches(spec, place, views, outs, stream), None
    if not contiguous or (apart and once):
        spec, form = _forwards(spec, form_of(spec, views[:count], outs))
        reduction, extents = spec.reduction, form.contiguous(count)
        if extents is None:
            found = _in_order_of_memory(spec, form, views, outs, stream) or _runs_first(spec, form, views, outs, stream)
            return (strided(spec, form, views, outs, stream) if found is None else found), None
        passes, outs = [extents], behind(outs, form.starts[count:])
        views = (*behind(views[:count], form.starts), *views[count:])
    if len(passes) > 1 and isinstance(reduction.op, str):
        spec = places(spec)
        reduction = spec.reduction
    found = _of_columns(spec, form, passes[0], (views, outs), original, stream) if len(passes) == 1 else None
    if found is not None:
        return found, None
    given, sources = range(count, len(views)), tuple(range(count))  # of the arrays of ``in_turn``
    steps, sizes = list[tuple[Run, tuple[int, ...]]](), list[int]()
    for i, extents in enumerate(passes):
        current, last = reduction.of_pass(i, len(passes)), i == len(passes) - 1
        problem = problem_of(current, extents, views[:count] if i == 0 else (), outs if last else ())
        choice = choose(problem)
        run = launch(choice, current, extents, spec.init if last else None, device, stream, spec.args).run
        first = len(views) if last else len(views) + len(outs) + len(sizes)
        targets = tuple(range(first, first + len(current.results)))
        steps.append((run, (*sources, *given, *targets)))
        sources = targets
        if not last:
            sizes += [extents[0] * extents[2] * result.size for result in current.results]
    run = in_turn(steps, sizes, device)
    return (shifted(run, form, spec.reduction) if form else run), None


def _of_columns(
    spec: ReduceSpec,
    form: Normal | None,
    extents: tuple[int, int, int],
    arrays: tuple[Views, Views],
    original: tuple[Views, Views],
    stream: int,
) -> Run | None:
    """Return the launches of the only pass of a call that are not those of ``choose``; None if these are faster. With a
    ``form``, ``arrays`` begin at the first positions of the ``original`` ones."""
    views, outs = arrays
    inputs = views[: len(spec.reduction.sources)]
    problem = problem_of(spec.reduction, extents, inputs, outs)
    run = folded(spec, problem, views, outs, stream)
    if run is not None:
        return shifted(run, form, spec.reduction) if form else run
    if not strided_is_faster(problem):
        return None
    return strided(spec, form or form_of(spec, inputs, outs), *original, stream)


def _copied(spec: ReduceSpec, views: Views, outs: Views, stream: int) -> Run | None:
    """Return the launches that reduce the first slices of inputs that are repeated along a kept axis, and copy the
    results; None if no such axis has many copies, or results are few."""
    kept = [i for i in range(len(spec.shape)) if i not in spec.axes]
    inputs, arguments = views[: len(spec.reduction.sources)], views[len(spec.reduction.sources) :]
    read = _read_as_written(spec, inputs[0].dtype.size)
    if (
        spec.keepdims
        or max(outs[0].nbytes, read) < spread.MIN_BYTES
        or not any(inputs[0].steps[i] == 0 and spec.shape[i] >= spread.MIN_COPIES for i in kept)
    ):
        return None
    results = tuple(
        replace(x, shape=outs[0].shape, strides=tuple(x.steps[i] for i in kept), contiguous=False) for x in inputs
    )
    found = spread.find(results, outs, -1, read=read)
    if found is None or found.copies < (MIN_DENSE_COPIES if found.dense else MIN_COPIES):
        return None
    firsts = spread.first_slices(inputs, kept[found.axis])
    less = replace(spec, shape=firsts[0].shape)
    run, _ = plan(less, (*firsts, *arguments), spread.results_once(outs, found), stream)
    return spread.then_copied(run, found, views, outs, stream)


def _read_as_written(spec: ReduceSpec, size: int) -> int:
    """Return how many bytes written the elements that results with copies would read are worth."""
    read = math.prod(spec.shape) * size
    if len(spec.shape) - 1 in spec.axes:
        return read
    long = math.prod(spec.shape[i] for i in spec.axes) >= MIN_COPIED_LENGTH
    return read // COLUMNS_AS_WRITTEN if long else 0


def _runs_are_vectors(spec: ReduceSpec, x: View) -> bool:
    """Return whether a launch reads the runs of a contiguous array, of which results have several, in vectors."""
    groups = spec.groups
    if sum(reduced for _, reduced in groups) < 2 or not groups[-1][1]:
        return False
    results = math.prod(extent for extent, reduced in groups if not reduced)
    fits = order_of(spec.reduction)[1] and len(spec.reduction.sources) == 1
    return fits and runs_are_vectors(groups[-1][0], results, x.nbytes, x.dtype.size, x.ptr)


def _forwards(spec: ReduceSpec, form: Normal) -> tuple[ReduceSpec, Normal]:
    """Return the call and its form with elements in the order of memory, if those of results are read backwards: what
    an operator of the user's has on the left comes to its right then, and the last of equal elements is the first."""
    reduction, steps = spec.reduction, [step for axis in form.reduced for step in axis.steps]
    if not isinstance(reduction, Reduction) or spec.init is not None or not steps:
        return spec, form
    if indexes := isinstance(reduction.op, str):
        size = reduction.source.size  # columns are read in any order
        backwards = steps[-1] == -1 and forwards_is_faster(form.results * form.length * size, len(form.reduced))
    else:
        backwards = len(form.reduced) == 1 and max(steps) < 0 and reduction.op.fn is not None
    if not backwards:
        return spec, form
    weights = form.weights or contiguous_strides(tuple(axis.extent for axis in form.reduced))
    last = (sum((axis.extent - 1) * weight for axis, weight in zip(form.reduced, weights)),) if indexes else ()
    return replace(spec, reduction=replace(reduction, flipped=True), args=last), form.reversed()


def _in_two_launches(spec: ReduceSpec, place: int, views: Views, outs: Views, stream: int) -> Run:
    """Return two launches: one reduces the group of axes at ``place``, the other the others that are reduced."""
    reduction, groups = spec.reduction, spec.groups
    assert isinstance(reduction, Reduction)
    left = groups[:place] + groups[place + 1 :]
    shape, device = tuple(extent for extent, _ in left), views[0].device
    between = View(0, shape, reduction.between, device, True)
    given = replace(
        spec,
        reduction=reduction.of_pass(0, 2),
        shape=tuple(extent for extent, _ in groups),
        axes=frozenset({place}),
        keepdims=False,
        init=None,
    )
    (x,) = (replace(view, shape=given.shape, strides=None) for view in views)
    first, _ = plan(given, (x,), (between,), stream)
    axes = frozenset(i for i, (_, reduced) in enumerate(left) if reduced)
    given = replace(given, reduction=reduction.of_pass(1, 2), shape=shape, axes=axes, init=spec.init)
    results = tuple(extent for extent, reduced in left if not reduced)
    (out,) = (replace(out, shape=results, strides=None) for out in outs)
    last, _ = plan(given, (between,), (out,), stream)
    return in_turn([(first, (0, 2)), (last, (2, 1))], [between.nbytes], device)


def _in_order_of_memory(spec: ReduceSpec, form: Normal, views: Views, outs: Views, stream: int) -> Run | None:
    """Return two launches, if inputs are contiguous but their axes, or the directions of these, are not those of the
    output: one reduces them in the order of memory, the other brings the few results into their order. None if others
    are as fast."""
    reduction, count = spec.reduction, len(spec.reduction.sources)
    if len(outs) > 1 or is_small_in_order(views[0].size * max(source.size for source in reduction.sources)):
        return None
    extents = form.in_order_of(count).contiguous(count)
    if extents is None:
        return None
    views = (*behind(views[:count], form.starts), *views[count:])
    (result,), kept = reduction.results, tuple(axis.extent for axis in form.kept)
    if not memory_order_is_faster(problem_of(reduction, extents, views[:count], ()), kept[-1] if kept else 1):
        return None
    between = View(0, kept, result, views[0].device, True)  # on a 16-byte boundary
    given = replace(spec, shape=extents, axes=frozenset({1}), keepdims=False)
    inside = View(0, (extents[0], extents[2]), result, views[0].device, True)
    inputs = tuple(replace(view, shape=extents, contiguous=True, strides=None) for view in views[:count])
    reduced, _ = plan(given, (*inputs, *views[count:]), (inside,), stream)
    copy = ReduceSpec(Reduction(Operator("max"), result, result, result), kept, frozenset(), False, None)
    axes = [Axis(n, (step, own[-1])) for (n, own), step in zip(form.kept, between.steps)]
    order = normal(axes, frozenset(), 1, True, True)
    order = order._replace(starts=tuple(a + b for a, b in zip(order.starts, (0, form.starts[-1]))))
    brought = strided(copy, order, (between,), outs, stream)
    places = tuple(range(len(views)))
    steps = [(reduced, (*places, len(views) + 1)), (brought, (len(views) + 1, len(views)))]
    before = form._replace(starts=(*form.starts[:count], 0))
    return shifted(in_turn(steps, [between.nbytes], views[0].device), before, reduction)


def _runs_first(spec: ReduceSpec, form: Normal, views: Views, outs: Views, stream: int) -> Run | None:
    """Return two launches, if a result has several short runs of an input: one reduces the runs in the order of memory,
    the other what is left of them. None if one launch is as fast."""
    reduction, device = spec.reduction, views[0].device
    if not isinstance(reduction, Reduction) or isinstance(reduction.op, str) or spec.args:
        return None
    run, count, gaps = form.runs()
    size, between = reduction.source.size, reduction.between
    commutes = order_of(reduction)[0]
    if gaps or not commutes:
        if commutes:
            faster = runs_apart_first_is_faster(run, count, size, between.size, len(form.reduced) > 2)
        else:
            faster = ordered_runs_first_is_faster(run, count, size, between.size)
        if not faster or choose_strided(problem_of_form(spec, form, views, outs)).policy.load == "row":
            return None
    elif runs_are_vectors(
        run, form.results, run * count * size, size, views[0].ptr + form.starts[0] * size
    ) or not runs_first_is_faster(run, count, size, between.size):
        return None
    order = sorted((*form.kept, *form.reduced[:-1]), key=lambda axis: -abs(axis.steps[0]))
    inside = contiguous_strides(tuple(axis.extent for axis in order))  # steps of what is between
    of_step = {n * abs(axis.steps[0]): n * step for axis, step in zip(order, inside) for n in (1, -1)}
    back = [(axis.extent - 1, axis.steps[0]) for axis in order if axis.steps[0] < 0]
    low = form.starts[0] + sum(n * step for n, step in back)
    (x,) = behind(views, (low,))
    shape, strides = (*(axis.extent for axis in order), run), (*(abs(axis.steps[0]) for axis in order), 1)
    x = replace(x, shape=shape, contiguous=not gaps, strides=strides)
    result = View(0, x.shape[:-1], between, device, True)
    last = frozenset({len(order)})
    first = replace(spec, reduction=reduction.of_pass(0, 2), shape=x.shape, axes=last, keepdims=False, init=None)
    reduced, _ = plan(first, (x,), (result,), stream)
    left = form._replace(
        kept=tuple(Axis(n, (of_step[step], *own)) for n, (step, *own) in form.kept),
        reduced=tuple(Axis(n, (of_step[step],)) for n, (step,) in form.reduced[:-1]),
        starts=(sum(n * of_step[-step] for n, step in back), *form.starts[1:]),
    )
    rest = strided(replace(spec, reduction=reduction.of_pass(1, 2)), left, (result,), outs, stream)
    before = form._replace(starts=(low, 0))
    return shifted(in_turn([(reduced, (0, 2)), (rest, (2, 1))], [result.nbytes], device), before, reduction)


def problem_of(current: Reduction | States, extents: tuple[int, int, int], views: Views, outs: Views) -> Problem:
    """Return the problem of a pass; arrays that are not given are temporary, and begin on 16-byte boundaries."""
    sizes = [source.size for source in current.sources]
    starts = [view.ptr % 16 for view in views] or [0] * len(sizes)
    together = True
    if len(sizes) > 1:
        lead = sizes.index(min(sizes))
        first = starts[lead] // sizes[lead]
        together = all((at // size - first) % (16 // size) == 0 for at, size in zip(starts, sizes))
    return Problem(
        *extents,
        max(sizes),
        current.slot_words,
        not any(starts),
        not any(out.ptr % 16 for out in outs),
        len(sizes),
        together,
        order_of(current)[1],
        max([result.size for result in current.results]),
        isinstance(current, Reduction) and current.has_keys,
        isinstance(current, Reduction) and current.is_masked and current.transform is None,
    )


def places(spec: ReduceSpec) -> ReduceSpec:
    """Return the Spec of an argmin or argmax of several passes, for that of one pass. An index of pass i counts the
    elements that the passes before it reduced."""
    name, source = spec.reduction.name, spec.reduction.sources[0]
    lengths = [length for _, length, _ in spec.passes()]
    strides = tuple(math.prod(lengths[:i]) for i in range(len(lengths)))
    arguments = (Argument(INT64, False),) * len(strides)
    operation = Named(Operator(name), (source,), (source.accumulator, INT64), (INT64,), args=arguments)
    return ReduceSpec(operation, spec.shape, spec.axes, spec.keepdims, None, args=strides)


def _is_first(spec: ReduceSpec, x: View) -> bool:
    """Return whether all elements of each result are one."""
    return bool(spec.axes) and all(spec.shape[i] == 1 or x.steps[i] == 0 for i in spec.axes)


def _zeros(spec: ReduceSpec, views: Views, outs: Views, stream: int) -> Run:
    """Return the launch that stores index 0 in all results: that of a sum of nothing."""
    shape = tuple(0 if i in spec.axes else extent for i, extent in enumerate(spec.shape))
    nothing_of = replace(spec, reduction=Reduction(Operator("add"), INT64, INT64, INT64), shape=shape)
    return _empty(nothing_of, views, outs, outs[0].contiguous, stream)


def chained(runs: list[Run], sizes: list[int], ordinal: int) -> Run:
    """Return one run of all passes. Each pass reads the result of the one before; these results have ``sizes``
    bytes."""
    places = [0, *range(2, 2 + len(sizes)), 1]
    return in_turn(list(zip(runs, zip(places, places[1:]))), sizes, ordinal)


def fill(
    reduction: Reduction | States, count: int, value: tuple, ordinal: int, stream: int, args: tuple = ()
) -> Launch:
    """Prepare the launch that stores the results of the state ``value`` in ``count`` places."""
    each = 1 if count <= MAX_FEW_FILLED else 8
    choice = Choice(FillPolicy(each), 1, 1, -(-count // (FILL_THREADS * each)))
    return launch(choice, reduction, (count, 0, 1), value, ordinal, stream, args)


def _empty(spec: ReduceSpec, views: Views, outs: Views, contiguous: bool, stream: int) -> Run:
    """Return the launch that stores the results of an empty axis."""
    if contiguous and spec.n is None:
        return fill(spec.reduction, outs[0].size, of_nothing(spec), views[0].device, stream, spec.args).run
    return strided(spec, form_of(spec, views[: len(spec.reduction.sources)], outs), views, outs, stream)
