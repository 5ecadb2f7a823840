"""What the race checker keeps of ``cp.async``: copies of several lanes, a unit of 4, 8 or 16 bytes each."""

from __future__ import annotations

from typing import Any

import numpy as np

from .lanes import count_nonzero as cnz
from .memory import Region
from .proxies import event_key
from .shadow import SITE_MASK, TIME_AT


def clear_to_write(sanitizer: Any, warp: Any, lanes: np.ndarray, region: Region, rows: np.ndarray, size: int) -> bool:
    """Whether these lanes know all earlier accesses to these units, a unit a lane. A no proves nothing."""
    shadow = sanitizer.shadow(region)
    shadow.flush()
    index, own = shadow.index(rows, size), warp.actor_keys[lanes]
    for table in (shadow.writes, *shadow.reads.values()):
        earlier = table[index]
        if not cnz(earlier) or sanitizer.known_here(warp, region, earlier):
            continue
        for clock, positions in warp.clock.groups(lanes):
            mine, theirs = (own, earlier) if positions is None else (own[positions], earlier[positions])
            mine = mine if index.ndim == 1 else mine[:, None]
            if cnz(sanitizer.unordered(theirs, mine, [clock.known], warp.block.number)):
                return False
    return True


def async_stores(sanitizer: Any, operation: Any, region: Region, rows: np.ndarray, size: int) -> None:
    """A ``cp.async`` writes units that are clear. Until a wait covers it nobody knows its event."""
    shadow = sanitizer.shadow(region)
    index = shadow.index(rows, size)
    for reads in shadow.reads.values():
        reads[index] = 0
    shadow.writes[index] = event_key(operation, *operation.write_event)
    shadow.written = True


def count_as_stores(
    sanitizer: Any, warp: Any, lanes: np.ndarray, site: int, region: Region, units: tuple, times: np.ndarray
) -> None:
    """Units that asynchronous operations have written now count as written by these lanes at these times."""
    shadow = sanitizer.shadow(region)
    index = shadow.index(*units)
    keys = warp.key_base[lanes] + (times << TIME_AT) + min(site, int(SITE_MASK))
    shadow.writes[index] = keys if index.ndim == 1 else keys[:, None]
