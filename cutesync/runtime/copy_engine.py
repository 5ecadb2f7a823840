"""Copies between the GPUs of a process by their copy engines, beside the kernels that run there.

Each GPU has two streams here: one for copies, one for kernels that need what was copied. Events order them with the
streams of the call. An event is named and made once; a wait is for its last record, as the host made both.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from . import device


class CopyEngine:
    """The streams of the GPUs ``ordinals``, by rank. The caller makes the device of a rank current before it records an
    event there or copies to it."""

    def __init__(self, ordinals: Sequence[int]) -> None:
        self.copies = tuple(map(_stream, ordinals))
        self.kernels = tuple(map(_stream, ordinals))
        self._events: dict[Hashable, Any] = {}

    def record(self, name: Hashable, stream: int) -> None:
        """Record the event ``name`` on a stream of the current device."""
        cu, event = device.driver(), self._events.get(name)
        if event is None:
            flags = cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
            event = self._events[name] = device.check(cu.cuEventCreate(flags), "cuEventCreate")
        device.check(cu.cuEventRecord(event, stream), "cuEventRecord")

    def wait(self, name: Hashable, stream: int) -> None:
        """Let a stream wait for the event."""
        device.check(device.driver().cuStreamWaitEvent(stream, self._events[name], 0), "cuStreamWaitEvent")

    def copy(self, rank: int, to: int, source: int, size: int) -> None:
        """Copy memory of any of the GPUs to that of a rank, on its stream for copies."""
        device.check(device.driver().cuMemcpyAsync(to, source, size, self.copies[rank]), "cuMemcpyAsync")


def _stream(ordinal: int) -> int:
    cu = device.driver()
    with device.using(ordinal):
        flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(device.check(cu.cuStreamCreate(flags), "cuStreamCreate"))
