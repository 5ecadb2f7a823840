"""Asynchronous operations in flight: copies that land late, early, in pieces and out of order, and commit groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from . import tensor_map
from .clocks import Clock
from .memory import Region
from .shadow import Shadow

if TYPE_CHECKING:
    from .machine import Machine

UNIT = 16
Event = tuple[int, int]  # (actor, time)
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Issue:
    """Which lane started an asynchronous operation, and by which instruction."""

    machine: Machine

    def __init__(self, warp: Any, lane: int, site: int):
        self.machine = warp.machine
        self.warp, self.lane, self.site = warp, lane, site

    def fail(self, kind: str, title: str, lines=()) -> NoReturn:
        self.machine.fail(kind, title, self.warp, [self.lane], self.site, lines)

    def found(self, kind: str, title: str, lines=()) -> None:
        """``fail`` for what a run can go on after."""
        self.machine.found(kind, title, self.warp, [self.lane], self.site, lines)

    def check_preceding(self, region: Region, offset: int | np.ndarray, size: int, write: bool) -> None:
        """Global memory may be accessed only after the launches before have ended. Units of ``size`` bytes at offsets,
        or as many bytes."""
        if self.machine.sanitizer is not None:
            offsets, unit = (offset, size) if isinstance(offset, np.ndarray) else (offset + np.arange(size), 1)
            lanes = np.array([self.lane])
            self.machine.sanitizer.check_preceding(self.warp, lanes, region, self.site, offsets // unit, unit, write)

    def about_to_write(self, region: Region) -> None:
        """Read-only memory is a fault; what another schedule of this launch must find again is kept."""
        if region.sealed:
            region.unseal(self.machine, self.warp, [self.lane], self.site)


class Operation(Issue):
    """One asynchronous operation: pieces of work that may be done in any order, and a second stage after the first.

    For a copy to global memory reading and writing are two events, and to read a tensor map that may be edited is one.
    """

    def __init__(self, warp: Any, lane: int, site: int, name: str):
        super().__init__(warp, lane, site)
        self.name = name
        self.read_event: Event | None = None
        self.write_event: Event | None = None
        self.map_event: Event | None = None
        self.pieces: list[Callable[[], None]] = []
        self.second: list[Callable[[], None]] = []
        self.after: list = []  # operations that must be over first
        self.blocks: set[int] = set()  # those whose shared memory it uses
        self.source: int | None = None  # the one whose shared memory it reads
        self.watchers: list = []
        self.reads_done = self.done = False

    def start(self) -> None:
        machine = self.machine
        machine.pending.append(self)
        machine.effects += 1
        if machine.trace is not None:
            machine.trace.launched(id(self), self.warp.block, self.name)
        machine.schedule.started(self)

    def step(self, choice: int) -> None:
        """Do one piece."""
        waiting = next((o for o in self.after if not o.done), None)
        if waiting is not None:
            waiting.step(choice % len(waiting.pieces))
            return
        self.pieces.pop(choice)()
        self.machine.effects += 1
        if self.pieces:
            return
        self.reads_done = True
        if self.second:
            self.pieces, self.second = self.second, []
        else:
            self.done = True
            self.machine.pending.remove(self)
            if self.machine.trace is not None:
                self.machine.trace.landed(id(self))
        self.machine.wake(self)

    def finished(self, reads_only: bool = False) -> Clock:
        """A clock that knows the operation alone, or with ``reads_only`` its reads."""
        clock = Clock()
        for event in (self.read_event, self.map_event, None if reads_only else self.write_event):
            if event is not None:
                clock.join(self.warp.clock.async_done(*event))
        return clock


class Groups:
    """Operations of a thread and kind (``cp.async``, bulk, wgmma): uncommitted ones, and committed groups in order."""

    def __init__(self):
        self.open: list = []
        self.committed: list[list] = []
        self.reads_known = 0  # committed groups whose reads the thread has learnt to be over

    def __iter__(self):
        return (o for group in (*self.committed, self.open) for o in group)

    def commit(self) -> None:
        self.committed.append(self.open)
        self.open = []

    def covered(self, allowed: int) -> list:
        """The operations that must be over when at most ``allowed`` groups may be pending."""
        return [o for group in self.committed[: max(len(self.committed) - allowed, 0)] for o in group]

    def unknown(self, allowed: int, reads_only: bool) -> list:
        """The covered operations of which the thread has not learnt yet that they (or their reads) are over."""
        first = self.reads_known if reads_only else 0
        return [o for group in self.committed[first : max(len(self.committed) - allowed, 0)] for o in group]

    def heard_of_reads(self, allowed: int) -> None:
        """The thread has learnt that the reads of the covered operations are over."""
        self.reads_known = max(self.reads_known, len(self.committed) - allowed)

    def forget(self, allowed: int) -> None:
        """Drop these operations: they have been waited for."""
        count = max(len(self.committed) - allowed, 0)
        del self.committed[:count]
        self.reads_known = max(self.reads_known - count, 0)


def _all_differ(places: np.ndarray) -> bool:
    """Whether numbers below their count are all different."""
    seen = np.zeros(len(places), bool)
    seen[places] = True
    return bool(seen.all())


def cut(machine, count: int) -> list[slice]:
    """1 to 4 slices of ``range(count)``, drawn by the schedule."""
    random = machine.schedule.random
    pieces = min(count, random.choice((1, 2, 3, 4)))
    at = sorted(random.sample(range(1, count), pieces - 1)) if pieces > 1 else []
    return [slice(a, b) for a, b in zip([0, *at], [*at, count])]


class Side:
    """One end of a copy: ``unit``-byte units of a region at byte ``offsets``.

    ``indices`` keeps their granules in shadow memory, by the size of a granule: sides of the same offsets share it.
    """

    def __init__(self, region: Region, offsets: np.ndarray, unit: int, indices: dict | None = None):
        self.region, self.offsets, self.unit = region, offsets, unit
        self.indices: dict[int, np.ndarray | slice] = {} if indices is None else indices
        self.view = region.units[unit]
        self.rows = offsets >> (unit.bit_length() - 1)

    def read(self, part: slice | np.ndarray) -> np.ndarray:
        return self.view[self.rows[part]]

    def write(self, part: slice | np.ndarray, values: np.ndarray, machine) -> None:
        self.view[self.rows[part]] = values
        region = self.region
        if region.valid is not None:
            region.valid.reshape(-1)[(self.offsets[part][:, None] + np.arange(self.unit)).reshape(-1)] = 1
        region.changed(machine, self.rows[part], self.unit)

    def granules(self, shadow: Shadow) -> np.ndarray | slice:
        """Its granules in shadow memory, in any order; a slice if they are neighbours. May refine the tables."""
        found = self.indices.get(shadow.granule)
        if found is None:
            finest = int(np.bitwise_or.reduce(self.offsets, initial=self.unit | shadow.granule))
            shadow.refine(max(finest & -finest, 4))
            found = self.indices[shadow.granule] = self.places(shadow)
        return found

    def places(self, shadow: Shadow) -> np.ndarray | slice:
        size = shadow.granule
        low, count, unit = int(self.offsets.min(initial=0)), len(self.offsets), self.unit
        places = (self.offsets - low) // unit
        if unit >= size and low % size == 0 and count and int(places.max()) < count and _all_differ(places):
            return slice(low // size, (low + count * unit) // size)
        return shadow.granules(self.offsets, unit)

    def unwritten(self) -> int | None:
        """The first byte offset that has not been written."""
        if self.region.valid is None:
            return None
        bad = np.flatnonzero(self.region.valid[(self.offsets[:, None] + np.arange(self.unit)).reshape(-1)] == 0)
        return None if not len(bad) else int(self.offsets[bad[0] // self.unit])


def to_shared(
    operation: Operation,
    source: Side | None,
    keep: np.ndarray | None,
    fill: int,
    targets: list,
    size: int,
    convert: Callable[[np.ndarray], np.ndarray] | None = None,
    combine: Combine | None = None,
) -> None:
    """Set up a copy into shared memory: from ``source`` (where ``keep``; ``fill`` elsewhere) to ``targets``.

    Each target is a (side, mbarrier): the mbarrier gets the bytes of each piece as it lands, and with the last piece
    the event of the whole write. ``convert`` changes the bytes of whole elements of the tensor on the way (rounding to
    tf32); ``combine`` merges what comes with what is there.
    """
    machine = operation.machine
    done = operation.finished()

    def fetch(part: slice | np.ndarray) -> np.ndarray:
        values = cast(Side, source).read(part)
        return values if convert is None else convert(values.view(np.uint8)).view(values.dtype)

    for side, barrier in targets:
        parts = cut(machine, len(side.offsets))
        left = [len(parts)]
        if barrier is not None:
            barrier.flies(size // len(side.offsets) * len(side.offsets), operation)

        def land(part, side=side, barrier=barrier, left=left):
            if keep is None:
                values = fetch(part)
            else:
                values = np.full(len(side.rows[part]), fill, side.view.dtype)
                if source is not None:
                    values[keep[part]] = fetch(np.flatnonzero(keep[part]) + part.start)
            if combine is not None:
                values = combine(side.read(part), values)
            side.write(part, values, machine)
            left[0] -= 1
            if barrier is not None:
                landed = size // len(side.offsets) * len(side.rows[part])
                barrier.land(landed, None if left[0] else done, operation)

        operation.pieces += [partial(land, part) for part in parts]


def from_shared(
    operation: Operation, source: Side, target: Side, keep: np.ndarray | None, combine: Combine | None = None
) -> None:
    """Set up a copy out of shared memory. All reads come before all writes: ``.read`` waits for the reads alone."""
    machine = operation.machine
    held = np.empty((len(source.rows), *source.view.shape[1:]), source.view.dtype)

    def fetch(part):
        held[part] = source.read(part)

    def deliver(part):
        if keep is not None or combine is not None:
            part = np.arange(len(held))[part] if keep is None else np.flatnonzero(keep[part]) + part.start
        values = held[part]
        if len(values):
            target.write(part, values if combine is None else combine(target.read(part), values), machine)

    parts = cut(machine, len(source.rows))
    operation.pieces = [partial(fetch, part) for part in parts]
    operation.second = [partial(deliver, part) for part in parts]


decoded = lru_cache(maxsize=256)(tensor_map.decode)
