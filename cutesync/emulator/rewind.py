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

    def _kept(self) -> list[Region]:
        """The regions that any run so far has written, except arrays that have been freed since."""
        held = {id(region) for region in self.memory.regions}
        return [region for region in self.before if id(region) in held]

    def written(self):
        """``(region, the bytes that any run so far has written)``."""
        for region in self._kept():
            touched = np.zeros(len(region.data), bool)
            for size, units in region.written.items():
                touched[: len(units) * size].reshape(-1, size)[units] = True
            yield region, np.flatnonzero(touched)

    def note_first(self) -> None:
        """After the first run: the others must leave the same."""
        self.first = {region: region.data.copy() for region in self._kept()}

    def restore(self) -> None:
        """Before another run."""
        for region in self._kept():
            data, valid = self.before[region]
            for size, units in region.written.items():
                np.copyto(_words(region.data, size, units), _words(data, size, units), where=units[:, None])
                if valid is not None:
                    np.copyto(_words(region.valid, size, units), _words(valid, size, units), where=units[:, None])

    def difference(self) -> tuple[Region, int] | None:
        """A byte where the last run differs from the first."""
        for region in self._kept():
            expected = self.first.get(region, self.before[region][0])
            wrong = [at for size, units in region.written.items() for at in _first(region.data, expected, size, units)]
            if wrong and region.result:
                return region, min(wrong) - region.low
        return None


def _words(data: np.ndarray, size: int, units: np.ndarray) -> np.ndarray:
    """Bytes as rows of numbers, a row for each unit of ``size`` bytes."""
    return data[: len(units) * size].view(f"u{min(size, 8)}").reshape(len(units), -1)


def _first(data: np.ndarray, expected: np.ndarray, size: int, units: np.ndarray) -> list[int]:
    """The first byte of these units that is not what is expected, if there is one."""
    words = _words(data, size, units) != _words(expected, size, units)
    wrong = (words[:, 0] if words.shape[1] == 1 else words.any(1)) & units
    at = int(wrong.argmax())
    if not wrong[at]:
        return []
    place = slice(at * size, at * size + size)
    return [at * size + int(np.argmax(data[place] != expected[place]))]
