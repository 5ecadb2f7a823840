"""Kernels made of the building blocks, with arguments and the right results."""

import numpy as np

import cutesync as cs

from . import kernels

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


def launched(function, arguments) -> list[np.ndarray]:
    """The arrays among ``arguments`` after a launch on the GPU."""
    held = [cs.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    cs.launch(function, *held)
    return [np.asarray(h) if isinstance(a, np.ndarray) else h for a, h in zip(arguments, held)]
