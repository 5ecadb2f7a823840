"""Flags and differences of sharded arrays: each device marks its part; then edge items cross the seams.

The item at the edge of a part has no neighbour in it. Every device sends its last item to the next device that has
items, or its first item to the one before, and writes the result at its own edge once more (``seam_kernel``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..dtypes import INT64, DType
from ..errors import ArgumentValueError, explain
from ..kernels.flags.call import Arguments
from ..kernels.flags.spec import FlagSpec, Marking
from ..kernels.reduce import reduce
from ..kernels.states import Argument, words_of
from ..ops import takes_index
from ..runtime import arrays
from ..runtime.view import View
from .exchange import Exchange, Side
from .leading import Counted, leading, leading_lengths
from .parts import Apart, Results, part_of
from .reduce import full_ranks
from .sharded import Sharded
from .work import Work


@dataclass(frozen=True)
class Seam:
    """What the kernel computes: the result at the edge items of a part, from these and those of a neighbour; ``after``:
    at its last items. The run-time arguments say where the results of successive lines lie: ``inner`` of them follow
    each other, and then so many elements are left out."""

    marking: Marking
    after: bool

    @property
    def sources(self) -> tuple[DType, ...]:
        """The types of the items that are sent, and of the own ones."""
        return self.marking.source, self.marking.source

    @property
    def results(self) -> tuple[DType, ...]:
        return (self.marking.result,)

    @property
    def registers(self) -> tuple[str, ...]:
        return (self.marking.register,)

    @property
    def args(self) -> tuple[Argument, ...]:
        return (Argument(INT64, False),) * 2

    @property
    def slot_words(self) -> int:
        return words_of(self.registers)

    @property
    def key(self) -> tuple:
        return ("seam", self.after, *self.marking.key)

    def monoid(self) -> Any:
        from .seam_kernel import SeamMonoid

        return SeamMonoid(self)


class FlagPlan:
    """A call along the sharded axis. ``seams`` has an exchange for each output, and whether it is with the part
    after. Results have ``room`` for so many elements of each part along the axis, of which all or the first count."""

    def __init__(self, call: Callable, arguments: tuple, spec: FlagSpec, x: Sharded, room: tuple[int, ...]) -> None:
        self.call, self.group, self.axis = call, x.group, spec.axis
        self.full, self.lengths, self.room = full_ranks(x), x.lengths, room
        self.results = Results(spec.axis, x.lengths)
        self.inner, self.lines = math.prod(x.shape[spec.axis + 1 :]), math.prod(x.shape[: spec.axis])
        self.arguments = [self._of_part(Arguments(*arguments), rank) for rank in range(self.group.size)]
        before, after = spec.marking.looks
        sides = [side for side, looks in ((False, before), (True, after)) if looks]
        self.seams = [(side, Exchange(self.group, *self._seam(spec.marking, side))) for side in sides]
        self.size = spec.marking.result.size

    def _of_part(self, given: Arguments, rank: int) -> tuple:
        """The ends that the caller gives belong to the first and the last part. All elements of a part count."""
        given = given._replace(counted=False, n=None)
        if rank != self.full[0]:
            given = given._replace(predecessor=None)
        if rank != self.full[-1]:
            given = given._replace(successor=None)
        return tuple(given)

    def _seam(self, marking: Marking, after: bool) -> tuple[Any, int, list[Side]]:
        """Return the operation of an exchange, the number of its states, and its sides."""
        sides = []
        for rank, room in enumerate(self.room):
            others = [other for other in self.full if (other > rank if after else other < rank)]
            near = min(others, key=lambda other: abs(other - rank)) if others and rank in self.full else None
            take = 0 if near is None else 1 << near
            sides.append(Side(rank in self.full, take, (self.inner, room * self.inner)))
        return Seam(marking, after), self.lines * self.inner, sides

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        group, (x,) = self.group, xs
        found, addresses = [], [[] for _ in self.seams]  # type: tuple[list, list[list]]
        held = []  # until the exchanges that read them are enqueued
        with Work(group, streams, explicit) as work:
            for rank, stream in enumerate(streams):
                work.at(rank)
                raw = stream if explicit else None
                one = self.call(self.arguments[rank], x.parts[rank], part_of(outs, rank), raw)
                made = one if isinstance(one, tuple) else (one,)
                edges, copies = self._edges(x.parts[rank], x.views[rank], stream)
                found.append(one)
                held.append(copies)
                for number, (after, _) in enumerate(self.seams):
                    out = arrays.adapter(made[number]).address(made[number])
                    out += (self.lengths[rank] - 1) * self.inner * self.size if after else 0
                    addresses[number].append((*(edges if after else edges[::-1]), out))
            for number, (_, exchange) in enumerate(self.seams):
                exchange.launch_all(addresses[number], work)
        return self.results.of(group, found, outs)

    def _edges(self, part: Any, view: View, stream: int) -> tuple[tuple[int, int], Any]:
        """Return the addresses of the first and of the last items, which lie without gaps there, and what holds them.
        An empty part has none."""
        if view.size == 0:
            return (0, 0), None
        if view.contiguous and self.lines == 1:
            return (view.ptr, view.ptr + (view.shape[self.axis] - 1) * self.inner * view.dtype.size), part
        copies = []
        for edge in (slice(0, 1), slice(-1, None)):
            items = part[(*(slice(None),) * self.axis, edge)]
            copies.append(reduce(items, "max", axis=self.axis, stream=stream))
        first, last = (arrays.adapter(copy).address(copy) for copy in copies)
        return (first, last), copies


def plan_of(call: Callable, arguments: tuple, spec: FlagSpec, xs: tuple[Sharded, ...]) -> FlagPlan | Counted | Apart:
    """Return the plan of a call whose whole array has the Spec ``spec``; ``call`` is the front end for one part."""
    x, axis, marking = xs[0], xs[0].axis, spec.marking
    if axis is None or axis != spec.axis or not full_ranks(x):
        return Apart(call, arguments, Results(axis, x.lengths))
    refused: Sequence[tuple[bool, str, str]] = (
        (spec.counted and spec.n is None, "n", "an array"),
        (spec.tile is not None, "tile", f"{spec.tile}"),
        (marking.bits, "dtype", "'bits'"),
        (bool(marking.args), "args", "values"),
        (takes_index(marking.op.fn), "op", "a callable that takes the index"),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, along the sharded axis {axis}", "that along other axes"))
    if spec.n is None:
        return FlagPlan(call, arguments, spec, x, x.lengths)
    lengths = leading_lengths(x, spec.n)
    taken = leading(x, lengths)
    if not full_ranks(taken):
        return Apart(call, arguments, Results(axis, x.lengths))
    return Counted(FlagPlan(call, arguments, spec, taken, x.lengths), x, lengths, (marking.result,) * marking.outputs)
