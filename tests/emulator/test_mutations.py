"""Every fault of ``faults.TABLE``, planted in correct kernels, causes a report of the right kind or a wrong result.

A mutant may survive only if it is listed in ``HARMLESS``, with the reason why it changes nothing that could go wrong.
"""

import numpy as np
import pytest

from cutesync.emulator import POLICIES

from .. import faults
from . import (
    kernels_basic as basic,
    kernels_cluster as cluster,
    kernels_matmul as matmul,
    kernels_overlap as overlap,
    kernels_pipeline as pipeline,
    kernels_registers as registers,
    kernels_wide as wide,
)

pytestmark = pytest.mark.slow

SCHEDULES = 2 * len(POLICIES)
random = np.random.default_rng(11)


def i32(n):
    return np.zeros(n, np.int32)


X = random.integers(1, 9, 640).astype(np.int32)
TILES = random.random((7 * pipeline.ROWS, pipeline.COLUMNS), np.float32)
CAST = random.random((cluster.TILES * cluster.ROWS, cluster.COLUMNS), np.float32)
A, B = (random.integers(-3, 4, (64, 256)).astype(np.float16) for _ in range(2))

# name -> host function, arguments, {number of an output among them: what it must be}
KERNELS = {
    "reduce": (basic.reduce, (X.astype(np.float32), np.zeros(1, np.float32), 640, True, 1), {1: [X.sum()]}),
    "last_block": (basic.last_block, (X, i32(6), i32(1), i32(1), 640, "acq_rel", "gpu", 6), {2: [0], 3: [X.sum()]}),
    "look_back": (
        basic.look_back,
        (X, i32(640), i32(20), i32(20), i32(1), 640, True, "acquire", "release", "gpu"),
        {1: np.cumsum(X)},
    ),
    "named": (basic.named, (i32(32), 1, 1, 2, 64), {0: 600 + 4 * (np.arange(32) ^ 1)}),
    "exchange": (basic.exchange, (i32(32), True), {0: np.arange(31, -1, -1)}),
    "stream_tiles": (pipeline.stream_tiles, (TILES, np.zeros_like(TILES), 7, None), {1: TILES + 1}),
    "fill": (pipeline.fill, (i32(5 * 64), 5), {0: np.arange(5 * 64)}),
    "matmul": (
        matmul.matmul,
        (A, B, np.zeros((64, 64), np.float32), 256, None),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "product": (
        registers.product,
        (A, B, np.zeros((64, 64), np.float32), 4, False, None),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "product of registers": (
        registers.product,
        (A, B, np.zeros((64, 64), np.float32), 4, True, None),
        {2: A.astype(np.float32) @ B.astype(np.float32).T},
    ),
    "take_turns": (pipeline.take_turns, (i32(1), 5, None), {0: [5]}),
    "descriptors": (
        wide.descriptors,
        (X.astype(np.int64), np.zeros(640, np.int64), np.zeros((40, 2), np.uint64), i32(1), 640, None),
        {1: np.cumsum(X)},
    ),
    "add": (overlap.add, (X[:192], i32(192), X[:64], 3, "every thread", True), {1: X[:192] + np.tile(X[:64], 3)}),
    "read_peer": (
        cluster.read_peer,
        (i32(128), None, 4),
        {0: [(b + 1) % 4 * 100 + 31 - t for b in range(4) for t in range(32)]},
    ),
    "gather": (cluster.gather, (i32(4), None, 4), {0: [10] * 4}),
    "hand_over": (cluster.hand_over, (i32(32), None), {0: 3 * np.arange(31, -1, -1)}),
    "multicast": (cluster.multicast, (CAST, np.zeros((2, *CAST.shape), np.float32), None), {1: np.stack([CAST, CAST])}),
}
# whether one of these is found depends on the schedule
TAIL = "the producer's tail: needed only where other blocks may still arrive on this block's barriers"
CLUSTER = "the cluster barrier releases the initialisation to the other block's threads; no copy is involved"
NO_DATA = "the turns hand over nothing in memory"
HARMLESS = {
    **{("stream_tiles", f"no look at the barrier #{i}"): TAIL for i in (1, 2, 3)},
    ("stream_tiles", "constant parity #3"): TAIL,
    ("stream_tiles", "parity not flipped on wrap #1"): TAIL,
    ("stream_tiles", "one stage more than declared #1"): TAIL,
    **{
        ("matmul", f"{fault} #{i}"): TAIL
        for i in (1, 2)
        for fault in ("no look at the barrier", "parity flipped", "constant parity")
    },
    ("matmul", "parity not flipped on wrap #1"): TAIL,
    ("matmul", "one stage more than declared #1"): TAIL,
    ("multicast", "no look at the barrier #1"): TAIL,
    ("multicast", "constant parity #2"): "the parity is 0 there",
    ("matmul", "no sync_warp #0"): "only the tensor cores read the stage, and every lane has waited for them",
    ("matmul", "no wgmma wait #1"): "every step of the loop has waited already",
    ("product", "no wgmma wait #0"): "it bounds how many groups are in flight; the last wait precedes every use",
    (
        "take_turns",
        "no init fence #0",
    ): "no copy and no other block uses the barriers; the block barrier orders the rest",
    ("take_turns", "constant parity #2"): "the parity is 0 there",
    ("take_turns", "no look at the barrier #2"): NO_DATA,
    ("take_turns", "a relaxed arrival #0"): NO_DATA,
    ("take_turns", "a relaxed arrival #1"): NO_DATA,
    ("gather", "no cluster barrier #3"): "nobody writes to a block that has received all four numbers",
    ("hand_over", "no cluster barrier #3"): "block 1 has received everything, and nobody touches block 0",
    ("hand_over", "no init fence #0"): CLUSTER,
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    alive = faults.of_function(*KERNELS[name], SCHEDULES).survivors(faults.TABLE)
    assert not [mutant for mutant in alive if (name, mutant) not in HARMLESS]
    excused = [mutant for (kernel, mutant), why in HARMLESS.items() if kernel == name and why is not TAIL]
    assert not [mutant for mutant in excused if mutant not in alive], "killed after all: take it off the list"
