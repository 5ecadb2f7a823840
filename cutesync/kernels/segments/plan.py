"""From the spec of a call by segments to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...dtypes import BY_NAME, INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ..states import numbered, parameter_groups
from .policy import Choice, Problem, choose
from .spec import SegmentsSpec

GROUP = 128  # tiles per group of sync.lookback: there is a multiple of this many slots, and a group is read ahead


def kernel_spec(choice: Choice, spec: SegmentsSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    arrays = [
        Pointer("count", INT64),
        Pointer("n", INT64),
        *(Pointer(name, t) for name, t in zip(numbered("head", spec.heads.sources), spec.heads.sources)),
        *inputs,
        *(Pointer(name, t) for name, t in zip(numbered("key", spec.keys), spec.keys)),
        *outputs,
    ]
    numbers: list[Pointer | Scalar] = [Scalar("length", "Int64"), Scalar("capacity", "Int64")]
    if spec.fill is not None:
        filled = (*spec.keys, *spec.operation.results)
        numbers += [Scalar(name, t.dsl) for name, t in zip(numbered("fill", filled), filled)]
    numbers += [*start, *args]
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)

    def examples() -> Sequence:
        groups = (tuple(p.example() for p in group) for group in (arrays, numbers))
        return *groups, *(p.example() for p in rest)

    key = ("segments", choice.policy, *spec.key)
    return KernelSpec(
        key, (*arrays, *numbers, *rest), lambda: choice.policy.make(spec, choice.shared), examples=examples
    )


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call. The inputs are the arrays of the operation, run-time arguments, ``n``, and the
    arrays that say where segments begin, as far as there are any."""
    operation = spec.operation
    if spec.length == 0 and not spec.reduced:
        return nothing, None
    results = (*spec.keys, *operation.results)
    sources = (*spec.heads.sources, *operation.sources)
    words = spec.words
    problem = Problem(spec.length, tuple(t.size for t in sources), tuple(t.size for t in results), words)
    choice = choose(problem)
    values: dict[str, Any] = {"length": spec.length, "capacity": spec.capacity}
    values |= dict(zip(numbered("init", operation.registers), spec.start or ()))
    values |= dict(zip(numbered("fill", results), spec.fill or ()))
    names = [
        *numbered("x", operation.sources),
        *numbered("arg", operation.args),
        *(["n"] if spec.counted else []),
        *numbered("head", spec.heads.sources),
        *numbered("key", spec.keys),
        *numbered("out", operation.results),
        *(["count"] if spec.reduced else []),
    ]
    claim = functools.partial(workspace.counters_and_slots, slots=(-(-choice.tiles // GROUP) * words + 1) * GROUP)
    kernel = kernel_spec(choice, spec)
    return Launch(kernel, views[0].device, choice.grid, values, names, claim, stream).run, None


MASK = BY_NAME["uint8"]
