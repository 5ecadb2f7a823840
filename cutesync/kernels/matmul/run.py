"""From a checked product to one function that queues all launches of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...dtypes import BY_NAME
from ...runtime import device_array, forks, workspace
from ...runtime.device_array import DeviceArray
from ...runtime.launch import Run, nothing
from ...runtime.view import View
from . import tune
from .pack_plan import make_pack
from .plan import TMA_BYTES, make_launch
from .policy import MatmulPolicy
from .problem import Product, Step, oriented
from .zeros import make_zero, without_k

_SWAPPED = {"a": "b", "b": "a", "scale_a": "scale_b", "scale_b": "scale_a"}  # what an array is to a kernel with swap_ab
_packing = forks.lock()


def run_of(
    product: Product,
    config: MatmulPolicy | str | None,
    scalars: tuple[float, ...],
    arrays: dict[str, View],
    stream: int,
) -> Run:
    """One function for all launches of a call, with ``scalars`` as ``make_launch`` takes them. ``arrays`` are those
    of the call in the order of its addresses: "a", "b", perhaps "c", "bias", "scale_a", "scale_b", then the results:
    "d", perhaps "pre" and "amax". Trials of configurations read from theirs."""
    zero = [_zero(product.out.device, list(arrays).index("amax"), stream)] if "amax" in arrays else []
    if not product.out.size:
        return zero[0] if zero else nothing
    if isinstance(config, MatmulPolicy):
        config = replace(config, promoted=product.promoted)
    swapped, steps = oriented(product, config if isinstance(config, MatmulPolicy) else None)
    names = [_SWAPPED.get(name, name) for name in arrays] if swapped else list(arrays)
    runs = []
    for step in steps:
        prepare = functools.partial(_run_of_step, step, scalars, names, stream)
        use = config if isinstance(config, MatmulPolicy) else None
        if isinstance(config, str) and step.problem.k:
            use = tune.choose(step.problem, _trials(prepare, arrays, stream), stream)
        runs.append(prepare(use))
    runs = zero + runs
    return runs[0] if len(runs) == 1 else _in_turn(runs)


def _zero(ordinal: int, place: int, stream: int) -> Run:
    """A launch that stores 0 at the address number ``place``."""
    launch = make_zero(ordinal, stream)
    return lambda addresses, stream: launch.run((addresses[place],), stream)


def _in_turn(runs: list[Run]) -> Run:
    def run(addresses: tuple[int, ...], stream: int) -> None:
        for step in runs:
            step(addresses, stream)

    return run


def _run_of_step(
    step: Step, scalars: tuple[float, ...], names: Sequence[str], stream: int, config: MatmulPolicy | None
) -> Run:
    """One function for a step: pack what must be, then launch. ``names`` say what each address is to the kernel."""
    problem, ordinal = step.problem, step.problem.ordinal
    offsets = [step.offsets.get(name, 0) for name in names]
    left, right = names.index("a"), names.index("b")
    if problem.k == 0:
        problem, zeros = without_k(problem)
        launch = make_launch(problem, config, scalars, names, stream)

        def run_without_k(addresses: tuple[int, ...], stream: int) -> None:
            given = [address + offset for address, offset in zip(addresses, offsets)]
            given[left] = given[right] = zeros.ptr
            launch.run(tuple(given), stream)

        return run_without_k
    launch = make_launch(problem, config, scalars, names, stream)
    if step.packs == (None, None) and not any(offsets):
        return launch.run
    packs, size = [], 0
    for i, job in zip((left, right), step.packs):
        if job is not None:
            packs.append((i, size, make_pack(job, problem.elements[0], ordinal, stream).run))
            size += -(-job.elements * problem.elements[0].size // 256) * 256

    def run(addresses: tuple[int, ...], stream: int) -> None:
        given = [address + offset for address, offset in zip(addresses, offsets)]
        if not packs:
            return launch.run(tuple(given), stream)
        with _packing:  # another thread's launches on this stream come before these or after
            scratch = workspace.scratch(ordinal, stream, size)
            copies = scratch.addresses[0]
            for i, offset, pack in packs:
                pack((given[i], copies + offset), stream)
                given[i] = copies + offset
            launch.run(tuple(given), stream)

    return run


def _trials(prepare: Callable[[MatmulPolicy], Run], arrays: dict[str, View], stream: int) -> Callable:
    """From a configuration to a function that does the step with it, into results that all trials share."""
    results: list[DeviceArray] = []
    addresses = {name: x.ptr for name, x in arrays.items()}

    def place(out: View) -> int:
        """Memory as large as a result, and as aligned; cleared for a largest magnitude, which is compared with it."""
        before = out.ptr - out.span[0]  # a negative stride reaches before the address
        size = out.span[1] - out.span[0] + 2 * TMA_BYTES
        results.append(
            device_array.from_numpy(np.zeros(size, np.uint8), BY_NAME["uint8"], out.device, stream)
            if not out.shape
            else device_array.allocate((size,), BY_NAME["uint8"], out.device, stream)
        )
        return results[-1].ptr + before + -before % TMA_BYTES + out.ptr % TMA_BYTES

    def trial(config: MatmulPolicy) -> Callable[[], None]:
        if not results:
            addresses.update((name, place(arrays[name])) for name in ("d", "pre", "amax") if name in arrays)
        run = prepare(config)
        return lambda: run(tuple(addresses.values()), stream)

    return trial
