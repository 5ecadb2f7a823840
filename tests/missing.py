"""Arrivals that never come: in each kernel that waits, one that another waits for is left out.

They are planted in the source as it is traced, so a GPU runs them, too: ``python -m tests.missing NAME``, a process of
its own, as a trap ends all that a process has on the GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import cutlass.cute as cute
import numpy as np

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.matmul import MatmulPolicy
from cutesync.kernels.reduce import plan as reduce_plan
from cutesync.kernels.reduce.problem import Choice, SegmentPolicy
from cutesync.runtime import call, compiler, device
from cutesync.sync import Barriers

from .faults import Patch, instead, without
from .matmul.support import few_blocks
from .scan.kernels import force, pipeline, slabs, wave
from .sync import kernels
from .sync.cases import launched

RING = "cutlass.pipeline:PipelineTmaAsync.consumer_release"
ARRIVE = "cutesync.sync.barrier:Barrier.arrive_once"
PUBLISH = "cutesync.sync.gather:Slots.publish"
X = np.arange(8 * kernels.LENGTH, dtype=np.int32)


class Case(NamedTuple):
    """``plant`` leaves an arrival out, ``call`` runs into it, and the report matches ``words``."""

    plant: Callable[[Patch], None]
    call: Callable[[Patch], object]
    words: str


def one_warp_more(patch: Patch) -> None:
    """Named barriers of a warpgroup expect a warp that does not come."""
    plain = cute.arch.barrier

    def expectant(*, barrier_id=None, number_of_threads=None):
        return plain(barrier_id=barrier_id, number_of_threads=160 if number_of_threads == 128 else number_of_threads)

    patch.setattr(cute.arch, "barrier", expectant)


ON_EMULATOR = ("matmul: a warp missing at the turnstile",)
"""Warps that hang at a named barrier, which PTX cannot bound: on a GPU perhaps nobody waits for them at an mbarrier."""


def reduced(policy: SegmentPolicy, splits: int):
    def run(patch: Patch):
        patch.setattr(reduce_plan, "choose", lambda problem: Choice(policy, splits, 1, splits))
        return np.asarray(cs.reduce(cs.asarray(np.arange(41003, dtype=np.int32))))

    return run


def scanned(choice, shape: tuple[int, ...], axis: int):
    def run(patch: Patch):
        force(patch, choice)
        return np.asarray(cs.scan(cs.asarray(np.ones(shape, np.int32)), axis=axis))

    return run


def multiplied(chosen: MatmulPolicy, shape: tuple[int, int, int], blocks: int = 2):
    def run(patch: Patch):
        m, n, k = shape
        few_blocks(patch, blocks)
        return np.asarray(
            cs.matmul(cs.asarray(np.ones((m, k), np.float16)), cs.asarray(np.ones((k, n), np.float16)), config=chosen)
        )

    return run


def built(function, *arguments):
    """A kernel of the tests of ``cutesync.sync``."""

    def run(_: Patch):
        if device.backend() == "emulator":
            return emulator.check(function, *arguments, schedules=1)
        return launched(function, arguments)

    return run


def produced(form: str):
    x = np.arange(10_000, dtype=np.float32)
    return lambda _: np.asarray(
        cs.patterns.producer_consumer.run(
            cs.asarray(x), lambda value: value, form=form, buffer=1024, consumers=2, blocks=2
        )
    )


def relayed():
    return np.asarray(cs.patterns.relay.run(cs.asarray(np.arange(90, dtype=np.int32)), capacity=16))


class Expectant:
    """``Barriers`` whose phases expect an arrival more than there are."""

    @staticmethod
    def make(number: int, count: int):
        return Barriers.make(number, count + 1)


PIPELINE = scanned(pipeline(4, 2, 4, 1, 2, 2), (2, 1101), 1)
SLABS = scanned(slabs(4, 3, 2, 2, 3), (143, 5), 0)
COOPERATIVE = multiplied(MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2), (264, 72, 264))
PINGPONG = multiplied(MatmulPolicy((64, 64), "pingpong", stages=2), (264, 72, 264))
MEET = multiplied(MatmulPolicy((64, 64), "pingpong", stages=2, splits=3), (100, 72, 264))
TURNSTILE = multiplied(MatmulPolicy((64, 64), "pingpong", (1, 2), stages=2, splits=5), (70, 136, 264), 6)
OF_THREADS = built(kernels.ring, X, np.zeros_like(X), 8, "threads", 3, 1, 2)
OF_COPIES = built(kernels.ring, X, np.zeros_like(X), 8, "bulk", 3, 1, 2)
SUMS = built(kernels.running, X, np.zeros(3 * kernels.THREADS, np.int32), 3)
GRID = built(kernels.grid, np.zeros(3 * 128, np.int32), np.zeros(128, np.int32), np.zeros(4, np.int32), 3, 2)
RELEASE, COMMIT = (f"cutlass.pipeline:PipelineAsync.{name}" for name in ("consumer_release", "producer_commit"))
STATE = r"waits for a state of another block, slot \d+, tag \d+"
SPIN = instead("cutesync.patterns.round_trip:WAYS", ("arrive, spin on test_wait",))

# ``words`` name who waits for what is missing. Who waits for that one in turn reports, too: all run out of patience at
# almost the same time.
CASES = {
    "reduce": Case(without(PUBLISH), reduced(SegmentPolicy("grid", 4, 4, 2, False, True), 5), STATE),
    "scan, wave": Case(without(PUBLISH), scanned(wave(2, 1), (1203,), 0), STATE),
    "scan, pipeline: tiles not published": Case(without(PUBLISH), PIPELINE, f"role look ahead, {STATE}"),
    "scan, pipeline: no prefix": Case(
        without(ARRIVE, 0), PIPELINE, "role emit, waits for barrier ready, stage 0, phase 0"
    ),
    "scan, pipeline: a chunk not folded": Case(
        without(ARRIVE, 1), PIPELINE, "role publish, waits for barrier folded, stage 0, phase 0"
    ),
    "scan, pipeline: a stage not released": Case(
        without("cutesync.sync:Ring.release"), PIPELINE, "role load, waits for barrier empty of ring, stage 0, phase 0"
    ),
    "scan, slabs: tiles not published": Case(without(PUBLISH), SLABS, f"role scan, {STATE}"),
    "scan, slabs: a stage not scanned": Case(
        without("cutesync.sync:Ring.release"), SLABS, "role transfer, waits for barrier empty of ring, stage 0, phase 0"
    ),
    "matmul: a stage not released": Case(
        without(RING), COOPERATIVE, "role producer, waits for barrier empty of ring, stage 0, phase 0"
    ),
    "matmul: a load left out": Case(
        without("cutesync.kernels.matmul.kernel:start"),
        PINGPONG,
        "role consumer, waits for barrier full of ring, stage 0, phase 0",
    ),
    "matmul: a share not announced": Case(
        without("cutesync.sync.barrier:Barrier.arrive_remote"),
        MEET,
        r"role consumer, waits for barrier partials, stage \d, phase 0",
    ),
    "matmul: a warp missing at the turnstile": Case(
        one_warp_more, TURNSTILE, "role producer, waits for barrier empty of ring, stage 0, phase 1"
    ),
    "sync: a ring not released": Case(
        without("cutesync.sync:Ring.release"),
        OF_COPIES,
        "role producer, waits for barrier empty of ring, stage 0, phase 0",
    ),
    "sync: a ring not published": Case(
        without("cutesync.sync:Ring.publish"),
        OF_THREADS,
        "role consumer, waits for barrier full of ring, stage 0, phase 0",
    ),
    "sync: a token": Case(
        lambda patch: None, built(kernels.hang, np.zeros(64, np.int32)), "waits for barrier planted, stage 2, phase 0"
    ),
    "sync: no completion": Case(
        instead("cutesync.sync.completion:_MASK", -1), SUMS, "waits for barrier barrier, stage 0, phase 0"
    ),
    "sync: a block missing in the grid": Case(
        instead("cutesync.sync.grid_barrier:_TOP", 1 << 16), GRID, "waits for the other blocks at the grid barrier"
    ),
    "sync: a slot never free": Case(
        without("cutesync.sync:ConcurrentQueue._next_turn"),
        lambda _: relayed(),
        r"waits for (an item|a free slot) of the queue, slot \d+, lap \d+",
    ),
    "patterns: a buffer not released": Case(
        without(RELEASE), produced("pipeline"), "role producer, waits for barrier empty of ring, stage 0, phase 0"
    ),
    "patterns: a buffer not filled": Case(
        without(COMMIT), produced("pipeline"), "role consumer, waits for barrier full of ring, stage 0, phase 0"
    ),
    "patterns: a spin": Case(
        lambda patch: (SPIN(patch), instead("cutesync.patterns.round_trip:Barriers", Expectant)(patch)),
        lambda _: cs.patterns.round_trip.run(4, threads=64),
        "waits for barrier barrier, stage 0",
    ),
}


# The same calls with nothing missing, and what they give.
RIGHT = {
    "reduce": (CASES["reduce"].call, np.sum(np.arange(41003), dtype=np.int32)),
    "scan, wave": (CASES["scan, wave"].call, np.arange(1, 1204)),
    "scan, pipeline": (PIPELINE, np.tile(np.arange(1, 1102), (2, 1))),
    "scan, slabs": (SLABS, np.tile(np.arange(1, 144)[:, None], (1, 5))),
    "matmul, cooperative": (COOPERATIVE, np.full((264, 72), 264)),
    "matmul, shares in a cluster": (MEET, np.full((100, 72), 264)),
    "matmul, shares in memory": (TURNSTILE, np.full((70, 136), 264)),
    "patterns, pipeline": (produced("pipeline"), np.arange(10_000)),
    "patterns, bulk": (produced("bulk"), np.arange(10_000)),
}


def debug(patch: Patch) -> None:
    """Kernels of this test are compiled anew, in debug builds."""
    patch.setenv("CUTESYNC_DEBUG", "1")
    patch.setenv("CUTESYNC_CACHE", "0")
    patch.setattr(compiler, "_kernels", {})
    patch.setattr(call, "_plans", {})


def run(name: str, patch: Patch) -> None:
    """Run into the missing arrival."""
    debug(patch)
    CASES[name].plant(patch)
    CASES[name].call(patch)


if __name__ == "__main__":
    run(sys.argv[1], Patch())
