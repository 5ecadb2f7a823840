"""Calls on Sharded arrays made again.

The first time, the plan of a call makes it, and a ``Recorder`` observes what that does on each device: which results
and temporaries it makes, and which launches it makes at which addresses. Later calls with the plan do the same at the
addresses of their arrays (``Record``), whatever functions the plan called in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..kernels.args import Bits
from ..runtime import arrays, backend, call as front_ends
from ..runtime.device_array import DeviceArray, placer
from .recorder import Recorder, observer
from .sharded import Ragged, Sharded

if TYPE_CHECKING:
    from .group import Group
    from .memory import SymmetricMemory

_MOST = 16  # records of a plan
_TRIALS = 4  # calls of a plan that are observed in vain
_HELD = 1 << 14  # bytes of a temporary that a record keeps: carries, numbers of elements
_SLOT = 256  # bytes of results that share memory: counts, offsets
_Where = tuple["Group", tuple[int, ...], bool]


class Record:
    """What a call did. ``run(addresses, streams, explicit, group, ragged)`` does it again with arrays at other
    addresses, of which those at the places ``same`` must be equal. ``held`` are the temporaries that all calls use, as
    they have the same streams."""

    __slots__ = ("_held", "_run", "plans", "same")

    def __init__(self, run: Callable, same: list[tuple[int, int]], held: list[Any]) -> None:
        self._run, self.same, self._held = run, same, held
        self.plans = front_ends._plans

    def fits(self, addresses: list[int]) -> bool:
        return all(addresses[a] == addresses[b] for a, b in self.same)

    def run(self, addresses: list[int], where: _Where, ragged: Ragged | None) -> Any:
        """Make the call again. If a launch fails, the next ones begin anew."""
        group, streams, explicit = where
        try:
            return self._run(addresses, streams, explicit, group, ragged)
        except BaseException:
            group.forget()
            raise


class Prepared:
    """The plan of a call, and what it did, for each symmetric memory: that of the streams, or of a graph."""

    __slots__ = ("__weakref__", "_left", "_records", "plan")

    def __init__(self, plan: Any) -> None:
        self.plan, self._left = plan, _TRIALS
        self._records: dict[SymmetricMemory, Record] = {}

    def run(
        self,
        xs: tuple[Sharded, ...],
        where: _Where,
        outs: tuple[Sharded, ...] | None = None,
        ragged: Ragged | None = None,
        addresses: list[int] | None = None,
    ) -> Any:
        """Make the call. ``where``: the group, its stream on each device, and whether the caller gave these.
        ``addresses`` are those of the arrays, if they are known."""
        group, streams, explicit = where
        more: tuple = (outs,) if ragged is None else (outs, ragged)
        more = () if outs is None and ragged is None else more
        if group.team is not None or observer() is not None:
            return self.plan.run(xs, streams, explicit, *more)
        memory = group.memory(streams)
        record = self._records.get(memory)
        if record is not None and record.plans is front_ends._plans:
            if addresses is None:
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
    """Return the addresses of all arrays of a call."""
    found: list[int] = []
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
    if not recorder.whole:
        return None
    text = _Text(recorder, ragged)
    returned = text.of(result)
    if returned is None:
        return None
    run = _compiled(text.code(returned), tuple(text.objects))(*text.objects.values())
    return Record(run, recorder.same, text.held)


@functools.lru_cache(maxsize=1024)
def _compiled(code: str, names: tuple[str, ...]) -> Callable:
    """Return ``make(*objects)``, which returns ``run`` of a Record. ``names`` are those of the objects in the code."""
    found: dict[str, Any] = {}
    exec(f"def make({', '.join(names)}):\n{code}    return run\n", found)
    return found["make"]


def shares_memory(ordinal: int) -> bool:
    """Return whether small arrays of a device share memory. The emulator's do not: it checks what lies around each."""
    return not backend.of(ordinal).on_host


