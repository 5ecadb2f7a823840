"""From the spec of a scan to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ...dtypes import INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Parameter, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from .policy import Choice, Problem, choose
from .spec import ScanSpec

_EXTENTS = ("rows", "length", "inner")


def kernel_spec(choice: Choice, spec: ScanSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    policy, width = choice.policy, choice.width

    def make() -> Any:
        from ...monoid import Monoid
        from .base import Scan

        monoid = Monoid(spec.op, spec.source, spec.accumulate, spec.output)
        return policy.make(Scan(monoid, spec.exclusive, spec.reverse, spec.start_kind, width))

    parameters: tuple[Parameter, ...] = (
        Pointer("x", spec.source),
        Pointer("out", spec.output),
        Pointer("init_at", spec.output),
        Scalar("init", spec.register),
        Pointer("scratch", INT64),
        Pointer("counters", INT32),
        *(Scalar(name, "Int64") for name in _EXTENTS),
        Scalar("tiles", "Int32"),
    )
    return KernelSpec(("scan", policy, width, *spec.key), parameters, make)


def launch(choice: Choice, spec: ScanSpec, ordinal: int, stream: int, arrays: tuple[str, ...]) -> Launch:
    """Prepare the launch of a scan of at least one element. ``arrays`` names the parameters that each call gives."""
    values = dict(zip(_EXTENTS, spec.extents)) | {"init": spec.start, "tiles": choice.tiles}
    claim = functools.partial(workspace.counters_and_slots, slots=choice.slots * spec.words * choice.width)
    kernel = kernel_spec(choice, spec)
    return Launch(kernel, ordinal, choice.grid, values, arrays, claim if choice.slots else None, stream)


def plan(spec: ScanSpec, views: Views, outs: Views, stream: int) -> tuple[Run, int | None]:
    """Prepare the launches of a call."""
    (x, _), (out,) = views, outs
    in_place = 0 if spec.output is spec.source else None
    if x.size == 0:
        return nothing, in_place
    problem = Problem(*spec.extents, spec.source.size, spec.output.size, x.ptr % 16, out.ptr % 16)
    if spec.algorithm != "auto":
        rungs = importlib.import_module("cutesync.patterns.tiered_scan")
        return rungs.tiers(spec, problem, x.device, stream), in_place
    arrays = ("x", "init_at", "out") if spec.start_in_memory else ("x", "out")
    return launch(choose(problem), spec, x.device, stream, arrays).run, in_place
