"""Look-back of scans along an axis that is not the last: tiles in groups, a state for each column.

Every tile publishes its aggregates. The block that has the last tile of a group publishes what comes before the next
group, once its own look-back is done. So a look-back reads one prefix and the aggregates of the tiles before its own in
its group, however many tiles there are. Which tile is combined with which depends on tile numbers alone.

A group of columns has ``group + 1`` slots: that of what comes before the group, then those of its tiles. What a tile
looks back at is therefore a run of neighbouring slots (group 0 has nothing before it; its first slot stays empty).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Int32, Int64

from ...block.split import share
from ...sync.gather import Slots, words
from ...warp import Maybe
from .base import Arguments

READS = 8  # words that a thread reads at once


@dataclass(frozen=True)
class TileGroups:
    """The slots of one outer slice: of ``tiles`` tiles of ``inner`` columns, in groups of ``group``. ``start`` is the
    place of the first."""

    slots: Slots
    start: Any
    inner: Any
    tiles: Any
    group: int

    @classmethod
    def make(cls, a: Arguments, outer, tag, types, group: int) -> TileGroups:
        """Those of outer slice ``outer``; ``tag`` is the launch's."""
        each = Int64((a.tiles + group - 1) // group * (group + 1)) * a.inner
        return cls(Slots(a.slots, a.rows * each, tag, types), Int64(outer) * each, a.inner, a.tiles, group)

    def publish(self, tile, column, state) -> None:
        """Publish the aggregate of a tile's column. One thread calls."""
        self.slots.publish(self._place(self._number(tile)) + column, state)

    def ends_group(self, tile):
        """Whether the block of this tile must publish what comes before the next group."""
        return (tile % self.group == self.group - 1) & (tile + 1 < self.tiles)

    def publish_end(self, tile, column, state) -> None:
        """Publish what comes before the group behind ``tile``, for one column. One thread calls."""
        self.slots.publish(self._place(self._number(tile) + 1) + column, state)

    def parts(self, tile, parts: int):
        """How many of ``parts`` parts of the states that precede a tile are not empty: the first ones."""
        return cutlass.max(cutlass.min(tile % self.group, parts), Int32(tile >= self.group))

    def collect(self, tile, column, part, parts: int, combine, width: int = 1):
        """Combine part ``part`` of ``parts`` of the states that precede a tile, of ``width`` neighbouring columns. An
        empty part, or one that is negative, gives nothing. Returns a ``Maybe`` of ``width`` states.

        The tiles of the group are dealt to the parts. The group's prefix belongs to the first part, which waits for it
        last: when it comes, everything else is there, and the next group need not wait for more reads."""
        count = tile % self.group
        begin, end = share(count, cutlass.max(part, 0), Int32(parts))
        end = cutlass.select_(part < 0, begin, end)
        first = self._number(tile) - count
        most = -(-self.group // parts) * width * words(self.slots.types)
        inner = Int64(self.inner)
        at = self._place(first + begin) + column
        found = self.slots.collect(at, end - begin, inner, combine, width, min(most, READS))
        exists = (part == 0) & (tile >= self.group)
        start = self.slots.collect(self._place(first - 1) + column, Int32(exists), inner, combine, width, 1)
        columns = [Maybe(x, start.valid).then(Maybe(y, found.valid), combine) for x, y in zip(start.state, found.state)]
        return Maybe(tuple(column.state for column in columns), start.valid | found.valid)

    def _number(self, tile):
        """The number of a tile's slot in a column."""
        return tile + tile // self.group + 1

    def _place(self, number):
        return self.start + Int64(number) * self.inner
