"""Faults planted in kernels made of the building blocks: the emulator finds each, or the result is wrong."""

import numpy as np
import pytest

from cutesync import emulator

from ..compiled import check, compiled
from . import kernels
from .mutations import survivors

pytestmark = pytest.mark.slow

SCHEDULES = 18
T = kernels.THREADS
X = np.random.default_rng(3).integers(1, 99, 8 * kernels.LENGTH).astype(np.int32)


def zeros(n):
    return np.zeros(n, np.int32)


LENGTH = kernels.LENGTH
# name: host function, arguments, {number of an output among them: what it must be}
KERNELS = {
    "tokens": (kernels.turns, (X, zeros(5 * T), 5, "token"), {1: X[: 5 * T].reshape(5, T)[:, ::-1].ravel()}),
    "parity": (kernels.turns, (X, zeros(5 * T), 5, "parity"), {1: X[: 5 * T].reshape(5, T)[:, ::-1].ravel()}),
    "warps": (kernels.turns, (X, zeros(5 * T), 5, "warp"), {1: X[: 5 * T].reshape(5, T)[:, ::-1].ravel()}),
    "bytes": (kernels.counted_bytes, (X, zeros(64), False), {1: X[:64][::-1]}),
    "completion": (
        kernels.running,
        (X, zeros(3 * T), 3),
        {1: np.repeat(np.cumsum(X[: 3 * T].reshape(3, T).sum(1)), T)},
    ),
    "peers": (
        kernels.peers,
        (zeros(3 * 64), 3),
        {0: [100 * i + 10 * (r ^ 1) + 31 - t for i in range(3) for r in range(2) for t in range(32)]},
    ),
    "named": (kernels.named, (zeros(1), 6), {0: [378]}),
    "ring by threads": (kernels.ring, (X, zeros(8 * LENGTH), 8, "threads", 3, 1, 2), {1: X + 1}),
    "ring by bulk copies": (kernels.ring, (X, zeros(8 * LENGTH), 8, "bulk", 3, 1, 2), {1: X + 1}),
    "ring by tensor copies": (kernels.ring, (X, zeros(8 * LENGTH), 8, "tensor", 3, 1, 2), {1: X + 1}),
    "grid": (kernels.grid, (zeros(3 * 128), zeros(128), zeros(1), 3, 2), {1: None}),
}
OWN_THREADS = "only threads of the block use the barrier, and the block barrier orders them"
TWO_FENCES = "the other fence of thread 0 serves the barriers that copies signal"
HARMLESS = (
    {(name, "no init fence #0"): OWN_THREADS for name in ("tokens", "parity", "warps", "completion", "ring by threads")}
    | {
        ("ring by threads", "no init fence #1"): OWN_THREADS,
        ("ring by threads", "no init fence at all"): OWN_THREADS,
        (
            "peers",
            "no init fence #0",
        ): "the cluster barrier releases the initialisation to the other block's threads; no copy is involved",
        ("bytes", "a relaxed arrival #0"): "the copy has written everything there is to see",
        ("ring by tensor copies", "no sync_warp #0"): "the tensor copy elects a lane, for which the warp meets",
    }
    | {(f"ring by {kind} copies", f"no init fence #{i}"): TWO_FENCES for kind in ("bulk", "tensor") for i in range(2)}
)


def expected(name: str) -> dict:
    function, arguments, wanted = KERNELS[name]
    if all(want is not None for want in wanted.values()):
        return wanted
    fresh = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    check(function, *fresh, schedules=1)
    return {i: fresh[i] for i in wanted}


@pytest.mark.parametrize("name", ["ring by bulk copies", "ring by tensor copies"])
def test_a_ring_released_without_a_proxy_fence(name):
    function, arguments, _ = KERNELS[name]
    kernel = compiled(function, *arguments)
    fence = "fence.proxy.async.shared::cta;"
    assert fence in kernel.__ptx__
    with pytest.raises(emulator.EmulationError) as found, emulator.emulate(schedules=SCHEDULES):
        emulator.call(kernel, function, *arguments, edit=lambda text: text.replace(fence, ""))
    assert found.value.kind == "proxy-read"


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    function, arguments, _ = KERNELS[name]
    wanted = expected(name)
    kernel = compiled(function, *arguments)

    def right(text: str) -> bool:
        fresh = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with emulator.emulate(schedules=SCHEDULES):
            emulator.call(kernel, function, *fresh, edit=lambda _: text)
        return all(np.array_equal(fresh[i], want) for i, want in wanted.items())

    assert right(kernel.__ptx__)
    alive = survivors(kernel.__ptx__, right)
    assert sorted(alive) == sorted(mutant for kernel, mutant in HARMLESS if kernel == name)
