"""The launches of a call by segments that begins and ends give."""

from __future__ import annotations

from typing import Any

from ...dtypes import INT32, INT64
from ...runtime import forks, workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run
from ..states import numbered, parameter_groups
from .ranges_policy import CELL, RangesPolicy, RowsPolicy, blocks, choose, in_rows
from .reduced_plan import last_numbers, sizes_of, values_of
from .reduced_policy import blocks as blocks_in_rows
from .spec import SegmentsSpec

_sharing = forks.lock()


def plan(spec: SegmentsSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launches. The inputs are the arrays of the operation, run-time arguments, ``n``, where segments
    begin, and where they end."""
    operation, device = spec.operation, views[0].device
    sources = tuple(t.size for t in operation.sources)
    sizes = sources if spec.reduced else (*sources, *(t.size for t in operation.results))
    names = [*numbered("x", operation.sources), *numbered("arg", operation.args), *(["n"] if spec.counted else [])]
    names += ["begins", "ends", *numbered("out", operation.results)]
    values = {"segments": spec.segments, "whole": spec.whole, "begin_step": views[-2].steps[0]} | values_of(spec, outs)
    rows = in_rows(sources, sizes_of(operation.registers), spec.strided is not None) if spec.reduced else None
    if rows is not None:
        grid, values["rounds"] = blocks_in_rows(rows, rows.members(spec.length, spec.segments))
        kernel = rows_kernel_spec(rows, spec)
        return Launch(kernel, device, grid, values, names, workspace.counters_and_slots, stream).run
    policy = choose(sizes)
    grid = blocks(policy, spec.length, views[-2].size)
    values["workers"] = workers = grid * policy.warps
    names += ["shares"]
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


def rows_kernel_spec(policy: RowsPolicy, spec: SegmentsSpec) -> KernelSpec:
    """Return the kernel of reductions of one array."""
    inputs, outputs, start, args = parameter_groups(spec.operation)
    arrays = [Pointer("n", INT64), Pointer("begins", spec.heads.offsets or INT64), Pointer("ends", INT64)]
    numbers: list[Pointer | Scalar] = [Scalar(name, "Int64") for name in ("whole", "segments", "rounds", "begin_step")]
    numbers += last_numbers(spec, start, args)
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)
    groups = [*arrays, *inputs, *outputs], numbers, *rest
    shared = policy.bytes(sizes_of(spec.operation.registers))
    return KernelSpec(("segment_ranges", policy, *spec.key), groups, lambda: policy.make(spec, shared))


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
    numbers += last_numbers(spec, start, args)

    def make() -> Any:
        from .ranges import ResultsKernel, SharesKernel
        from .ranges_carries import CarriesKernel

        if what == "carries":
            return CarriesKernel(spec, policy)
        if what == "results":
            return ResultsKernel(spec, policy, policy.bytes(sizes))
        return SharesKernel(spec, policy, policy.bytes(sizes))

    return KernelSpec((f"segment_{what}", policy, *spec.key), (pointers, numbers), make)
