"""The kernel of segments made small: some hundred elements make many tiles, rings that wrap and waits that matter."""

from __future__ import annotations

from dataclasses import asdict, replace

from cutesync.kernels.segments import decode_plan, plan, ranges_plan, ranges_policy, reduced_plan
from cutesync.kernels.segments.decode_policy import Choice as DecodeChoice, DecodePolicy, window_of
from cutesync.kernels.segments.policy import Choice, MarkedPolicy, PipelinePolicy, Problem, WavePolicy
from cutesync.kernels.segments.ranges_policy import RangesPolicy, RowsPolicy
from cutesync.kernels.segments.reduced_policy import ReducedPolicy, RingPolicy
from cutesync.runtime import call

# name: (policy, blocks)
KERNELS = {
    "three blocks": (PipelinePolicy(reduce_warps=4, squads=2, warps=2, run=4, stages=4, look_aheads=4), 3),
    "two blocks": (PipelinePolicy(reduce_warps=2, squads=1, warps=2, run=5, stages=3, look_aheads=1), 2),
    "one block": (PipelinePolicy(reduce_warps=1, squads=1, warps=1, run=3, stages=2, look_aheads=1), 1),
    "three squads": (PipelinePolicy(reduce_warps=2, squads=3, warps=1, run=3, stages=6, look_aheads=3), 2),
}
# a block a tile, the blocks of its cluster, and the parts in which it comes
WAVES = {
    "waves": ((2, 4), 1),
    "waves of one warp": ((1, 3), 1),
    "waves in parts": ((4, 5), 1, 2),
    "clusters": ((3, 5), 8),
}
# the same for reductions by offsets
REDUCED = {
    "three blocks": (ReducedPolicy(run=4, warps=2, blocks_per_sm=1, rounds=2), 3),
    "two blocks": (ReducedPolicy(run=8, warps=1, blocks_per_sm=1, rounds=1), 2),
    "one block": (ReducedPolicy(run=4, warps=3, blocks_per_sm=1, rounds=1), 1),
    "three squads": (ReducedPolicy(run=4, warps=1, blocks_per_sm=1, rounds=3), 7),
    "many chunks": (ReducedPolicy(run=4, warps=2, blocks_per_sm=1, rounds=20), 2),  # more than a warp has lanes
}
# the same, with tiles that bulk copies bring
RINGS = {
    "rings": (RingPolicy(run=12, warps=2, blocks_per_sm=1, rounds=1, stages=2), 3),
    "rings of three warps": (RingPolicy(run=8, warps=3, blocks_per_sm=1, rounds=1, stages=3), 2),
}
# the same for begins and ends
RANGES = {
    "three blocks": (RangesPolicy(run=2, warps=2, threads=64), 3),
    "two blocks": (RangesPolicy(run=5, warps=4, threads=32), 2),
    "one block": (RangesPolicy(run=3, warps=1, threads=32), 1),
    "five blocks": (RangesPolicy(run=1, warps=3, threads=96), 5),
}
# the same for reductions of one array by begins and ends: warps, chunks of each, rows, vectors of a segment that a lane
# goes through; blocks
ROWS = {
    "three blocks": ((1, 2, 1, 2), 3),
    "two blocks": ((4, 1, 4, 5), 2),
    "one block": ((1, 1, 2, 0), 1),
    "five blocks": ((3, 2, 1, 5), 5),
}

# the same for runs that are decoded
DECODE = {
    "three blocks": (DecodePolicy(groups=2, place_warps=2, store_warps=2, stages=2, windows=2, squads=2), 3),
    "two blocks": (DecodePolicy(groups=2, place_warps=1, store_warps=3, stages=3, windows=1, dense=True), 2),
    "one block": (DecodePolicy(groups=1, place_warps=1, store_warps=1, stages=1, windows=2), 1),
}


