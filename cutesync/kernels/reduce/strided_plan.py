"""From a reduction of strided arrays to its launch: the normal form of its axes, the kernel, and the launch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...dtypes import INT32, INT64
from ...errors import ArgumentValueError, explain
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run
from ...runtime.layout import Axis, axes_of
from ..axes import numbers, parameters
from ..named import Named
from ..states import States, numbered, parameter_groups, start_of
from .normal import Normal, normal
from .spec import IN_MEMORY, ReduceSpec, Reduction
from .strided_policy import choose
from .strided_problem import Output, RunPolicy, StridedChoice, StridedPolicy, StridedProblem

DIVIDE = ("mean", "var", "std", "var_mean")  # operators that divide by the number of elements
IDEMPOTENT = ("min", "max", "and", "or", "any", "all")  # equal elements count once
COMMUTE = (*DIVIDE, "logsumexp", "minmax", "count_nonzero")  # operators with device code of their own
MEMORY = Pointer("scratch", INT64), Pointer("counters", INT32)
COUNTS = Scalar("splits", "Int32"), Scalar("tiles", "Int32")


def order_of(reduction: Reduction | States) -> tuple[bool, bool]:
    """Return whether elements may be combined in any order: with unknown indexes, and with known ones."""
    if isinstance(reduction.op, str):
        return False, True
    named = reduction.name in COMMUTE if isinstance(reduction, Named) else reduction.op.fn is None
    return named and not getattr(reduction, "takes_index", False), named


def form_of(spec: ReduceSpec, views: Views, outs: Views) -> Normal:
    """Return the normal form of a call's axes; ``views`` are those of the inputs, without arguments in memory."""
    steps = [view.steps for view in views]
    for out in outs:
        own = iter(out.steps)
        if spec.keepdims:
            steps.append(tuple(0 if i in spec.axes else step for i, step in enumerate(own)))
        else:
            steps.append(tuple(0 if i in spec.axes else next(own) for i in range(len(spec.shape))))
    all_count, indexed = spec.n is None, getattr(spec.reduction, "takes_index", False)
    commutes = all_count and order_of(spec.reduction)[0]
    axes = axes_of(spec.shape, *steps) or [Axis(1, (0,) * len(steps))]  # of a single element
    places = all_count and isinstance(spec.reduction.op, str)
    form = normal(axes, spec.axes, len(views), commutes, all_count and not indexed, places)
    return form._replace(repeats=1) if spec.reduction.name in IDEMPOTENT and commutes else form


def kernel_spec(policy: StridedPolicy, reduction: Reduction | States, has_init: bool) -> KernelSpec:
    """Return the kernel of a policy."""
    inputs, outputs, start, args = parameter_groups(reduction)
    axes = _axes_of(policy, len(inputs), len(outputs))
    count: list[Pointer | Scalar] = []
    if policy.count:
        count.append(Pointer("n", INT64) if policy.count == "memory" else Scalar("n", "Int64"))
    if policy.repeated:
        count.append(Scalar("repeats", "Int64"))
    if policy.copied:
        count += [Scalar(name, "Int64") for name in ("copies", *numbered("copy_step", outputs))]

    given = inputs, outputs, [*start, *args, *count], MEMORY, axes, COUNTS
    key = ("reduce", policy, has_init, *reduction.key)
    return KernelSpec(key, given, lambda: policy.make(reduction.monoid(), has_init))


def _axes_of(policy: StridedPolicy, inputs: int, outputs: int) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
    """Return the parameters of the kept axes, and those of the reduced ones."""
    kept = policy.kept, inputs + outputs + policy.kept_columns
    return _axes(*kept, policy.reduced, inputs + policy.columns, policy.wide, isinstance(policy, RunPolicy))


@functools.lru_cache(maxsize=256)
def _axes(kept: int, arrays: int, reduced: int, inputs: int, wide: bool, runs: bool) -> tuple:
    run = (Scalar("reduced_run", "Int64"),) if runs else ()
    extent = Scalar("kept_extent", "Int64")
    return (*parameters("kept", kept, arrays, wide), extent), (*parameters("reduced", reduced, inputs, wide), *run)


