"""From a checked product to one function that queues all launches of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...dtypes import BY_NAME
from ...runtime import device_array, forks, workspace
from ...runtime.arrays import View
from ...runtime.device_array import DeviceArray
from . import tune
from .plan import make_launch, make_pack, without_k
from .policy import MatmulPolicy
from .problem import Product, Step, steps_of

Run = Callable[[tuple[int, ...], int], None]  # of the addresses of A, B, D, C, the bias and the scales, and the stream

_packing = forks.lock()


def run_of(product: Product, config, scalars: tuple[float, float], addresses: tuple[int, ...], stream: int) -> Run:
    """One function for all launches of a call, with ``scalars`` = (alpha, beta). Trials of configurations read from
    ``addresses``."""
    ordinal = product.a.device
    if not product.out.size:
        return lambda addresses, stream: None
    if isinstance(config, MatmulPolicy):
        config = replace(config, promoted=product.promoted, splits=config.splits if product.split else 1)
    swapped, steps = steps_of(product)
    runs = []
    for step in steps:
        prepare = partial(_run_of_step, step, scalars, ordinal, stream)
        use = config
        if isinstance(config, str):
            trial = _trials(step, prepare, swapped, addresses, product.out, stream)
            use = tune.choose(step.problem, trial, ordinal, stream) if step.problem.k else None
        runs.append((step.offsets, prepare(use)))
    return _in_turn(runs, swapped)


def _run_of_step(
    step: Step, scalars: tuple[float, float], ordinal: int, stream: int, config: MatmulPolicy | None
) -> Run:
    """One function for a step: pack what must be, then launch."""
    if step.problem.k == 0:
        problem, zeros = without_k(step.problem, ordinal)
        launch = make_launch(problem, config, *scalars, ordinal, stream)
        return lambda addresses, stream: launch.run((zeros.ptr, zeros.ptr, *addresses[2:]), stream)
    launch = make_launch(step.problem, config, *scalars, ordinal, stream)
    if step.packs == (None, None):
        return launch.run
    element, packs, size = step.problem.elements[0], [], 0
    for i, job in enumerate(step.packs):
        if job is not None:
            packs.append((i, size, make_pack(job, element, ordinal, stream)))
            size += -(-job.elements * element.size // 256) * 256

    def run(addresses: tuple[int, ...], stream: int) -> None:
        given = list(addresses)
        with _packing:  # another thread's launches on this stream come before these or after
            scratch = workspace.scratch(ordinal, stream, size)
            copies = scratch.addresses[0]
            for i, offset, pack in packs:
                pack.run(given[i], copies + offset, stream)
                given[i] = copies + offset
            launch.run(tuple(given), stream)

    return run


def _trials(step: Step, prepare, swapped: bool, addresses: tuple[int, ...], out: View, stream: int):
    """From a configuration to a function that does the step with it, into a result that all trials share."""
    result: list[DeviceArray] = []

    def trial(config: MatmulPolicy) -> Callable[[], None]:
        before = out.ptr - out.span[0]  # a negative stride reaches before the address
        if not result:
            shape = (out.span[1] - out.span[0] + 2 * 16,)
            result.append(device_array.allocate(shape, BY_NAME["uint8"], out.device, stream))
        into = result[0].ptr + before + -before % 16 + out.ptr % 16  # as aligned as the result itself
        run = _in_turn([(step.offsets, prepare(config))], swapped)
        return lambda: run((*addresses[:2], into, *addresses[3:]), stream)

    return trial


def _in_turn(runs: list[tuple[tuple[int, ...], Run]], swapped: bool) -> Run:
    """One function for all steps, each with what it adds to the addresses."""
    if len(runs) == 1 and not swapped and not any(runs[0][0]):
        return runs[0][1]

    def run(addresses: tuple[int, ...], stream: int) -> None:
        if swapped:
            a, b, d, c, bias, scale_a, scale_b = addresses
            addresses = (b, a, d, c, bias, scale_b, scale_a)
        for offsets, step in runs:
            step(tuple(address + offset for address, offset in zip(addresses, offsets)), stream)

    return run
