"""What all selection kernels share: one argument list and one launch."""

from __future__ import annotations

from collections import namedtuple

import cutlass.cute as cute

from ..tiled import TiledKernel, positions
from .spec import Selection
from .where import Where

# A launch's arguments.
#
# ``x`` has the arrays of ``length`` elements, of which only the first ``count`` are looked at; ``where`` is the mask,
# or the bits. ``out`` has the results, ``places`` the indices and ``lengths`` the lengths of runs, of ``capacity``
# elements; ``ranks`` has the number of each position's run. ``found`` points to the number of selected elements, and
# ``fill`` has the number that each result is filled with.
Arguments = namedtuple("Arguments", "x where out places ranks lengths found fill slots counters length count capacity")


class SelectKernel(TiledKernel):
    """A compiled selection. A subclass defines ``body``, which gets the ``Arguments``."""

    name = "select"

    def __init__(self, selection: Selection, threads: int, smem: int) -> None:
        super().__init__(threads, smem)
        self.selection = selection
        self.where = Where(selection)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        chosen = self.selection
        sources, fills = len(chosen.sources), chosen.filled * chosen.fills
        where, length_at, places, ranks, found, lengths, *rest = arrays
        x, out = tuple(rest[:sources]), tuple(rest[sources:])
        length, capacity, *rest = numbers
        fill = tuple(rest[:fills])
        self.where.bind(rest[fills:])
        count = positions(length, length_at) if chosen.counted else length
        return Arguments(x, where, out, places, ranks, lengths, found, fill, slots, counters, length, count, capacity)
