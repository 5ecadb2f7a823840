"""A driver that only notes what it is told, for several devices, and calls whose launches are compared."""

from __future__ import annotations

import itertools

from cutesync.dist import Group, Sharded
from cutesync.dist.sharded import Ragged
from cutesync.dtypes import BY_NAME
from cutesync.errors import CutesyncError, LaunchError
from cutesync.runtime.device_array import DeviceArray
from cutesync.runtime.repeat import CURRENT

RANKS, APART, GIVEN, MADE = 3, 1 << 24, 1 << 40, 1 << 50
SLOT, MASK = 256, (1 << 64) - 1
FREE = itertools.count(MADE, APART)  # never used again: some arrays are kept for later calls


class Stub:
    """What was launched, and how many calls were made again."""

    def __init__(self, group: Group) -> None:
        self.group, self.launches, self.again, self.usual = group, [], 0, False
        self.given, self.slots, self.fails = itertools.count(GIVEN, APART), set(), False

    def allocate(self, size, ordinal, stream):
        at = next(FREE)
        if size % SLOT == 0:
            self.slots.add(at // APART)
        return at, None

    def launcher(self, kernel, ordinal, grid, make_block, claim):
        block = make_block()

        def run(addresses, stream):
            if self.fails:
                raise LaunchError("refused")
            block.put(addresses, None)
            self.launches.append((kernel.ptx, ordinal, grid, block.packed(), stream))

        return run

    def sharded(self, dtype, lengths, shift=0, inner=(), whole=False):
        """A new Sharded; ``whole``: of ``lengths`` on each device."""
        kind, parts = BY_NAME[dtype], []
        for rank in range(RANKS):
            shape = (*lengths, *inner) if whole else (lengths[rank], *inner)
            at = next(self.given) + shift * kind.size
            parts.append(DeviceArray(at, shape, kind, self.group.ordinals[rank], None))
        return Sharded(self.group, parts, None if whole else 0)

    def done(self, make, usual):
        """The launches of a call, and its result with addresses in place of arrays, or its error. Memory that the call
        makes is numbered as it is used."""
        self.launches, self.usual, names = [], usual, {}
        CURRENT.numbers = ()

        def named(number):
            rest, number = (number >> 64, number & MASK) if isinstance(number, int) else (0, number)
            if rest:  # a tensor map, which begins with an address
                return named(number), rest
            if not isinstance(number, int) or number < MADE or number >= MADE << 8:
                return number
            block, distance = divmod(number, APART)
            slot, distance = divmod(distance, SLOT) if block in self.slots else (0, distance)
            return names.setdefault((block, slot), f"memory {len(names)}"), distance

        def placed(x):
            if isinstance(x, Sharded):
                return "Sharded", x.axis, tuple(map(placed, x.parts))
            if isinstance(x, Ragged):
                return "Ragged", placed(x.room), tuple(map(placed, x.counts)), tuple(map(placed, x.offsets))
            if isinstance(x, DeviceArray):
                return named(x.ptr), x.shape, x.dtype, x.device, x.steps
            if isinstance(x, tuple):
                return tuple(map(placed, x))
            return x if x is None else (type(x), *(placed(getattr(x, name)) for name in type(x).__slots__))

        try:
            found = make()
        except CutesyncError as error:
            return [], (type(error), str(error))  # the next call has other memory
        launches = [(*rest, [named(number) for number in block], stream) for *rest, block, stream in self.launches]
        return launches, placed(found)
