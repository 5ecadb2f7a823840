"""Selections from sharded arrays: each device selects from its part, and the counts are exchanged.

The values stay where they are selected: a ``Ragged``, with the number of values on each device and before it. For runs,
an exchange first finds whether the first element of each part differs from the one before it; where only the devices
know how many elements count, the heads are flagged and then selected, with one more pass over the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import BY_NAME, INT64, DType
from ..errors import ArgumentValueError, explain
from ..kernels.flags import flag_heads
from ..kernels.flags.spec import Marking
from ..kernels.segments import reduce_by_key
from ..kernels.select import select
from ..kernels.select.calls import again, resumed
from ..kernels.select.spec import SelectSpec
from ..ops import COMPARISONS, neighbour_operator
from .exchange import Exchange, Side
from .flags import Seam
from .inputs import Inputs
from .leading import leading_lengths
from .places import Shift
from .reduce import full_ranks
from .sharded import Ragged, Sharded
from .tally import tally
from .work import Work

FLAG = BY_NAME["uint8"]


class SelectPlan:
    """A selection: a call for each part, then an exchange of counts."""

    def __init__(
        self, call: Callable, arguments: tuple, spec: SelectSpec, xs: tuple[Sharded, ...], inputs: Inputs
    ) -> None:
        first = xs[0]
        self.group, self.inputs = first.group, inputs
        (given,) = arguments
        self.calls = [(call, arguments)] * self.group.size
        if inputs.ragged and inputs.n is None:
            self.calls = [again(given, None)] * self.group.size
        elif given.n is not None:
            self.calls = [again(given, n) for n in leading_lengths(first, given.n)]
        self.exchange = tally(self.group)
        self.like = self.group.allocators(first, (), INT64)
        self.shift = Shift(first) if spec.selection.indices else None  # indices come behind the values

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: None = None,
        ragged: Ragged | None = None,
    ) -> tuple:
        group, found = self.group, []
        offsets, totals, places = [], [], []  # type: tuple[list, list, list]
        with Work(group, streams, explicit) as work:
            xs, more = self.inputs.data(xs), self.inputs.more(xs, ragged, work)
            first = self.begin(xs[0], work)
            for rank, stream in enumerate(streams):
                work.at(rank)
                x, *others = [y.parts[rank] for y in xs]
                others += () if more.counts is None else (more.counts[rank],)
                others += (*more.args[rank], *first[rank])
                call, arguments = self.calls[rank]
                found.append(call(arguments, x, None, stream if explicit else None, tuple(others)))
                if self.shift is not None:
                    *_, indices, count = found[-1]
                    self.shift.launch(rank, indices, count, work)
                library, empty = self.like[rank]
                offset, total, address = empty(stream, explicit), empty(stream, explicit), library.address
                offsets.append(offset)
                totals.append(total)
                places.append((address(found[-1][-1]), address(offset), address(total)))
            self.exchange.launch_all(places, work)
        *values, counts = zip(*found)
        rooms = [Sharded.of_results(group, parts, 0) for parts in values]
        return *[Ragged(room, counts, offsets) for room in rooms], Sharded.of_results(group, totals, None)

    def begin(self, x: Sharded, work: Work) -> list[tuple]:
        """Return what the call of each part takes behind its other inputs."""
        return [()] * self.group.size


class HeadPlan(SelectPlan):
    """The first element of each run of equal neighbours."""

    def __init__(
        self, call: Callable, arguments: tuple, spec: SelectSpec, xs: tuple[Sharded, ...], inputs: Inputs
    ) -> None:
        super().__init__(call, arguments, spec, xs, inputs)
        x, (given,) = xs[0], arguments
        marking = Marking(
            "heads", neighbour_operator(differs(given.wanted.equal_nan, x.dtype), COMPARISONS), x.dtype, FLAG
        )
        full, sides = full_ranks(x), []
        for rank in range(self.group.size):
            before = [other for other in full if other < rank] if rank in full else []
            sides.append(Side(rank in full, 1 << before[-1] if before else 0, (1, 1)))
        operation: Any = Seam(marking, False, False)
        self.seam = Exchange(self.group, operation, 1, sides)
        self.after = full[1:]  # ranks whose first element has one before it
        for rank in self.after:
            self.calls[rank] = resumed(given)
        self.flags = self.group.allocators(x, (1,), FLAG)

    def begin(self, x: Sharded, work: Work) -> list[tuple]:
        flags, places = [], []
        for rank, (library, empty) in enumerate(self.flags):
            work.at(rank)
            flags.append(empty(work.streams[rank], work.explicit))
            first, step = x.pointers[rank], x.views[rank].steps[0] * x.dtype.size
            items = (first + (x.lengths[rank] - 1) * step, first) if x.lengths[rank] else (0, 0)
            places.append((*items, library.address(flags[rank])))
        self.seam.launch_all(places, work)
        return [(flags[rank],) if rank in self.after else () for rank in range(self.group.size)]


class LengthPlan:
    """The first element and the length of each run of equal neighbours: a reduction by keys, of ones."""

    def __init__(self, equal_nan: bool, dtype: DType) -> None:
        self.equal_nan, self.dtype = equal_nan, dtype.name

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> tuple:
        (x, *_), stream = xs, streams if explicit else None
        options: dict[str, Any] = {"equal_nan": self.equal_nan, "dtype": self.dtype, "stream": stream}
        found = reduce_by_key(x, x, "add", transform=one, **options)
        return found.keys, found.values, found.count


def one(element: Any) -> int:
    """1 for each element."""
    return 1


class RunPlan:
    """The first element of each run of equal neighbours: the heads are flagged, then selected."""

    def __init__(self, equal_nan: bool, dtype: DType, n: int | None) -> None:
        self.n, self.op = n, differs(equal_nan, dtype)

    def run(
        self,
        xs: tuple[Sharded, ...],
        streams: tuple[int, ...],
        explicit: bool,
        outs: None = None,
        ragged: Ragged | None = None,
    ) -> tuple:
        stream, x = streams if explicit else None, ragged or xs[0]
        n: Any = xs[1] if len(xs) > 1 else self.n
        with xs[0].group.together():
            heads: Any = flag_heads(x, self.op, n=n, stream=stream)
            found = select(x, heads, n=n, stream=stream)
        return found.values, found.count


def differs(equal_nan: bool, dtype: DType) -> Any:
    """Return the operator that says whether an element begins a run."""
    return unlike if equal_nan and dtype.kind == "f" else "ne"


def unlike(a: Any, b: Any) -> Any:
    """Whether two floats differ, where NaN equals NaN."""
    return (a != b) & ((a == a) | (b == b))


def plan_of(
    call: Callable, arguments: tuple, spec: SelectSpec, given_: tuple, inputs: Inputs
) -> SelectPlan | HeadPlan | RunPlan | LengthPlan:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; ``call`` is the front end for one part."""
    xs = inputs.data(given_)
    first, chosen, (given,) = xs[0], spec.selection, arguments
    axis = 0 if first.axis is None else first.axis
    refused = (
        (first.axis is None, "x", "an array that is whole on every device"),
        (math.prod(first.shape[:axis]) > 1, "x", f"an array of shape {first.shape} sharded along axis {axis}"),
        (chosen.axes > 1, "x", f"the coordinates of an array of shape {first.shape}"),
        (chosen.indices and (given.wanted.heads or inputs.ragged), "indices", "True, of runs or of a Ragged"),
        (chosen.inverse, "return_inverse", "True"),
        (chosen.lengths is not None and inputs.counted, "n", "an array, with lengths of runs"),
        (chosen.lengths is not None and given.n is not None, "n", "a number, with lengths of runs"),
        (chosen.takes_index, "where", "a callable that takes the index"),
        (spec.capacity != spec.whole or bool(spec.fill), "size", f"{spec.capacity}"),
        (bool(chosen.rows), "axis", "rows"),
        (chosen.rejects, "x", "elements to partition"),
        (given.wanted.heads and (len(xs) > 1 or first.ndim > 1), "x", "several arrays, or several axes"),
        (given.where is not None and given.wanted.heads, "equal", "a callable"),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, for a Sharded", "one device", "np.asarray(x) copies it"))
    if chosen.lengths is not None:
        return LengthPlan(chosen.equal_nan, chosen.lengths)
    if given.wanted.heads:
        if inputs.counted or inputs.ragged or given.n is not None or not full_ranks(first):
            return RunPlan(chosen.equal_nan, first.dtype, given.n)
        return HeadPlan(call, arguments, spec, xs, inputs)
    return SelectPlan(call, arguments, spec, xs, inputs)
