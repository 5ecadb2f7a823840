"""Scratch memory of the kernels that need several blocks to agree: one per device and stream, never shared between streams.

A workspace is an 8-byte launch counter and ``GROUPS`` 4-byte counters, followed by ``SLOTS`` 8-byte slots (see ``sync.gather``). It is
cleared once, when it is made; kernels leave the counters ready themselves and never trust the slots. A graph keeps the workspace it
was captured with, because its replays may run beside the capturing stream's later work; so every capture gets one of its own.
"""

from __future__ import annotations

import contextlib
import ctypes

import numpy as np

from . import device, forks

GROUPS = (1 << 14) - 2
SLOTS = 1 << 19  # what a workspace has unless a launch needs more
_COUNTERS = 8 + 4 * GROUPS

_lock = forks.lock()
_by_stream: dict[tuple, tuple[int, int]] = {}  # address and bytes
_by_capture: dict[tuple, tuple[int, int]] = {}
_alive: dict[int, np.ndarray] = {}


def counters_and_slots(ordinal: int, stream: int, slots: int = 0) -> tuple[int, int]:
    """Addresses of the counters and of at least ``slots`` slots for work on ``stream`` of device ``ordinal``."""
    base = _place(ordinal, stream, (), _COUNTERS + 8 * max(SLOTS, slots), _COUNTERS)
    return base, base + _COUNTERS


def counters_and_scratch(ordinal: int, stream: int, counter_bytes: int, scratch_bytes: int) -> tuple[int, int]:
    """Addresses of zeroed counters, which kernels leave zero, and of scratch memory, for work on ``stream`` of device ``ordinal``: a second
    workspace, of a power of two bytes, so that it seldom grows."""
    counters = -(-counter_bytes // 256) * 256
    size = max(1 << 20, 1 << (counters + scratch_bytes - 1).bit_length())
    base = _place(ordinal, stream, (counters,), size, counters)
    return base, base + counters


def scratch(ordinal: int, stream: int, size: int) -> int:
    """Address of at least ``size`` bytes that hold anything, for work on ``stream`` of device ``ordinal`` that is in its queue before the next
    call of this. Whoever may share the stream with another thread holds a lock until then."""
    unit = max(1 << 21, (1 << (size - 1).bit_length()) >> 3)  # so that it seldom grows, and never to much more than is needed
    return _place(ordinal, stream, ("scratch",), -(-size // unit) * unit, 0)


def _place(ordinal: int, stream: int, kind: tuple, size: int, cleared: int) -> int:
    if ordinal != device.HOST and device.capturing(stream):
        capture = device.check(device.driver().cuStreamGetCaptureInfo(stream), "cuStreamGetCaptureInfo")[1]
        return _keep(_by_capture, (ordinal, int(capture), *kind), size, cleared)
    return _keep(_by_stream, (ordinal, stream, *kind), size, cleared)


def forget(ordinal: int, stream: int) -> None:
    """Make the next launch on ``stream`` start with a workspace of its own."""
    with _lock:
        for key in [key for key in _by_stream if key[:2] == (ordinal, stream)]:
            base, _ = _by_stream.pop(key)
            if ordinal == device.HOST:  # nothing runs on there, and every later launch would save and compare what is left registered
                _free(ordinal, stream, base)


def _keep(table: dict, key: tuple, size: int, cleared: int) -> int:
    """The workspace of a stream or capture, made anew if it is too small. The old one stays, a graph may hold it; but the scratch of a
    stream, which can be large, is given back."""
    base, held = table.get(key, (0, 0))
    if held < size:
        with _lock:
            base, held = table.get(key, (0, 0))
            if held < size:
                if held and table is _by_stream and "scratch" in key:
                    _free(key[0], key[1], base)
                base = _allocate_for_emulator(size, cleared) if key[0] == device.HOST else _allocate(key[0], size)
                table[key] = base, size
    return base


def _allocate_for_emulator(size: int, cleared: int) -> int:
    """What is not ``cleared`` holds rubbish: kernels must not mind."""
    from ..emulator import DEVICE

    memory = np.full(size + 256, 0xCD, np.uint8)
    base = memory.ctypes.data + -memory.ctypes.data % 256
    ctypes.memset(base, 0, cleared)
    DEVICE.register(base, size, "the workspace")
    _alive[base] = memory
    return base


def _free(ordinal: int, stream: int, base: int) -> None:
    """Give memory back when the work on ``stream`` is done."""
    if ordinal == device.HOST:
        from ..emulator import DEVICE

        DEVICE.unregister(base)
        del _alive[base]
        return
    with _uncaptured(), device.using(ordinal):
        device.synchronize(stream)
        device.check(device.driver().cuMemFree(base), "cuMemFree")


def _allocate(ordinal: int, size: int) -> int:
    """Allocate and clear, also while a graph is captured; the clearing runs on a stream of its own."""
    cu = device.driver()
    with _uncaptured(), device.using(ordinal):
        base = int(device.check(cu.cuMemAlloc(size), "workspace"))
        stream = device.check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
        device.check(cu.cuMemsetD8Async(base, 0, size, stream), "cuMemsetD8Async")
        device.synchronize(stream)
        device.check(cu.cuStreamDestroy(stream), "cuStreamDestroy")
    return base


@contextlib.contextmanager
def _uncaptured():
    """Inside, this thread leaves the mode in which others' captures forbid calls, as torch's allocator does."""
    cu = device.driver()
    mode = device.check(cu.cuThreadExchangeStreamCaptureMode(cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), "capture mode")
    try:
        yield
    finally:
        device.check(cu.cuThreadExchangeStreamCaptureMode(mode), "capture mode")
