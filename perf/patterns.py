"""Every pattern kernel: the cases, the bars, the other forms. Run by ``python perf/sweep.py patterns``.

  stream  out = f(in) by producer and consumers: bulk copies, beside the forms with two buffers
  queue   the elements to keep of 2**26 int32: one atomic a block, beside one a warp and one an item
  primes  the three ways to list those below 2**28
  tiers   a scan by launches, beside the single pass
  small   the rest, each beside its other forms

Bytes: what must be read and what is written. The round trip of a barrier is no array problem: ``figures`` gives its
cycles. The first contestant is the form to use; the others are named by their form. A call that waits for a length
(lists by scan, the relay's upload of its state) is timed with its wait.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from case import Bar, Case
from gpu import Array
from reduce import power

DTYPES = ("int32", "float32")
GROUPS = ("stream", "queue", "primes", "tiers", "small")
OURS = "cutesync"
ROOFS = ("copy",)
RIVALS = ("torch",)

STREAM_SIZES, QUICK_STREAM = (1 << 20, 1 << 24, 1 << 28), (1 << 24, 1 << 26)
QUEUE_SIZE, PRIME_LIMIT, SCAN_SIZE, SMALL_SIZE = 1 << 26, 1 << 28, 1 << 28, 1 << 20
DOUBLE = lambda v: v * 2 + 1  # noqa: E731
KEPT: dict[str, Callable] = {"even ones": lambda v: (v & 1) == 0, "all": lambda v: v >= 0}

# Of the small patterns: the form to use, the others, and the call. ``x`` is int32; so is ``out`` if it has its shape.
SMALL: dict[str, tuple[str, tuple[str, ...], Callable]] = {
    "divergence": ("regrouped", ("mixed", "straight"), lambda module, form, x, **more: module.run(x, form, **more)),
    "reductions": (
        "chained",
        ("block_atomic", "launch_per_level"),
        lambda module, form, x, **more: module.run(x, form, stream=more["stream"]),
    ),
    "early_exit": ("", (), lambda module, form, x, **more: module.run(x, **more)),
    "completion": ("", (), lambda module, form, x, **more: module.run(x, stream=more["stream"])),
    "transactions": (
        "a copy",
        ("no copy",),
        lambda module, form, x, **more: module.run(x, copy=form == "a copy", **more),
    ),
    "phases": (
        "parity",
        ("token", "sync_threads"),
        lambda module, form, x, **more: module.run(x, PHASES, how=form, **more),
    ),
    "ping_pong": ("", (), lambda module, form, x, **more: module.run(x, stream=more["stream"])),
    "output_list": (
        "block",
        ("warp", "each", "by scan"),
        lambda module, form, x, **more: module.run(
            x, KEPT["even ones"], method=form.split()[-1], stream=more["stream"]
        ),
    ),
    "relay": ("", (), lambda module, form, x, **more: module.run(x, 1 << 14, stream=more["stream"])),
}
PHASES = 300
BASELINES = (
    "tokens",
    "parity",
    "pipeline",
    "warp",
    "each",
    "by scan",
    "one pass",
    *(form for _, others, _ in SMALL.values() for form in others),
)


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replace those of the ``stream`` group."""
    found = []
    for n in sizes or (QUICK_STREAM if quick else STREAM_SIZES):
        beside = ("tokens", "parity", "pipeline") if n >= STREAM_SIZES[-1] or quick else ()
        bars = (Bar("copy", 0.95, "rate"),) if n >= STREAM_SIZES[-1] else ()
        names = (OURS, *beside, *ROOFS, *RIVALS)
        found.append(
            _vector("stream", f"2x + 1 float32 {power(n)}", "producer_consumer", n, "float32", 8 * n, names, bars)
        )
    for kept, keep in list(KEPT.items())[: 1 if quick else None]:
        n, count = QUEUE_SIZE, int(np.count_nonzero(keep(block(QUEUE_SIZE))))
        bars, names = (Bar("floor", 0.8, "rate"), Bar("each", 0.05)), (OURS, "warp", "each", *ROOFS, *RIVALS)
        title = f"{kept} of {power(n)} int32"
        found.append(_vector("queue", title, f"give {kept}", n, "int32", 4 * (n + count), names, bars))
    if not quick:
        found.append(_prime_case())
    n = QUICK_STREAM[-1] if quick else SCAN_SIZE
    title, names = f"running sum float32 {power(n)}", (OURS, "one pass", *ROOFS)
    found.append(_vector("tiers", title, "tiered_scan", n, "float32", 8 * n, names))
    for name, (_, others, _) in SMALL.items():
        slow = name in ("relay", "completion", "ping_pong", "early_exit", "phases")  # here or in NumPy
        n = SMALL_SIZE // 4 if slow else SMALL_SIZE
        found.append(_vector("small", f"{name.replace('_', ' ')} {power(n)}", name, n, "int32", 8 * n, (OURS, *others)))
    return [case for case in found if not dtypes or case.dtype in dtypes]


