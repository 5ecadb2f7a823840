"""Scratch memory of the kernels that need several blocks to agree: one per device and stream, never shared between
streams.

A workspace is an 8-byte launch counter and ``GROUPS`` 4-byte counters, followed by ``SLOTS`` 8-byte slots (see
``sync.gather``). It is cleared once, when it is made; kernels leave the counters ready themselves and never trust the
slots. A graph keeps the workspace it was captured with, because its replays may run beside the capturing stream's later
work; so every capture gets one of its own, for good.

A stream that is gone says nothing, and its handle may come back as another stream's while its work is still queued. So
streams are known by the number that the driver gives each once (``cuStreamGetId``), and memory is given back without
asking them: of ``MOST`` workspaces the half that was used longest ago leaves the table at once, and ``cuMemFree``,
which waits for the work on the device, frees what no caller holds. A caller holds a ``Workspace`` until its launch is
enqueued. A stream that comes back after that gets another one.
"""

from __future__ import annotations

from typing import Any

from . import backend, device, forks

GROUPS = (1 << 14) - 2
SLOTS = 1 << 19  # what a workspace has unless a launch needs more
MOST = 64  # workspaces of streams on a device before the oldest half is given back: 256 MiB of the usual ones
_COUNTERS = 8 + 4 * GROUPS

_lock = forks.lock()
_by_stream: dict[tuple, Workspace] = {}
_by_capture: dict[tuple, Workspace] = {}
_outgrown: list[Workspace] = []  # that captures began with: a graph holds their addresses
_given_up: list[tuple[int, int]] = []  # device and address of memory that nobody holds
_made = 0  # workspaces so far: the clock by which they grow old
_most: dict[int, int] = {}  # of a device, where that is not MOST
_without: dict[tuple, None] = {}  # the last streams whose workspaces were given up, in this order
_REMEMBERED = 4096


class Workspace:
    """Memory of one stream or capture: ``addresses`` are those of its counters and of what lies behind them. It is
    freed some time after the last reference to it is gone, so whoever uses it holds it until the launch is enqueued."""

    __slots__ = ("addresses", "last", "ordinal", "size")

    def __init__(self, ordinal: int, size: int, cleared: int) -> None:
        base = backend.of(ordinal).make_workspace(size, cleared, ordinal)
        self.ordinal, self.size, self.addresses, self.last = ordinal, size, (base, base + cleared), 0

    def __del__(self, given_up: Any = _given_up) -> None:
        if hasattr(self, "addresses"):
            given_up.append((self.ordinal, self.addresses[0]))


def counters_and_slots(ordinal: int, stream: int, slots: int = 0) -> Workspace:
    """Counters and at least ``slots`` slots for work on ``stream`` of device ``ordinal``."""
    return _place(ordinal, stream, (), _COUNTERS + 8 * max(SLOTS, slots), _COUNTERS)


def counters_and_scratch(ordinal: int, stream: int, counter_bytes: int, scratch_bytes: int) -> Workspace:
    """Zeroed counters, which kernels leave zero, and scratch memory, for work on ``stream`` of device ``ordinal``: a
    second workspace, of a power of two bytes, so that it seldom grows."""
    counters = -(-counter_bytes // 256) * 256
    size = max(1 << 20, 1 << (counters + scratch_bytes - 1).bit_length())
    return _place(ordinal, stream, (counters,), size, counters)


def scratch(ordinal: int, stream: int, size: int) -> Workspace:
    """At least ``size`` bytes that hold anything, for work on ``stream`` of device ``ordinal`` that is in its queue
    before the next call of this. Whoever may share the stream with another thread holds a lock until then."""
    unit = max(
        1 << 21, (1 << (size - 1).bit_length()) >> 3
    )  # so that it seldom grows, and never to much more than is needed
    return _place(ordinal, stream, ("scratch",), -(-size // unit) * unit, 0)


def _place(ordinal: int, stream: int, kind: tuple, size: int, cleared: int) -> Workspace:
    place = backend.of(ordinal)
    capture = place.capture(stream)
    if capture is not None:
        return _keep(_by_capture, (ordinal, capture, *kind), size, cleared)
    return _keep(_by_stream, (ordinal, place.stream_number(stream), *kind), size, cleared)


def forget(ordinal: int, stream: int) -> None:
    """Make the next launch on ``stream`` start with a workspace of its own."""
    number = backend.of(ordinal).stream_number(stream)
    with _lock:
        for key in [key for key in _by_stream if key[:2] == (ordinal, number)]:
            del _by_stream[key]
        _free_what_is_given_up()


def _keep(table: dict, key: tuple, size: int, cleared: int) -> Workspace:
    """The workspace of a stream or capture, made anew if it is too small."""
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
        _free_what_is_given_up()
    _made += 1
    table[key] = made = Workspace(key[0], size, cleared)
    return made


def _make_room(key: tuple) -> None:
    """Before one more stream gets a workspace: give up those used longest ago if there are many, as their streams may
    be gone. A stream that comes back was not, so there may be one more from then on, and one less each time that memory
    is given up."""
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


def _free_what_is_given_up() -> None:
    """What the driver will not free now is tried again the next time."""
    left = []
    while _given_up:
        ordinal, base = _given_up.pop()
        if not backend.of(ordinal).free_workspace(base, ordinal):
            left.append((ordinal, base))
    _given_up.extend(left)
