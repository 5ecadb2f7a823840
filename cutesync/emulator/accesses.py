"""What one load or store instruction does: values from or to memory, and what the sanitizer is told of it.

The addresses of a warp mostly lie in one region, and each lane moves one unit: ``width * count`` bytes, which NumPy
moves as one number. Everything else (several regions, faults) is resolved lane by lane by ``Port``.
"""

from __future__ import annotations

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


def reader(port: Port, order: Order = ORDINARY, unread: tuple[int, ...] = (), whole: bool = False):
    """One load instruction: ``read(f, lanes, address)`` gives the units that these lanes load, checked.

    Elements of a unit that are ``unread`` are not checked. ``whole``: it gives a vector over all 32 lanes, or a list of
    such vectors, one an element.
    """
    machine, size, find, strong = port.machine, port.size, port.find, order.scope
    check = None if port.space == "local" or machine.sanitizer is None else checker(port, order, unread)
    elements = machine.program.kept.elements if whole and port.count > 1 and not strong else {}
    width = port.width

    def read(f, lanes, address: np.ndarray):
        region, rows = find(f, lanes, address)
        places = elements.get(id(rows)) if elements else None
        try:
            if places is None:
                values = region.units[size][rows]
            else:
                units = region.units[width]
                values = [units[place] for place in places]
        except (AttributeError, IndexError):  # no region, or not all of it
            values = read_by_lane(f, lanes, address)
        else:
            if check is not None:
                check(f, lanes, region, rows)
            if strong or machine.quiet:
                f.polled(region, rows, size, region.units[size][rows])
        return spread(lanes, values) if whole and lanes is not None else values

    def read_by_lane(f, lanes, address: np.ndarray) -> np.ndarray:
        values = np.zeros(32 if lanes is None else len(lanes), UNITS[size])
        groups = port.by_lane(f, lanes, address)
        for region, rows, who, positions in groups:
            values[positions] = region.units[size][rows]
            if check is not None:
                check(f, who, region, rows)
            if len(groups) == 1 and (strong or machine.quiet):
                f.polled(region, rows, size, values)
        return values

    return read


def checker(port: Port, order: Order, unread: tuple[int, ...]):
    """``check(f, lanes, region, rows)``: what a load instruction reads has been written, and nothing races with it."""
    if not unread:
        return port.machine.sanitizer.loads(Access(port.site, port.size, "read", order))
    check = port.machine.sanitizer.loads(Access(port.site, port.width, "read", order))

    def check_elements(f, lanes, region, rows: np.ndarray) -> None:
        for element in (i for i in range(port.count) if i not in unread):
            check(f, lanes, region, rows * port.count + element)

    return check_elements


def load(machine, access: tuple[int, str, int, int, Place], order: Order, unread: tuple[int, ...]):
    """The function behind one ``ld``: ``run(f, lanes, address)`` -> a vector over 32 lanes, or ``count`` of them.

    ``access`` are the arguments of ``Port``.
    """
    port = Port(machine, *access)
    read = reader(port, order, unread, whole=True)
    count, element = port.count, np.dtype(UNSIGNED[port.width])

    def read_vector(f, lanes, address):
        values = read(f, lanes, address)
        return values if type(values) is list else values.view(element).reshape(32, count).T.copy()

    return read if count == 1 else read_vector


def store(machine, access: tuple[int, str, int, int, Place], order: Order = ORDINARY):
    """The function behind one ``st``: ``run(f, lanes, address, values)``; values are a unit a lane (``packed``).

    ``access`` are the arguments of ``Port``.
    """
    port = Port(machine, *access)
    site, size, find, strong = port.site, port.size, port.find, order.scope
    event, one = Access(site, size, "write", order), ONES[size]
    sanitizer = None if port.space == "local" else machine.sanitizer
    check = None if sanitizer is None else sanitizer.stores(event)

    def run(f, lanes, address, values):
        data = values if lanes is None else values[lanes]
        region, rows = find(f, lanes, address)
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
        if check is not None:
            check(f, who, region, rows, (old, data))
        view[rows] = data
        if sanitizer is not None and not strong and view[rows].tobytes() != data.tobytes():
            sanitizer.lost_store(event, f, who, region, rows)
        if region.valid is not None:
            region.valid_units[size][rows] = one
        region.changed(machine, rows, size)

    return run
