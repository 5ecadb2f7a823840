"""From the spec of a count to its launches: one that clears the result, and one that counts."""

from __future__ import annotations

from ...dtypes import INT64
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, in_turn, nothing
from ...sizes import ceil_div
from .policy import ClearPolicy, choose
from .spec import FLOAT64, CountSpec


def plan(spec: CountSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call. The inputs are ``x``, and the edges if there are any."""
    counting, x = spec.counting, views[0]
    with_edges = counting.form != "index"
    arrays = ["x", "edges", "out", "out_edges"] if with_edges else ["x", "out"]
    if spec.bins == 0 and not with_edges:
        return nothing, None
    clear = ClearPolicy()
    edges, out = Pointer("edges", FLOAT64), Pointer("out", INT64)
    cleared = edges, out, Pointer("out_edges", FLOAT64), Scalar("bins", "Int32")
    zero = KernelSpec(("histogram", clear, *counting.key), cleared, lambda: clear.make(counting))
    blocks = ceil_div(spec.bins + 1, clear.threads)
    clearing = Launch(zero, x.device, blocks, {"bins": spec.bins}, arrays[1:], None, stream).run
    if not spec.length:
        return lambda addresses, stream: clearing(addresses[1:], stream), None
    choice = choose(spec.length, counting.dtype.size, spec.bins)
    policy = choice.policy
    numbers = Scalar("length", "Int64"), Scalar("bins", "Int32"), Scalar("low", "Float64"), Scalar("scale", "Float64")
    parameters = Pointer("x", counting.dtype), edges, out, *numbers
    count = KernelSpec(("histogram", policy, *counting.key), parameters, lambda: policy.make(counting))
    scale = spec.bins / (spec.high - spec.low) if spec.high > spec.low else 0.0
    values = {"length": spec.length, "bins": spec.bins, "low": spec.low, "scale": scale}
    names = arrays[:3] if with_edges else arrays
    counted = Launch(count, x.device, choice.grid, values, names, None, stream).run
    steps = [(clearing, tuple(range(1, len(arrays)))), (counted, tuple(range(len(names))))]
    return in_turn(steps, (), x.device), None
