"""What one load or store instruction does: values from or to memory, and what the sanitizer is told of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .lanes import count_nonzero as cnz
from .memory import ONES, UNSIGNED, Port
from .shadow import ORDINARY, Access, Order


def _spread(lanes, values: np.ndarray) -> np.ndarray:
    """Values of some lanes as a vector (or rows) over all 32."""
    out = np.zeros((32, *values.shape[1:]), values.dtype)
    out[lanes] = values
    return out


def load(machine, site: int, space: str, width: int, count: int, order: Order = ORDINARY, unread: tuple[int, ...] = ()):
    """The function behind one ``ld``: ``run(f, lanes, address)`` -> a vector over 32 lanes, or ``count`` of them.

    Elements that are ``unread`` are not checked.
    """
    port, size = Port(machine, site, space, width, count), width * count
    sanitizer: Any = None if space == "local" else machine.sanitizer
    whole, part = (Access(site, n, "read", order) for n in (size, width))

    def check(f, region, rows, lanes):
        if not unread:
            check_units(f, whole, region, rows, lanes)
        for i in range(count) if unread else ():
            if i not in unread:
                check_units(f, part, region, rows * count + i, lanes)

    def check_units(f, access, region, rows, lanes):
        size, ones = access.size, ONES[access.size]
        if region.valid is not None and cnz(region.valid_view(size)[rows] != ones):
            bad = np.flatnonzero((region.valid_view(size)[rows] != ones).reshape(len(rows), -1).any(1))[0]
            offset = int(rows[bad]) * size - region.low
            lane = int(bad) if lanes is None else int(lanes[bad])
            title = f"reads {size} bytes that nobody has written, at byte {offset} of {region.name}"
            machine.unwritten(region, title, f.warp, [lane], site)
        sanitizer.load(access, f, lanes, region, rows)

    def run(f, lanes, address):
        quick = port.gather(f, address) if lanes is None else None
        groups = ((quick[0], quick[1], None, None),) if quick else port.locate(f, lanes, address)
        if len(groups) == 1:
            region, rows, _, _ = groups[0]
            values = quick[2] if quick else region.view(width, count)[rows]
            if sanitizer is not None:
                check(f, region, rows, lanes)
            if order.scope or machine.quiet:
                f.polled(region, rows, size, values)
            values = values if lanes is None else _spread(lanes, values)
            return values if count == 1 else values.T.copy()
        out = np.zeros((32, count) if count > 1 else 32, np.dtype(UNSIGNED[width]))
        for region, rows, who, _ in groups:
            out[who] = region.view(width, count)[rows]
            if sanitizer is not None:
                check(f, region, rows, who)
        return out if count == 1 else out.T.copy()

    return run


def unchanged(view: np.ndarray, rows: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which units hold what is about to be stored there."""
    same = view[rows].view(np.uint8) == np.ascontiguousarray(data).view(np.uint8)
    return same.reshape(len(rows), -1).all(1)


def store(machine, site: int, space: str, width: int, count: int, order: Order = ORDINARY):
    """The function behind one ``st``: ``run(f, lanes, address, values)``; values are a vector or rows of elements."""
    port, access = Port(machine, site, space, width, count), Access(site, width * count, "write", order)
    sanitizer, size = None if space == "local" else machine.sanitizer, width * count

    def run(f, lanes, address, values):
        chosen = values if lanes is None else values[lanes]
        for region, rows, who, positions in port.locate(f, lanes, address):
            if region.sealed:
                region.unseal(machine, f.warp, [0 if who is None else int(who[0])], site)
            data = chosen if positions is None else chosen[positions]
            view = region.view(width, count)
            if sanitizer is not None:
                sanitizer.store(access, f, who, region, rows, partial(unchanged, view, rows, data))
            view[rows] = data
            if sanitizer is not None and not order.scope and width < 16 and cnz(view[rows] != data):
                sanitizer.lost_store(access, f, who, region, rows)
            if region.valid is not None:
                region.valid_view(size)[rows] = ONES[size]
            region.changed(machine, rows, size)
        f.poll = None

    return run
