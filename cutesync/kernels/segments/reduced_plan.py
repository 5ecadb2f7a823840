"""The launch of a reduction of segments that offsets give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run
from ..states import numbered, parameter_groups
from .reduced_policy import ReducedPolicy, blocks, choose
from .spec import SegmentsSpec


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launch. The inputs are the arrays of the operation, run-time arguments, ``n``, and the offsets."""
    operation = spec.operation
    sources, states = tuple(t.size for t in operation.sources), sizes_of(operation.registers)
    policy = choose(sources, states, spec.strided is not None, spec.length, spec.segments)
    values = {"whole": spec.length, "segments": spec.segments} | values_of(spec, outs)
    values["offset_step"] = views[-1].steps[0] if spec.heads.stepped else 1
    names = [*numbered("x", operation.sources), *numbered("arg", operation.args), *(["n"] if spec.counted else [])]
    names += ["offsets", *numbered("out", operation.results)]
    grid, values["rounds"] = blocks(policy, policy.members(spec.length, spec.segments))
    kernel = kernel_spec(policy, spec, policy.bytes(states, sources if spec.strided else ()))
    return Launch(kernel, views[0].device, grid, values, names, workspace.counters_and_slots, stream).run


def values_of(spec: SegmentsSpec, outs: Views) -> dict[str, Any]:
    """Return what kernels get besides run-time arguments, by name: the first state, the results of an empty segment,
    what fills the rest of results, and strides of inputs and results."""
    registers, results = spec.operation.registers, (*spec.keys, *spec.operation.results)
    values: dict[str, Any] = dict(zip(numbered("init", registers), spec.start or ()))
    values |= dict(zip(numbered("nothing", registers), spec.nothing or ()))
    values |= dict(zip(numbered("fill", results), spec.fill or ()))
    values |= spec.strided.values if spec.strided else {}
    return values | {name: out.steps[0] for name, out in zip(numbered("step", results), outs) if spec.stepped}


def last_numbers(spec: SegmentsSpec, start: Sequence[Scalar], args: Sequence[Pointer | Scalar]) -> list:
    """Return the last numbers of a kernel: strides of results and inputs, the first state, the results of an empty
    segment, and run-time arguments."""
    steps = numbered("step", spec.operation.results) if spec.stepped else ()
    layout = spec.strided.layout.parameters if spec.strided else []
    nothing = [Scalar(name, t) for name, t in zip(numbered("nothing", start), spec.operation.registers)]
    return [*(Scalar(name, "Int64") for name in steps), *layout, *start, *nothing, *args]


def sizes_of(registers: tuple[str, ...]) -> tuple[int, ...]:
    """Return the bytes of the numbers of a state."""
    return tuple(8 if name.endswith("64") else 4 for name in registers)


def kernel_spec(policy: ReducedPolicy, spec: SegmentsSpec, shared: int) -> KernelSpec:
    """Return the kernel of a policy."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    arrays = [Pointer("n", INT64), Pointer("offsets", spec.heads.offsets or INT64), *inputs, *outputs]
    numbers: list[Pointer | Scalar] = [Scalar(name, "Int64") for name in ("whole", "segments", "rounds")]
    numbers += [Scalar("offset_step", "Int64")] if spec.heads.stepped else []
    numbers += last_numbers(spec, start, args)
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)
    return KernelSpec(
        ("segment_reduction", policy, *spec.key), (arrays, numbers, *rest), lambda: policy.make(spec, shared)
    )
