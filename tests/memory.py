"""A workspace as memory: what its counters and slots hold may be read and overwritten."""

from __future__ import annotations

import ctypes

import numpy as np

import cutesync as cs
from cutesync.runtime import device, workspace

from .cases import data


class Memory:
    """The default stream's workspace, read and written from outside."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        cs.reduce(cs.asarray(data(70_001, "int32")))  # makes it
        self.held = workspace.counters_and_slots(self.ordinal, 0)
        self.counters, self.slots = self.held.addresses
        self.slot_bytes = self.counters + self.held.size - self.slots

    def read(self, address: int, size: int) -> np.ndarray:
        found = np.empty(size, np.uint8)
        if self.ordinal == device.HOST:
            ctypes.memmove(found.ctypes.data, address, size)
        else:
            device.copy_out(found.ctypes.data, address, size, 0)
        return found.view(np.uint32)

    def write(self, address: int, what: np.ndarray) -> None:
        if self.ordinal == device.HOST:
            ctypes.memmove(address, what.ctypes.data, what.nbytes)
        else:
            device.copy_in(address, what.ctypes.data, what.nbytes, 0)
            device.synchronize(0)

    def soil(self, dirt: int) -> None:
        self.write(self.slots, np.full(self.slot_bytes, dirt, np.uint8))

    def assert_ready(self) -> None:
        words = self.read(self.counters, self.slots - self.counters)
        words[1] = 0  # the launch number, which only grows
        assert not words.any(), f"counters not zero at {np.flatnonzero(words)[:5]}"
