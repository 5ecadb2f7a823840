"""What the launches before a programmatic one have read and written.

A programmatic launch may start while those before it in the stream still run: the last launch that is not programmatic,
and all since. Where their accesses are known (``unseen_launches`` is off), an access before ``griddepcontrol.wait`` is
wrong only if one of them wrote these bytes or, for a write, read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from .memory import SHARED_START, Region
from .shadow import Shadow

_MAX_SHADOW, _SMALL_SHADOW = 1 << 26, 1 << 22  # bytes of a region's shadow memory: of the last launch, of earlier ones
_KEPT = 8  # launches; a longer chain of programmatic ones waits for the older ones in practice


class Used(NamedTuple):
    """What one launch did to a region, by granules of so many bytes."""

    granule: int
    wrote: np.ndarray
    read: np.ndarray  # or written


def _used(shadow: Shadow) -> Used:
    shadow.flush()
    wrote = shadow.writes != 0
    read = wrote.copy()
    for table in shadow.reads.values():
        np.logical_or(read, table, out=read)
    return Used(shadow.granule, wrote, read)


Launched = tuple[str, "WeakKeyDictionary[Region, Used | Shadow]"]


class Seen:
    """The accesses of the last launches. Launches run one at a time, so there is one of these."""

    def __init__(self) -> None:
        self.earlier: list[Launched] = []
        self.last: Launched | None = None  # the launch that runs

    def ran(self, kernel: str, regions: Iterable[Region]) -> None:
        """A launch has run under one schedule; shadow memory still holds what it did."""
        touched = {r: r.shadow for r in regions if r.shadow is not None and r.base > SHARED_START}
        self.last = kernel, WeakKeyDictionary(touched)

    def finish(self, programmatic: bool) -> None:
        """The launch has run under all its schedules. Its shadow memory is kept as it is, unless that is large: most
        launches are never asked for."""
        if not programmatic:
            self.earlier = []
        self.sum_up(_SMALL_SHADOW)
        if self.last is not None:
            self.earlier = [*self.earlier, self.last][-_KEPT:]
            self.sum_up(_MAX_SHADOW)
        self.last = None

    def sum_up(self, most: int) -> None:
        """Replace shadow memory of more than so many bytes by what it says."""
        for _, used in self.earlier:
            for region, kept in list(used.items()):
                if isinstance(kept, Shadow) and kept.nbytes() > most:
                    used[region] = _used(kept)

    def conflict(self, region: Region, rows: np.ndarray, size: int, write: bool) -> str | None:
        """What an earlier launch did to one of these units of ``size`` bytes that a read or ``write`` must wait for."""
        self.sum_up(0)
        for kernel, used in reversed(self.earlier):
            if region in used:
                granule, wrote, read = cast(Used, used[region])
                index = (rows * size // granule)[:, None] + np.arange(max(size // granule, 1))
                if wrote[index].any():
                    return f"{kernel} wrote these bytes"
                if write and read[index].any():
                    return f"{kernel} read these bytes"
        return None


SEEN = Seen()
