"""Calls on Sharded arrays made again.

The first time, the plan of a call makes it, and a ``Recorder`` observes what that does on each device: which results
and temporaries it makes, and which launches it makes at which addresses. Later calls with the plan do the same at the
addresses of their arrays (``Record``), whatever functions the plan called in between.

"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..kernels.args import Bits
from ..runtime import arrays, call as front_ends
from .recorder import Recorder
from .sharded import Ragged, Sharded
from .work import Together

if TYPE_CHECKING:
    from .group import Group
    from .memory import SymmetricMemory

_MOST = 16  # records of a plan
_TRIALS = 4  # calls of a plan that are observed in vain


class Record:
    """What a call did. ``steps``: on which device, what makes arrays there, a launch and its addresses, and which arrays
    nothing needs from then on. Addresses are places among 0, those of the call's arrays, ``moved`` (at a distance from
    one of these), ``more`` (constants, and numbers of the call), and those of arrays that are made.
    Arrays at the places ``same`` are in the same memory."""

    __slots__ = ("_more", "_moved", "_result", "_steps", "plans", "same")

    def __init__(self, steps: list, result: Callable, moved: list, more: list, same: list[tuple[int, int]]) -> None:
        self._steps, self._result, self._moved, self._more, self.same = steps, result, moved, more, same
        self.plans = front_ends._plans

    def fits(self, addresses: list[int]) -> bool:
        return all(addresses[a] == addresses[b] for a, b in self.same)

    def run(self, addresses: list[int], where: tuple[Group, tuple[int, ...], bool], ragged: Ragged | None) -> Any:
        """Make the call again; ``addresses`` are 0 and those of its arrays."""
        group, streams, explicit = where
        made: list = []
        for place, distance in self._moved:
            addresses.append(addresses[place] + distance)
        for number in self._more:
            addresses.append(number.now() if isinstance(number, Bits) else number)
        with Together(group) as work:
            at = work.at
            for rank, makers, run, places, drops in self._steps:
                at(rank)
                stream = streams[rank]
                for empty, address, distances in makers:
                    y = empty(stream, explicit)
                    made.append(y)
                    start = address(y)
                    addresses.append(start)
                    for distance in distances:
                        addresses.append(start + distance)
                if run is not None:
                    run(places(addresses), stream)
                for i in drops:
                    made[i] = None
        return self._result(made, group, ragged)


class Prepared:
    """The plan of a call, and what it did, for each symmetric memory: that of the streams, or of a graph."""

    __slots__ = ("_left", "_records", "plan")

    def __init__(self, plan: Any) -> None:
        self.plan, self._left = plan, _TRIALS
        self._records: dict[SymmetricMemory, Record] = {}

    def run(
        self,
        xs: tuple[Sharded, ...],
        where: tuple[Group, tuple[int, ...], bool],
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
    ) -> Any:
        """Make the call. ``where``: the group, its stream on each device, and whether the caller gave these."""
        group, streams, explicit = where
        more: tuple = (outs,) if ragged is None else (outs, ragged)
        more = () if outs is None and ragged is None else more
        recorders = front_ends.recorders
        if group.team is not None or (recorders and get_ident() in recorders):
            return self.plan.run(xs, streams, explicit, *more)
        memory = group.memory(streams)
        record = self._records.get(memory)
        if record is not None and record.plans is front_ends._plans:
            addresses = _addresses(xs, outs, ragged)
            if not record.same or record.fits(addresses):
                return record.run(addresses, where, ragged)
        elif not self._left:
            return self.plan.run(xs, streams, explicit, *more)
        recorder = Recorder(group, streams, _given(xs, outs, ragged))
        found = recorder.observe(lambda: self.plan.run(xs, streams, explicit, *more))
        made = recorded(recorder, found if outs is None else None, ragged)
        if made is None:
            self._left = max(self._left - 1, 0)
        else:
            if len(self._records) >= _MOST:
                self._records.clear()
            self._records[memory] = made
        return found


def _addresses(xs: Sequence[Any], outs: Sequence[Sharded] | None, ragged: Ragged | None) -> list[int]:
    """Return 0, and the addresses of all arrays of a call."""
    found = [0]
    for x in xs:
        if x is not None:
            found += x.pointers
    if outs is not None:
        for y in outs:
            found += y.pointers
    if ragged is not None:
        found += [arrays.adapter(x).identify_strided(x)[0] for x in (*ragged.counts, *ragged.offsets)]
    return found


def _given(xs: Sequence[Any], outs: Sequence[Sharded] | None, ragged: Ragged | None) -> list[Any]:
    """Return the views of these arrays, in the same order."""
    views = [view for x in (*xs, *(outs or ())) if x is not None for view in x.views]
    alone = () if ragged is None else (*ragged.counts, *ragged.offsets)
    return views + [arrays.adapter(x).view(x) for x in alone]


def recorded(recorder: Recorder, result: Any, ragged: Ragged | None) -> Record | None:
    """Return the Record of a call with this result; None if it cannot be made again."""
    results = _Results(recorder.made, ragged)
    make = results.of(result)
    if make is None or not recorder.whole:
        return None
    layout = _Layout(recorder, results.used)
    return Record(layout.steps, results.all_of(make), layout.moved, layout.more, recorder.same)


class _Layout:
    """The places of the addresses of a call, and its steps. Arrays that are not ``kept`` for the result are needed up
    to the last launch that uses them."""

    def __init__(self, recorder: Recorder, kept: set[int]) -> None:
        given, events = recorder.given, recorder.events
        used = [place for *_, places in events for place in places or ()]
        arrays_used = {place for place in used if type(place) is tuple}
        self.moved = [(1 + i, distance) for i, distance in sorted(arrays_used) if i < given and distance]
        self.more = [place for place in used if type(place) is not tuple and (isinstance(place, Bits) or place)]
        self.at: dict[Any, int] = {(i, 0): 1 + i for i in range(given)}
        self.at |= {(i - 1, distance): 1 + given + k for k, (i, distance) in enumerate(self.moved)}
        first = 1 + given + len(self.moved)
        self.numbers = iter(range(first, first + len(self.more)))
        self.next, self.steps, made = first + len(self.more), [], given
        last = {place[0]: k for k, (*_, places) in enumerate(events) for place in places or () if type(place) is tuple}
        makers: list[tuple] = []
        for k, (rank, function, address, places) in enumerate(events):
            if places is None:
                distances = sorted(distance for i, distance in arrays_used if i == made and distance)
                self._follow(made, distances)
                makers.append((function, address, distances))
                made += 1
            else:
                drops = [i - given for i, at in last.items() if at == k and i >= given and i - given not in kept]
                self.steps.append((rank, makers, function, self._getter(places), drops))
                makers = []
            behind = events[k + 1][0] if k + 1 < len(events) else None
            if makers and behind != rank:
                self.steps.append((rank, makers, None, None, ()))
                makers = []

    def _follow(self, array: int, distances: list[int]) -> None:
        """Give places to the addresses of an array that is made."""
        for distance in (0, *distances):
            self.at[array, distance] = self.next
            self.next += 1

    def _getter(self, places: list) -> Callable[[list[int]], tuple[int, ...]]:
        """Return what takes the addresses of a launch."""
        found = [self.at[p] if type(p) is tuple else next(self.numbers) if self._is_more(p) else 0 for p in places]
        return _taken(found)

    @staticmethod
    def _is_more(place: Any) -> bool:
        return isinstance(place, Bits) or place != 0


class _Results:
    """What makes a result of the arrays that a call makes. Several parts of it may share a tuple of arrays, as all
    values of a selection share their counts: these are made first."""

    def __init__(self, made: list[Any], ragged: Ragged | None) -> None:
        self._made, self._ragged = {id(y): i for i, y in enumerate(made)}, ragged
        self.used: set[int] = set()
        self._tuples: dict[int, tuple[int, Callable]] = {}

    def all_of(self, make: Callable) -> Callable[[list, Group, Ragged | None], Any]:
        getters = [get for _, get in self._tuples.values()]
        return lambda made, group, ragged: make(made, [get(made) for get in getters], group, ragged)

    def of(self, result: Any) -> Callable[[list, list, Group, Any], Any] | None:
        """Return ``make(made, tuples, group, ragged)``; None for what is made of something else."""
        if isinstance(result, Sharded):
            parts, axis = self._tuple(result.parts), result.axis
            return parts and (
                lambda made, tuples, group, ragged: Sharded.of_results(group, parts(tuples, ragged), axis)
            )
        if isinstance(result, Ragged):
            return self._of_ragged(result)
        if id(result) in self._made:
            place = self._made[id(result)]
            self.used.add(place)
            return lambda made, *more: made[place]
        if result is None:
            return lambda *more: None
        if not isinstance(result, (tuple, list)):
            return None
        members, kind = [self.of(member) for member in result], type(result)
        return None if None in members else lambda *given: kind([member(*given) for member in members])  # type: ignore

    def _of_ragged(self, result: Ragged) -> Callable | None:
        room, counts, offsets = self.of(result.room), self._tuple(result.counts), self._tuple(result.offsets)
        if room is None or counts is None or offsets is None:
            return None
        return lambda made, tuples, group, ragged: Ragged(
            room(made, tuples, group, ragged), counts(tuples, ragged), offsets(tuples, ragged)
        )

    def _tuple(self, given: Sequence[Any]) -> Callable[[list, Any], Any] | None:
        """Return what takes a tuple of arrays: one of all that are made, or one of the call's Ragged."""
        for name in ("counts", "offsets"):
            if self._ragged is not None and given is getattr(self._ragged, name):
                return lambda tuples, ragged: getattr(ragged, name)
        places = [self._made.get(id(y)) for y in given]
        if None in places:
            return None
        self.used.update(places)  # type: ignore[arg-type]
        number, _ = self._tuples.setdefault(id(given), (len(self._tuples), _taken(places)))
        return lambda tuples, ragged: tuples[number]


def _taken(places: list) -> Callable[[list], tuple]:
    """Return what takes a tuple of members of a list."""
    if len(places) == 1:
        (only,) = places
        return lambda found: (found[only],)
    return operator.itemgetter(*places)
