"""Vector clocks: which events each thread knows to have happened, kept as small as the synchronization in use allows.

An event is (block, actor, time). A block of W warps has 40 actors a warp: its 32 lanes, 7 for the copies that the warp
started, used in turn, and one for its tensor-core reads, which end in the order in which they started. A table maps a
block to the latest time of each actor that is known to have happened; unknown blocks are absent. Arrays are never
changed in place, so copying a clock copies references.

A clock has three parts:

- ``known``: events that are over and whose writes are visible.
- ``proxied``: the events of ``known`` that have also crossed a proxy fence. One table for each state space (``SHARED``,
  ``GLOBAL``), since a ``fence.proxy.async`` may name one, one (``MAPS``) for the writes of tensor maps that a
  ``fence.proxy.tensormap::generic.release`` has followed, and one (``SEQUENTIAL``) for a ``fence.sc``.
- ``invisible``: a clock of events that are only known to be over, without their writes being visible: an arrival from
  another block of the cluster at block scope. That is enough to overwrite what the other block has read (the ring's
  empty barriers rely on it), or a copy that it has waited for, and not enough to read what it wrote. Its ``proxied`` is
  what has crossed a proxy fence in the other block or in the one that waited.

Everything that precedes the launch in its stream is one event of one more block, ``PRECEDING``. Only
``griddepcontrol.wait`` makes it known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

ACTORS = 40
LANES = 32
TENSOR = ACTORS - 1
PRECEDING = -1  # no block has this number
SHARED, GLOBAL, MAPS, SEQUENTIAL = 0, 1, 2, 3
Table = dict[int, np.ndarray]
_NONE: tuple[Table, ...] = ({}, {}, {}, {})  # nothing has crossed a proxy fence: clocks share it, and never change it


def each(lanes: np.ndarray | None) -> Iterable[int]:
    """The numbers of these lanes; None stands for all 32."""
    return range(LANES) if lanes is None else lanes.tolist()


class Clock:
    __slots__ = ("invisible", "known", "proxied")

    def __init__(
        self,
        known: Table | None = None,
        proxied: tuple[Table, ...] | None = None,
        invisible: Clock | None = None,
    ):
        self.known: Table = known if known is not None else {}
        self.proxied: tuple[Table, ...] = proxied if proxied is not None else _NONE
        self.invisible = invisible

    def copy(self) -> Clock:
        invisible = self.invisible.copy() if self.invisible else None
        return Clock(dict(self.known), self._proxied(), invisible)

    def _proxied(self) -> tuple[Table, ...]:
        """A copy of ``proxied`` that may be changed, or ``_NONE``."""
        return _NONE if self.proxied is _NONE else tuple(map(dict, self.proxied))

    def join(self, other: Clock) -> None:
        _join(self.known, other.known)
        if other.proxied is not _NONE:
            if self.proxied is _NONE:
                self.proxied = ({}, {}, {}, {})
            for mine, theirs in zip(self.proxied, other.proxied):
                _join(mine, theirs)
        if other.invisible:
            self.invisible = self.invisible or Clock()
            self.invisible.join(other.invisible)

    def without_visibility(self) -> Clock:
        """The same events, known only to be over; those that have crossed a proxy fence still have."""
        events = Clock(dict(self.known), self._proxied())
        if self.invisible:
            events.join(self.invisible)
        return Clock(invisible=events)

    def fence_proxy(self, space: int) -> None:
        if self.proxied is _NONE:
            self.proxied = ({}, {}, {}, {})
        _join(self.proxied[space], self.known)
        if self.invisible:
            self.invisible.fence_proxy(space)

    def only(self, blocks: Container[int]) -> Clock:
        """Its knowledge of these blocks alone."""
        known, *proxied = ({b: v for b, v in table.items() if b in blocks} for table in (self.known, *self.proxied))
        return Clock(known, tuple(proxied))


def preceding() -> Clock:
    """A clock that knows all earlier launches of the stream to be over and visible."""
    return Clock({PRECEDING: _OVER})


_OVER = np.ones(1, np.int64)


def _join(into: Table, other: Table) -> None:
    for block, theirs in other.items():
        mine = into.get(block)
        if mine is None:
            into[block] = theirs
        elif mine is not theirs:
            into[block] = np.maximum(mine, theirs)


class WarpClock:
    """What one warp's lanes know: a common clock, and clocks of single lanes that have since learnt more."""

    def __init__(self, block: int, warp: int, warps: int, nothing: np.ndarray):
        self.block, self.warp, self.warps = block, warp, warps
        self.time = 1
        self.common = Clock({block: nothing})
        self.single: dict[int, Clock] = {}
        self.async_operations = self.products = 0

    def of(self, lane: int) -> Clock:
        return self.single.get(lane, self.common)

    def groups(self, lanes):
        """``(clock, positions)`` for lanes (None: all) grouped by the clock they share."""
        if not self.single:
            return ((self.common, None),)
        found: dict[int, tuple[Clock, list[int]]] = {}
        for position, lane in enumerate(each(lanes)):
            clock = self.single.get(lane, self.common)
            found.setdefault(id(clock), (clock, []))[1].append(position)
        if len(found) == 1:
            return ((next(iter(found.values()))[0], None),)
        return tuple((clock, np.array(positions)) for clock, positions in found.values())

    def release(self, lanes) -> Clock:
        """What these lanes (None: all) know together, their own past included; their later events are new."""
        (first, _), *rest = self.groups(lanes)
        out = first.copy()
        for clock, _ in rest:
            out.join(clock)
        self._record(out.known, lanes)
        self.time += 1
        return out

    def _record(self, table: Table, lanes) -> None:
        """Note in a table that all events of these lanes (None: all 32) so far have happened."""
        old, start = table.get(self.block), self.warp * ACTORS
        fresh = np.zeros(self.warps * ACTORS, np.int64) if old is None else old.copy()
        fresh[slice(start, start + LANES) if lanes is None else lanes + start] = self.time
        table[self.block] = fresh

    def acquire(self, lanes, clock: Clock, everyone: bool) -> None:
        """These lanes learn ``clock``; ``everyone`` says that they are all the lanes the warp still has."""
        for own in (self.common, *self.single.values()) if everyone else self._own(lanes):
            own.join(clock)

    def _own(self, lanes) -> Iterable[Clock]:
        """Give these lanes clocks of their own, one for those that shared one, and return these clocks."""
        fresh: dict[int, Clock] = {}
        for lane in each(lanes):
            old = self.of(lane)
            self.single[lane] = fresh[id(old)] = fresh.get(id(old)) or old.copy()
        return fresh.values()

    def synchronize(self, lanes, everyone: bool) -> None:
        """``bar.warp.sync``: each of these lanes learns what the others know."""
        together = self.release(lanes)
        if everyone:
            self.common, self.single = together, {}
        else:
            self.single |= dict.fromkeys(each(lanes), together)

    def met(self, together: Clock) -> None:
        """A barrier at which all of its lanes have arrived is complete. ``together`` holds what they released there."""
        if self.single:
            self.single = {}
            self.common.join(together)
        else:
            self.common = together.copy()  # it has all that they knew

    def fence_proxy(self, lanes, everyone: bool, spaces: tuple[int, ...]) -> None:
        """A proxy fence by these lanes: what they know and did has crossed into the proxies of ``spaces``."""
        for clock in (clock for clock, _ in self.groups(lanes)) if everyone else self._own(lanes):
            for space in spaces:
                clock.fence_proxy(space)
                self._record(clock.proxied[space], lanes)
        self.time += 1

    def start_async(self) -> tuple[int, int]:
        """(actor, time) of a new asynchronous operation of this warp."""
        self.async_operations += 1
        return LANES + self.async_operations % (TENSOR - LANES), self.async_operations

    def start_product(self) -> tuple[int, int]:
        """(actor, time) of a new tensor-core operation of this warp. To know one is to know all before it."""
        self.products += 1
        return TENSOR, self.products

    def async_done(self, actor: int, time: int) -> Clock:
        """A clock that knows this asynchronous operation to have finished, and nothing else."""
        array = np.zeros(self.warps * ACTORS, np.int64)
        array[self.warp * ACTORS + actor] = time
        return Clock({self.block: array})