class _Text:
    """The code of a call, which has no loops. An array that is made is ``y1``, its address ``a1``; given addresses are
    ``g0``. ``objects`` are what the code uses, by name."""

    def __init__(self, recorder: Recorder, ragged: Ragged | None) -> None:
        self.recorder, self.ragged = recorder, ragged
        self.objects: dict[str, Any] = {"Sharded": Sharded.of_results, "Ragged": Ragged}
        self.held: list[Any] = []
        self._made = {id(y): i for i, y in enumerate(recorder.made)}
        self._kept: set[int] = set()
        self._tuples: dict[int, tuple[str, str]] = {}
        self._packs: dict[int, int] = {}  # arrays that share the memory of their device, by rank

    def of(self, result: Any) -> str | None:
        """Return what makes a result; None for one of something else than arrays that the call makes."""
        if result is None:
            return "None"
        if isinstance(result, Sharded):
            parts = self._tuple(result.parts)
            like = self._named("f", result.facts._replace(views=None, spans=None))
            return parts and f"Sharded(group, {parts}, {result.axis!r}, {like})"
        if isinstance(result, Ragged):
            members = [self.of(result.room), self._tuple(result.counts), self._tuple(result.offsets)]
            return None if None in members else f"Ragged({', '.join(members)})"  # type: ignore[arg-type]
        if id(result) in self._made:
            self._kept.add(self._made[id(result)])
            return f"y{self._made[id(result)]}"
        if not isinstance(result, (tuple, list)):
            return None
        members = [self.of(member) for member in result]
        if None in members:
            return None
        members = "".join(f"{member}, " for member in members)  # type: ignore[assignment]
        return f"({members})" if isinstance(result, tuple) else f"[{members}]"

    def _tuple(self, given: Sequence[Any]) -> str | None:
        """Return a tuple of arrays. One that several parts of a result have is made once."""
        for name in ("counts", "offsets"):
            if self.ragged is not None and given is getattr(self.ragged, name):
                return f"ragged.{name}"
        members = [self.of(y) for y in given]
        if None in members:
            return None
        made = "".join(f"{member}, " for member in members)
        name, _ = self._tuples.setdefault(id(given), (f"t{len(self._tuples)}", made))
        return name

    def code(self, returned: str) -> str:
        """Return the definition of ``run``, which returns this."""
        recorder = self.recorder
        last = {p[0]: k for k, (*_, places) in enumerate(recorder.events) for p in places or () if type(p) is tuple}
        lines, current, array = ["pass"], None, recorder.given
        for k, (rank, function, address_of, places) in enumerate(recorder.events):
            added = []
            if places is None:
                added = self._make(array, rank, function, address_of)
                array += 1
            else:
                given = "".join(f"{self._address(place)}, " for place in places)
                added.append(f"{self._named('r', function)}(({given}), s{rank})")
                added += [f"del {y}" for i, at in last.items() if at == k and (y := self._needed_no_more(i))]
            if added and rank != current:
                current = rank
                lines.append(f"at({rank})")
            lines += added
        head = [f"{''.join(f'g{i}, ' for i in range(recorder.given))} = given"] if recorder.given else []
        head += [f"{''.join(f's{rank}, ' for rank in range(len(recorder.streams)))} = streams"]
        end = [f"{name} = ({members})" for name, members in self._tuples.values()]
        body = [*head, "with group.at_once() as at:", *(f"    {line}" for line in lines), *end, f"return {returned}"]
        return "".join(
            ["    def run(given, streams, explicit, group, ragged):\n", *(f"        {line}\n" for line in body)]
        )

    def _named(self, letter: str, thing: Any) -> str:
        """Return the name of an object."""
        name = f"{letter}{len(self.objects)}"
        self.objects[name] = thing
        return name

    def _make(self, array: int, rank: int, empty: Callable, address_of: Callable) -> list[str]:
        """Return the lines that make an array; none for one that all calls use."""
        number = array - self.recorder.given
        y, view = self.recorder.made[number], self.recorder.views[array]
        if self._is_held(array):
            self.held.append(y)
            return []
        if type(y) is not DeviceArray:
            address = f"{self._named('d', address_of)}(y{number})"
            return [f"y{number} = {self._named('e', empty)}(s{rank}, explicit)", f"a{number} = {address}"]
        place = self._named("n", placer(view.shape, view.dtype, view.device))
        if self._is_packed(array):
            lines, slot = self._slot(array, rank)
            return [*lines, f"a{number} = p{rank} + {slot * _SLOT}", f"y{number} = {place}(a{number}, o{rank})"]
        return [self._allocate(f"a{number}, owner", view.nbytes, rank), f"y{number} = {place}(a{number}, owner)"]

    def _allocate(self, names: str, size: int, rank: int) -> str:
        ordinal = self.recorder.group.ordinals[rank]
        return f"{names} = {self._named('m', backend.of(ordinal).allocate_here)}({size}, {ordinal}, s{rank})"

    def _is_packed(self, array: int) -> bool:
        """Return whether an array is a small DeviceArray, which takes longer to allocate than to make."""
        view, y = self.recorder.views[array], self.recorder.made[array - self.recorder.given]
        small = type(y) is DeviceArray and view.nbytes <= _SLOT and not self._is_held(array)
        return small and shares_memory(view.device)

    def _slot(self, array: int, rank: int) -> tuple[list[str], int]:
        """Return the place of an array in the memory of all small ones of its device, and the lines that make that."""
        lines, slot = [], self._packs.get(rank)
        if slot is None:
            ranks = [at for at, _, _, places in self.recorder.events if places is None]
            count = sum(at == rank and self._is_packed(i) for i, at in enumerate(ranks, self.recorder.given))
            lines, slot = [self._allocate(f"p{rank}, o{rank}", count * _SLOT, rank)], 0
        self._packs[rank] = slot + 1
        return lines, slot

    def _is_held(self, array: int) -> bool:
        view, number = self.recorder.views[array], array - self.recorder.given
        return number not in self._kept and view.nbytes <= _HELD

    def _needed_no_more(self, array: int) -> str:
        """Return the name of an array after the last launch that uses it; none of one that is needed still: other
        streams than the call's use arrays until the call lets its own wait for them."""
        number = array - self.recorder.given
        needed = number < 0 or number in self._kept or self._is_held(array) or self.recorder.kernels
        return "" if needed else f"y{number}"

    def _address(self, place: Any) -> str:
        """Return an address of a launch."""
        if isinstance(place, Bits):
            return f"{self._named('b', place)}.now()"
        if not isinstance(place, tuple):
            return str(place)
        array, distance = place
        if array >= self.recorder.given and self._is_held(array):
            return str(self.recorder.views[array].ptr + distance)
        name = f"g{array}" if array < self.recorder.given else f"a{array - self.recorder.given}"
        return f"{name} + {distance}" if distance else name
