"""Scratch memory of kernels whose blocks exchange results: one workspace per device and stream, never shared between
streams.

A workspace is an 8-byte launch counter and ``GROUPS`` 4-byte counters, followed by ``SLOTS`` 8-byte slots (see
``sync.gather``). It is cleared once, when it is made. Kernels leave the counters ready for the next launch and never
rely on the contents of the slots. A graph keeps the workspace that it was captured with, because its replays may run
concurrently with later work of the capturing stream. So every capture gets a workspace of its own, which is never
freed.

The driver does not report that a stream was destroyed, and its handle may be reused while its work is still queued. So
streams are identified by the number that the driver gives each stream once (``cuStreamGetId``), and memory is freed
without asking them. When there are ``MOST`` workspaces, the half that was used longest ago leaves the table at once.
``cuMemFree``, which waits for the work on the device, frees their memory when no caller holds it. A caller holds a
``Workspace`` until its launch is enqueued. A stream that is used again after that gets a new workspace.
"""

from __future__ import annotations

from typing import Any

from . import backend, device, forks

GROUPS = (1 << 14) - 2
SLOTS = 1 << 19  # of a workspace, unless a launch needs more
MOST = 64  # workspaces of streams per device before the oldest half is freed: 256 MiB at the usual size
_COUNTERS = 8 + 4 * GROUPS

_lock = forks.lock()
_by_stream: dict[tuple, Workspace] = {}
_by_capture: dict[tuple, Workspace] = {}
_outgrown: list[Workspace] = []  # too small for later calls of their captures, whose graphs hold their addresses
_given_up: list[tuple[int, int]] = []  # device and address of memory that no caller holds
_made = 0  # workspaces made so far: the clock of ``Workspace.last``
_most: dict[int, int] = {}  # limits of devices, where they differ from MOST
_without: dict[tuple, None] = {}  # the last streams whose workspaces left the table, oldest first
_REMEMBERED = 4096


class Workspace:
    """Memory of one stream or capture. ``addresses`` are those of its counters and of the memory behind them. It is
    freed some time after the last reference to it is gone, so a caller holds it until its launch is enqueued."""

    __slots__ = ("addresses", "last", "ordinal", "size")

    def __init__(self, ordinal: int, size: int, cleared: int) -> None:
        base = backend.of(ordinal).make_workspace(size, cleared, ordinal)
        self.ordinal, self.size, self.addresses, self.last = ordinal, size, (base, base + cleared), 0

    def __del__(self, given_up: Any = _given_up) -> None:
        if hasattr(self, "addresses"):
            given_up.append((self.ordinal, self.addresses[0]))


def counters_and_slots(ordinal: int, stream: int, slots: int = 0) -> Workspace:
    """Return counters and at least ``slots`` slots for work on ``stream`` of device ``ordinal``."""
    return _place(ordinal, stream, (), _COUNTERS + 8 * max(SLOTS, slots), _COUNTERS)


def counters_and_scratch(
    ordinal: int, stream: int, counter_bytes: int, scratch_bytes: int, purpose: str = "counters"
) -> Workspace:
    """Return zeroed counters and scratch memory for work on ``stream`` of device ``ordinal``. Kernels must leave the
    counters zero; launches that leave them otherwise between them have a ``purpose`` of their own. This workspace is
    separate from that of ``counters_and_slots``. Its size is a power of two, so that it seldom grows."""
    counters = -(-counter_bytes // 256) * 256
    size = max(1 << 20, 1 << (counters + scratch_bytes - 1).bit_length())
    return _place(ordinal, stream, (purpose, counters), size, counters)


def scratch(ordinal: int, stream: int, size: int, purpose: str = "scratch") -> Workspace:
    """Return at least ``size`` bytes of unspecified contents for work on ``stream`` of device ``ordinal``. The work
    must be enqueued before this function is called again for the stream and the ``purpose``; threads that share the
    stream hold a lock until then."""
    if stream in device.DEFAULT:  # which is never captured, and its handle is its number
        found = _by_stream.get((ordinal, stream, purpose))
        if found is not None and found.size >= size:
            return found
    # An eighth of the next power of two: the memory seldom grows, and never to much more than is needed.
    unit = max(1 << 21, (1 << (size - 1).bit_length()) >> 3)
    return _place(ordinal, stream, (purpose,), -(-size // unit) * unit, 0)


def _place(ordinal: int, stream: int, kind: tuple, size: int, cleared: int) -> Workspace:
    place = backend.of(ordinal)
    capture = place.capture(stream)
    if capture is not None:
        return _keep(_by_capture, (ordinal, capture, *kind), size, cleared)
    return _keep(_by_stream, (ordinal, place.stream_number(stream), *kind), size, cleared)


def forget(ordinal: int, stream: int) -> None:
    """Let the next launch on ``stream`` begin with a new workspace."""
    number = backend.of(ordinal).stream_number(stream)
    with _lock:
        for key in [key for key in _by_stream if key[:2] == (ordinal, number)]:
            del _by_stream[key]
        free(_given_up)


def _keep(table: dict, key: tuple, size: int, cleared: int) -> Workspace:
    """Return the workspace of a stream or capture; make a larger one if it is too small."""
    found = table.get(key)
    if found is None or found.size < size:
        with _lock:
            found = table.get(key)
            if found is None or found.size < size:
                del found
                found = _make(table, key, size, cleared)
    found.last = _made
    return found


def _make(table: dict, key: tuple, size: int, cleared: int) -> Workspace:
    global _made
    if table is _by_capture:
        if key in table:
            _outgrown.append(table[key])
    else:
        if table.pop(key, None) is None:
            _make_room(key)
        free(_given_up)
    _made += 1
    table[key] = made = Workspace(key[0], size, cleared)
    return made


def _make_room(key: tuple) -> None:
    """Before another stream gets a workspace: if there are many, remove the half that was used longest ago, as their
    streams may be destroyed. If a stream returns whose workspace was removed, it was alive: this raises the limit by
    one. Each removal lowers the limit by one."""
    ordinal = key[0]
    most = _most.get(ordinal, MOST) + (key in _without)
    _without.pop(key, None)
    theirs = [k for k in _by_stream if k[0] == ordinal and k[1] not in device.DEFAULT]
    theirs.sort(key=lambda k: _by_stream[k].last)
    if len(theirs) >= most:
        most = max(MOST, most - 1)
        for k in theirs[: len(theirs) // 2]:
            del _by_stream[k]
            _without[k] = None
        for k in list(_without)[:-_REMEMBERED]:
            del _without[k]
    _most[ordinal] = most


def free(given_up: list[tuple[int, int]]) -> None:
    """Free memory that nobody holds: pairs of device and address. What the driver cannot free now stays in the list."""
    left = []
    while given_up:
        ordinal, base = given_up.pop()
        if not backend.of(ordinal).free_workspace(base, ordinal):
            left.append((ordinal, base))
    given_up.extend(left)
