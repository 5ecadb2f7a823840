"""A running sum over many blocks, by launches alone: scan the tiles, scan their totals, put those in front. Here with tiles of 4:

    x            3 1 4 1 | 5 9 2 6 | 5 3 5 8
    launch 1     fold each tile          -->  totals    9 22 21
    launch 2     scan the totals         -->  9 31 52          (many totals: scanned in tiers themselves)
    launch 3     scan each tile, with the scanned total of the tile before in front
                 3 4 8 9 | 14 23 25 31 | 36 39 44 52

Nobody waits inside a launch: a block that waited for another's total could wait for one that has not started. The end of a launch is the
barrier of the whole grid. Tiers are added as the array grows; the document stops at three. The device code is ``cs.scan``'s own, in
scan/tiered.py, where the bytes are counted; what a single launch needs instead stands in scan/pipeline.py.
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
    """All launches of a scan of at least one element along the last axis: totals tier by tier, then results in the reverse order."""
    first = ("init_at",) if spec.start_in_memory else ()
    up, down, sizes = [], [], []
    here, above = (
        0,
        2 + len(first),
    )  # the places of what a tier scans, and of its totals, among the arrays of ``in_turn``
    while not down or choice.tiles > 1:  # noqa: F821 (bound in the first round)
        tile = WARPS * ROWS * LANES * problem.items
        tiles = ceil_div(problem.length + VECTOR_BYTES // problem.source - 1, tile)
        grid = problem.rows * tiles
        choice = Choice(TierPolicy(False, WARPS, ROWS, problem.items, problem.shift), tiles, grid)
        scanned = launch(
            choice, spec, ordinal, stream, ("x", *first, "scratch", "out") if tiles > 1 else ("x", *first, "out")
        )
        target = 1 + len(first) if here == 0 else here
        before = (1,) if first else ()
        down.append((scanned.run, (here, *before, *((above,) if tiles > 1 else ()), target)))
        if tiles > 1:
            folded = Choice(TierPolicy(True, WARPS, ROWS, problem.items, 0), tiles, grid)
            totals = launch(folded, spec.between(spec.source), ordinal, stream, ("x", "out"))
            up.append((totals.run, (here, above)))
            sizes.append(grid * spec.accumulate.size)
        here, above, first = above, above + 1, ()
        extents, size = (problem.rows, tiles, 1), spec.accumulate.size
        spec, problem = replace(spec.between(spec.accumulate), extents=extents), Problem(*extents, size, size, 0, 0)
    return in_turn([*up, *reversed(down)], sizes, ordinal)
