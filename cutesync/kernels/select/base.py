"""What all selection kernels share: one argument list and one launch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import await_launches
from .spec import Selection
from .where import Where, element

# A launch's arguments.
#
# ``x`` has the arrays of ``length`` elements, of which only the first ``count`` are looked at; ``where`` is the mask,
# or the bits. ``out`` has the results, and ``places`` the indices, of ``capacity`` elements. ``found`` points to the
# number of selected elements. ``fill`` has the number that each result is filled with.
Arguments = namedtuple("Arguments", "x where out places found fill slots counters length count capacity")


class SelectKernel:
    """A compiled selection. A subclass defines ``body``, which gets the ``Arguments``."""

    body: Any

    def __init__(self, selection: Selection, threads: int, smem: int) -> None:
        self.selection, self.threads, self.smem = selection, threads, smem
        self.where = Where(selection)

    @cute.jit
    def __call__(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_select", remove_cutlass_symbol=True, keep_mangled_name=False)
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
        chosen = self.selection
        sources, fills = len(chosen.sources), chosen.filled * (len(chosen.results) + chosen.indices)
        where, length_at, places, found, *rest = arrays
        x, out = tuple(rest[:sources]), tuple(rest[sources:])
        length, capacity, *rest = numbers
        fill = tuple(rest[:fills])
        self.where.bind(rest[fills:])
        count = length
        if cutlass.const_expr(chosen.counted):
            count = cutlass.min(cutlass.max(Int64(element(length_at)), Int64(0)), length)
        self.body(Arguments(x, where, out, places, found, fill, slots, counters, length, count, capacity))
