"""The patterns of the demo, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import patterns

if TYPE_CHECKING:
    from .demo import Case

_CONSUMED = lambda v: v * 2 + 1  # noqa: E731
_KEPT = lambda v: v % 3 == 0  # noqa: E731


def cases(place: str) -> Iterator[Case]:
    """``place`` is "gpu" (large), "emulator" (small) or "nowhere" (the large shapes, to be compiled)."""
    large = place != "emulator"
    n = 1 << 24 if large else 3000
    few = 1 << 20 if large else 600
    stream = patterns.producer_consumer
    for form in stream.FORMS:
        yield _case(
            f"producer, consumers: {form}",
            "float32",
            n,
            lambda x, form=form, **options: stream.run(x, _CONSUMED, form=form, **options),
            lambda x: stream.reference(x, _CONSUMED),
        )
    for form in patterns.divergence.FORMS:
        yield _case(
            f"divergence: {form}",
            "int32",
            few,
            lambda x, form=form, **options: patterns.divergence.run(x, form, work=8, **options),
            lambda x, form=form: patterns.divergence.reference(x, form, 8),
        )
    for form in patterns.reductions.FORMS:
        yield _case(
            f"sums: {form}",
            "int32",
            few,
            lambda x, form=form, out=None: patterns.reductions.run(x, form),
            lambda x, form=form: patterns.reductions.reference(x, form),
        )
    yield _case(
        "scan in tiers",
        "int32",
        few,
        lambda x, **options: patterns.tiered_scan.run(x, **options),
        lambda x: np.cumsum(x, dtype=x.dtype),
    )
    yield _case(
        "early exit",
        "int32",
        few,
        lambda x, **options: patterns.early_exit.run(x, **options),
        patterns.early_exit.reference,
        20,
    )
    yield _case(
        "completion function",
        "int64",
        few,
        lambda x, **options: patterns.completion.run(x, **options),
        patterns.completion.reference,
    )
    yield _case(
        "transactions",
        "int32",
        few,
        lambda x, **options: patterns.transactions.run(x, **options),
        patterns.transactions.reference,
    )
    for how in ("token", "parity"):
        yield _case(
            f"300 phases by {how}",
            "int32",
            few // 4,
            lambda x, how=how, **options: patterns.phases.run(x, 300 if large else 9, how=how, **options),
            lambda x: patterns.phases.reference(x, 300 if large else 9),
        )
    for how in patterns.warp_entanglement.HOW:
        yield _case(
            f"a warp's arrivals, {how}",
            "int32",
            32,
            lambda x, how=how, out=None: np.array(patterns.warp_entanglement.run(len(x), how)[0]),
            lambda x: np.array(len(x)),
        )
    yield _case(
        "ping-pong",
        "int32",
        few,
        lambda x, **options: patterns.ping_pong.run(x, **options),
        patterns.ping_pong.reference,
    )
    for method in ("block", "warp", "each", "scan"):
        yield _case(
            f"list by {method}, sorted",
            "int32",
            few,
            _sorted(lambda x, method=method: patterns.output_list.run(x, _KEPT, method=method)),
            lambda x: np.sort(patterns.output_list.reference(x, _KEPT)),
        )
    yield _case(
        "primes, as many as x",
        "int32",
        few,
        _sorted(lambda x: patterns.primes.run(len(x))),
        lambda x: patterns.primes.reference(len(x)),
    )
    yield _case("give to a channel, take half, sorted", "int32", few, _sorted(_through_a_channel), lambda x: np.sort(x))
    yield _case(
        "relay, sorted",
        "int32",
        few if large else 200,
        _sorted(lambda x: patterns.relay.run(x, 1024 if large else 16)),
        patterns.relay.reference,
    )


def _through_a_channel(x) -> np.ndarray:
    """All items of ``x``: half of them taken from a channel, the others as it holds them."""
    channel = patterns.Channel(len(x)).give(x)
    return np.concatenate([channel.take(len(x) // 2), channel.to_numpy()])


def _sorted(run: Callable) -> Callable:
    """A call whose result has the order of the schedule. Under several schedules it runs once for each: a launch would
    find them differ."""

    def call(x, out=None) -> np.ndarray:
        del out
        from ..emulator import emulate, settings
        from ..runtime import device

        how = settings()
        if device.backend() != "emulator" or how.schedules == 1:
            return np.sort(np.asarray(run(x)))
        results = []
        for schedule in map(how.schedule, range(how.schedules)):
            with emulate(schedule.policy, schedule.seed, sanitize=how.sanitize):
                results.append(np.sort(np.asarray(run(x))))
        return next((result for result in results if not np.array_equal(result, results[0])), results[0])

    return call


def _case(operation: str, dtype: str, n: int, call: Callable, expected: Callable, high: int = 1000) -> Case:
    from .demo import Case

    words = f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else str(n)
    return Case(
        operation,
        dtype,
        words,
        lambda generator: (generator.integers(0, high, n).astype(dtype),),
        call,
        expected,
    )
