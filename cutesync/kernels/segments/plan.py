"""From the spec of a call by segments to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ...dtypes import BY_NAME, INT32, INT64
from ...runtime import forks, workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ..states import numbered, parameter_groups
from . import ranges_plan, reduced_plan
from .policy import Choice, Problem, choose
from .spec import SegmentsSpec

GROUP = 128  # tiles per group of sync.lookback: there is a multiple of this many slots, and a group is read ahead


_cutting = forks.lock()


def kernel_spec(choice: Choice, spec: SegmentsSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    arrays = [
        Pointer("count", INT64),
        Pointer("n", INT64),
        Pointer("offsets", spec.heads.offsets or INT64),
        Pointer("cuts", INT64),
        *(Pointer(name, t) for name, t in zip(numbered("head", spec.heads.sources), spec.heads.sources)),
        *inputs,
        *(Pointer(name, t) for name, t in zip(numbered("key", spec.keys), spec.keys)),
        *outputs,
    ]
    numbers: list[Pointer | Scalar] = [Scalar(name, "Int64") for name in ("length", "capacity", "segments")]
    if spec.fill is not None:
        filled = (*spec.keys, *spec.operation.results)
        numbers += [Scalar(name, t.dsl) for name, t in zip(numbered("fill", filled), filled)]
    numbers += [Scalar("offset_step", "Int64")] if spec.heads.stepped else []
    steps = numbered("step", (*spec.keys, *spec.operation.results)) if spec.stepped else ()
    numbers += [Scalar(name, "Int64") for name in steps]
    numbers += spec.strided.layout.parameters if spec.strided else []
    numbers += [*start, *args]
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)
    key = ("segments", choice.policy, *spec.key)
    return KernelSpec(key, (arrays, numbers, *rest), lambda: choice.policy.make(spec, choice.shared))


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call. The inputs are the arrays of the operation, run-time arguments, ``n``, and the
    arrays that say where segments begin, as far as there are any."""
    operation = spec.operation
    if (spec.segments if spec.by_offsets and spec.reduced else spec.length or spec.found) == 0:
        return nothing, None
    spec = replace(spec, stepped=not all(out.contiguous for out in outs))
    if spec.heads.kind == "ranges":
        return ranges_plan.plan(spec, views, outs, stream), None
    if spec.by_offsets and spec.reduced:
        return reduced_plan.plan(spec, views, outs, stream), None
    results = (*spec.keys, *operation.results)
    choice = choose(_problem(spec))
    values: dict[str, Any] = {"length": spec.length, "capacity": spec.capacity, "segments": spec.segments}
    values |= dict(zip(numbered("init", operation.registers), spec.start or ()))
    values |= dict(zip(numbered("fill", results), spec.fill or ()))
    values |= spec.strided.values if spec.strided else {}
    values |= {name: out.steps[0] for name, out in zip(numbered("step", results), outs) if spec.stepped}
    values["offset_step"] = offset_step = views[-1].steps[0] if spec.heads.stepped else 1
    inputs = [
        *numbered("x", operation.sources),
        *numbered("arg", operation.args),
        *(["n"] if spec.counted else []),
        *(["offsets"] if spec.by_offsets else numbered("head", spec.heads.sources)),
    ]
    outputs = [
        *numbered("key", spec.keys),
        *numbered("out", operation.results),
        *(["count"] if spec.found else []),
    ]
    names = [*inputs, *outputs, *(["cuts"] if spec.by_offsets else [])]
    claim = functools.partial(workspace.counters_and_slots, slots=(-(-choice.tiles // GROUP) * spec.words + 1) * GROUP)
    device = views[0].device
    run = Launch(kernel_spec(choice, spec), device, choice.grid, values, names, claim, stream).run
    if not spec.by_offsets:
        return run, None
    cuts, offsets = _cuts(choice, spec, device, (offset_step, stream)), inputs.index("offsets")
    count = inputs.index("n") if spec.counted else offsets

    def cut_first(addresses: tuple[int, ...], stream: int) -> None:
        with _cutting:  # another thread's launches on this stream come before these or after
            memory = workspace.scratch(device, stream, 8 * (choice.tiles + 1), "cuts")
            cuts((addresses[offsets], memory.addresses[0], addresses[count]), stream)
            run((*addresses, memory.addresses[0]), stream)

    return cut_first, None


def _problem(spec: SegmentsSpec) -> Problem:
    operation = spec.operation
    sources = tuple(t.size for t in (*spec.heads.sources, *operation.sources))
    offsets, strided = spec.by_offsets, spec.strided is not None
    return Problem(spec.length, sources, spec.apart, spec.words, spec.found, spec.segments, offsets, strided)


def _cuts(choice: Choice, spec: SegmentsSpec, device: int, where: tuple[int, int]) -> Run:
    """Prepare the launch that finds where tiles begin. ``where``: the step of the offsets, and the stream."""
    step, stream = where

    def make() -> Any:
        from .offsets import Cuts

        return Cuts(spec, choice.policy.tile)

    kinds = spec.heads.offsets or INT64, INT64, INT64
    parameters: tuple[Pointer | Scalar, ...] = tuple(map(Pointer, ("offsets", "cuts", "n"), kinds))
    parameters += tuple(Scalar(name, "Int64") for name in ("segments", "length", "tiles", "step"))
    heads = spec.heads
    key = "segment_cuts", choice.policy.tile, str(heads.offsets), heads.ends, spec.reverse, heads.stepped, spec.counted
    values = {"step": step, "segments": spec.segments, "length": spec.length, "tiles": choice.tiles}
    grid = -(-(choice.tiles + 1) // CUT_THREADS)
    names = "offsets", "cuts", "n"
    return Launch(KernelSpec(key, parameters, make), device, grid, values, names, None, stream).run


MASK = BY_NAME["uint8"]
CUT_THREADS = 128
