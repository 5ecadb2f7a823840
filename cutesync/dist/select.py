"""Selections from sharded arrays: each device selects from its part, and the counts are exchanged.

The values stay where they are selected: a ``Ragged``, with the number of values on each device and before it. Runs
across a seam are found by flagging the heads first, with one more pass over the part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import INT64, DType
from ..errors import ArgumentValueError, explain
from ..kernels.flags import flag_heads
from ..kernels.segments import reduce_by_key
from ..kernels.select import select
from ..kernels.select.calls import again
from ..kernels.select.spec import SelectSpec
from .inputs import Inputs
from .leading import leading_lengths
from .places import Shift
from .sharded import Ragged, Sharded
from .tally import tally
from .work import Work


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
            for rank, stream in enumerate(streams):
                work.at(rank)
                x, *others = [y.parts[rank] for y in xs]
                others += () if more.counts is None else (more.counts[rank],)
                others += more.args[rank]
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
        self.n = n
        self.op: Any = unlike if equal_nan and dtype.kind == "f" else "ne"

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


def unlike(a: Any, b: Any) -> Any:
    """Whether two floats differ, where NaN equals NaN."""
    return (a != b) & ((a == a) | (b == b))


def plan_of(
    call: Callable, arguments: tuple, spec: SelectSpec, given_: tuple, inputs: Inputs
) -> SelectPlan | RunPlan | LengthPlan:
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
        return RunPlan(chosen.equal_nan, first.dtype, given.n)
    return SelectPlan(call, arguments, spec, xs, inputs)
