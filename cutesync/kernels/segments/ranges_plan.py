"""The launches of a call by segments that begins and ends give."""

from __future__ import annotations

from typing import Any

from ...dtypes import INT64
from ...runtime import forks, workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run
from ..states import numbered, parameter_groups
from .ranges_policy import CELL, RangesPolicy, blocks, choose
from .spec import SegmentsSpec

_sharing = forks.lock()


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launches. The inputs are the arrays of the operation, run-time arguments, ``n``, where segments
    begin, and where they end."""
    operation, device = spec.operation, views[0].device
    sources = tuple(t.size for t in operation.sources)
    sizes = sources if spec.reduced else (*sources, *(t.size for t in operation.results))
    policy = choose(sizes)
    grid = blocks(policy, spec.length, views[-2].size)
    workers = grid * policy.warps
    values: dict[str, Any] = {"segments": spec.segments, "whole": spec.whole, "workers": workers}
    values |= dict(zip(numbered("init", operation.registers), spec.start or ()))
    values |= dict(zip(numbered("nothing", operation.registers), spec.nothing or ()))
    values |= spec.strided.values if spec.strided else {}
    values |= {name: out.steps[0] for name, out in zip(numbered("step", operation.results), outs) if spec.stepped}
    values["begin_step"] = views[-2].steps[0]
    names = [*numbered("x", operation.sources), *numbered("arg", operation.args), *(["n"] if spec.counted else [])]
    names += ["begins", "ends", *numbered("out", operation.results), "shares"]
    kernels = [("shares", grid), ("carries", 1), *([] if spec.reduced else [("results", grid)])]
    runs = [
        Launch(kernel_spec(what, policy, sizes, spec), device, count, values, names, None, stream).run
        for what, count in kernels
    ]
    size = CELL * workers * 2 * (len(operation.registers) + 1)

    def in_order(addresses: tuple[int, ...], stream: int) -> None:
        with _sharing:  # another thread's launches on this stream come before these or after
            memory = workspace.scratch(device, stream, size, "shares")
            for run in runs:
                run((*addresses, memory.addresses[0]), stream)

    return in_order


def kernel_spec(what: str, policy: RangesPolicy, sizes: tuple[int, ...], spec: SegmentsSpec) -> KernelSpec:
    """Return one of the kernels "shares", "carries" and "results"."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    pointers = [
        Pointer("begins", spec.heads.offsets or INT64),
        *(Pointer(name, INT64) for name in ("ends", "n", "shares")),
        *inputs,
        *outputs,
    ]
    numbers: list[Pointer | Scalar] = [Scalar(name, "Int64") for name in ("segments", "whole", "workers", "begin_step")]
    steps = numbered("step", spec.operation.results) if spec.stepped else ()
    numbers += [Scalar(name, "Int64") for name in steps]
    numbers += spec.strided.layout.parameters if spec.strided else []
    nothing = [Scalar(name, t) for name, t in zip(numbered("nothing", start), spec.operation.registers)]
    numbers += [*start, *nothing, *args]

    def make() -> Any:
        from .ranges import ResultsKernel, SharesKernel
        from .ranges_carries import CarriesKernel

        if what == "carries":
            return CarriesKernel(spec, policy)
        if what == "results":
            return ResultsKernel(spec, policy, policy.bytes(sizes))
        return SharesKernel(spec, policy, policy.bytes(sizes))

    return KernelSpec.grouped((f"segment_{what}", policy, *spec.key), (pointers, numbers), make)
