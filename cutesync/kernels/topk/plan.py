"""From the spec of a top-k to its launches: one for each ``MAX_WANTED`` results of a row."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, NamedTuple

from ...dtypes import INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...runtime.layout import Axis, axes_of, merged
from ..axes import numbers, parameters
from ..hardware import VECTOR_BYTES
from .policy import MAX_WANTED, Choice, HeldPolicy, Problem, ShortPolicy, TopKPolicy, choose
from .spec import TopK, TopKSpec

NUMBERS = ("length", "wanted", "offset", "step", "value_step", "index_step", "splits", "rows")
KINDS = ("Int64", "Int32", "Int64", "Int64", "Int64", "Int64", "Int32", "Int32")
COUNTERS = 8, 16  # bytes for a row, and for each of its blocks


class _Memory(NamedTuple):
    """Two workspaces, as one. ``addresses`` are those of the counters and of the scratch memory."""

    addresses: tuple[int, int]
    held: tuple[workspace.Workspace, ...]


def _claim(counter_bytes: int, scratch_bytes: int, ordinal: int, stream: int) -> Any:
    """Return the memory of a launch: zeroed counters, and scratch memory whose contents depend on timing."""
    counters = workspace.counters_and_scratch(ordinal, stream, counter_bytes, 0)
    scratch = workspace.scratch(ordinal, stream, scratch_bytes, "candidates")
    return _Memory((counters.addresses[0], scratch.addresses[1]), (counters, scratch))


def kernel_spec(policy: TopKPolicy | ShortPolicy | HeldPolicy, operation: TopK) -> KernelSpec:
    """Return the kernel of a policy."""
    kinds = operation.dtype, INT64, operation.dtype, INT64
    arrays = [Pointer(name, kind) for name, kind in zip(("x", "n", "values", "indices"), kinds)]
    extents = [Scalar(name, kind) for name, kind in zip(NUMBERS, KINDS)]
    axes = parameters("axis", policy.rank, 3, False)
    memory = Pointer("scratch", INT64), Pointer("counters", INT32)
    key = ("topk", policy, *operation.key)
    return KernelSpec(key, (arrays, extents, axes, *memory), lambda: policy.make(operation))


def plan(spec: TopKSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call. The inputs are ``x``, and ``n`` if it is in memory."""
    x, operation = views[0], spec.operation
    if outs[0].size == 0:
        return nothing, None
    others = [i for i in range(len(spec.shape)) if i != spec.axis]
    steps = [view.steps for view in (x, outs[0], outs[-1])]
    rows = merged(axes_of([spec.shape[i] for i in others], *([each[i] for i in others] for each in steps)))
    names = ["x", *(["n"] if operation.counted else []), *(["values"] if operation.values else []), "indices"]
    launches: list[tuple[Run, tuple[int, ...]]] = []
    for offset in range(0, spec.k, MAX_WANTED):
        wanted = min(MAX_WANTED, spec.k - offset)
        count, size = math.prod(axis.extent for axis in rows), operation.dtype.size
        even = all(row.steps[0] * size % VECTOR_BYTES == 0 for row in rows)
        choice = choose(Problem(count, spec.length, size, x.steps[spec.axis] == 1, wanted, offset > 0, even))
        run = _launch(choice, spec, rows, (wanted, offset), names, x.device, stream, steps)
        launches.append((run, tuple(range(len(names)))))
    return in_turn(launches, (), x.device), None


def _launch(
    choice: Choice,
    spec: TopKSpec,
    rows: list[Axis],
    part: tuple[int, int],
    names: list[str],
    device: int,
    stream: int,
    steps: list,
) -> Run:
    """Prepare one launch, of ``part``: how many results, and how many come before them."""
    policy: Any = replace(choice.policy, rank=max(1, len(rows)))
    kernel = kernel_spec(policy, spec.operation)
    wanted, offset = part
    axis, splits = spec.axis, choice.splits
    count = math.prod(row.extent for row in rows)
    given = spec.length, wanted, offset, *(each[axis] for each in steps), splits, count
    values: dict[str, Any] = dict(zip(NUMBERS, given))
    axes = [p.name for p in kernel.parameters if p.name.startswith("axis")]
    values |= dict(zip(axes, numbers(rows, policy.rank, 3, False)))
    claim = None
    if policy.split:
        words = 2 if policy.wide or policy.key_bytes == 8 else 1
        counters = count * (COUNTERS[0] + COUNTERS[1] * splits)
        claim = functools.partial(_claim, counters, count * splits * (wanted + wanted // 4) * 8 * words)
    return Launch(kernel, device, choice.grid, values, names, claim, stream).run
