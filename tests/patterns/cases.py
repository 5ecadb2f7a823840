"""Every pattern in every form: how to call it, what NumPy says, and how large it may get on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutesync import patterns


def triple(value):
    return value * 3 + 1


def thirds(value):
    return value % 3 == 0


def numbers(n: int, dtype="int32", high=1000) -> np.ndarray:
    return np.random.default_rng(n).integers(0, high, n).astype(dtype)


@dataclass(frozen=True)
class Pattern:
    """``run(x)`` and ``wanted(x)``; ``make(n)`` gives ``x``.

    ``ordered``: the result does not depend on the schedule. ``sizes``: for the emulator.
    """

    run: Callable
    wanted: Callable
    make: Callable = numbers
    ordered: bool = True
    sizes: tuple[int, ...] = (1, 700)


def stream(form: str, dtype: str = "float32", sizes=(1, 63, 1500), **options) -> Pattern:
    module = patterns.producer_consumer
    return Pattern(
        lambda x: module.run(x, triple, form=form, **options),
        lambda x: module.reference(x, triple),
        lambda n: numbers(n, dtype, 30),
        sizes=sizes,
    )


def scanned(counts: np.ndarray) -> np.ndarray:
    """The second launch of a compaction alone: exclusive sums of counts, and the sum of all."""
    from cutesync.patterns.compaction import ScanCounts
    from cutesync.patterns.host import Step, Task, call

    return call(lambda x, _: Task(x, Step(ScanCounts), shape=(x.size + 1,)), counts, None, None)


PATTERNS = (
    {
        "bulk": stream("bulk", stages=2, buffer=1024, consumers=2, blocks=2),
        "bulk, halves": stream("bulk", "float16", stages=3, buffer=512, consumers=1, blocks=1),
        "bulk, three consumers": stream("bulk", "int64", stages=4, buffer=1536, consumers=3, blocks=3),
        "tokens": stream("tokens", buffer=100, consumers=2, blocks=2),
        "parity": stream("parity", "int8", buffer=77, consumers=3, blocks=1),
        "pipeline": stream("pipeline", buffer=128, consumers=2, blocks=2),
        "tiered scan": Pattern(
            lambda x: patterns.tiered_scan.run(x), lambda x: patterns.tiered_scan.reference(x), sizes=(1, 4100)
        ),
        "early exit": Pattern(
            lambda x: patterns.early_exit.run(x),
            lambda x: patterns.early_exit.reference(x),
            lambda n: numbers(n, high=7),
            sizes=(1, 300),
        ),
        "completion": Pattern(
            lambda x: patterns.completion.run(x), lambda x: patterns.completion.reference(x), sizes=(1, 129, 500)
        ),
        "completion, int64": Pattern(
            lambda x: patterns.completion.run(x),
            lambda x: patterns.completion.reference(x),
            lambda n: numbers(n, "int64"),
            sizes=(300,),
        ),
        "transactions, copy": Pattern(
            lambda x: patterns.transactions.run(x), lambda x: patterns.transactions.reference(x), sizes=(1, 512, 700)
        ),
        "transactions, by hand": Pattern(
            lambda x: patterns.transactions.run(x, copy=False),
            lambda x: patterns.transactions.reference(x),
            sizes=(3, 600),
        ),
        "ping pong": Pattern(
            lambda x: patterns.ping_pong.run(x), lambda x: patterns.ping_pong.reference(x), sizes=(1, 128, 129, 700)
        ),
    }
    | {
        f"phases by {how}": Pattern(
            lambda x, how=how: patterns.phases.run(x, 9, how=how, threads=64),
            lambda x: patterns.phases.reference(x, 9, 64),
            sizes=(1, 100),
        )
        for how in ("token", "parity", "sync_threads")
    }
    | {
        form: Pattern(
            lambda x, form=form: patterns.divergence.run(x, form, work=3),
            lambda x, form=form: patterns.divergence.reference(x, form, 3),
            sizes=(300,),
        )
        for form in ("straight", "mixed", "regrouped")
    }
    | {
        form: Pattern(
            lambda x, form=form: patterns.reductions.run(x, form),
            lambda x, form=form: patterns.reductions.reference(x, form),
            sizes=(1, 256, 1100),
        )
        for form in ("shared_tree", "register_tree", "launch_per_level", "chained", "block_atomic")
    }
    | {
        "block_atomic, float64": Pattern(
            lambda x: patterns.reductions.run(x, "block_atomic"),
            lambda x: patterns.reductions.reference(x),
            lambda n: numbers(n, "float64"),
            sizes=(300,),
        ),
    }
    | {
        f"list by {method}": Pattern(
            lambda x, method=method: patterns.output_list.run(x, thirds, method=method),
            lambda x: patterns.output_list.reference(x, thirds),
            ordered=method == "scan",
            sizes=(1, 31, 5000),
        )
        for method in ("block", "warp", "each", "scan")
    }
    | {
        f"primes by {method}": Pattern(
            lambda x, method=method: patterns.primes.run(len(x), method=method),
            lambda x: patterns.primes.reference(len(x)),
            ordered=method == "scan",
            sizes=(1, 3, 1300),
        )
        for method in ("block", "warp", "each", "scan")
    }
    | {
        f"warp that arrives {how}": Pattern(
            lambda x, how=how: patterns.warp_entanglement.run(7, how)[:1], lambda x: (7,), ordered=False, sizes=(1,)
        )
        for how in ("converged", "warp", "diverged")
    }
    | {
        "scan of counts": Pattern(
            scanned, lambda x: np.append(0, np.cumsum(x)), lambda n: numbers(n, "int64", 1 << 40), sizes=(1, 1500)
        ),
        "relay": Pattern(
            lambda x: patterns.relay.run(x, 16, items=60),
            lambda x: patterns.relay.reference(x),
            ordered=False,
            sizes=(1, 90),
        ),
        "round trip": Pattern(
            lambda x: list(patterns.round_trip.run(3, threads=64)),
            lambda x: list(patterns.round_trip.WAYS),
            ordered=False,
            sizes=(1,),
        ),
        "relay of one slot": Pattern(
            lambda x: patterns.relay.run(x, 1, items=12),
            lambda x: patterns.relay.reference(x),
            ordered=False,
            sizes=(24,),
        ),
    }
)


def same(got, wanted, ordered: bool) -> bool:
    got, wanted = np.asarray(got), np.asarray(wanted)
    if not ordered:
        got, wanted = np.sort(got), np.sort(wanted)
    return got.dtype == wanted.dtype and np.array_equal(got, wanted)
