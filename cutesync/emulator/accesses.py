"""What one load or store instruction does: values from or to memory, and what the sanitizer is told of it.

The addresses of a warp mostly lie in one region, and each lane moves one unit: ``width * count`` bytes, which NumPy
moves as one number. Everything else (several regions, faults) is resolved lane by lane by ``Port``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .memory import ONES, UNITS, UNSIGNED, Place, Port
from .shadow import ORDINARY, Access, Order


def spread(lanes, values: np.ndarray) -> np.ndarray:
    """Values of some lanes as a vector over all 32."""
    out = np.zeros(32, values.dtype)
    out[lanes] = values
    return out


def packed(*elements: np.ndarray) -> np.ndarray:
    """The elements that each lane stores, as one unit a lane."""
    first = elements[0]
    out = np.empty((32, len(elements)), first.dtype)
    for i, element in enumerate(elements):
        out[:, i] = element
    return out.view(UNITS[len(elements) * first.itemsize]).reshape(32)


class Reader:
    """One load instruction: ``read(f, lanes, address)`` gives the units that these lanes load, checked.

    Elements of a unit that are ``unread`` are not checked.
    """

    def __init__(self, port: Port, order: Order = ORDINARY, unread: tuple[int, ...] = ()):
        self.port, self.order, machine = port, order, port.machine
        self.machine, self.site, self.count, self.size = machine, port.site, port.count, port.size
        self.sanitizer: Any = None if port.space == "local" else machine.sanitizer
        self.access = Access(port.site, port.width if unread else port.size, "read", order)
        self.elements = tuple(i for i in range(port.count) if i not in unread) if unread else (None,)  # None: the whole

    def read(self, f, lanes, address: np.ndarray) -> np.ndarray:
        region, rows = self.port.find(f, lanes, address)
        try:
            values = region.units[self.size][rows]
        except (AttributeError, IndexError):  # no region, or not all of it
            return self.read_by_lane(f, lanes, address)
        if self.sanitizer is not None:
            self.check(f, lanes, region, rows)
        if self.order.scope or self.machine.quiet:
            f.polled(region, rows, self.size, values)
        return values

    def read_by_lane(self, f, lanes, address: np.ndarray) -> np.ndarray:
        values = np.zeros(32 if lanes is None else len(lanes), UNITS[self.size])
        groups = self.port.by_lane(f, lanes, address)
        for region, rows, who, positions in groups:
            values[positions] = region.units[self.size][rows]
            if self.sanitizer is not None:
                self.check(f, who, region, rows)
            if len(groups) == 1 and (self.order.scope or self.machine.quiet):
                f.polled(region, rows, self.size, values)
        return values

    def check(self, f, lanes, region, rows: np.ndarray) -> None:
        access, size = self.access, self.access.size
        for element in self.elements:
            units = rows if element is None else rows * self.count + element
            if region.valid is not None and 0 in region.valid_units[size][units].tobytes():
                self.unwritten(f, size, region, units, lanes)
            self.sanitizer.load(access, f, lanes, region, units)

    def unwritten(self, f, size: int, region, rows: np.ndarray, lanes) -> None:
        """Some lane reads a byte that nobody has written."""
        whole = region.valid_units[size][rows].view(np.uint8).reshape(len(rows), size).all(1)
        bad = int(np.flatnonzero(~whole)[0])
        lane = bad if lanes is None else int(lanes[bad])
        title = f"reads {size} bytes that nobody has written, at byte {int(rows[bad]) * size - region.low} of "
        self.machine.unwritten(region, title + region.name, f.warp, [lane], self.site)


def load(machine, access: tuple[int, str, int, int, Place], order: Order, unread: tuple[int, ...]):
    """The function behind one ``ld``: ``run(f, lanes, address)`` -> a vector over 32 lanes, or ``count`` of them.

    ``access`` are the arguments of ``Port``.
    """
    port = Port(machine, *access)
    read, count, element = Reader(port, order, unread).read, port.count, np.dtype(UNSIGNED[port.width])

    def run(f, lanes, address):
        values = read(f, lanes, address)
        return values if lanes is None else spread(lanes, values)

    def run_vector(f, lanes, address):
        return run(f, lanes, address).view(element).reshape(32, count).T.copy()

    return run if count == 1 else run_vector


def unchanged(old: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which units hold what is about to be stored there."""
    return (old.view(np.uint8) == np.ascontiguousarray(data).view(np.uint8)).reshape(len(old), -1).all(1)


def store(machine, access: tuple[int, str, int, int, Place], order: Order = ORDINARY):
    """The function behind one ``st``: ``run(f, lanes, address, values)``; values are a unit a lane (``packed``).

    ``access`` are the arguments of ``Port``.
    """
    port = Port(machine, *access)
    site, size = port.site, port.size
    event, one = Access(site, size, "write", order), ONES[size]
    sanitizer = None if port.space == "local" else machine.sanitizer

    def run(f, lanes, address, values):
        data = values if lanes is None else values[lanes]
        region, rows = port.find(f, lanes, address)
        try:
            old = region.units[size][rows]
        except (AttributeError, IndexError):
            for region, rows, who, positions in port.by_lane(f, lanes, address):
                put(f, who, region, rows, region.units[size][rows], data[positions])
        else:
            put(f, lanes, region, rows, old, data)
        f.poll = None

    def put(f, who, region, rows, old, data):
        if region.sealed:
            region.unseal(machine, f.warp, [0 if who is None else int(who[0])], site)
        view = region.units[size]
        if sanitizer is not None:
            sanitizer.store(event, f, who, region, rows, partial(unchanged, old, data))
        view[rows] = data
        if sanitizer is not None and not order.scope and view[rows].tobytes() != data.tobytes():
            sanitizer.lost_store(event, f, who, region, rows)
        if region.valid is not None:
            region.valid_units[size][rows] = one
        region.changed(machine, rows, size)

    return run
