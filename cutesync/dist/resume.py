"""Put the state before a part in front of each state of its scan: one kernel, a thread an element."""

from __future__ import annotations

import math
from typing import Any

from ..kernels.reduce.spec import Reduction
from ..kernels.scan.spec import ScanSpec
from ..kernels.states import States, numbered, parameter_groups
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from .recorder import allocator, launcher

THREADS = 256


def resume(
    spec: ScanSpec,
    operation: Reduction | States,
    given: tuple[tuple, tuple, Any],
    like: Any,
    stream: int,
    explicit: bool,
) -> tuple:
    """Return the results of a part: arrays of the library of ``like``. ``given`` are the states of its inclusive scan,
    the states before it, one for each scan, and the results if they exist, or None."""
    values, carry, made = given
    library = arrays.adapter(like)
    view = library.view(like)
    axis = spec.axis or 0
    rows, length, inner = math.prod(view.shape[:axis]), view.shape[axis], math.prod(view.shape[axis + 1 :])
    last = operation.of_pass(1, 2)
    if made is None:
        made = tuple(allocator(library, view.shape, t, view.device)(stream, explicit) for t in last.results)
    kernel = kernel_spec(last, spec.exclusive, spec.reverse)
    numbers = {"count": rows * length * inner, "length": length, "inner": inner}
    numbers |= dict(zip(numbered("arg", last.args), spec.args))
    names = (*numbered("x", values), *numbered("carry", carry), *numbered("out", made))
    run = launcher(kernel, view.device, -(-numbers["count"] // THREADS), numbers, names, stream=stream)
    addresses = (*map(library.address, (*values, *carry)), *(arrays.adapter(y).address(y) for y in made))
    run(addresses, stream)
    return made


def kernel_spec(last: Reduction | States, exclusive: bool, reverse: bool) -> KernelSpec:
    inputs, outputs, _, args = parameter_groups(last)
    before = [Pointer(name, t) for name, t in zip(numbered("carry", last.sources), last.sources)]
    numbers = [Scalar(name, "Int64") for name in ("count", "length", "inner")]

    def make() -> Any:
        from .resume_kernel import Resume

        return Resume(last.monoid(), exclusive, reverse)

    return KernelSpec(("resume", exclusive, reverse, *last.key), (inputs, before, outputs, [*numbers, *args]), make)
