"""Memory that tests look at and change: a workspace, of which counters and slots may be overwritten, and bytes that the
emulator takes as unwritten."""

from __future__ import annotations

import ctypes
import functools

import numpy as np

import cutesync as cs
from cutesync.emulator.device import DEVICE
from cutesync.emulator.memory import Units
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


def forget_behind(x, n: int, axis: int | None = None) -> None:
    """Make the emulator report reads of the elements of an array from place ``n`` along an axis on, or of all elements
    one after the other: nobody has written them. Elements that lie in the same bytes as counted ones keep theirs."""
    region = DEVICE.memory.find(x.ptr)
    if region is None or not x.size:
        return
    along = [np.arange(extent) * step for extent, step in zip(x.shape, x.strides)]
    starts = x.ptr - region.base + functools.reduce(np.add.outer, along)
    rows = starts.reshape(-1) if axis is None else np.moveaxis(starts, axis, -1)
    region.valid = np.ones(len(region.data), np.uint8)
    region.valid_units = Units(region.valid, region.high)
    for places, known in ((rows[..., max(n, 0) :], 0), (rows[..., : max(n, 0)], 1)):
        region.valid[(places.reshape(-1, 1) + np.arange(x.dtype.size)).reshape(-1)] = known
