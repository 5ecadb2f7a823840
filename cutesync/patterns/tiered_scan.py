"""A running sum over many blocks, by launches alone: scan the tiles, scan their totals, add those.

With tiles of 4:

    x            3 1 4 1 | 5 9 2 6 | 5 3 5 8
    launch 1     reduce each tile        -->  totals    9 22 21
    launch 2     scan the totals         -->  9 31 52          (many totals: scanned in tiers themselves)
    launch 3     scan each tile, starting from the scanned total of the tile before it
                 3 4 8 9 | 14 23 25 31 | 36 39 44 52

Nobody waits inside a launch: a block that waited for the total of another block could wait for one that has not
started. The end of a launch is the barrier of the whole grid. There are as many tiers as the array needs. The device
code is that of ``cs.scan``, in kernels/scan/tiered.py, where the bytes are counted; kernels/scan/pipeline.py needs one
launch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutesync import reference as meaning
from cutesync.kernels.scan import scan
from cutesync.kernels.scan.plan import launch
from cutesync.kernels.scan.policy import LANES, VECTOR_BYTES, Choice, Policy, Problem
from cutesync.kernels.scan.spec import ScanSpec
from cutesync.runtime.launch import Run, in_turn
from cutesync.sizes import ceil_div


def run(x, op="add", *, exclusive=False, reverse=False, init=None, dtype=None, identity=None, out=None, stream=None):
    """``cs.scan`` of ``x`` along its last axis, with ``algorithm="tiered"``: its arguments, results and errors."""
    return scan(
        x,
        op,
        exclusive=exclusive,
        reverse=reverse,
        init=init,
        dtype=dtype,
        identity=identity,
        out=out,
        algorithm="tiered",
        stream=stream,
    )


def reference(x, op="add", **options):
    """The same in NumPy."""
    return meaning.scan(x, op, **options)


@dataclass(frozen=True)
class TierPolicy(Policy):
    """Tiles of ``warps`` chunks of ``rows`` vectors a lane, whose totals are found (``fold``) or which are scanned."""

    module, kernel = "cutesync.kernels.scan.tiered", "Tier"

    fold: bool
    warps: int
    rows: int
    items: int
    shift: int | None


WARPS, ROWS = 8, 4  # tiles of 16 KiB of 4-byte elements


def tiers(spec: ScanSpec, problem: Problem, ordinal: int, stream: int) -> Run:
    """All launches of a scan of at least one element along the last axis.

    Totals are found tier by tier, and the tiers are scanned in the reverse order.
    """
    first = ("init_at",) if spec.start_in_memory else ()
    x, out, totals = 0, 1 + len(first), 2 + len(first)  # places among the arrays of ``in_turn``
    up, down, sizes = [], [], []
    tiles = 2
    while tiles > 1:
        tiles = ceil_div(problem.length + VECTOR_BYTES // problem.source - 1, WARPS * ROWS * LANES * problem.items)
        grid = problem.rows * tiles
        tail = ("scratch",) if tiles > 1 else ()  # where the scanned totals of this tier's tiles are
        policy = TierPolicy(False, WARPS, ROWS, problem.items, problem.shift)
        scanned = launch(Choice(policy, tiles, grid), spec, ordinal, stream, ("x", "out", *first, *tail))
        down.append((scanned.run, (x, out, *(1 for _ in first), *(totals for _ in tail))))
        if tiles > 1:
            choice = Choice(replace(policy, fold=True, shift=0), tiles, grid)
            up.append((launch(choice, spec.between(spec.source), ordinal, stream, ("x", "out")).run, (x, totals)))
            sizes.append(grid * spec.accumulate.size)
        x, out, totals, first = totals, totals, totals + 1, ()
        extents, size = (problem.rows, tiles, 1), spec.accumulate.size
        spec, problem = replace(spec.between(spec.accumulate), extents=extents), Problem(*extents, size, size, 0, 0)
    return in_turn([*up, *reversed(down)], sizes, ordinal)
