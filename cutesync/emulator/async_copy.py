"""Asynchronous operations in flight: copies that land late, early, in pieces and out of order, and the groups that
threads wait for.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from . import tensor_map
from .memory import SHARED_START, Region

UNIT = 16


class Operation:
    """One asynchronous operation: pieces of work that may be done in any order; a second stage starts when the first is
    empty.

    ``clock()`` of a finished operation says that it has happened; for a copy to global memory reading and writing are
    two events.
    """

    def __init__(self, machine, warp, lane: int, site: int, what: str):
        self.machine, self.warp, self.lane, self.site, self.what = machine, warp, lane, site, what
        self.name = what
        self.read_event = self.write_event = None
        self.pieces: list = []
        self.second: list = []
        self.after: list[Operation] = []  # operations that must be over first
        self.blocks: set[int] = set()
        self.watchers: list = []
        self.finished: list = []  # called at the end
        self.reads_done = self.done = False

    def start(self) -> None:
        machine = self.machine
        machine.pending.append(self)
        machine.effects += 1
        if machine.trace is not None:
            machine.trace.launched(id(self), self.warp.block, self.what)
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
        if self.second:
            self.reads_done = True
            self.pieces, self.second = self.second, []
        else:
            self.reads_done = self.done = True
            self.machine.pending.remove(self)
            for call in self.finished:
                call()
            if self.machine.trace is not None:
                self.machine.trace.landed(id(self))
        self.machine.wake(self)

    def uses_shared_of(self, block) -> bool:
        """Whether it still reads or writes that block's shared memory. Bytes on their way to global memory do not."""
        return block.number in self.blocks and not self.reads_done


class Groups:
    """Per thread and kind (``cp.async`` or bulk): operations since the last commit, and the committed groups in order."""

    def __init__(self):
        self.open: list[Operation] = []
        self.committed: list[list[Operation]] = []

    def commit(self) -> None:
        self.committed.append(self.open)
        self.open = []

    def waited(self, allowed: int) -> list[Operation]:
        """The operations that must be over when at most ``allowed`` groups may be pending."""
        groups = self.committed[: len(self.committed) - allowed] if allowed else self.committed
        return [o for group in groups for o in group]


def groups_of(warp, kind: str, lane: int) -> Groups:
    found = warp.groups.get((kind, lane))
    if found is None:
        found = warp.groups[(kind, lane)] = Groups()
    return found


def cut(machine, count: int) -> list[slice]:
    """1 to 4 slices of ``range(count)``, as the schedule likes."""
    random = machine.schedule.random
    pieces = min(count, random.choice((1, 2, 3, 4)))
    at = sorted(random.sample(range(1, count), pieces - 1)) if pieces > 1 else []
    return [slice(a, b) for a, b in zip([0, *at], [*at, count])]


class Side:
    """One end of a copy: ``unit``-byte units of a region at byte ``offsets``."""

    def __init__(self, region: Region, offsets: np.ndarray, unit: int):
        self.region, self.offsets, self.unit = region, offsets, unit
        width = min(unit, 8)
        self.view = region.view(width, unit // width)
        self.rows = offsets // unit

    def read(self, part: slice | np.ndarray) -> np.ndarray:
        return self.view[self.rows[part]]

    def write(self, part: slice | np.ndarray, values: np.ndarray, machine) -> None:
        self.view[self.rows[part]] = values
        region = self.region
        if region.valid is not None:
            region.valid.reshape(-1)[(self.offsets[part][:, None] + np.arange(self.unit)).reshape(-1)] = 1
        region.changed(machine, self.rows[part], self.unit)

    def unwritten(self) -> int | None:
        """The first byte offset that nobody has written."""
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
    convert=None,
    combine=None,
) -> None:
    """Set up a copy into shared memory: from ``source`` (where ``keep``; ``fill`` elsewhere) to every (side, mbarrier)
    of ``targets``.

    ``convert`` changes the bytes of whole elements of the tensor on the way (rounding to tf32); ``combine`` merges what
    comes with what is there. Each mbarrier gets the bytes of each piece as it lands, and with the last piece the
    knowledge that all of it has.
    """
    machine, warp = operation.machine, operation.warp
    done = warp.clock.async_done(*operation.write_event)
    if operation.read_event is not None:  # a copy that is over has also read its source
        done.join(warp.clock.async_done(*operation.read_event))
    for side, barrier in targets:
        parts = cut(machine, len(side.offsets))
        left = [len(parts)]
        scale = size // len(side.offsets)

        def land(part, side=side, barrier=barrier, left=left, scale=scale):
            if keep is None:
                values = source.read(part)
                if convert is not None:
                    values = convert(values.view(np.uint8)).view(values.dtype)
            else:
                inside = keep[part]
                values = np.full(len(side.rows[part]), fill, side.view.dtype)
                if source is not None:
                    held = source.view[source.rows[part][inside]]
                    values[inside] = held if convert is None else convert(held.view(np.uint8)).view(held.dtype)
            if combine is not None:
                values = combine(side.read(part), values)
            side.write(part, values, machine)
            left[0] -= 1
            if barrier is not None:
                barrier.complete_bytes(
                    scale * len(side.rows[part]), None if left[0] else done, warp, operation.lane, operation.site
                )

        operation.pieces += [lambda part=part, land=land: land(part) for part in parts]


def from_shared(operation: Operation, source: Side, target: Side, keep: np.ndarray | None, combine=None) -> None:
    """Set up a copy out of shared memory: all reading comes before all writing, so that ``.read`` waits mean something."""
    machine = operation.machine
    held = np.empty((len(source.rows), *source.view.shape[1:]), source.view.dtype)

    def fetch(part):
        held[part] = source.read(part)

    def deliver(part):
        if keep is None and combine is None:
            target.write(part, held[part], machine)
            return
        chosen = np.arange(len(source.rows))[part] if keep is None else np.flatnonzero(keep[part]) + part.start
        if not len(chosen):
            return
        target.write(chosen, held[chosen] if combine is None else combine(target.read(chosen), held[chosen]), machine)

    parts = cut(machine, len(source.rows))
    operation.pieces = [lambda part=part: fetch(part) for part in parts]
    operation.second = [lambda part=part: deliver(part) for part in parts]


@lru_cache(maxsize=256)
def decoded(data: bytes) -> tensor_map.TensorMap:
    return tensor_map.decode(data)


def shared_side(block, address: int, size: int) -> Side | None:
    """``size`` contiguous bytes of a block's shared memory in units of 16; None where they do not fit."""
    offset = address - SHARED_START
    if offset < 0 or offset + size > block.shared.high:
        return None
    return Side(block.shared, np.arange(offset, offset + size, UNIT, dtype=np.int64), UNIT)
