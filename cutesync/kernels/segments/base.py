"""What the kernels of segments share: one argument list and one launch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import await_launches
from ..select.where import element
from .spec import SegmentsSpec
from .states import SegmentStates

# A launch's arguments.
#
# ``heads`` has the arrays of keys, or the mask, and ``x`` the inputs of the operation: ``length`` elements each, of
# which only the first ``count`` are looked at. ``keys`` and ``out`` have the results, of ``capacity`` elements where
# segments are reduced; ``found`` then points to the number of segments. ``fill`` has the number that each key and
# result is filled with. ``offsets`` has where ``segments`` segments begin, ``cuts`` where tiles do; ``nothing`` is the
# state of a segment without elements.
Arguments = namedtuple(
    "Arguments", "heads x keys out found fill slots counters length count capacity offsets cuts segments nothing"
)


class SegmentKernel:
    """A compiled call by segments. A subclass defines ``body``, which gets the ``Arguments``."""

    body: Any

    def __init__(self, spec: SegmentsSpec, threads: int, smem: int) -> None:
        self.spec, self.threads, self.smem = spec, threads, smem
        self.states = SegmentStates(spec)

    @cute.jit
    def __call__(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_segments", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(arrays, numbers, slots, counters).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=1,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer):
        await_launches()
        spec = self.spec
        found, length_at, offsets, cuts, *rest = arrays
        groups = []
        for group in (spec.heads.sources, spec.operation.sources, spec.keys, spec.operation.results):
            groups.append(tuple(rest[: len(group)]))
            rest = rest[len(group) :]
        length, capacity, segments, *rest = numbers
        fills = 0 if spec.fill is None else len(spec.fill)
        fill, rest = tuple(rest[:fills]), rest[fills:]
        values = len(spec.operation.values)
        start, nothing, args = rest[:values], tuple(rest[values : 2 * values]), rest[2 * values :]
        self.states.bind(start, args)
        nothing = nothing if self.states.start is None else tuple(self.states.start)
        count = length
        if cutlass.const_expr(spec.counted):
            count = cutlass.min(cutlass.max(Int64(element(length_at)), Int64(0)), length)
        heads, x, keys, out = groups
        self.body(
            Arguments(
                *(heads, x, keys, out, found, fill, slots, counters, length, count, capacity),
                *(offsets, cuts, segments, nothing),
            )
        )
