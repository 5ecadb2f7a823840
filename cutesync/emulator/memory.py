"""Memory: regions of bytes with their addresses, and the loads and stores that generated code calls.

A region is a registered NumPy buffer (its addresses are the buffer's own), a block's shared memory, or a
kernel's parameters. Address spaces are told apart by the top byte of a generic address; shared addresses are offsets,
plus ``(rank + 1) << 24`` where a cluster instruction names another block. An access outside every region, misaligned,
or to unwritten bytes is reported.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
import weakref
from collections import deque
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..runtime import forks
from .lanes import count_nonzero as cnz
from .shadow import Shadow

WINDOWS = {
    "global": 0,
    "const": 0,
    "shared": 1 << 56,
    "shared::cta": 1 << 56,
    "shared::cluster": 1 << 56,
    "local": 2 << 56,
    "param": 3 << 56,
}
SHARED_START = 1024  # the driver keeps the first kilobyte on sm_90
RANK_SHIFT = 24
SHARED_BITS = (1 << 32) - 1  # of a generic address that points to shared memory
POISON = 0xCD
_I64 = np.dtype(np.int64)
UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
UNSIGNED[16] = np.complex128  # 16 bytes: only moved, never compared
UNITS = {**{size: np.dtype(kind) for size, kind in UNSIGNED.items()}, 32: np.dtype("V32")}  # what one lane moves
ONES = {size: np.ones(size, np.uint8).view(unit)[0] for size, unit in UNITS.items()}
_SHIFTS = {size: np.array(size.bit_length() - 1, np.uint64) for size in UNITS}
_MULTIPLES = {size: bytes(range(0, 256, size)) for size in UNITS}  # low bytes of aligned addresses
_OFFSETS = {4: (1 << 32) - 1, 8: (1 << 64) - 1}
_MAX_SHARED = 227 * 1024
_NOWHERE = 1 << 40  # a row that no region has


@cache
def shared_rows(size: int) -> np.ndarray:
    """By shared address, the number of the unit of ``size`` bytes there; ``_NOWHERE`` where none starts."""
    addresses = np.arange(SHARED_START + _MAX_SHARED)
    rows = (addresses - SHARED_START) // size
    rows[(addresses < SHARED_START) | (addresses % size != 0)] = _NOWHERE
    return rows


class Units(dict):
    """An array as numbers of so many bytes each, made when first asked for."""

    def __init__(self, data: Any, high: int):
        self.data, self.high = data, high

    def __missing__(self, size: int) -> np.ndarray:
        made = self[size] = self.data[: self.high // size * size].view(UNITS[size])
        return made


def space_of(address: np.ndarray) -> np.ndarray:
    """The top byte of generic addresses."""
    return address >> np.uint64(56)


class Region:
    """Contiguous bytes at an address. ``low`` and ``high`` bound the legal offsets; views cover whole 16-byte units."""

    def __init__(
        self,
        name: str,
        base: int,
        data: np.ndarray,
        *,
        low: int = 0,
        high: int | None = None,
        initialised: bool,
        writable: bool = True,
    ):
        self.name, self.base, self.data = name, base, data
        self.low, self.high = low, len(data) if high is None else high
        self.ragged = low > 0
        self.writable = writable
        self.sums = ""  # the type of the floats that a launch adds to those in here, in any order
        self.result = True  # whether all schedules must leave the same bytes
        self.owner: weakref.ref | None = None  # what keeps the memory, if it may be freed without ``unregister``
        self.sealed = not writable  # the next write calls ``unseal`` first
        self.rewind: Any = None  # the ``Rewind`` that keeps what is there before a launch writes it
        self.written: Any = None  # by size, the units that a launch has written, for ``rewind``
        self.valid: Any = None if initialised else np.zeros(len(data), np.uint8)
        self.units = Units(data, self.high)
        self.valid_units = Units(self.valid, self.high)  # which bytes have been written
        self.shadow: Shadow | None = None
        self.watchers: list = []
        self.base_array, self.first, self.stop = (np.array(x, np.uint64) for x in (base, low, self.high))

    @classmethod
    def of_address(
        cls, name: str, address: int, size: int, *, initialised: bool = True, writable: bool = True
    ) -> Region:
        """The region over ``size`` bytes at a real address of this process. The caller keeps the memory alive."""
        start, stop = address & ~15, (address + size + 15) & ~15
        buffer: Any = (ctypes.c_uint8 * (stop - start)).from_address(start)
        data, low = np.frombuffer(buffer, np.uint8), address - start
        return cls(name, start, data, low=low, high=low + size, initialised=initialised, writable=writable)

    @classmethod
    def of_parameters(cls, content: bytes) -> Region:
        """The kernel's parameters, in a space of their own."""
        data = np.frombuffer(content.ljust(max(len(content), 16) + 15 & ~15, b"\0"), np.uint8)
        name, size = "the kernel's parameters", max(len(content), 1)
        return cls(name, 0, data, high=size, initialised=True, writable=False)

    @classmethod
    def shared(cls, name: str, size: int, schedule: Any) -> Region:
        """Unwritten shared memory of ``size`` bytes at the start of the shared window."""
        return cls(name, SHARED_START, schedule.unwritten((size + 31) & ~15), high=size, initialised=False)

    def view(self, width: int, count: int) -> np.ndarray:
        """The bytes as rows of ``count`` elements of ``width`` bytes (flat for one element)."""
        if count == 1:
            return self.units[width]
        step = width * count
        return self.data[: self.high // step * step].view(UNSIGNED[width]).reshape(-1, count)

    def unseal(self, machine, warp, lanes, site: int) -> None:
        """Before a write: a fault if the memory is read-only; else its content is kept for the next schedule."""
        if not self.writable:
            machine.fail("out-of-bounds", f"writes to {self.name}, which is read-only", warp, lanes, site)
        self.sealed = False
        self.rewind.keep(self)

    def changed(self, machine, rows: np.ndarray | None = None, size: int = 0) -> None:
        """These units of ``size`` bytes (None: any) have been written: fragments that poll this memory look again."""
        machine.effects += 1
        if self.written is not None:
            if size not in self.written:
                self.written[size] = np.zeros(len(self.data) // size, bool)
            self.written[size][rows] = True
        if not self.watchers:
            return
        if rows is None:
            machine.wake(self)
        else:
            machine.wake(self, int(rows.min()) * size, int(rows.max()) * size + size)

    def mark_valid(self, start: int, stop: int) -> None:
        if self.valid is not None:
            self.valid[start:stop] = 1

    def alive(self) -> bool:
        return self.owner is None or self.owner() is not None


class Memory:
    """The regions of global memory, by address.

    Threads may add and remove regions while a launch reads the table: a change makes a new table, and an interrupt
    leaves the old one or the new one. Regions whose owner is gone are dropped.
    """

    def __init__(self):
        self.table: tuple[tuple[int, ...], tuple[Region, ...]] = (), ()
        self.freed: deque[tuple[int, int, str]] = deque(maxlen=1000)  # first and last address, name
        self.lock = forks.lock(threading.RLock)  # a finalizer that removes a region may run anywhere, here included

    @property
    def regions(self) -> tuple[Region, ...]:
        if not all(region.alive() for region in self.table[1]):
            self.replace((), ())
        return self.table[1]

    def replace(self, old, new) -> None:
        """Take the regions of ``old`` out, and put those of ``new`` in, at once."""
        while True:
            table = self.table
            kept = {id(r): r for r in (*table[1], *new) if r.alive()}
            for region in old:
                kept.pop(id(region), None)
            regions = sorted(kept.values(), key=lambda r: r.base + r.low)
            changed = tuple(r.base + r.low for r in regions), tuple(regions)
            with self.lock:
                if self.table is table:  # else another thread was faster
                    self.table = changed
                    return

    def starting_at(self, address: int) -> list[Region]:
        """The regions whose first byte is at an address."""
        starts, regions = self.table
        return list(regions[bisect.bisect_left(starts, address) : bisect.bisect_right(starts, address)])

    def find(self, address: int, size: int = 1) -> Region | None:
        """The region that holds all of ``[address, address + size)``."""
        starts, regions = self.table
        at = bisect.bisect_right(starts, address) - 1
        if at < 0:
            return None
        return regions[at] if address + size <= regions[at].base + regions[at].high else None

    def describe(self, address: int) -> str:
        """Where an address lies, for a report about one that is in no region."""
        starts, regions = self.table
        at = bisect.bisect_right(starts, address) - 1
        inside = at >= 0 and address < regions[at].base + regions[at].high
        for start, stop, name in reversed(self.freed):
            if start <= address < stop and not inside:
                return f"in {name}, which has been freed"
        if at < 0:
            return "below every buffer"
        region = regions[at]
        return (
            f"{address - region.base - region.high} bytes past the end of {region.name} "
            f"({region.high - region.low} bytes)"
        )


class Place(NamedTuple):
    """Where the address of an instruction comes from: ``offset`` bytes behind a register, which is in ``slot`` if
    other instructions use it as well. ``steady``: see that module."""

    slot: int | None = None
    offset: int = 0
    steady: bool = False


DIRECT = Place()


class Port:
    """How one memory instruction reaches memory: resolves addresses and checks them.

    Registers never change in place. So a warp keeps the rows that the value of a register stands for (``located``), and
    instructions that address memory from there only add to them.
    """

    def __init__(self, machine, site: int, space: str, width: int, count: int, place: Place = DIRECT):
        self.machine, self.site, self.space = machine, site, space
        self.width, self.count, self.size = width, count, width * count
        self.offset, self.step = place.offset, np.array(place.offset // self.size)
        self.key = (place.slot, self.size) if place.offset >= 0 and place.offset % self.size == 0 else (None, 0)
        self.kept = self.key[0] is not None
        self.shift, self.multiples = _SHIFTS[self.size], _MULTIPLES[self.size]
        self.region: Region | None = None  # the last one, if it is global
        self.rows = shared_rows(self.size) if space == "shared::cta" else None
        steady = place.steady and space in ("global", "shared::cta")
        self.known: Any = machine.program.kept.rows if steady else None  # rows by the identity of addresses, by site

    def find(self, f, lanes, address: np.ndarray) -> tuple[Any, Any]:
        """A region, and the units of ``size`` bytes that these lanes (None: all) access, if they all lie there. Rows
        that the region's units do not have (IndexError), or None for the region, mean that ``by_lane`` must resolve
        the addresses. ``address`` is that of the register."""
        known = None if self.known is None else self.known.get(id(address))
        if known is not None:
            region, rows = known.get(self.site) or self.remember(f, address, known)
            if region is not None:
                if self.rows is not None:
                    region = f.warp.block.shared
                return region, rows if lanes is None else rows[lanes]
        if self.kept:
            located = f.warp.located
            held = located.get(self.key)
            if held is None or held[0] is not address:
                held = located[self.key] = (address, *self.rows_of(f, address))
            _, region, rows = held
            if region is not None:
                rows = rows + self.step if self.offset else rows
                return region, rows if lanes is None else rows[lanes]
        return self.rows_of(f, self.active(lanes, address))

    def remember(self, f, address: np.ndarray, known: dict[int, tuple]) -> tuple[Any, Any]:
        """Look steady addresses up, and keep what is found."""
        found = self.rows_of(f, self.active(None, address))
        if found[0] is not None:
            self.machine.program.kept.add_rows(known, self.site, found, self.count)
        return found

    def active(self, lanes, address: np.ndarray) -> np.ndarray:
        """The addresses that these lanes access."""
        whole = address + address.dtype.type(self.offset & _OFFSETS[address.itemsize]) if self.offset else address
        return whole if lanes is None else whole[lanes]

    def rows_of(self, f, active: np.ndarray) -> tuple[Any, Any]:
        if self.rows is not None:
            if active.itemsize == 8 and active.tobytes()[7::8].strip(b"\0"):  # such numbers would count from the end
                return None, None
            try:
                return f.warp.block.shared, self.rows[active.astype(_I64)]
            except IndexError:
                return None, None
        region = self.region
        if region is None or active.itemsize == 4 or active.tobytes()[::8].translate(None, self.multiples):
            return None, None
        offsets = active - region.base_array
        if (region.ragged and cnz(offsets < region.first)) or (self.size == 1 and cnz(offsets >= region.stop)):
            return None, None
        return region, (offsets >> self.shift).view(_I64)  # an address below the region becomes a huge row

    def locate(self, f, lanes, address: np.ndarray):
        """``(region, rows, lanes, positions)`` groups: the units that these lanes access. ``positions`` among them."""
        region, rows = self.find(f, lanes, address)
        try:
            region.units[self.size][rows]
        except (AttributeError, IndexError):
            return self.by_lane(f, lanes, address)
        return ((region, rows, lanes, slice(None)),)

    def by_lane(self, f, lanes, address: np.ndarray):
        """The same, each address looked up. Reports those that are wrong."""
        active = self.active(lanes, address)
        if active.tobytes()[:: active.itemsize].translate(None, self.multiples):
            self.misaligned(f, lanes, active)
        groups: dict[int, tuple[Region, list[int], list[int], list[int]]] = {}
        numbers = range(32) if lanes is None else lanes.tolist()
        for position, (lane, at) in enumerate(zip(numbers, active.tolist())):
            region, offset = self.resolve(f, lane, at)
            group = groups.setdefault(id(region), (region, [], [], []))
            group[1].append(offset // self.size)
            group[2].append(lane)
            group[3].append(position)
        if len(groups) == 1:
            region, rows, _, _ = next(iter(groups.values()))
            if self.space == "global" or (self.space == "generic" and region.base > SHARED_START):
                self.region = region
            return ((region, np.array(rows, _I64), lanes, slice(None)),)
        return tuple(
            (region, np.array(rows, _I64), np.array(who, _I64), np.array(positions))
            for region, rows, who, positions in groups.values()
        )

    def resolve(self, f, lane: int, address: int) -> tuple[Region, int]:
        """The region and offset of one lane's address; reports an address outside every region."""
        machine, space = self.machine, self.space
        if space == "generic":
            space = {1: "shared::cluster", 2: "local", 3: "param"}.get(address >> 56, "global")
            address &= (1 << 56) - 1
        if space.startswith("shared"):
            block = f.warp.block.block_at(address)[0]
            if block is not None and not block.live_warps:
                self.fault(
                    f, lane, "out-of-bounds", f"touches shared memory of block {block.coordinates}, which has exited"
                )
            if machine.sanitizer is not None and block not in (None, f.warp.block):
                machine.sanitizer.has_started(f.warp, lane, block, self.site)
            region, offset = f.warp.block.shared_at(address)
        elif space == "local":
            region, offset = f.warp.local_region, address + lane * machine.local_bytes
        elif space == "param":
            region, offset = machine.parameters, address
        else:
            region = machine.memory.find(address, self.size)
            offset = address - region.base if region else 0
        if region is None or offset + self.size > region.high or offset < region.low:
            where = machine.memory.describe(address) if space == "global" else f"outside {space} memory"
            self.fault(f, lane, "out-of-bounds", f"{self.size} bytes at {address:#x}, {where}")
        return region, offset

    def fault(self, f, lane, kind: str, what: str):
        self.machine.fail(kind, what, f.warp, [lane], self.site)

    def misaligned(self, f, lanes, active: np.ndarray):
        at = next(i for i, address in enumerate(active.tolist()) if address % self.size)
        lane = at if lanes is None else int(lanes[at])
        self.fault(
            f,
            lane,
            "misaligned",
            f"an access of {self.size} bytes at {int(active[at]):#x} needs an address that is a multiple of "
            f"{self.size}",
        )
