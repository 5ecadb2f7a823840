"""The correct kernels of the emulator's tests, with arguments and the right results."""

import numpy as np

from . import (
    kernels_basic as basic,
    kernels_cluster as cluster,
    kernels_matmul as matmul,
    kernels_overlap as overlap,
    kernels_pipeline as pipeline,
)

random = np.random.default_rng(11)


def i32(n):
    return np.zeros(n, np.int32)


X = random.integers(1, 9, 640).astype(np.int32)
TILES = random.random((7 * pipeline.ROWS, pipeline.COLUMNS), np.float32)
CAST = random.random((cluster.TILES * cluster.ROWS, cluster.COLUMNS), np.float32)
A, B = (random.integers(-3, 4, (64, 256)).astype(np.float16) for _ in range(2))


def described(n: int, fault: str | None = None) -> tuple:
    x, words = random.integers(-(1 << 40), 1 << 40, n), np.zeros(2 * (n // 32 + 2), np.uint64)
    words = words[words.ctypes.data // 8 % 2 :]  # 16-byte descriptors start at multiples of 16
    return basic.descriptors, (x, np.zeros(n, np.int64), words, i32(1), n, fault), {1: np.cumsum(x)}


# name -> host function, arguments, {number of an output among them: what it must be}
KERNELS = {
    "reduce": (basic.reduce, (X.astype(np.float32), np.zeros(1, np.float32), 640, 1), {1: [X.sum()]}),
    "last_block": (basic.last_block, (X, i32(6), i32(1), i32(1), 640, "acq_rel", "gpu", 6), {2: [0], 3: [X.sum()]}),
    "look_back": (
        basic.look_back,
        (X, i32(640), i32(20), i32(20), i32(1), 640, True, "acquire", "release", "gpu"),
        {1: np.cumsum(X)},
    ),
    "named": (basic.named, (i32(32), 1, 1, 2, 64), {0: 600 + 4 * (np.arange(32) ^ 1)}),
    "exchange": (basic.exchange, (i32(32),), {0: np.arange(31, -1, -1)}),
    "stream_tiles": (pipeline.stream_tiles, (TILES, np.zeros_like(TILES), 7), {1: TILES + 1}),
    "fill": (pipeline.fill, (i32(5 * 64), 5), {0: np.arange(5 * 64)}),
    "matmul": (
        matmul.matmul,
        (A, B, np.zeros((64, 64), np.float32), 256),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "product": (
        matmul.product,
        (A, B, np.zeros((64, 64), np.float32), 4, False, None),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "product of registers": (
        matmul.product,
        (A, B, np.zeros((64, 64), np.float32), 4, True, None),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "take_turns": (pipeline.take_turns, (i32(1), 5), {0: [5]}),
    "descriptors": described(640),
    "add": (overlap.add, (X[:192], i32(192), X[:64], 3, "every thread", True), {1: X[:192] + np.tile(X[:64], 3)}),
    "read_peer": (
        cluster.read_peer,
        (i32(128), 4),
        {0: [(b + 1) % 4 * 100 + 31 - t for b in range(4) for t in range(32)]},
    ),
    "gather": (cluster.gather, (i32(4), 4), {0: [10] * 4}),
    "hand_over": (cluster.hand_over, (i32(32), "cluster"), {0: 3 * np.arange(31, -1, -1)}),
    "multicast": (cluster.multicast, (CAST, np.zeros((2, *CAST.shape), np.float32)), {1: np.stack([CAST, CAST])}),
}


def added(n: int) -> tuple:
    a, b = random.random(n, np.float32), random.random(n, np.float32)
    return basic.add, (a, b, np.zeros(n, np.float32), n), {2: a + b}


def scanned(n: int) -> tuple:
    arguments = (X[:n], i32(n), *(i32((n + 31) // 32) for _ in range(2)), i32(1), n, True, "acquire", "release", "gpu")
    return basic.look_back, arguments, {1: np.cumsum(X[:n])}


def streamed(tiles: int) -> tuple:
    x = TILES[: max(tiles, 1) * pipeline.ROWS]
    return pipeline.stream_tiles, (x, np.zeros_like(x), tiles), {1: x + 1 if tiles else 0 * x}


def multiplied(k: int, function=matmul.matmul, rows: int = 64, dtype=np.float32) -> tuple:
    a, b = random.integers(-3, 4, (rows, k)).astype(np.float16), random.integers(-3, 4, (64, k)).astype(np.float16)
    wanted = (a.astype(np.float32) @ b.astype(np.float32).T).astype(dtype)
    return function, (a, b, np.zeros((rows, 64), dtype), k), {2: wanted}


# the same in more sizes
SIZES = {
    **{f"add {n}": added(n) for n in (1, 31, 128, 1000)},
    **{f"look_back {n}": scanned(n) for n in (1, 32, 600)},
    **{f"descriptors {n}": described(n) for n in (1, 33, 1000)},
    **{f"stream_tiles {tiles}": streamed(tiles) for tiles in (0, 1, 3)},
    **{f"take_turns {rounds}": (pipeline.take_turns, (i32(1), rounds), {0: [rounds]}) for rounds in (1, 2)},
    **{f"matmul {k}": multiplied(k) for k in (64, 200)},
    "matmul of a cluster with its epilogue": multiplied(200, matmul.clustered, 256, np.float16),
    "reduce by 4 blocks": (
        basic.reduce,
        (X.astype(np.float32), np.zeros(4, np.float32), 600, 4),
        {1: np.append(X[:600], np.zeros(424)).reshape(2, 4, 128).sum((0, 2))},
    ),
    "last_block 500": (
        basic.last_block,
        (X, i32(6), i32(1), i32(1), 500, "acq_rel", "gpu", 6),
        {2: [0], 3: [X[:500].sum()]},
    ),
    "read_peer of 2 clusters": (
        cluster.read_peer,
        (i32(256), 8),
        {0: [(b // 4 * 4 + (b + 1) % 4) * 100 + 31 - t for b in range(8) for t in range(32)]},
    ),
    "gather of 2 clusters": (cluster.gather, (i32(8), 8), {0: [10] * 4 + [26] * 4}),
}