def _prime_case() -> Case:
    small, count = table(), len(primes())
    inputs, outputs = (((len(small),), "int32"),), (((count,), "int32"),)
    names = (OURS, "warp", "each", "by scan", *ROOFS)
    title = f"primes below {power(PRIME_LIMIT)}"
    return Case("primes", title, "primes", inputs, outputs, 4 * count, names, once=True)


def _vector(
    group: str, name: str, op: str, n: int, dtype: str, moved: int, contestants: tuple, bars: tuple = ()
) -> Case:
    return Case(group, name, op, (((n,), dtype),), (((n,), dtype),), moved, contestants, bars, once=group == "small")


# Data and the NumPy reference


@lru_cache(maxsize=1)
def block(n: int) -> np.ndarray:
    return np.resize(np.random.default_rng(2026).integers(0, 1 << 20, (1 << 22) + 3, "int32"), n)


def module(name: str):
    return importlib.import_module(f"cutesync.patterns.{name}")


@lru_cache(maxsize=1)
def table() -> np.ndarray:
    return module("primes").table(PRIME_LIMIT)


@lru_cache(maxsize=1)
def primes() -> np.ndarray:
    return module("primes").reference(PRIME_LIMIT)


def data(case: Case) -> list[np.ndarray]:
    if case.op == "primes":
        return [table()]
    x = block(case.size)
    if case.op == "tiered_scan":
        x = x % 4 == 0  # zeros and ones, a quarter ones: the checked sums, below 2**24, are exact in float32
    return [x % 200 if case.op == "early_exit" else x.astype(case.dtype)]


def reference(case: Case, hosts: list[np.ndarray]):
    """The result; a list in ascending order, a long one as counts of its values."""
    x, pattern = hosts[0], case.op
    if pattern == "primes":
        return primes()
    if pattern == "producer_consumer":
        return DOUBLE(x)
    if pattern.startswith("give "):
        return np.bincount(x[KEPT[pattern[5:]](x)])
    if pattern == "tiered_scan":
        return np.cumsum(x[: 1 << 25])
    if pattern == "output_list":
        return np.sort(x[KEPT["even ones"](x)])
    if pattern == "phases":
        return module(pattern).reference(x, PHASES)
    return module(pattern).reference(x)


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    """How many entries are wrong.

    A list of integers may come in any order, or ``expected`` (int64) says how often each value must be there. A buffer
    may be longer than what is checked.
    """
    if got.dtype == np.int32 and np.ndim(expected) and expected.dtype == np.int64:
        got = np.bincount(got[: expected.sum()] & 0xFFFFF, minlength=expected.size)
    expected, got = np.atleast_1d(expected), np.atleast_1d(got)[: np.size(expected)]
    wrong = got.size and int(np.count_nonzero(got != expected))
    if wrong and got.dtype == np.int32:
        wrong = int(np.count_nonzero(np.sort(got) != expected))
    wrong = wrong if got.shape == expected.shape else expected.size
    return float(wrong), not wrong


# The contestants: each factory returns a call that only enqueues


def _stream(form: str):
    def factory(case, slot, libraries):
        run, stream = module("producer_consumer").run, libraries.stream
        x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
        return lambda: run(x, DOUBLE, form=form, out=out, stream=stream)

    return factory


def _list(method: str):
    """A list by atomics into the output, the state cleared by a copy of zeros before."""

    def factory(case, slot, libraries):
        from cutesync.dtypes import INT32
        from cutesync.patterns import channel, primes
        from cutesync.patterns.host import Step, Task, call

        gpu, handle = libraries.gpu, libraries.gpu.stream.address
        zeros, state = (gpu.allocate(16) for _ in range(2))
        gpu.upload(zeros, np.zeros(2, np.int64))
        slot.pointers += [zeros, state]
        if case.op == "primes":
            n, tile = PRIME_LIMIT, primes.ITEMS * primes.THREADS

            def make(dtype):
                return primes.kernels(method, dtype)
        else:
            keep, n = KEPT[case.op[5:]], case.size
            items, vector = channel.shares(INT32, slot.inputs[0].pointer)
            tile = items * channel.THREADS

            def make(dtype):
                from cutesync.patterns.channel_kernels import Give

                return Give(keep, dtype, method, items, channel.THREADS, vector)

        room = slot.outputs[0].shape[0]
        x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
        words = libraries.ours(Array(state, (2,), np.int64))

        def task(x, _):
            return Task(x, Step(make, tile, n, room), shape=(room,))

        def enqueue():
            gpu.copy(state, zeros, 16)
            call(task, x, out, handle, words)

        return enqueue

    return factory


