"""From a checked product to one function that queues all launches of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...dtypes import BY_NAME
from ...runtime import device_array, forks, workspace
from ...runtime.device_array import DeviceArray
from ...runtime.launch import Run, nothing
from ...runtime.view import View
from . import tune
from .plan import make_launch, make_pack, without_k
from .policy import MatmulPolicy
from .problem import Product, Step, steps_of

_SWAPPED = {"a": "b", "b": "a", "scale_a": "scale_b", "scale_b": "scale_a"}  # what an array is to a kernel with swap_ab
_packing = forks.lock()


def run_of(
    product: Product,
    config: MatmulPolicy | str | None,
    scalars: tuple[float, float],
    arrays: dict[str, View],
    stream: int,
) -> Run:
    """One function for all launches of a call, with ``scalars`` = (alpha, beta). ``arrays`` are those of the call in
    the order of its addresses: "a", "b", perhaps "c", "bias", "scale_a", "scale_b", and "d" last. Trials of
    configurations read from theirs."""
    if not product.out.size:
        return nothing
    if isinstance(config, MatmulPolicy):
        config = replace(config, promoted=product.promoted, splits=config.splits if product.split else 1)
    swapped, steps = steps_of(product)
    names = [_SWAPPED.get(name, name) for name in arrays] if swapped else list(arrays)
    runs = []
    for step in steps:
        prepare = functools.partial(_run_of_step, step, scalars, names, stream)
        use = config if isinstance(config, MatmulPolicy) else None
        if isinstance(config, str) and step.problem.k:
            use = tune.choose(
                step.problem, _trials(prepare, [x.ptr for x in arrays.values()], product.out, stream), stream
            )
        runs.append(prepare(use))
    return runs[0] if len(runs) == 1 else _in_turn(runs)


def _in_turn(runs: list[Run]) -> Run:
    def run(addresses: tuple[int, ...], stream: int) -> None:
        for step in runs:
            step(addresses, stream)

    return run


def _run_of_step(
    step: Step, scalars: tuple[float, float], names: Sequence[str], stream: int, config: MatmulPolicy | None
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


def _trials(prepare: Callable[[MatmulPolicy], Run], addresses: Sequence[int], out: View, stream: int) -> Callable:
    """From a configuration to a function that does the step with it, into a result that all trials share."""
    result: list[DeviceArray] = []

    def trial(config: MatmulPolicy) -> Callable[[], None]:
        before = out.ptr - out.span[0]  # a negative stride reaches before the address
        if not result:
            shape = (out.span[1] - out.span[0] + 2 * 16,)
            result.append(device_array.allocate(shape, BY_NAME["uint8"], out.device, stream))
        into = result[0].ptr + before + -before % 16 + out.ptr % 16  # as aligned as the result itself
        run = prepare(config)
        return lambda: run((*addresses[:-1], into), stream)

    return trial
