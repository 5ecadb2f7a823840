"""Where roles put numbers in shared memory: in the place of elements that are in registers, or in room of their own.
Device code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cutlass import Int32, Uint8
from cutlass.memory import SmemAllocator

from .spec import SegmentsSpec
from .states import SegmentStates


@dataclass(frozen=True)
class Target:
    """Where numbers of type ``kind`` are put in shared memory: at ``address`` that of a chunk's first position, and
    ``step`` bytes on that of the next."""

    kind: Any
    address: Any
    step: int


@dataclass(frozen=True)
class Area:
    """Room for a number of type ``kind`` at each position of a tile, of some tiles: at ``start`` in shared memory. It
    lies in memory order, as the tile's elements do."""

    kind: Any
    tile: int
    reverse: bool
    start: Any = None

    @property
    def step(self) -> int:
        """Bytes from a position to the next one in scan order."""
        return (-1 if self.reverse else 1) * self.kind.width // 8

    def position(self, turn, place):
        """The address of the room at ``place`` of a tile, which has room number ``turn``."""
        place = self.tile - 1 - place if self.reverse else place
        return Int32(self.start.toint()) + (turn * self.tile + place) * (self.kind.width // 8)


class Room:
    """Room for the states of a call (where segments are reduced) or its results (in scans), ``rooms`` tiles of it for
    those that are not as large as the elements whose place they could take."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, tile: int, rooms: int) -> None:
        kinds = states.monoid.types if spec.reduced else [t.cutlass for t in spec.operation.results]
        self.kinds, self.apart, self.rooms = tuple(kinds), spec.apart, rooms
        self.tile, self.reverse = tile, spec.reverse
        self.keys, self.heads = len(spec.keys), len(spec.heads.sources)

    def allocate(self) -> tuple:
        """Take the shared memory: an ``Area`` for each number, or None."""
        found = []
        for kind, size in zip(self.kinds, self.apart):
            area = Area(kind, self.tile, self.reverse)
            if size:
                count = self.rooms * self.tile * size
                area = replace(area, start=SmemAllocator().allocate_array(Uint8, count, byte_alignment=16))
            found.append(area if size else None)
        return tuple(found)

    def targets(self, homes: list, areas: tuple, turn, place) -> tuple:
        """Where the keys and the numbers of a tile go from ``place`` on. ``homes`` has the buffer of each array and the
        address of a place in it; of room of their own they have number ``turn``."""
        found = [Target(buffer.dtype.cutlass, position(place), buffer.step) for buffer, position in homes[: self.keys]]
        for k, (kind, area) in enumerate(zip(self.kinds, areas)):
            if area is None:
                buffer, position = homes[self.heads + k]
                found.append(Target(kind, position(place), buffer.step))
            else:
                found.append(Target(kind, area.position(turn, place), area.step))
        return tuple(found)
