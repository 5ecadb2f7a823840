"""What all selection kernels share: one argument list and one launch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass.cute as cute

from ..gather import At, Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .spec import Selection
from .store import Places
from .where import Where

# A launch's arguments.
#
# ``x`` has the arrays of ``length`` elements, of which only the first ``count`` are looked at; ``where`` is the mask,
# or the bits. ``out`` has the results, ``places`` the indices and ``lengths`` the lengths of runs, of ``capacity``
# elements; ``ranks`` has the number of each position's run. ``found`` points to the number of selected elements, and
# ``fill`` has the number that each result is filled with. Of ``rows`` (None: there are none), which lie ``pitch``
# elements apart, lengths, counts and capacities are those of each, and ``starts`` points to where what is selected of
# each begins in packed results; of columns, to how many elements are selected up to the end of each chunk.
Arguments = namedtuple(
    "Arguments",
    "x where out places ranks lengths found fill slots counters length count capacity rows pitch starts",
)


class SelectKernel(PlainKernel):
    """A compiled selection. A subclass defines ``body``, which gets the ``Arguments``."""

    name = "select"

    def __init__(self, selection: Selection, threads: int, smem: int) -> None:
        super().__init__(threads, smem)
        self.selection, self.reads_at_once = selection, selection.reads_at_once
        self.where = Where(selection)
        self.gather: Any = None if selection.layout is None else Gather(selection.layout)
        self.outer: Any = None if selection.outer is None else Gather(selection.outer)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        chosen = self.selection
        sources, fills = len(chosen.sources), chosen.filled * chosen.fills
        where, length_at, *rest = arrays
        given, (ranks, found, lengths, *rest) = rest[: max(chosen.places, 1)], rest[max(chosen.places, 1) :]
        starts, rest = (rest[0], rest[1:]) if chosen.begins else (None, rest)
        x, out = tuple(rest[:sources]), tuple(rest[sources:])
        length, capacity, *rest = numbers
        rows, pitch, *rest = rest if chosen.rows else (None, None, *rest)
        fill, rest = tuple(rest[:fills]), rest[fills:]
        steps, rest = rest[: chosen.steps], rest[chosen.steps :]
        axes = [tuple(rest[3 * i : 3 * i + 3]) for i in range(chosen.axes)]
        rest = rest[3 * chosen.axes :]
        if self.outer is not None:
            rest = self.outer.bind(rest)
        if self.gather is not None:
            rest = self.gather.bind(rest)
            where = At(self.gather, len(x), where) if chosen.kind == "bits" else where
        self.where.bind(rest)
        count = positions(length, length_at) if chosen.counted else length
        out, places_of, ranks, lengths, starts = self.results(out, given, (ranks, lengths, starts), steps)
        return Arguments(
            *(x, where, out, Places(places_of, axes), ranks, lengths, found),
            *(fill, slots, counters, length, count, capacity, rows, pitch, starts),
        )

    def results(self, out: tuple, places: list, more: tuple, steps: list) -> tuple:
        """The arrays of results with their steps: elements, indices, then ``more``: ranks, lengths, starts."""
        chosen, steps = self.selection, list(steps)
        if chosen.stepped:
            out = tuple(Stepped(array, steps.pop(0)) for array in out)
        if chosen.together:
            step, apart = (steps.pop(0), steps.pop(0)) if chosen.stepped else (chosen.axes, 1)
            places = [Stepped(places[0] + d * apart, step) for d in range(chosen.axes)]
        elif chosen.stepped and chosen.indices:
            places = [Stepped(array, steps.pop(0)) for array in places]
        if chosen.stepped:
            there = chosen.inverse, chosen.lengths is not None, chosen.rows == "packed"
            more = tuple(Stepped(a, steps.pop(0)) if asked else a for a, asked in zip(more, there))
        return out, tuple(places) if chosen.indices else (), *more

    def arrays(self, a: Arguments) -> tuple:
        """The arrays whose tiles the ring holds."""
        return (*a.x, *((a.where,) if self.selection.kind == "mask" else ()))

    def asked_arrays(self, a: Arguments) -> tuple:
        """The arrays that the L2 is asked for: contiguous ones."""
        return () if self.gather is not None or a.rows is not None else self.arrays(a)
