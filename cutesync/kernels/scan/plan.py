"""From the spec of a scan to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...dtypes import BOOL, INT32, INT64
from ...errors import ArgumentValueError, explain
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ...runtime.view import contiguous_strides
from .. import spread
from ..hardware import SECTOR_BYTES, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy
from ..states import Single, States, numbered, parameter_groups
from . import strided_policy
from .backward_policy import backward_columns, is_backward
from .column_policy import ColumnPolicy, ColumnTilePolicy
from .equal_policy import MAX_FLAT_VECTORS, equal
from .layout import FAR, STEPS, Form, Layout, layout_of
from .lone_policy import lone
from .narrow_apart_policy import has_odd_rows, narrow_apart
from .narrow_policy import NarrowPolicy
from .packed import Packed, packed, packs
from .policy import choose, suits
from .problem import Choice, Problem
from .ragged_column_policy import RaggedColumnPolicy
from .short_policy import short
from .short_turn_policy import short_turn
from .slice_policy import ragged_slices, slices_apart
from .spec import ScanSpec

_EXTENTS = ("rows", "length", "inner")
_SHAPE = tuple(Scalar(name, "Int64") for name in _EXTENTS)
_MEMORY = Pointer("scratch", INT64), Pointer("counters", INT32)
_TILES = Scalar("tiles", "Int32")
# Bytes that an element counts as, at least, if its copies are neighbours and a second launch stores them: strided tiles
# store small ones slowly (H200, max uint8 (163731, 34) of equal columns along its first axis: 24.5 us, so 7.1 us; max
# int8 (9, 388, 501) along its second: 7.3 and 4.3 us; sum int16 (33805, 54): 12.7 and 5.7 us).
LEAST_COPIED = 4
KEEPING = ("min", "max", "and", "or", "any", "all")  # operators of which equal items have the item as their result


def kernel_spec(choice: Choice, spec: ScanSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    policy, width, operation = choice.policy, choice.width, spec.operation
    layout = list(choice.layout)
    far = ("far",) if FAR[0] in choice.layout else ()
    count: list[Pointer | Scalar] = [Pointer("n_at", INT64), Scalar("n", "Int64")] if spec.counted else []

    def make() -> Any:
        from .base import Scan

        how = spec.exclusive, spec.reverse, spec.start_kind, width, spec.counted, choice.view, bool(far)
        return policy.make(Scan(operation.monoid(), *how))

    inputs, outputs, start, args = parameter_groups(operation)
    first = Pointer("init_at", operation.results[0])
    given = inputs, outputs, first, [*start, *args, *count, *layout], _MEMORY, _SHAPE, _TILES
    return KernelSpec(("scan", policy, width, choice.view, *spec.key, *far), given, make, policy.cluster)


def launch(choice: Choice, spec: ScanSpec, ordinal: int, stream: int, arrays: tuple[str, ...]) -> Launch:
    """Prepare the launch of a scan of at least one element. ``arrays`` names the parameters that each call gives."""
    operation = spec.operation
    values: dict[str, Any] = dict(zip(_EXTENTS, spec.extents), tiles=choice.tiles, n=spec.n)
    for parameter, value in choice.layout.items():
        values[parameter.name] = value
    values.update(zip(numbered("init", operation.registers), spec.start or ()))
    values.update(zip(numbered("arg", operation.args), spec.args))
    claim = None
    if choice.slots:
        slots = choice.slots * spec.words * choice.width
        claim = functools.partial(workspace.counters_and_slots, slots=slots)
    return Launch(kernel_spec(choice, spec), ordinal, choice.grid, values, arrays, claim, stream)


def plan(spec: ScanSpec, views: Views, outs: Views, stream: int) -> tuple[Run, int | None]:
    """Prepare the launches of a call."""
    inputs = views[: len(spec.operation.sources)]
    found = None
    if spec.axis is not None and spec.start_rows is None and not spec.counted:
        found = (_keeps(spec) and _of_itself(spec, inputs, outs)) or spread.find(inputs, outs, spec.axis, LEAST_COPIED)
    if found is None:
        return _plan(spec, views, outs, stream)
    firsts, once = spread.first_slices(inputs, found.axis), spread.results_once(outs, found)
    less = replace(spec, shape=once[0].shape, lengths=firsts[0].shape)
    run, _ = _plan(less, (*firsts, *views[len(inputs) :]), once, stream)
    return spread.then_copied(run, found, views, outs, stream), None


def _of_itself(spec: ScanSpec, inputs: Views, outs: Views) -> spread.Spread | None:
    """Return the scanned axis if elements are equal along it, and their copies shorter than a few vectors or not
    neighbours (H200, max int16 (8326, 3553, 6) along its second axis: 1060 us, so 109 us; bool (44, 210, 99, 145) along
    its last: 100 and 37 us; but uint32 (32768, 8, 64) along its second: 20 and 26 us, (2048, 8192) along its last: 16
    and 18 us)."""
    found, size = spread.find(inputs, outs, -1), outs[0].dtype.size
    if found is None or found.axis != spec.axis:
        return None
    near = found.inner == 1 and found.copies * size <= MAX_FLAT_VECTORS * VECTOR_BYTES
    return found if near or 1 < found.inner < SECTOR_BYTES // size else None


def _keeps(spec: ScanSpec) -> bool:
    """Return whether equal elements have equal results: each is the element."""
    operation = spec.operation
    if not isinstance(operation, Single) or operation.op.fn is not None or spec.exclusive or spec.start_kind:
        return False
    return operation.op.name in KEEPING or (operation.accumulate is BOOL and operation.op.name == "add")


def _plan(spec: ScanSpec, views: Views, outs: Views, stream: int, apart: bool = True) -> tuple[Run, int | None]:
    """Prepare a launch. ``apart``: the outputs do not lie in the memory of the inputs."""
    operation, x, given = spec.operation, views[0], spec
    inputs = views[: len(operation.sources)]
    steps = _steps(spec, inputs, outs)
    in_place = _in_place(spec, steps)
    if x.size == 0:
        return nothing, in_place
    firsts = spec.start_rows is not None
    layout = layout_of(x.shape, spec.axis, [*steps, spec.start_rows] if spec.start_rows is not None else steps, firsts)
    spec, layout, inputs, outs = packed(spec, layout, inputs, outs) or (spec, layout, inputs, outs)
    operation = spec.operation
    form = layout.form(len(inputs))
    if form is None:
        layout, spec = _forward(layout, spec, len(inputs))
        form = layout.form(len(inputs))
    if form is not None and (form.view == "mirrored" or form.gap > 1) and not isinstance(operation, Single):
        form = None
    if form is not None and form.gap > 1 and spec.counted:  # the row's end is known when the kernel runs
        form = None
    if form is not None and not firsts:
        form = form.gathered()
    spec = spec.seen_as(form.extents if form else (1, layout.length, layout.count))
    problem = _problem(spec, layout, form, inputs, outs, apart)
    if isinstance(operation, Single) and spec.algorithm != "auto":
        return _tiered(spec, operation, problem, form, x.device, stream), in_place
    names = _names(spec)
    arrays = (*names, *numbered("out", outs))
    plain = isinstance(operation, Single) and not firsts
    found = None
    if plain:
        found = equal(problem, layout) or lone(problem, layout, not spec.exclusive)
    if plain and found is None and not isinstance(operation, Packed):
        found = ragged_slices(problem, layout)
    if found is not None:
        choice = found
    elif form is None or (plain and has_odd_rows(problem)) or (form.view is not None and not suits(problem)):
        choice, (spec, layout, inputs, outs) = _of_layout(spec, layout, inputs, outs, apart)
    else:
        choice = choose(problem)
        if form.view is not None:
            more = layout.steps_of_firsts(form.extents[2]) if firsts else ()
            numbers = (*form.steps, form.group, *form.next, *more)
            outer = dict(zip(FAR, (form.outer, form.far))) if form.far else {}
            choice = replace(choice, layout=dict(zip(STEPS, numbers)) | outer)
    run = launch(choice, spec, x.device, stream, arrays).run
    operation = spec.operation
    sizes = [dtype.size for dtype in (*operation.sources, *operation.results, operation.results[0])]
    placed = (*arrays[: len(inputs)], *numbered("out", outs), "init_at")
    begins = (*(a.ptr - b.ptr for a, b in zip(inputs, views)), *[0] * (1 + len(outs)))  # of words
    far = dict(zip(placed, (n * size + begin for n, size, begin in zip(layout.offsets, sizes, begins))))
    run = _moved(run, tuple(far.get(name, 0) for name in arrays))
    if in_place is not None and _reads_beside(choice.policy):
        run = _or_in_place(run, lambda: _plan(given, views, outs, stream, apart=False)[0], len(names))
    return run, in_place


def _tiered(spec: ScanSpec, operation: Single, problem: Problem, form: Form | None, ordinal: int, stream: int) -> Run:
    """Prepare launches of the algorithm that was asked for."""
    if spec.counted:
        raise ArgumentValueError(explain("algorithm", "'tiered' with n=", "'auto' with n="))
    if form is None or form.view is not None or form.extents[2] != 1:
        strided = form is None or form.view is not None
        came = f"'tiered' along {'strided rows' if strided else 'an axis that is not the last'}"
        allowed = "C-contiguous arrays along the last axis, or axis=None"
        raise ArgumentValueError(explain("algorithm", came, allowed, "use algorithm='auto'"))
    rungs = importlib.import_module("cutesync.patterns.tiered_scan")
    return rungs.tiers(spec, operation, problem, ordinal, stream)


def _of_layout(
    spec: ScanSpec, layout: Layout, inputs: Views, outs: Views, apart: bool
) -> tuple[Choice, tuple[ScanSpec, Layout, Views, Views]]:
    """Return the policy and the launch of a scan of arrays that no other form suits, and what the kernel scans."""
    seen = spec.seen_as((1, layout.length, layout.count)), layout, inputs, outs
    problem = _problem(*seen[:2], None, inputs, outs, apart)
    few = short(problem, layout) or short_turn(problem, layout)
    if few is not None:
        return few, seen
    small = problem.wide < WORD_BYTES
    near = (slices_apart(problem, layout) if small else None) or narrow_apart(problem, layout)
    if near is None:
        tiles = strided_policy.strided(problem, layout)
        if not is_backward(problem, layout):
            return tiles, seen
        words = packed(*seen, backward=True) or seen
        near = backward_columns(_problem(*words[:2], None, *words[2:], apart), words[1], tiles)
        if near is None:
            return tiles, seen
        seen = words
    choice, extents = near
    return choice, (seen[0].seen_as(extents), *seen[1:])


def _reads_beside(policy: Policy) -> bool:
    """Return whether a kernel may read elements that lie beside those of a tile, which scans in place may overwrite."""
    if isinstance(policy, (ColumnPolicy, ColumnTilePolicy)) and policy.skew != 0:
        return True
    return isinstance(policy, RaggedColumnPolicy) or (isinstance(policy, NarrowPolicy) and not policy.aligned)


def _or_in_place(run: Run, make: Callable[[], Run], output: int) -> Run:
    """Return a run that leaves calls in place to another one, which is made when it is needed first. Address 0 is the
    input's, address ``output`` the output's."""
    inside = functools.cache(make)

    def either(addresses: tuple[int, ...], stream: int) -> None:
        (run if addresses[0] != addresses[output] else inside())(addresses, stream)

    return either


def _problem(
    spec: ScanSpec, layout: Layout, form: Form | None, inputs: Views, outs: Views, apart: bool = False
) -> Problem:
    """Return what the policies need to know."""
    operation, view = spec.operation, form.view if form else None
    behind = view == "mirrored"  # the addresses that count are those behind the inputs' last elements in memory
    pitches = form.pitches if form else ((), ())
    gap = form.gap if form else 1
    xs: tuple[int, ...] = ()
    whole_vectors = False
    if gap == 1:
        xs = tuple([(x.ptr + (far + behind) * x.dtype.size) % 16 for x, far in zip(inputs, layout.offsets)])
    else:  # elements are loaded one by one: vectors begin with the row
        row_edge, size = layout.offsets[0] + (layout.length * gap if spec.reverse else 0), inputs[0].dtype.size
        edges = inputs[0].ptr + row_edge * size, *(pitch * size for pitch in pitches[0])
        whole_vectors = not any(edge % VECTOR_BYTES for edge in edges)
        xs = ((-layout.length if spec.reverse else 0) * operation.sources[0].size % 16,)
        pitches = (0, 0), pitches[1]
    return Problem(
        *spec.extents,
        tuple(source.size for source in operation.sources),
        tuple(result.size for result in operation.results),
        xs,
        tuple((out.ptr + far * out.dtype.size) % 16 for out, far in zip(outs, layout.offsets[len(inputs) :])),
        spec.words,
        operation.registers == ("Float64",),
        isinstance(operation, States) and operation.takes_index,
        spec.counted,
        view,
        pitches,
        apart,
        packs(spec),
        form.group if form else 1,
        gap,
        layout.interleaved(operation.sources[0].size),
        whole_vectors,
        _sums(operation),
        layout.firsts,
        isinstance(operation, Packed) and operation.has_numbers,
        form.far if form else 0,
    )


def _sums(operation: Single | States) -> bool:
    """Return whether the operator is a sum, or one of bools."""
    if not isinstance(operation, Single) or operation.op.fn is not None:
        return False
    return operation.op.name == "add" or operation.accumulate is BOOL


def _names(spec: ScanSpec) -> tuple[str, ...]:
    """Return the names of the parameters that are inputs. Beside an ``n`` in memory, scans that take an array as
    ``init`` have an ``init_at`` that may be 0."""
    operation = spec.operation
    inputs, args = numbered("x", operation.sources), numbered("arg", operation.args)
    names = [*inputs, *(name for name, number in zip(args, spec.args) if number is None)]
    takes = isinstance(operation, Single) or operation.name == "linear_recurrence"
    if spec.start_in_memory or spec.start_rows is not None or (spec.n_in_memory and takes):
        names.append("init_at")
    return (*names, *(("n_at",) if spec.n_in_memory else ()))


def _steps(spec: ScanSpec, inputs: Views, outs: Views) -> list[tuple[int, ...]]:
    """Return the strides of inputs and outputs along the axes of the inputs, in elements."""
    if spec.axis is not None:
        return [view.steps for view in (*inputs, *outs)]
    unit = contiguous_strides(inputs[0].shape)
    return [*(view.steps for view in inputs), *(tuple(out.steps[0] * step for step in unit) for out in outs)]


def _in_place(spec: ScanSpec, steps: Sequence[tuple[int, ...]]) -> int | None:
    """Return the index of the input that the output may be. Of several outputs, each may be any input of its type."""
    operation = spec.operation
    count = len(operation.sources)
    if len(operation.results) == 1 and operation.results[0] is not operation.sources[0]:
        return None
    pairs = [(0, count)]
    if len(operation.results) > 1:
        pairs = [(i, count + k) for i in range(count) for k in range(len(operation.results))]

    def alike(i: int, k: int) -> bool:
        same = steps[i] == steps[k]
        return same or all(n == 1 or a == b for n, a, b in zip(spec.lengths, steps[i], steps[k]))

    return 0 if all(alike(i, k) for i, k in pairs) else None


def _forward(layout: Layout, spec: ScanSpec, inputs: int) -> tuple[Layout, ScanSpec]:
    """Return the same scan of arrays that do not run backwards, if the order of operands does not matter and this gives
    them a form."""
    operation, back = spec.operation, layout.backward()
    commutes = isinstance(operation, Single) and operation.op.fn is None
    if back is None or back.form(inputs) is None or not commutes:
        return layout, spec
    return back, replace(spec, reverse=not spec.reverse)


def _moved(run: Run, far: tuple[int, ...]) -> Run:
    """Return the run of arrays that begin ``far`` bytes behind the addresses that are given."""
    if not any(far):
        return run
    return lambda addresses, stream: run(tuple(map(operator.add, addresses, far)), stream)
