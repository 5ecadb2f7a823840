"""Kernels made of the building blocks, with arguments and the right results."""

import functools

import numpy as np

import cutesync as cs
from cutesync import emulator

from .. import faults
from ..compiled import compiled
from . import kernels, kernels_queue

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


def ring(how: str, producers: int, stages: int, consumers: int, fills: int) -> tuple:
    n = fills * LENGTH
    return kernels.ring, (X[:n], zeros(n), fills, how, stages, producers, consumers), {1: X[:n] + 1}


# the other ways of the blocks, and other sizes
WAYS = {
    **{
        f"turns, {how}": (kernels.turns, (X, zeros(7 * T), 7, how), {1: X[: 7 * T].reshape(7, T)[:, ::-1].ravel()})
        for how in ("both", "test_wait")
    },
    "a barrier made again once it is given back": (kernels.lifecycle, (zeros(T),), {0: np.arange(T)}),
    "bytes by hand": (kernels.counted_bytes, (X, zeros(64), True), {1: X[:64][::-1]}),
    "threads that drop": (kernels.leaving, (zeros(T), False), {0: np.arange(T) // 32 + 1}),
    "threads that drop, with a completion function": (kernels.leaving, (zeros(T), True), {0: np.full(T, 3)}),
    "roles with registers": (
        kernels.budgets,
        (zeros(256),),
        {0: np.where(np.arange(256) < 128, 100 + np.arange(256) // 32, 196 + np.arange(256) // 32)},
    ),
    "ring by threads, 2 producers": ring("threads", 2, 4, 3, 5),
    "ring by threads, 1 stage": ring("threads", 1, 1, 1, 3),
    "ring by bulk copies, 3 consumers": ring("bulk", 1, 4, 3, 5),
    "ring by bulk copies, 1 stage": ring("bulk", 1, 1, 1, 3),
    "ring by tensor copies, 1 consumer": ring("tensor", 1, 4, 1, 5),
    "ring by cp.async": ring("cp_async", 1, 3, 2, 8),
    "ring by cp.async, 1 stage": ring("cp_async", 1, 1, 1, 3),
    "ring by cp.async, 2 producers": ring("cp_async", 2, 1, 2, 2),
}


# "lagging_lane" runs a lane that has fallen behind only when all others wait, here never
POLICIES = [policy for policy in emulator.POLICIES if policy != "lagging_lane"]
BLOCKS = 2
N = BLOCKS * kernels_queue.THREADS


@functools.cache
def queue(log: int) -> faults.Bench:
    """Every item taken once, both ends moved by as many places, and every slot's turn that of its next lap."""
    capacity = 1 << log
    sizes = ((capacity, np.int32), (capacity, np.int32), (2, np.int64), (N, np.int32))
    kernel = compiled(kernels_queue.at_once, *(np.zeros(n, t) for n, t in sizes), log, BLOCKS)

    def right() -> bool:
        for policy in POLICIES:
            _, turns, state, out = fresh = [np.zeros(n, t) for n, t in sizes]
            with emulator.emulate(policy, seed=log, max_steps=20_000):
                emulator.call(kernel, kernels_queue.at_once, *fresh, log, BLOCKS)
            if not ((out == 1).all() and (state == N).all() and (turns == 2 * N // capacity).all()):
                return False
        return True

    return faults.Bench(right)


def launched(function, arguments) -> list[np.ndarray]:
    """The arrays among ``arguments`` after a launch on the GPU."""
    held = [cs.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    cs.launch(function, *held)
    return [np.asarray(h) if isinstance(a, np.ndarray) else h for a, h in zip(arguments, held)]
