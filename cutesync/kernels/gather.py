"""Elements of strided arrays on their way to a tile in shared memory. Device code.

A lane reads neighbouring positions of a tile 32 apart, so a warp reads whole lines wherever the last axis is
contiguous. Coordinates take a division for each axis but the first (``coordinates``).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint16

from ..monoid import choose
from ..warp import LANES
from .coordinates import Axes, quotient
from .layouts import Layout

WORDS = {1: Uint8, 2: Uint16, 4: Int32, 8: Int64}  # registers of elements, by size
UNROLL, MAX_WORDS = 8, 16  # positions that a lane reads together, and the registers of their elements, at most
PAIRS = 4  # elements are put in whole words: so many positions, at most, beyond the last

# A tile: its first position, where its positions stop, how many positions there are in all, and the index of position
# 0 in the arrays. ``reverse`` tiles run from the end of the arrays.
Tile = namedtuple("Tile", "first stop count base reverse")


class Gather:
    """The arrays of a ``layout``."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.number: Any = Int64 if layout.wide else Int32
        self.axes: list[Axes] = []

    def bind(self, numbers) -> list:
        """Take the layout's parameters from those of the kernel that is traced; return the rest."""
        self.axes, numbers = [], list(numbers)
        for g, (arrays, rank) in enumerate(self.layout.groups):
            taken = len(self.layout.of_group(g, rank, len(arrays)))
            self.axes.append(Axes(numbers[:taken], rank, len(arrays)))
            numbers = numbers[taken:]
        return numbers

    def offsets(self, index) -> dict[int, Any]:
        """The offset of the element at an index, in C order, of each array by its number."""
        found: dict[int, Any] = {}
        for (arrays, _), axes in zip(self.layout.groups, self.axes):
            found.update(zip(arrays, axes.offsets(self.number(index))))
        return found

    @cute.jit
    def fill(
        self,
        arrays,
        sizes: cutlass.Constexpr,
        put: cutlass.Constexpr,
        tile: cutlass.Constexpr,
        low: cutlass.Constexpr,
        worker,
        workers,
    ):
        """Warp ``worker`` of ``workers``: bring its share of a tile. ``put(k, place, word)`` stores the element of
        array k, of ``sizes[k]`` bytes, at a place of the tile, from place ``low`` on: 0, or -1 with the element before
        the first. What does not exist is 0."""
        lane = cute.arch.lane_idx()
        unroll = max(1, min(UNROLL, MAX_WORDS // sum(max(1, size // 4) for size in sizes)))
        places = (Int32(tile.stop - tile.first) + (PAIRS - 1)) // PAIRS * PAIRS
        places = choose(tile.count > 0, places, Int32(low * LANES))  # without elements there is nothing to read
        first = worker * (LANES * unroll) + low * LANES
        for start in cutlass.range(first, places, workers * (LANES * unroll), unroll=1):
            loaded = []
            for u in cutlass.range_constexpr(unroll):
                place = start + u * LANES + lane
                loaded.append((place, *self.load(arrays, sizes, tile, place)))
            for place, exists, words in loaded:
                if (place >= low) & (place < places):
                    for k, word in enumerate(words):
                        put(k, place, choose(exists, word, type(word)(0)))

    def load(self, arrays, sizes, tile, place):
        """``(exists, words)``: the elements of a place; any others where there are none."""
        position = tile.first + place
        exists = (position >= 0) & (position < tile.stop)
        position = cutlass.max(cutlass.min(position, tile.count - 1), Int64(0))
        index = tile.base + (tile.count - 1 - position if tile.reverse else position)
        offsets = self.offsets(index)
        words = []
        for k, size in enumerate(sizes):
            address = arrays[k].toint() + offsets[k] * size
            pointer = cute.make_ptr(WORDS[size], address, cute.AddressSpace.gmem, assumed_align=size)
            words.append(WORDS[size](cute.make_tensor(pointer, cute.make_layout((1,)))[0]))
        return exists, words


class Stepped(NamedTuple):
    """An array of one axis whose elements lie ``step`` elements apart, as a pointer to them: ``stepped + place``."""

    pointer: Any
    step: Any

    def __add__(self, place):
        return self.pointer + Int64(place) * self.step

    @property
    def dtype(self) -> Any:
        return self.pointer.dtype

    def toint(self) -> Any:
        return self.pointer.toint()

    def moved(self, offset) -> Stepped:
        """The array whose first element lies so many elements of memory further on."""
        return Stepped(self.pointer + offset, self.step)


class At:
    """An array of a ``Gather`` as a pointer to its elements in C order, from element ``first`` on: ``at + index``."""

    def __init__(self, gather: Gather, array: int, pointer: cute.Pointer, first: Any = 0) -> None:
        self.gather, self.array, self.pointer, self.first = gather, array, pointer, first

    def __add__(self, index):
        return self.pointer + self.gather.offsets(self.first + index)[self.array]

    def begin(self, first) -> At:
        """The same array from an element on."""
        return At(self.gather, self.array, self.pointer, first)


def coordinates(axes, index) -> list:
    """The coordinates of an index, outermost first, along ``axes`` of ``(extent, factor, shift)``."""
    found = []
    for extent, factor, shift in reversed(axes[1:]):
        rest = quotient(index, extent, factor, shift)
        found.append(index - rest * extent)
        index = rest
    return [index, *reversed(found)]
