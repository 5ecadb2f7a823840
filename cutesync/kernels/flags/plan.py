"""From the spec of a call to its launch: the policy determines the kernel and its parameters."""

from __future__ import annotations

from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Parameter, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from .policy import FlagPolicy, Problem, alignment, choose
from .spec import FlagSpec, Marking


def kernel_spec(policy: FlagPolicy, marking: Marking) -> KernelSpec:
    """Return the kernel of a policy. The parameters that every warp waits for come first."""
    parameters: tuple[Parameter, ...] = (
        Pointer("x", marking.source),
        Pointer("out", marking.result),
        Pointer("other", marking.result),
        *(Scalar(name, "Int64") for name in ("length", "rows", "period", "runs")),
        Scalar("predecessor", marking.register),
        Scalar("successor", marking.register),
    )
    return KernelSpec((marking.name, policy, *marking.key), parameters, lambda: policy.make(marking))


def plan(spec: FlagSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call."""
    (x,), marking = views, spec.marking
    if x.size == 0:
        return nothing, None
    length, size = x.shape[-1], 0 if marking.bits else marking.result.size
    aligned = min(alignment(out.ptr) for out in outs)
    problem = Problem(x.size // length, length, spec.tile or length, x.dtype.size, size, alignment(x.ptr), aligned)
    choice = choose(problem)
    values = {
        "length": choice.length,
        "rows": choice.rows,
        "period": choice.period,
        "runs": choice.runs,
        "predecessor": spec.predecessor,
        "successor": spec.successor,
    }
    arrays = ("x", "out", "other")[: 1 + marking.outputs]
    kernel = kernel_spec(choice.policy, marking)
    return Launch(kernel, x.device, choice.grid, values, arrays, stream=stream).run, None
