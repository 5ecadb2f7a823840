"""The pattern kernels: the cases, the bars, and what each is measured beside. Run by ``python perf/sweep.py patterns``.

Groups: ``stream`` (out = f(in) by producer and consumers: bulk copies, beside the two-buffer forms), ``queue`` (the elements to keep of
2**26 int32: one atomic a block, beside one a warp and one an item) and ``primes`` (the three ways to list them). Bytes: what must be read and
what is written. The round trip of a barrier is no array problem: ``cutesync.patterns.round_trip.run()`` gives it in cycles.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from case import Bar, Case
from reduce import power

DTYPES = ("int32", "float32")
GROUPS = ("stream", "queue", "primes")
OURS = "cutesync"
BASELINES = ("tokens", "parity", "pipeline", "warp", "each", "scan")
ROOFS = ("copy",)
RIVALS = ("torch",)

STREAM_SIZES = (1 << 20, 1 << 24, 1 << 28)
QUEUE_SIZE, PRIME_LIMIT = 1 << 26, 1 << 28
DOUBLE = lambda v: v * 2 + 1  # noqa: E731
EVEN = lambda v: (v & 1) == 0  # noqa: E731


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replace those of the ``stream`` group."""
    found = []
    for n in sizes or ((1 << 24, 1 << 28) if quick else STREAM_SIZES):
        bars = (Bar("copy", 0.95, "rate"),) if n >= 1 << 28 else ()
        beside = ("tokens", "parity", "pipeline") if n >= 1 << 28 and not quick else ()
        outputs = (((n,), "float32"),)
        found.append(Case("stream", f"2x + 1 float32 {power(n)}", "stream", (((n,), "float32"),), outputs, 8 * n, (OURS, *beside, *ROOFS, *RIVALS), bars))
    n, kept = QUEUE_SIZE, int(np.count_nonzero(EVEN(block(QUEUE_SIZE))))
    bars = (Bar("floor", 0.8, "rate"), Bar("each", 0.05))
    found.append(Case("queue", f"even ones of {power(n)} int32", "queue", (((n,), "int32"),), (((n,), "int32"),), 4 * (n + kept), (OURS, "warp", "each", *ROOFS, *RIVALS), bars))
    if not quick:
        small, count = table(), len(primes())
        found.append(Case("primes", f"below {power(PRIME_LIMIT)}", "primes", (((len(small),), "int32"),), (((count,), "int32"),), 4 * count, (OURS, "warp", "each", "scan", *ROOFS)))
    return [case for case in found if not dtypes or case.dtype in dtypes]


# Data and the NumPy reference


@lru_cache(maxsize=1)
def block(n: int) -> np.ndarray:
    return np.resize(np.random.default_rng(2026).integers(0, 1 << 30, (1 << 22) + 3, "int32"), n)


def table() -> np.ndarray:
    from cutesync.patterns import primes as module

    return module.table(PRIME_LIMIT)


@lru_cache(maxsize=1)
def primes() -> np.ndarray:
    from cutesync.patterns import primes as module

    return module.reference(PRIME_LIMIT)


def data(case: Case) -> list[np.ndarray]:
    if case.op == "primes":
        return [table()]
    host = block(case.size)
    return [host if case.op == "queue" else host.astype(np.float32) / (1 << 20)]


def reference(case: Case, hosts: list[np.ndarray]):
    """The result; a list in ascending order."""
    if case.op == "primes":
        return primes()
    return DOUBLE(hosts[0]) if case.op == "stream" else np.sort(hosts[0][EVEN(hosts[0])])


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    """How many entries are wrong; a list may come in any order, and its buffer may be longer."""
    found = got if got.dtype == np.float32 else np.sort(got[: expected.size])
    wrong = int(np.count_nonzero(found != expected)) if found.shape == expected.shape else expected.size
    return float(wrong), not wrong


# The contestants: each factory returns a call that only enqueues


def _stream(form: str):
    def factory(case, slot, libraries):
        run, stream = libraries.cutesync.patterns.producer_consumer.run, libraries.stream
        x, out = libraries.ours(slot.inputs[0]), libraries.ours(slot.outputs[0])
        return lambda: run(x, DOUBLE, form=form, out=out, stream=stream)

    return factory


def _list(method: str):
    """A list by atomics into the output, the state cleared by a copy of zeros before."""

    def factory(case, slot, libraries):
        from cutesync.dtypes import INT32, INT64
        from cutesync.patterns import channel, primes
        from cutesync.patterns.host import callable_key, launch

        gpu, handle = libraries.gpu, libraries.gpu.stream.address
        zeros, state = (gpu.allocate(16) for _ in range(2))
        gpu.upload(zeros, np.zeros(2, np.int64))
        slot.pointers += [zeros, state]
        if case.op == "queue":
            n, tile = case.size, channel.ITEMS * channel.THREADS
            key = ("channel_give", method, channel.ITEMS, channel.THREADS, *callable_key(EVEN, "keep"))

            def host():
                from cutesync.patterns.channel_kernels import Give

                return Give(EVEN, INT32, method, channel.ITEMS, channel.THREADS)
        else:
            n, tile, key = PRIME_LIMIT, primes.ITEMS * primes.THREADS, ("primes", method)

            def host():
                return primes.kernels(method)

        room = slot.outputs[0].shape[0]
        values = (slot.inputs[0].pointer, slot.outputs[0].pointer, state, n, room)

        def call():
            gpu.copy(state, zeros, 16)
            launch(host, key, values, (INT32, INT32, INT64), -(-n // tile), 0, handle)

        return call

    return factory


def ours(case, slot, libraries):
    return (_stream("bulk") if case.op == "stream" else _list("block"))(case, slot, libraries)


def scan(case, slot, libraries):
    """Flags, a scan, a scatter; the call waits in between for the length of the list."""
    from cutesync.dtypes import INT32
    from cutesync.patterns import output_list, primes
    from cutesync.patterns.host import Call

    small, stream = libraries.ours(slot.inputs[0]), libraries.stream
    return lambda: output_list.listed(Call(small, stream), PRIME_LIMIT, INT32, primes.kernels, ("primes",), "scan", True, primes.room(PRIME_LIMIT), primes.ITEMS * primes.THREADS)


def torch(case, slot, libraries):
    """What torch has: a multiplication and an addition of two passes; a selection by a mask, which waits for its length."""
    library, x = libraries.torch, libraries.torch_view(slot.inputs[0])
    out = libraries.torch_view(slot.outputs[0])
    if case.op == "stream":
        return lambda: library.mul(x, 2, out=out).add_(1)

    def call():
        slot.result = library.masked_select(x, (x & 1) == 0)

    return call


CONTESTANTS = {
    OURS: ours, "tokens": _stream("tokens"), "parity": _stream("parity"), "pipeline": _stream("pipeline"), "warp": _list("warp"), "each": _list("each"),
    "scan": scan, "torch": torch,
}  # fmt: skip
