"""Small arrays of a device's default stream share allocations: one takes the host 2 us, nearly as long as a launch.

A chunk is cut into slots, each of which is given once. Every array holds its chunk, which is freed, in stream order,
with the last of them. So memory is never used again earlier than if each array had an allocation of its own. (The
emulator allocates each array by itself, and reports what is written beside it.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SLOT = 256  # bytes; an allocation of CUDA begins at a multiple of it
CHUNK = 64 * SLOT
_latest: dict[int, tuple[Callable[[], int], Any]] = {}  # by device: the addresses left in its newest chunk, and that


def take(ordinal: int) -> tuple[int, Any] | None:
    """Return a slot of a device's newest chunk: its address and what owns it; None if there is none left."""
    found = _latest.get(ordinal)
    if found is None:
        return None
    following, owner = found
    address = following()
    return None if address < 0 else (address, owner)


def add(ordinal: int, owner: Any) -> tuple[int, Any]:
    """Cut a chunk, an allocation of CHUNK bytes on the default stream. Return its first slot."""
    start = int(owner.handle)
    rest = iter(range(start + SLOT, start + CHUNK, SLOT))
    _latest[ordinal] = (lambda: next(rest, -1)), owner
    return start, owner
