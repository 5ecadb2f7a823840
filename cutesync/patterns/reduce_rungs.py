"""Two slower ways to reduce a whole array, kept for comparison: ``cs.reduce(x, algorithm="atomic")`` and
``"multi_launch"``.

    atomic          one launch stores the identity in the result; in the next, every block reduces its share and adds
                    it to the result with one atomic. The order of the atomics depends on the schedule: sums of floats
                    differ from run to run.
    multi_launch    every launch reduces ``LEVEL`` elements per block, until one block is left: log n / log LEVEL
                    launches, and a round trip through memory between any two.

``cs.reduce`` itself needs one launch: the block that started last combines the partials of all (see ``sync.gather``).
"""

from __future__ import annotations

import numpy as np

from cutesync.kernels.reduce.plan import chained, fill, launch
from cutesync.kernels.reduce.problem import Choice, SegmentPolicy
from cutesync.kernels.reduce.spec import ReduceSpec
from cutesync.runtime.launch import Run, in_turn
from cutesync.runtime.view import View

LEVEL = 1 << 15  # elements that a block reduces in one level


def multi_launch(spec: ReduceSpec, x: View, stream: int) -> Run:
    """All levels of a reduction of at least one element."""
    counts = [x.size]
    while len(counts) == 1 or counts[-1] > 1:
        counts.append(-(-counts[-1] // LEVEL))
    policy, runs, sizes = SegmentPolicy("level", 16, 4, 2), [], []
    for i, (count, blocks) in enumerate(zip(counts, counts[1:])):
        current, init = spec.reduction.of_pass(i, len(counts) - 1), spec.init if blocks == 1 else None
        extents = (blocks, LEVEL, count)
        runs.append(launch(Choice(policy, 1, 1, blocks), current, extents, init, x.device, stream).run)
        sizes.append(blocks * current.results[0].size)
    return chained(runs, sizes[:-1], x.device)


def atomic(spec: ReduceSpec, x: View, stream: int) -> Run:
    """Both launches: ``init`` comes first, or what leaves the first value as it is."""
    blocks = max(1, min(512, x.size // 4096))
    start = _start(spec) if spec.init is None else spec.init
    choice = Choice(SegmentPolicy("atomic", 16, 4, 2), blocks, 1, blocks)
    first = fill(spec.reduction, 1, start, x.device, stream)
    second = launch(choice, spec.reduction, (1, x.size, 1), None, x.device, stream)
    return in_turn([(first.run, (0, 1)), (second.run, (0, 1))], (), x.device)


def _start(spec: ReduceSpec):
    """The identity, or the far end of the type for min and max."""
    if spec.reduction.name not in ("min", "max"):
        return spec.reduction.identity()
    info = np.iinfo(spec.reduction.results[0].numpy)
    return (info.max if spec.reduction.name == "min" else info.min,)
