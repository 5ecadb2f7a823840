"""The kernel made small: some hundred elements make many chunks, pools that fill up, blocks that share rows."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.kernels.topk import plan, policy
from cutesync.kernels.topk.policy import Choice, HeldPolicy, HeldWarpPolicy, Problem, TopKPolicy
from cutesync.runtime import call
from cutesync.sizes import power_of_two

from .. import faults

WIDTHS = {1: 16, 2: 8, 4: 4, 8: 2}

# name: (threads, vectors of a lane, candidates, blocks a row)
KERNELS = {
    "three blocks": (64, 1, 256, 3),
    "one block": (64, 1, 256, 1),
    "one warp, several vectors": (32, 2, 512, 1),
    "five blocks of a warp": (32, 1, 256, 5),
}


def force(monkeypatch, name: str = "three blocks", wide: bool = False) -> None:
    """Make every top-k of this test run with these sizes, as far as ``wanted`` allows."""
    threads, unroll, capacity, splits = KERNELS[name]

    def choose(problem: Problem) -> Choice:
        width = WIDTHS[problem.size] if problem.neighbours else 1
        keep = problem.wanted + problem.wanted // 4
        room = capacity
        while room < max(2 * keep, keep + 32 * unroll * width):
            room *= 2
        groups = threads * max(1, unroll * width // policy.GROUP)
        seed = None if problem.after else policy.seeding(problem.wanted, splits, groups)
        key_bytes = 8 if problem.size == 8 else 4
        sizes = TopKPolicy(
            threads,
            unroll,
            room,
            problem.neighbours,
            splits > 1,
            wide,
            seed,
            problem.after,
            problem.wanted > 64,
            1,
            key_bytes,
        )
        return Choice(sizes, splits, problem.rows * splits)

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})


def hold(monkeypatch) -> None:
    """Make every top-k of this test run with rows in shared memory: blocks of two warps, two of them, with room for
    some more candidates than are wanted."""

    def choose(problem: Problem) -> Choice:
        return Choice(HeldPolicy(64, 4, 1024, problem.size, 96, 1), 1, min(problem.rows, 2))

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})


def hold_warp(monkeypatch) -> None:
    """As ``hold``, with blocks of a warp that sorts."""

    def choose(problem: Problem) -> Choice:
        slots = max(1, 2 * power_of_two(problem.wanted) // 32)
        sizes = HeldWarpPolicy(32, 8, 1024, problem.size, 32 * slots + 40, 1, slots=slots)
        return Choice(sizes, 1, min(problem.rows, 2))

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})


def bench_of(force, arrays, k: int) -> faults.Bench:
    """A call for each array, one after the other on one workspace."""
    wanted = [reference.topk(x, k) for x in arrays]

    def right() -> bool:
        found = [cs.topk(cs.asarray(x), k) for x in arrays]
        return all(np.array_equal(*pair) for both in zip(found, wanted) for pair in zip(*both))

    return faults.of_tiles(force, right, schedules=4)


FAULTS = {name: faults.TABLE[name] for name in ("no block barrier", "no wait for the launch before", "no store")}
FAULTS = {name: (edit, {*kinds, "mismatch", faults.RESULT}) for name, (edit, kinds) in FAULTS.items()}
