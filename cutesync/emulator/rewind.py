"""Restores memory between the schedules of one launch and compares the results.

Only what the launch writes is kept, restored and compared, to the byte. Other threads may change all other memory.
"""

from __future__ import annotations

import numpy as np

from .memory import Memory, Region


class Rewind:
    """What one launch writes. Regions are sealed (``Region.unseal``): the first write to one copies it."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.before: dict[Region, tuple[np.ndarray, np.ndarray | None]] = {}
        self.first: dict[Region, np.ndarray] = {}
        self.sealed = [r for r in memory.regions if r.writable]
        for region in self.sealed:
            region.sealed, region.rewind = True, self

    def keep(self, region: Region) -> None:
        self.before[region] = region.data.copy(), None if region.valid is None else region.valid.copy()
        region.written = {}

    def close(self) -> None:
        """The launch does not run again."""
        for region in self.sealed:
            region.sealed, region.rewind, region.written = False, None, None

    def written(self):
        """``(region, the bytes that any run so far has written)``, except arrays that have been freed since."""
        held = {id(region) for region in self.memory.regions}
        for region in self.before:
            if id(region) in held:
                touched = np.zeros(len(region.data), bool)
                for size, units in region.written.items():
                    touched[: len(units) * size].reshape(-1, size)[units] = True
                yield region, np.flatnonzero(touched)

    def note_first(self) -> None:
        """After the first run: the others must leave the same."""
        self.first = {region: region.data.copy() for region, _ in self.written()}

    def restore(self) -> None:
        """Before another run."""
        for region, places in self.written():
            data, valid = self.before[region]
            region.data[places] = data[places]
            if valid is not None:
                region.valid[places] = valid[places]

    def difference(self) -> tuple[Region, int] | None:
        """A byte where the last run differs from the first."""
        for region, places in self.written():
            expected = self.first.get(region, self.before[region][0])
            wrong = places[region.data[places] != expected[places]]
            if len(wrong) and region.result:
                return region, int(wrong[0]) - region.low
        return None
