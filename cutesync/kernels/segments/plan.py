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
from .spec import Heads, SegmentsSpec

GROUP = 128  # tiles per group of sync.lookback: there is a multiple of this many slots, and a group is read ahead

_marked = forks.lock()


def kernel_spec(choice: Choice, spec: SegmentsSpec) -> KernelSpec:
    """Return the kernel of a choice."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    arrays = [
        Pointer("count", INT64),
        Pointer("n", INT64),
        Pointer("bits", INT32),
        *(Pointer(name, t) for name, t in zip(numbered("head", spec.heads.sources), spec.heads.sources)),
        *inputs,
        *(Pointer(name, t) for name, t in zip(numbered("key", spec.keys), spec.keys)),
        *outputs,
    ]
    numbers: list[Pointer | Scalar] = [Scalar(name, "Int64") for name in ("length", "capacity")]
    if spec.fill is not None:
        filled = (*spec.keys, *spec.operation.results)
        numbers += [Scalar(name, t.dsl) for name, t in zip(numbered("fill", filled), filled)]
    steps = numbered("step", (*spec.keys, *spec.operation.results)) if spec.stepped else ()
    numbers += [Scalar(name, "Int64") for name in steps]
    numbers += spec.strided.layout.parameters if spec.strided else []
    numbers += [*start, *args]
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)
    policy = choice.policy
    key = ("segments", policy, *spec.key)
    return KernelSpec(key, (arrays, numbers, *rest), lambda: policy.make(spec, choice.shared), policy.cluster)


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call. The inputs are the arrays of the operation, run-time arguments, ``n``, and the
    arrays that say where segments begin, as far as there are any."""
    if (spec.segments if spec.by_offsets and spec.reduced else spec.length or spec.found) == 0:
        return nothing, None
    spec = replace(spec, stepped=not all(out.contiguous for out in outs))
    if spec.heads.kind == "ranges":
        return ranges_plan.plan(spec, views, outs, stream), None
    if spec.by_offsets and spec.reduced:
        return reduced_plan.plan(spec, views, outs, stream), None
    if spec.by_offsets:
        return _plan_marked(spec, views, stream, outs), None
    return _launch(choose(_problem(spec)), spec, views[0].device, stream, outs), None


def _launch(choice: Choice, spec: SegmentsSpec, device: int, stream: int, outs: Views) -> Run:
    """Prepare the launch of the pipeline."""
    operation = spec.operation
    values = {"length": spec.length, "capacity": spec.capacity} | reduced_plan.values_of(spec, outs)
    names = [
        *numbered("x", operation.sources),
        *numbered("arg", operation.args),
        *(["n"] if spec.counted else []),
        *(["bits"] if spec.heads.kind == "bits" else numbered("head", spec.heads.sources)),
        *numbered("key", spec.keys),
        *numbered("out", operation.results),
        *(["count"] if spec.found else []),
    ]
    claim = functools.partial(workspace.counters_and_slots, slots=(-(-choice.tiles // GROUP) * spec.words + 1) * GROUP)
    return Launch(kernel_spec(choice, spec), device, choice.grid, values, names, claim, stream).run


def _plan_marked(spec: SegmentsSpec, views: Views, stream: int, outs: Views) -> Run:
    """Prepare the launches of a scan by offsets: one marks where segments begin, the other one scans."""
    scan = replace(spec, heads=Heads("bits", ()), segments=0, counted=False)
    choice, device = choose(_problem(scan)), views[0].device
    run = _launch(choice, scan, device, stream, outs)
    mark = _marking(spec, device, (views[-1].steps[0] if spec.heads.stepped else 1, stream))
    # of few sizes, as the memory of each is kept
    size = max(MARKS, 1 << (choice.tiles * choice.policy.tile // 8 - 1).bit_length())
    before = len(spec.operation.sources) + len(spec.operation.args)  # of the inputs, those before ``n`` and offsets

    offsets = before + spec.counted

    def mark_first(addresses: tuple[int, ...], stream: int) -> None:
        with _marked:  # another thread's launches on this stream come before these or after
            memory = workspace.counters_and_scratch(device, stream, size, 0, "marks")
            bits = memory.addresses[0]
            mark((addresses[offsets], bits, addresses[before]), stream)
            run((*addresses[:before], bits, *addresses[offsets + 1 :]), stream)

    return mark_first


def _problem(spec: SegmentsSpec) -> Problem:
    operation = spec.operation
    sources = tuple(t.size for t in (*spec.heads.sources, *operation.sources))
    marked, strided = spec.heads.kind == "bits", spec.strided is not None
    more = spec.words, spec.found, marked, strided, spec.fill is not None
    return Problem(spec.length, sources, spec.apart, *more)


def _marking(spec: SegmentsSpec, device: int, where: tuple[int, int]) -> Run:
    """Prepare the launch that marks where segments begin. ``where``: the step of the offsets, and the stream."""
    heads, (step, stream) = spec.heads, where

    def make() -> Any:
        from .offsets import MarkHeads

        return MarkHeads(heads, spec.reverse, spec.counted)

    names = "offsets", "bits", "n"
    parameters: tuple[Pointer | Scalar, ...] = tuple(map(Pointer, names, (heads.offsets or INT64, INT32, INT64)))
    parameters += tuple(Scalar(name, "Int64") for name in ("segments", "length", "step"))
    kernel = KernelSpec(("mark_heads", *heads.key, spec.reverse, spec.counted), parameters, make)
    values = {"segments": spec.segments, "length": spec.length, "step": step}
    grid = spec.segments // MARKED + 1
    return Launch(kernel, device, grid, values, names, None, stream).run


MASK = BY_NAME["uint8"]
MARKED = 2048  # offsets that a block of ``offsets.MarkHeads`` reads
MARKS = 1 << 16  # least bytes of bits
