"""Peer access between the GPUs of a process, and copies by their copy engines, beside the kernels that run there.

Each GPU has two streams here: one for copies, one for kernels that need what was copied. Events order them with the
streams of the call. An event is named and made once; a wait is for its last record, as the host made both.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..errors import DeviceError, explain
from . import device

_PEERS_ALREADY = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED


class CopyEngine:
    """The streams of the GPUs ``ordinals``, by rank. The caller makes the device of a rank current before it records an
    event there or copies to it."""

    def __init__(self, ordinals: Sequence[int]) -> None:
        self.copies = tuple(map(_stream, ordinals))
        self.kernels = tuple(map(_stream, ordinals))
        self._events: dict[Hashable, int] = {}

    def record(self, name: Hashable, stream: int) -> None:
        """Record the event ``name`` on a stream of the current device."""
        event = self._events.get(name)
        if event is None:
            cu = device.driver()
            flags = cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
            event = self._events[name] = int(device.check(cu.cuEventCreate(flags), "cuEventCreate"))
        device.call("cuEventRecord", event, stream)

    def wait(self, name: Hashable, stream: int) -> None:
        """Let a stream wait for the event."""
        device.call("cuStreamWaitEvent", stream, self._events[name], 0)

    def copy(self, rank: int, to: int, source: int, size: int) -> None:
        """Copy memory of any of the GPUs to that of a rank, on its stream for copies."""
        device.call("cuMemcpyAsync", to, source, size, self.copies[rank])


def enable_peers(ordinal: int, others: list[int]) -> None:
    """Let kernels on device ``ordinal`` access memory that ``cuMemAlloc`` returns on the other devices, and that of
    their default memory pools."""
    cu = device.driver()
    with device.using(ordinal):
        for other in others:
            if not device.check(cu.cuDeviceCanAccessPeer(ordinal, other), "cuDeviceCanAccessPeer"):
                came = f"GPU {ordinal}, which cannot access the memory of GPU {other}"
                raise DeviceError(explain("devices", came, "GPUs with peer access to each other"))
            (context,) = device.contexts((other,))
            (code,) = cu.cuCtxEnablePeerAccess(context, 0)
            if int(code) not in (0, _PEERS_ALREADY):
                raise device.failure(int(code), f"peer access from GPU {ordinal} to GPU {other}")
            access = cu.CUmemAccessDesc()
            access.location.type, access.location.id = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, ordinal
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            pool = device.check(cu.cuDeviceGetMemPool(other), "cuDeviceGetMemPool")
            device.check(cu.cuMemPoolSetAccess(pool, [access], 1), "cuMemPoolSetAccess")


def _stream(ordinal: int) -> int:
    cu = device.driver()
    with device.using(ordinal):
        flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(device.check(cu.cuStreamCreate(flags), "cuStreamCreate"))
