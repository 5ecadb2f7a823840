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
from ..kernels.flags.call import Arguments, with_more
from ..kernels.flags.spec import FlagSpec, Marking
from ..kernels.reduce import reduce
from ..kernels.states import Argument, words_of
from ..ops import takes_index
from ..runtime import arrays
from ..runtime.view import View
from .exchange import Exchange, Side
from .inputs import Inputs, More, bits_of
from .leading import Counted, leading, leading_lengths
from .parts import Apart, Results, part_of
from .reduce import full_ranks
from .sharded import Ragged, Sharded
from .work import Work


@dataclass(frozen=True)
class Seam:
    """What the kernel computes: the result at the edge items of a part, from these and those of a neighbour; ``after``:
    at its last items. The first run-time arguments say where the results of successive lines lie: ``inner`` of them
    follow each other, and then so many elements are left out. Those of the caller follow; and if items are ``counted``,
    how many of them are in the part, in memory."""

    marking: Marking
    after: bool
    counted: bool

    @property
    def sources(self) -> tuple[DType, ...]:
        """The types of the items that are sent, and of the own ones; of the part, if items are counted."""
        return (self.marking.source,) if self.counted else (self.marking.source, self.marking.source)

    @property
    def results(self) -> tuple[DType, ...]:
        return (self.marking.result,)

    @property
    def registers(self) -> tuple[str, ...]:
        return (self.marking.register,)

    @property
    def args(self) -> tuple[Argument, ...]:
        count = (Argument(INT64, True),) if self.counted else ()
        return (*(Argument(INT64, False),) * 2, *self.marking.args, *count)

    @property
    def slot_words(self) -> int:
        return words_of(self.registers) + self.counted

    @property
    def key(self) -> tuple:
        return ("counted seam" if self.counted else "seam", self.after, *self.marking.key)

    def monoid(self) -> Any:
        from .seam_kernel import SeamMonoid

        return SeamMonoid(self)


class FlagPlan:
    """A call along the sharded axis. ``seams`` has an exchange for each output, and whether it is with the part
    after. Results have ``room`` for so many elements of each part along the axis, of which all or the first count."""

    def __init__(
        self, call: Callable, arguments: tuple, spec: FlagSpec, x: Sharded, room: tuple[int, ...], inputs: Inputs
    ) -> None:
        self.call, self.group, self.axis, self.inputs = call, x.group, spec.axis, inputs
        self.counted, self.marking = inputs.counted, spec.marking
        if inputs.counted:
            self.call = with_more(spec.marking.outputs == 2, Arguments(*arguments).kinds, True, True)
        self.full, self.lengths, self.room = full_ranks(x), x.lengths, room
        self.results = Results(spec.axis, x.lengths)
        self.inner, self.lines = math.prod(x.shape[spec.axis + 1 :]), math.prod(x.shape[: spec.axis])
        self.arguments = [self._of_part(Arguments(*arguments), rank) for rank in range(self.group.size)]
        before, after = spec.marking.looks
        sides = [side for side, looks in ((False, before), (True, after)) if looks]
        self.seams = [(side, Exchange(self.group, *self._seam(spec.marking, side))) for side in sides]
        self.size = spec.marking.result.size

    def _of_part(self, given: Arguments, rank: int) -> tuple:
        """The ends that the caller gives belong to the first and the last part. All elements of a part count, unless
        only the devices know; then each part may be the first or the last."""
        if self.counted:
            return tuple(given._replace(counted=True, n=None))
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
            take = sum(1 << other for other in others) if self.counted else 0 if near is None else 1 << near
            given = (self.inner, room * self.inner, *(None,) * (len(marking.args) + self.counted))
            sides.append(Side(rank in self.full, take, given))
        return Seam(marking, after, self.counted), self.lines * self.inner, sides

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
    ) -> Any:
        group, x = self.group, xs[0]
        found, addresses = [], [[] for _ in self.seams]  # type: tuple[list, list[list]]
        held: list = []  # until the exchanges that read them are enqueued
        with Work(group, streams, explicit) as work:
            more = self.inputs.more(xs, ragged, work)
            for rank, stream in enumerate(streams):
                work.at(rank)
                raw, out = stream if explicit else None, part_of(outs, rank)
                one = self.call(self.arguments[rank], x.parts[rank], out, raw, more.of(rank))
                found.append(one)
                self._add(addresses, one if isinstance(one, tuple) else (one,), (x, rank, stream), more, held)
            for number, (_, exchange) in enumerate(self.seams):
                exchange.launch_all(addresses[number], work)
        if ragged is not None:
            return ragged.results(self.results.of(group, found, None))
        return self.results.of(group, found, outs)

    def _add(self, addresses: list[list], made: tuple, part: tuple[Sharded, int, int], more: More, held: list) -> None:
        """Add what the exchanges take of one part, whose results are ``made``."""
        x, rank, stream = part
        given = bits_of(self.marking, (None,) * len(self.marking.args), more.args[rank]) if self.marking.args else []
        edges: tuple[int, ...] = (x.pointers[rank],)
        if more.counts is not None:
            given.append(arrays.adapter(more.counts[rank]).address(more.counts[rank]))
        else:
            edges, copies = self._edges(x.parts[rank], x.views[rank], stream)
            held.append(copies)
        for number, (after, _) in enumerate(self.seams):
            out = arrays.adapter(made[number]).address(made[number])
            if after and not self.counted:
                out += (self.lengths[rank] - 1) * self.inner * self.size
            addresses[number].append((*(edges if after else edges[::-1]), *given, out))

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


def plan_of(
    call: Callable, arguments: tuple, spec: FlagSpec, xs: tuple[Sharded, ...], inputs: Inputs
) -> FlagPlan | Counted | Apart:
    """Return the plan of a call whose whole array has the Spec ``spec``; ``call`` is the front end for one part."""
    x, axis, marking = xs[0], xs[0].axis, spec.marking
    if axis is None or axis != spec.axis or not full_ranks(x):
        return Apart(call, arguments, Results(axis, x.lengths))
    before = math.prod(x.shape[:axis]) > 1
    strided = before or not all(view.contiguous for view in x.views)
    refused: Sequence[tuple[bool, str, str]] = (
        (inputs.counted and strided, "n", "an array, of several rows or strided parts"),
        (spec.n is not None and bool(marking.args), "n", "a number, with args"),
        (spec.tile is not None, "tile", f"{spec.tile}"),
        (marking.bits, "dtype", "'bits'"),
        (takes_index(marking.op.fn, len(marking.args)), "op", "a callable that takes the index"),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, along the sharded axis {axis}", "that along other axes"))
    if spec.n is None:
        return FlagPlan(call, arguments, spec, x, x.lengths, inputs)
    lengths = leading_lengths(x, spec.n)
    taken = leading(x, lengths)
    if not full_ranks(taken):
        return Apart(call, arguments, Results(axis, x.lengths))
    plan = FlagPlan(call, arguments, spec, taken, x.lengths, inputs)
    return Counted(plan, x, lengths, (marking.result,) * marking.outputs)
