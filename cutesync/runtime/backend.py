"""Where memory lives and kernels run: a GPU, the emulator, or (in a dry run) nowhere. The only place that tells them
apart.

Devices have numbers: GPUs those of CUDA, the emulator ``device.HOST``, a dry run ``device.DRY``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol

from . import device

if TYPE_CHECKING:
    from .compiler import Kernel
    from .device_array import DeviceArray
    from .launch import Block, Claim, Run
    from .tensor_map import TiledMap


class Backend(Protocol):
    """What the rest of the package asks of a device ``ordinal``. Sizes are in bytes; streams are raw handles."""

    on_host: bool
    """Whether its memory is this process's own."""

    def ordinal(self, wanted: int | None) -> int:
        """The device to use where ``wanted`` is asked for; None is the current one."""
        ...

    def launcher(
        self, kernel: Kernel, ordinal: int, grid: int, make_block: Callable[[], Block], claim: Claim | None
    ) -> Run:
        """The hot path of a ``Launch``."""
        ...

    def map_writer(self, tiled: TiledMap, place: int) -> Callable[[int], None]:
        """A function that encodes a tensor map for an address into the 128 bytes at ``place``."""
        ...

    def allocate(self, size: int, ordinal: int, stream: int) -> tuple[int, object]:
        """Uninitialised memory in stream order: its address, a multiple of 256, and what keeps it alive."""
        ...

    def copy_in(self, array: DeviceArray, source: int, stream: int) -> None:
        """Fill an array from host memory, which has been read when this returns."""
        ...

    def copy_out(self, array: DeviceArray, to: int, stream: int) -> None:
        """Copy an array to host memory, once the work on ``stream`` is done."""
        ...

    def make_workspace(self, size: int, cleared: int, ordinal: int) -> int:
        """The address of lasting memory whose first ``cleared`` bytes are zero."""
        ...

    def free_workspace(self, base: int, ordinal: int) -> bool:
        """Free it; False if that must be tried again later."""
        ...

    def capture(self, stream: int) -> int | None:
        """What tells the graph capture that ``stream`` is in from all others; None if it is in none."""
        ...

    def stream_number(self, stream: int) -> Hashable:
        """What tells a stream from all others of the process, those among them that had its handle before."""
        ...

    def can_time(self, stream: int) -> bool:
        """Whether measured times of work on ``stream`` mean anything."""
        ...

    def multiprocessors(self, ordinal: int) -> int: ...

    def name(self, ordinal: int) -> str: ...


@functools.lru_cache(maxsize=64)
def of(ordinal: int) -> Backend:
    """The backend of a device."""
    if ordinal >= 0:
        from .gpu import GPU

        return GPU
    from .emulated import DRY, EMULATOR

    return EMULATOR if ordinal == device.HOST else DRY


def current() -> Backend:
    """The backend in use in this thread or asynchronous task."""
    return of({"gpu": 0, "emulator": device.HOST, "dry": device.DRY}[device.backend()])
