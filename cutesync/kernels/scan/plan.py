"""From the spec of a scan to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from ...dtypes import INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ..states import Single, States, numbered, parameter_groups
from .policy import choose
from .problem import Choice, Problem
from .spec import ScanSpec

_EXTENTS = ("rows", "length", "inner")


def kernel_spec(choice: Choice, spec: ScanSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    policy, width, operation = choice.policy, choice.width, spec.operation

    def make() -> Any:
        from .base import Scan

        return policy.make(Scan(operation.monoid(), spec.exclusive, spec.reverse, spec.start_kind, width))

    inputs, outputs, start, args = parameter_groups(operation)
    middle: tuple[Pointer | Scalar, ...] = (
        Pointer("scratch", INT64),
        Pointer("counters", INT32),
        *(Scalar(name, "Int64") for name in _EXTENTS),
        Scalar("tiles", "Int32"),
    )
    first = Pointer("init_at", operation.results[0])

    def examples() -> Sequence:
        x, out, init = (tuple(p.example() for p in group) for group in (inputs, outputs, [*start, *args]))
        return x, out, first.example(), init, *(p.example() for p in middle)

    parameters = (*inputs, *outputs, first, *start, *args, *middle)
    return KernelSpec(("scan", policy, width, *spec.key), parameters, make, examples=examples)


def launch(choice: Choice, spec: ScanSpec, ordinal: int, stream: int, arrays: tuple[str, ...]) -> Launch:
    """Prepare the launch of a scan of at least one element. ``arrays`` names the parameters that each call gives."""
    operation = spec.operation
    values = dict(zip(_EXTENTS, spec.extents)) | {"tiles": choice.tiles}
    values |= dict(zip(numbered("init", operation.registers), spec.start or ()))
    values |= dict(zip(numbered("arg", operation.args), spec.args))
    claim = functools.partial(workspace.counters_and_slots, slots=choice.slots * spec.words * choice.width)
    kernel = kernel_spec(choice, spec)
    return Launch(kernel, ordinal, choice.grid, values, arrays, claim if choice.slots else None, stream)


def plan(spec: ScanSpec, views: Views, outs: Views, stream: int) -> tuple[Run, int | None]:
    """Prepare the launches of a call."""
    operation, x = spec.operation, views[0]
    in_place = 0 if len(outs) > 1 or operation.results[0] is operation.sources[0] else None
    if x.size == 0:
        return nothing, in_place
    inputs = views[: len(operation.sources)]
    problem = Problem(
        *spec.extents,
        tuple(source.size for source in operation.sources),
        tuple(result.size for result in operation.results),
        tuple(view.ptr % 16 for view in inputs),
        tuple(view.ptr % 16 for view in outs),
        spec.words,
        operation.registers == ("Float64",),
        isinstance(operation, States) and operation.takes_index,
    )
    if isinstance(operation, Single) and spec.algorithm != "auto":
        rungs = importlib.import_module("cutesync.patterns.tiered_scan")
        return rungs.tiers(spec, operation, problem, x.device, stream), in_place
    names = (*numbered("x", inputs), *(("init_at",) if spec.start_in_memory else ()))
    names += tuple(name for name, number in zip(numbered("arg", operation.args), spec.args) if number is None)
    arrays = (*names, *numbered("out", outs))
    return launch(choose(problem), spec, x.device, stream, arrays).run, in_place
