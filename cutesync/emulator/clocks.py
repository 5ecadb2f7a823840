"""Who knows what: vector clocks, per thread, kept as small as the synchronization in use.

An event is (block, actor, time). A block of W warps has 40 actors a warp: its 32 lanes, and 8 for the asynchronous
operations that the warp started (copies, tensor-core reads), used in turn. A clock maps a block to the latest time of
each actor that is known to have happened; blocks never heard of are absent. Arrays are never changed in place, so
copying a clock copies references.

``proxied`` is the part of that knowledge which has also crossed ``fence.proxy.async``, as the async proxy needs: one
table for each state space (``SHARED``, ``GLOBAL``), since a fence may name one.

``seen`` is a clock of what is only known to be over, without its writes being visible: an arrival from another block
of the cluster at block scope. That is enough to overwrite what the other has read (the ring's empty barriers rely on
it), and not enough to read what it wrote. What has crossed a proxy fence in the other block, or does in the one that
waited, is the ``proxied`` of that clock.

What precedes the launch in its stream counts as the one event of one more block, ``PRECEDING``, that only
``griddepcontrol.wait`` makes known.
"""

from __future__ import annotations

import numpy as np

ACTORS = 40
LANES = 32
PRECEDING = -1  # no block's number
SHARED, GLOBAL = 0, 1


class Clock:
    __slots__ = ("known", "proxied", "seen")

    def __init__(self, known=None, proxied=None, seen=None):
        self.known: dict[int, np.ndarray] = known if known is not None else {}
        self.proxied: tuple[dict[int, np.ndarray], ...] = proxied if proxied is not None else ({}, {})
        self.seen: Clock | None = seen

    def copy(self) -> Clock:
        return Clock(dict(self.known), tuple(map(dict, self.proxied)), self.seen.copy() if self.seen else None)

    def join(self, other: Clock) -> None:
        _join(self.known, other.known)
        for mine, theirs in zip(self.proxied, other.proxied):
            _join(mine, theirs)
        if other.seen:
            self.seen = self.seen or Clock()
            self.seen.join(other.seen)

    def as_seen(self) -> Clock:
        """The same events, known only to be over; those that have crossed a proxy fence still have."""
        seen = Clock(dict(self.known), tuple(map(dict, self.proxied)))
        if self.seen:
            seen.join(self.seen)
        return Clock(seen=seen)

    def tell(self, block: int, warp: int, lanes, time: int, warps: int) -> None:
        """Record that events up to ``time`` of these lanes (None: all 32) of a warp have happened."""
        _advance(self.known, block, warp, lanes, time, warps)

    def fence_proxy(self, space: int) -> None:
        _join(self.proxied[space], self.known)
        if self.seen:
            self.seen.fence_proxy(space)

    def only(self, block: int) -> Clock:
        """What it says about one block alone."""
        known, *proxied = ({b: v for b, v in table.items() if b == block} for table in (self.known, *self.proxied))
        return Clock(known, tuple(proxied))


def preceding() -> Clock:
    """The clock that says: the launch before, and all before that, are over and visible."""
    return Clock({PRECEDING: _OVER})


_OVER = np.ones(1, np.int64)


def _advance(into: dict, block: int, warp: int, lanes, time: int, warps: int) -> None:
    old = into.get(block)
    fresh = np.zeros(warps * ACTORS, np.int64) if old is None else old.copy()
    if lanes is None:
        fresh[warp * ACTORS : warp * ACTORS + LANES] = time
    else:
        fresh[lanes + warp * ACTORS] = time
    into[block] = fresh


def _join(into: dict, other: dict) -> None:
    for block, theirs in other.items():
        mine = into.get(block)
        if mine is None:
            into[block] = theirs
        elif mine is not theirs:
            into[block] = np.maximum(mine, theirs)


class WarpClock:
    """The knowledge of one warp's lanes: one common clock, and clocks of single lanes that have learnt more since they
    last met.
    """

    def __init__(self, block: int, warp: int, warps: int, nothing: np.ndarray):
        self.block, self.warp, self.warps = block, warp, warps
        self.time = 1
        self.common = Clock({block: nothing})
        self.single: dict[int, Clock] = {}
        self.async_operations = 0

    def of(self, lane: int) -> Clock:
        return self.single.get(lane, self.common)

    def groups(self, lanes):
        """``(clock, positions)`` for lanes (None: all) grouped by the clock they share."""
        if not self.single:
            return ((self.common, None),)
        numbers = range(LANES) if lanes is None else lanes.tolist()
        found: dict[int, tuple[Clock, list[int]]] = {}
        for position, lane in enumerate(numbers):
            clock = self.single.get(lane, self.common)
            found.setdefault(id(clock), (clock, []))[1].append(position)
        if len(found) == 1:
            return ((next(iter(found.values()))[0], None),)
        return tuple((clock, np.array(positions)) for clock, positions in found.values())

    def release(self, lanes) -> Clock:
        """What these lanes (None: all) know together, their own past included; their later events are new."""
        out = self._together(lanes)
        out.tell(self.block, self.warp, lanes, self.time, self.warps)
        self.time += 1
        return out

    def _together(self, lanes) -> Clock:
        if not self.single:
            return self.common.copy()
        numbers = range(LANES) if lanes is None else lanes.tolist()
        clocks = {id(self.of(lane)): self.of(lane) for lane in numbers}
        first, *rest = clocks.values()
        out = first.copy()
        for clock in rest:
            out.join(clock)
        return out

    def acquire(self, lanes, clock: Clock, everyone: bool) -> None:
        """These lanes learn ``clock``; ``everyone`` says that they are all the lanes the warp still has."""
        if everyone:
            self.common.join(clock)
            for own in self.single.values():
                own.join(clock)
            return
        fresh: dict[int, Clock] = {}
        for lane in range(LANES) if lanes is None else lanes.tolist():
            old = self.of(lane)
            if id(old) not in fresh:
                fresh[id(old)] = old.copy()
                fresh[id(old)].join(clock)
            self.single[lane] = fresh[id(old)]

    def meet(self, lanes, everyone: bool) -> None:
        """``bar.warp.sync``: each of these lanes learns what the others know."""
        together = self.release(lanes)
        if everyone:
            self.common, self.single = together, {}
        else:
            for lane in range(LANES) if lanes is None else lanes.tolist():
                self.single[lane] = together

    def fence_proxy(self, lanes, everyone: bool, spaces: tuple[int, ...]) -> None:
        """``fence.proxy.async`` by these lanes: what they know and did has crossed, on any way that begins at them."""
        if not everyone:
            fresh: dict[int, Clock] = {}
            for lane in lanes.tolist():
                old = self.of(lane)
                self.single[lane] = fresh[id(old)] = fresh.get(id(old)) or old.copy()
        for clock, _ in self.groups(lanes):
            for space in spaces:
                clock.fence_proxy(space)
                _advance(clock.proxied[space], self.block, self.warp, lanes, self.time, self.warps)
        self.time += 1

    def start_async(self) -> tuple[int, int]:
        """(actor, time) of a new asynchronous operation of this warp."""
        self.async_operations += 1
        return LANES + self.async_operations % (ACTORS - LANES), self.async_operations

    def async_done(self, actor: int, time: int) -> Clock:
        """The clock that says: that asynchronous operation has finished (and nothing else)."""
        array = np.zeros(self.warps * ACTORS, np.int64)
        array[self.warp * ACTORS + actor] = time
        return Clock({self.block: array})
