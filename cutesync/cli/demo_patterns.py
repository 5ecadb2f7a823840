"""The patterns of the demo, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .. import patterns
from ..emulator import emulate, settings
from ..runtime import backend
from .demo_case import Case


def _consumed(v):
    return v * 2 + 1


def _kept(v):
    return v % 3 == 0


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``: "gpu" (large), "emulator" (small) or "nowhere" (the large shapes, to be
    compiled)."""
    large = place != "emulator"
    few = 1 << 20 if large else 600
    yield from _forms(1 << 24 if large else 3000, few)
    yield from _synchronization(few, 300 if large else 9)
    yield from _lists(few)
    steps, length = (1024, few) if large else (16, 200)
    relay = patterns.relay
    yield _case("relay, sorted", "int32", length, _sorted(lambda x: relay.run(x, steps)), relay.reference)


def _forms(n: int, few: int) -> Iterator[Case]:
    """Yield the patterns that compare forms of one computation."""
    stream, divergence, sums = patterns.producer_consumer, patterns.divergence, patterns.reductions
    for form in stream.FORMS:
        yield _case(
            f"producer, consumers: {form}",
            "float32",
            n,
            lambda x, form=form, **options: stream.run(x, _consumed, form=form, **options),
            lambda x: stream.reference(x, _consumed),
        )
    for form in divergence.FORMS:
        yield _case(
            f"divergence: {form}",
            "int32",
            few,
            lambda x, form=form, **options: divergence.run(x, form, work=8, **options),
            lambda x, form=form: divergence.reference(x, form, 8),
        )
    for form in sums.FORMS:
        yield _case(
            f"sums: {form}",
            "int32",
            few,
            lambda x, form=form, out=None: sums.run(x, form),
            lambda x, form=form: sums.reference(x, form),
        )


def _synchronization(few: int, count: int) -> Iterator[Case]:
    """Yield the patterns that show one means of synchronization each; ``count`` is a number of phases."""
    tiers, phases, entangled = patterns.tiered_scan, patterns.phases, patterns.warp_entanglement
    yield from (
        _case("scan in tiers", "int32", few, tiers.run, lambda x: np.cumsum(x, dtype=x.dtype)),
        _case("early exit", "int32", few, patterns.early_exit.run, patterns.early_exit.reference, 20),
        _case("completion function", "int64", few, patterns.completion.run, patterns.completion.reference),
        _case("transactions", "int32", few, patterns.transactions.run, patterns.transactions.reference),
    )
    for how in ("token", "parity"):
        yield _case(
            f"300 phases by {how}",
            "int32",
            few // 4,
            lambda x, how=how, **options: phases.run(x, count, how=how, **options),
            lambda x: phases.reference(x, count),
        )
    for how in entangled.HOW:
        yield _case(
            f"a warp's arrivals, {how}",
            "int32",
            32,
            lambda x, how=how, out=None: np.array(entangled.run(len(x), how)[0]),
            lambda x: np.array(len(x)),
        )
    yield _case("ping-pong", "int32", few, patterns.ping_pong.run, patterns.ping_pong.reference)


def _lists(few: int) -> Iterator[Case]:
    """Yield the patterns whose results have the order of the schedule."""
    lists, primes = patterns.output_list, patterns.primes
    for method in ("block", "warp", "each", "scan"):
        yield _case(
            f"list by {method}, sorted",
            "int32",
            few,
            _sorted(lambda x, method=method: lists.run(x, _kept, method=method)),
            lambda x: np.sort(lists.reference(x, _kept)),
        )
    found = _sorted(lambda x: primes.run(len(x)))
    yield _case("primes, as many as x", "int32", few, found, lambda x: primes.reference(len(x)))
    yield _case("give to a channel, take half, sorted", "int32", few, _sorted(_through_a_channel), np.sort)


def _through_a_channel(x) -> np.ndarray:
    """Return all items of ``x``: half of them are taken from a channel, the others are read from its memory."""
    channel = patterns.Channel(len(x)).give(x)
    return np.concatenate([channel.take(len(x) // 2), channel.to_numpy()])


def _sorted(run: Callable) -> Callable:
    """Return a call that sorts the result of ``run``, whose order depends on the schedule. With several schedules,
    ``run`` is called once for each, as one launch under all of them would report that results differ."""

    def call(x, out=None) -> np.ndarray:
        how = settings()
        if not backend.current().on_host or how.schedules == 1:
            return np.sort(np.asarray(run(x)))
        results = []
        for schedule in map(how.schedule, range(how.schedules)):
            with emulate(schedule.policy, schedule.seed, sanitize=how.sanitize):
                results.append(np.sort(np.asarray(run(x))))
        return next((result for result in results if not np.array_equal(result, results[0])), results[0])

    return call


def _case(operation: str, dtype: str, n: int, call: Callable, expected: Callable, high: int = 1000) -> Case:
    words = f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else str(n)
    return Case(operation, dtype, words, lambda g: (g.integers(0, high, n).astype(dtype),), call, expected)
