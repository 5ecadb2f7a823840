"""Device memory of a checked script: host memory, with red zones that belong to no buffer.

Each allocation is registered with the emulator for as long as it is alive. Addresses are multiples of 512, as those of
CUDA allocators are.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right, insort

import numpy as np

from ..runtime import forks
from .device import DEVICE

ALIGNMENT, RED_ZONE = 512, 4096
FRESH = 0xFF  # of memory that nobody has written: NaN in every float type, -1 in signed integers

_lock = threading.RLock()
forks.wait_for(_lock)
_sizes: dict[int, int] = {}  # live allocations by address
_starts: list[int] = []  # their addresses in order
_kept: dict[int, np.ndarray] = {}  # allocations that ``release`` ends, as cudaMalloc's


def allocate(size: int, name: str, *, fresh: bool = False, strict: bool = False) -> np.ndarray:
    """Return ``size`` bytes (one at least) of device memory; views of them keep them alive.

    ``fresh`` memory is filled with ``FRESH``. If it is ``strict`` besides, kernels must write its bytes before they
    read them.
    """
    whole = np.empty(max(size, 1) + ALIGNMENT + 2 * RED_ZONE, np.uint8)
    start = RED_ZONE + -(whole.ctypes.data + RED_ZONE) % ALIGNMENT
    block = whole[start : start + max(size, 1)]
    address = block.ctypes.data
    DEVICE.register(address, len(block), name, initialised=not (fresh and strict), owner=whole)
    if fresh:
        block[:] = FRESH
    with _lock:
        _sizes[address] = len(block)
        insort(_starts, address)
    weakref.finalize(whole, _forget, address, name).atexit = False
    return block


def _forget(address: int, name: str) -> None:
    DEVICE.unregister(address)
    with _lock:
        size = _sizes.pop(address)
        _starts.remove(address)
    DEVICE.memory.freed.append((address, address + size, name))


def holds(address: int) -> bool:
    """Whether an address lies in device memory."""
    with _lock:
        at = bisect_right(_starts, address) - 1
        return at >= 0 and address < _starts[at] + _sizes[_starts[at]]


def initialised(address: int) -> None:
    """The host has written the allocation that holds an address: kernels may read all of it."""
    region = DEVICE.memory.find(address)
    if region is not None:
        region.valid = None


def keep(size: int, name: str) -> int:
    """Allocate until ``release``. Return the address."""
    block = allocate(size, name)
    _kept[block.ctypes.data] = block
    return block.ctypes.data


def release(address: int) -> bool:
    """Free what ``keep`` returned. Return whether there was such an allocation."""
    return _kept.pop(address, None) is not None