def _primes_by_scan(case, slot, libraries):
    """Flags, a scan, a scatter; the call waits in between for the length of the list."""
    from cutesync.dtypes import INT32
    from cutesync.patterns import output_list, primes

    small, handle = libraries.ours(slot.inputs[0]), libraries.gpu.stream.address
    tile, room = primes.ITEMS * primes.THREADS, primes.room(PRIME_LIMIT)

    def call():
        slot.result = output_list.listed(small, PRIME_LIMIT, INT32, primes.kernels, tile, "scan", room, handle)

    return call


def _scan(algorithm: str):
    def factory(case, slot, libraries):
        scan, stream = libraries.cutesync.scan, libraries.stream
        x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
        return lambda: scan(x, algorithm=algorithm, out=out, stream=stream)

    return factory


def _small(form: str | None):
    """A small pattern in one form, or (None) in that to use."""

    def factory(case, slot, libraries):
        first, _, run = SMALL[case.op]
        pattern, stream, x = module(case.op), libraries.stream, libraries.ours(slot.inputs[0])
        form_ = first if form is None else form
        if case.op in ("divergence", "early_exit", "transactions", "phases"):
            out = libraries.ours(slot.outputs[0])
            return lambda: run(pattern, form_, x, out=out, stream=stream)

        def call():
            slot.result = run(pattern, form_, x, stream=stream)

        return call

    return factory


def ours(case, slot, libraries):
    factories = {"producer_consumer": _stream("bulk"), "primes": _list("block"), "tiered_scan": _scan("tiered")}
    chosen = _list("block") if case.op.startswith("give ") else factories.get(case.op) or _small(None)
    return chosen(case, slot, libraries)


def either(of_lists: Callable, of_the_rest: Callable) -> Callable:
    """A form that the lists of ``queue`` and ``primes`` have, and a small pattern too."""
    return lambda case, slot, libraries: (of_the_rest if case.group == "small" else of_lists)(case, slot, libraries)


def torch(case, slot, libraries):
    """What torch has: multiplication and addition in two passes; a selection by a mask, which waits for its length."""
    library, x = libraries.torch, libraries.torch_view(slot.inputs[0])
    out = libraries.torch_view(slot.outputs[0])
    if case.op == "producer_consumer":
        return lambda: library.mul(x, 2, out=out).add_(1)
    keep = KEPT[case.op[5:]]

    def call():
        slot.result = library.masked_select(x, keep(x))

    return call


CONTESTANTS = {form: _small(form) for _, others, _ in SMALL.values() for form in others} | {
    OURS: ours,
    "tokens": _stream("tokens"),
    "parity": _stream("parity"),
    "pipeline": _stream("pipeline"),
    "one pass": _scan("auto"),
    "torch": torch,
    "warp": either(_list("warp"), _small("warp")),
    "each": either(_list("each"), _small("each")),
    "by scan": either(_primes_by_scan, _small("by scan")),
}


# What is counted in cycles

THREADS = 256
BAR = 1.3


def figures() -> list[dict]:
    """Cycles of a barrier's round trip in each way, over those of ``sync_threads``, and of a warp's arrivals."""
    trips, warps = module("round_trip"), module("warp_entanglement")
    cycles = min((trips.run(5000, threads=THREADS) for _ in range(3)), key=lambda found: sum(found.values()))
    found = [
        {
            "name": f"round trip of {THREADS} threads: {way}",
            "cycles": count,
            "over sync_threads": count / cycles["sync_threads"],
        }
        for way, count in cycles.items()
    ]
    best = next(row for row in found if row["name"].endswith("arrive_and_wait"))
    best["bar"] = {
        "text": f"arrive_and_wait <= {BAR} x sync_threads",
        "value": best["over sync_threads"],
        "met": best["over sync_threads"] <= BAR,
    }
    for how in warps.HOW:
        found.append({"name": f"a warp's arrivals, {how}", "cycles": warps.run(5000, how)[1]})
    return found
