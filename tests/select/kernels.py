"""The selection kernel made small: some hundred elements make many tiles, rings that wrap and waits that matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cutesync.kernels.select import plan, policy as policies
from cutesync.kernels.select.policy import (
    Choice,
    ColumnPolicy,
    FlowPolicy,
    PipelinePolicy,
    Problem,
    RunPolicy,
    WavePolicy,
    chosen,
)
from cutesync.runtime import call

# name: (policy, blocks)
KERNELS = {
    "three blocks": (PipelinePolicy(2, 2, 2, 2, 4, 4), 3),
    "two blocks": (PipelinePolicy(2, 1, 2, 2, 4, 4), 2),
    "one block": (PipelinePolicy(1, 2, 1, 3, 8, 2), 1),
    "three teams": (PipelinePolicy(3, 1, 1, 2, 16, 6), 2),
    "flow": (FlowPolicy(1, 2, 2, 2, 4, 2, room=512, entries=4, squads=2), 2),
    "flow, one squad": (FlowPolicy(1, 2, 1, 2, 32, 3, room=2100, entries=3), 3),
    "words": (PipelinePolicy(2, 2, 2, 2, 64, 4, narrow=True), 2),
    "runs": (RunPolicy(1, 1, 2, 1, 32, 2, room=1100, entries=4, squads=2), 2),
    "runs of bytes": (RunPolicy(1, 1, 2, 1, 64, 2, room=2200, entries=4, squads=2), 2),
    "runs, one squad": (RunPolicy(1, 2, 1, 2, 32, 3, room=2100, entries=3), 3),
    "a block a tile": (WavePolicy(1, 2, 2, 2, 4, 1), 1 << 20),
    "a cluster": (WavePolicy(1, 2, 2, 2, 4, 1, cluster=8), 8),
    "one tile": (WavePolicy(1, 3, 3, 32, 16, 1, alone=True), 1),
}


def force(monkeypatch, name: str = "three blocks") -> None:
    """Make every selection of this test run with these sizes."""
    policy, blocks = KERNELS[name]
    made = policies.choose

    def choose(problem: Problem) -> Choice:
        if type(policy) is PipelinePolicy:
            rows, narrow = min(policy.rows, policies.most_rows(problem)), policy.narrow and problem.narrow
            return chosen(
                replace(policy, rows=rows, gather_warps=2 if problem.strided else 0, narrow=narrow), problem, blocks
            )
        if type(policy) is RunPolicy:
            listed = policies.flows(problem) and policies.in_words(problem)
            return chosen(policy, problem, blocks) if listed else made(problem)
        if type(policy) is FlowPolicy:
            if not policies.flows(problem):
                return made(problem)
            return chosen(replace(policy, rows=min(policy.rows, policies.flow_rows(problem))), problem, blocks)
        if problem.strided or problem.filled or problem.rows is not None:
            return made(problem)
        if policy.cluster > 1:
            return Choice(of_cluster(policy, problem), blocks, blocks)
        return chosen(policy, problem, blocks)

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})


def of_cluster(policy: WavePolicy, problem: Problem) -> WavePolicy:
    """Chunks of so many rows that no more tiles are needed than the cluster has blocks."""
    rows = -(-problem.length // (policy.cluster * policy.chunks * 32))
    return replace(policy, rows=max(rows, policy.rows))


def force_columns(monkeypatch) -> None:
    """Make selections of this test read arrays in columns where they can, in small chunks and few blocks."""
    small = ColumnPolicy(teams=1, compact_warps=1, store_warps=2, chunks=32, rows=1, stages=2, gather_warps=2)
    monkeypatch.setattr(policies, "COLUMNS", small)
    monkeypatch.setattr(policies, "MAX_STAGES", 2)
    for name in ("MIN_LENGTH", "MIN_COLUMN", "MIN_COLUMNS"):
        monkeypatch.setattr(plan, name, 2)
    made = plan.choose_columns
    monkeypatch.setattr(plan, "choose_columns", lambda problem, tiles: made(problem, tiles, blocks=2))
    monkeypatch.setattr(call, "_plans", {})


def bits_of(mask: np.ndarray) -> np.ndarray:
    """A mask as words of 32 bits, as ``flag_heads(dtype="bits")`` returns flags."""
    return np.packbits(np.pad(mask, (0, -len(mask) % 32)), bitorder="little").view(np.uint32)


def masks(rng: np.random.Generator, length: int) -> list[np.ndarray]:
    """Masks that select nothing, everything, half, few, and runs."""
    half, few = rng.random(length) < 0.5, rng.random(length) < 0.01
    return [np.zeros(length, bool), np.ones(length, bool), half, few, np.repeat(half, 300)[:length]]