def force(monkeypatch, name: str = "three blocks") -> None:
    """Make every call by segments of this test run with these sizes."""
    policy, blocks = KERNELS.get(name, KERNELS["three blocks"])

    def choose(problem: Problem) -> Choice:
        if name in WAVES and not (problem.strided or problem.marked or problem.filled):
            return wave(problem, *WAVES[name])
        chosen = policy
        if problem.strided:
            chosen = replace(policy, gathers=2)
        if problem.marked:
            chosen = MarkedPolicy(**(asdict(chosen) | {"run": 4 // policy.warps or 4}))
        tiles = max(1, -(-problem.length // chosen.tile))
        return Choice(chosen, tiles, min(blocks, tiles), chosen.bytes(problem))

    reduced, grid = (REDUCED | RINGS).get(name, REDUCED["three blocks"])
    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(reduced_plan, "choose", lambda *problem: reduced_policy_of(reduced, *problem))
    monkeypatch.setattr(reduced_plan, "blocks", lambda *problem: (grid, reduced.rounds))
    monkeypatch.setattr(call, "_plans", {})


def reduced_policy_of(policy: ReducedPolicy, sources, states, strided: bool, *size: int) -> ReducedPolicy:
    """A policy; another one, if it is that of rings, which have one array of elements as large as states."""
    if isinstance(policy, RingPolicy) and (strided or sources != states or sources not in ((4,), (8,))):
        return REDUCED["three blocks"][0]
    return policy


def wave(problem: Problem, sizes: tuple[int, int], blocks: int, parts: int = 1) -> Choice:
    """A block for each tile, of ``sizes`` (warps, run), in ``parts``; in clusters of up to ``blocks``, larger tiles for
    more."""
    warps, run = sizes
    while blocks > 1 and warps * run * 32 * blocks < problem.length:
        run += 1
    tiles = max(1, -(-problem.length // (warps * run * 32)))
    cluster = tiles if blocks > 1 else 1
    policy = WavePolicy(warps, 1, warps, run, 1, 1, alone=tiles == 1, cluster=cluster, parts=parts)
    return Choice(policy, tiles, tiles, policy.bytes(problem))


def force_ranges(monkeypatch, name: str = "three blocks") -> None:
    """The same for calls by segments that begins and ends give."""
    policy, grid = RANGES[name]
    (warps, rounds, rows, longest), rows_grid = ROWS[name]

    def in_rows(sources, states, strided) -> RowsPolicy | None:
        chosen = ranges_policy.in_rows(sources, states, strided)
        run = rows * 16 // sources[0]
        sizes = {"run": run, "warps": warps, "blocks_per_sm": 1, "rounds": rounds, "rows": rows, "longest": longest}
        return chosen and replace(chosen, **sizes)

    monkeypatch.setattr(ranges_plan, "choose", lambda sizes: policy)
    monkeypatch.setattr(ranges_plan, "blocks", lambda *problem: grid)
    monkeypatch.setattr(ranges_plan, "in_rows", in_rows)
    monkeypatch.setattr(ranges_plan, "blocks_in_rows", lambda *problem: (rows_grid, rounds))
    monkeypatch.setattr(call, "_plans", {})


def force_decode(monkeypatch, name: str = "three blocks") -> None:
    """The same for runs that are decoded in one pass: tiles of few runs, and parts of a window or two of long ones."""
    policy, blocks = DECODE[name]

    def choose(runs: int, results: int, size: int, length: int) -> DecodeChoice:
        window = window_of(size)
        return DecodeChoice(policy, max(1, -(-runs // policy.tile)), blocks, 2 * window, window + 512)

    monkeypatch.setattr(decode_plan, "choose", choose)
    monkeypatch.setattr(decode_plan, "searches", lambda runs, results, size, strided: strided)
    monkeypatch.setattr(call, "_plans", {})


def force_searches(monkeypatch) -> None:
    """Decode by searches, and make every warp make three tiles, where there are so many."""
    monkeypatch.setattr(decode_plan, "searches", lambda runs, results, size, strided: True)
    monkeypatch.setattr(decode_plan, "MANY_BLOCKS", 1)
    monkeypatch.setattr(decode_plan, "MAX_TURNS", 3)
    monkeypatch.setattr(call, "_plans", {})
