"""Emulated device memory: which buffers of this process kernels may access."""

from __future__ import annotations

import contextlib
import weakref

import numpy as np

from .memory import POISON, Memory, Region


class Device:
    """Emulated device memory: real buffers of this process, registered by address."""

    def __init__(self):
        self.memory = Memory()

    def register(
        self,
        address: int,
        size: int,
        name: str = "a buffer",
        *,
        initialised: bool = True,
        writable: bool = True,
        owner=None,
    ) -> Region | None:
        """Make bytes at ``address`` visible to kernels, until ``unregister`` or for the life of their ``owner``.

        The caller keeps them alive until then. Bytes of a buffer that is not ``initialised`` must be written before
        they are read.
        """
        if size <= 0:
            return None
        region = _region(name, address, size, initialised, writable)
        region.owner = None if owner is None else weakref.ref(owner)
        self.memory.replace(self.memory.starting_at(address), (region,))
        return region

    def unregister(self, address: int) -> None:
        self.memory.replace(self.memory.starting_at(address), ())

    @contextlib.contextmanager
    def arrays(self, *arrays: np.ndarray, fresh=()):
        """Registers NumPy arrays for a ``with`` block, those in ``fresh`` as unwritten. Overlapping ones merge."""
        regions, hidden = [], []
        for address, size, name, initialised, writable in _buffers(arrays, fresh):
            regions.append(_region(name, address, size, initialised, writable))
            hidden += self.memory.starting_at(address)
        try:
            self.memory.replace(hidden, regions)
            yield self
        finally:
            self.memory.replace(regions, hidden)


def _region(name: str, address: int, size: int, initialised: bool, writable: bool) -> Region:
    region = Region.of_address(name, address, size, initialised=initialised, writable=writable)
    if not initialised and writable:
        region.data[region.low : region.high] = POISON
    return region


def _buffers(arrays, fresh) -> list[tuple[int, int, str, bool, bool]]:
    """(address, size, name, initialised, writable) of the memory under arrays, strided ones included."""
    found = []
    for i, a in enumerate(arrays):
        if a.size:
            reach = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
            first = a.ctypes.data + sum(r for r in reach if r < 0)
            size = sum(map(abs, reach)) + a.itemsize
            initialised = not any(a is other for other in fresh)
            found.append((first, size, f"array {i} {a.dtype}{list(a.shape)}", initialised, a.flags.writeable))
    merged: list[tuple[int, int, str, bool, bool]] = []
    for first, size, name, initialised, writable in sorted(found):
        if merged and first < merged[-1][0] + merged[-1][1]:
            start, held, other, *flags = merged.pop()
            both = other if name == other else f"{other} with {name}"
            merged.append((start, max(held, first + size - start), both, initialised or flags[0], writable or flags[1]))
        else:
            merged.append((first, size, name, initialised, writable))
    return merged


DEVICE = Device()