def launch(choice: StridedChoice, spec: ReduceSpec, start: tuple | None, ordinal: int, stream: int) -> Launch:
    """Prepare the launch of a choice; ``start`` has a number for each value of a state, or is None."""
    policy, reduction = choice.policy, spec.reduction
    kernel = kernel_spec(policy, reduction, start is not None)
    inputs, arrays = len(reduction.sources), len(reduction.sources) + len(reduction.results)
    names = [p.name for group in _axes_of(policy, inputs, arrays - inputs) for p in group]
    axes = [*numbers(choice.kept, policy.kept, arrays + policy.kept_columns, policy.wide), choice.extent]
    axes += [*numbers(choice.reduced, policy.reduced, inputs + policy.columns, policy.wide), choice.run]
    values: dict[str, Any] = dict(zip(names, axes), splits=choice.splits, tiles=choice.tiles)
    if policy.count == "scalar":
        values["n"] = spec.n
    if policy.repeated:
        values["repeats"] = choice.repeats
    if policy.copied:
        values.update(zip(("copies", *numbered("copy_step", reduction.results)), choice.copies))
    arguments = numbered("arg", spec.args)
    values.update(zip(numbered("init", reduction.registers), start or ()))
    values.update(zip(arguments, spec.args))
    memory = [name for name, value in zip(arguments, spec.args) if value is None]
    if policy.count == "memory":
        memory.append("n")
    given = (*numbered("x", reduction.sources), *memory, *numbered("out", reduction.results))
    claim = workspace.counters_and_slots if choice.agrees else None
    return Launch(kernel, ordinal, choice.grid, values, given, claim, stream)


def problem_of_form(spec: ReduceSpec, form: Normal, views: Views, outs: Views) -> StridedProblem:
    """Return the problem of the only launch of a call."""
    reduction = spec.reduction
    sizes = [source.size for source in reduction.sources]
    begin = (views[0].ptr + form.starts[0] * sizes[0]) % 16
    outputs = tuple(
        Output(result.size, (view.ptr + start * result.size) % 16)
        for view, start, result in zip(outs, form.starts[len(sizes) :], reduction.results)
    )
    mapped = isinstance(reduction, Reduction) and reduction.transform is not None
    numbers_of = len(sizes), max(sizes), reduction.slot_words, begin, order_of(reduction)[1]
    floats = reduction.sources[0].kind == "f"
    places = isinstance(reduction.op, str) and spec.n is None
    masked = isinstance(reduction, Reduction) and reduction.is_masked and spec.n is None
    return StridedProblem(form, *numbers_of, outputs, spec.n is not None, mapped, floats, places, masked=masked)


def strided(spec: ReduceSpec, form: Normal, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the only launch of a call."""
    reduction = spec.reduction
    choice = choose(problem_of_form(spec, form, views, outs))
    start, empty = spec.init, form.length == 0
    if spec.n is not None:
        known = spec.init is not None or reduction.identity() is not None
        empty = empty or spec.n == IN_MEMORY or spec.n == 0 or known  # one kernel for all n
        where = "memory" if spec.n == IN_MEMORY else "scalar"
        divides = isinstance(reduction, Named) and reduction.name in DIVIDE
        choice = replace(choice, policy=replace(choice.policy, count=where, divides=divides))
    if empty:
        start = of_nothing(spec)
        choice = replace(choice, policy=replace(choice.policy, empty=True, identity=spec.init is None))
    return shifted(launch(choice, spec, start, views[0].device, stream).run, form, reduction)


def of_nothing(spec: ReduceSpec) -> tuple:
    """Return the state of no elements; raise ArgumentValueError if there is none."""
    reduction = spec.reduction
    if spec.init is not None:
        return spec.init
    value = reduction.identity()
    if value is None:
        argument, what = ("x", "an empty axis") if spec.n is None else ("n", "what may be no elements,")
        came = f"{what} to reduce with {reduction.name!r}, which has no identity"
        raise ArgumentValueError(explain(argument, came, "at least one element", "give init= or identity="))
    return start_of(value, "identity", reduction)


def behind(views: Views, starts: Sequence[int]) -> Views:
    """Return the views, each so many elements further on."""
    return tuple(replace(view, ptr=view.ptr + start * view.dtype.size) for view, start in zip(views, starts))


def shifted(run: Run, form: Normal, reduction: Reduction | States) -> Run:
    """Return the run with the addresses of the arrays' first positions."""
    if not any(form.starts):
        return run
    inputs = len(reduction.sources)
    before = tuple(start * source.size for start, source in zip(form.starts, reduction.sources))
    after = tuple(start * result.size for start, result in zip(form.starts[inputs:], reduction.results))

    def moved(addresses: tuple[int, ...], stream: int) -> None:
        offsets = (*before, *(0,) * (len(addresses) - len(form.starts)), *after)
        run(tuple(address + offset for address, offset in zip(addresses, offsets)), stream)

    return moved
