"""Where memory resides and kernels run: a GPU, the emulator, or (in a dry run) nowhere. Only this module distinguishes
them.

Devices are numbered: GPUs as in CUDA, a dry run is ``device.DRY``, devices of other processes are ``device.REMOTE``,
and other negative numbers are devices of the emulator, the first of which is ``device.HOST``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from . import device

if TYPE_CHECKING:
    from .compiler import Kernel
    from .copy_engine import CopyEngine
    from .device_array import DeviceArray
    from .host_arguments import Block as Arguments
    from .host_code import HostCode
    from .launch import Block, Claim, Run
    from .tensor_map import TiledMap


class Backend(Protocol):
    """The operations on a device ``ordinal`` that the rest of the package uses. Sizes are in bytes; streams are raw
    handles."""

    on_host: bool
    """Whether device memory is host memory of this process."""

    def ordinal(self, wanted: int | None) -> int:
        """Return the device to use if ``wanted`` is requested; None requests the current one."""
        ...

    def launcher(
        self, kernel: Kernel, ordinal: int, grid: int, make_block: Callable[[], Block], claim: Claim | None
    ) -> Run:
        """Return the function that every call of a ``Launch`` runs: it writes the parameters and launches the
        kernel."""
        ...

    def host_launcher(
        self, code: HostCode, ordinal: int, make_block: Callable[..., Arguments], stream: int
    ) -> Callable[[Sequence[int], Sequence, int], None]:
        """Return the function that every call of a user's host function runs: it writes the arguments (addresses,
        numbers, stream) into a block and runs the host code. ``make_block(entry=None)`` makes a block; ``stream`` is
        that of the first call."""
        ...

    def map_writer(self, tiled: TiledMap, place: int) -> Callable[[int], None]:
        """Return a function that encodes a tensor map for an address into the 128 bytes at ``place``."""
        ...

    def allocate(self, size: int, ordinal: int, stream: int) -> tuple[int, object]:
        """Allocate uninitialised memory in stream order. Return its address, a multiple of 256, and the object that
        owns it."""
        ...

    def allocate_here(self, size: int, ordinal: int, stream: int) -> tuple[int, object]:
        """Do the same on a device that is current."""
        ...

    def copy_in(self, array: DeviceArray, source: int, stream: int) -> None:
        """Copy host memory into an array. The host memory has been read when this returns."""
        ...

    def copy_out(self, array: DeviceArray, to: int, stream: int) -> None:
        """Copy an array to host memory after the work on ``stream``, and wait for the copy."""
        ...

    def copy(self, to: DeviceArray, array: DeviceArray, stream: int) -> None:
        """Copy a contiguous array into another one of the same size, in order on ``stream``."""
        ...

    def make_workspace(self, size: int, cleared: int, ordinal: int) -> int:
        """Allocate memory whose first ``cleared`` bytes are zero. Return its address."""
        ...

    def free_workspace(self, base: int, ordinal: int) -> bool:
        """Free a workspace. Return False if the caller must try again later."""
        ...

    def make_shared(self, size: int, cleared: int, ordinal: int) -> tuple[int, bytes]:
        """Allocate memory as ``make_workspace`` does, which other processes can open, and which is never freed. Return
        its address, and what ``open_shared`` needs."""
        ...

    def open_shared(self, handle: bytes, ordinal: int) -> int:
        """Return the address at which kernels on device ``ordinal`` access shared memory of another rank."""
        ...

    def copy_engine(self, ordinals: Sequence[int]) -> CopyEngine | None:
        """Return what copies between these devices beside kernels; None where nothing does."""
        ...

    def identity(self, ordinal: int) -> tuple[str, str]:
        """Return what tells the host of a device from others, and the device from others of the host."""
        ...

    def meeting(self, name: str | None, size: int) -> Any:
        """Return what ``at_once`` needs for launches of ``size`` ranks that wait for each other. ``name`` is that of a
        group of threads, None if the ranks are processes."""
        ...

    def capture(self, stream: int) -> int | None:
        """Return a number that identifies the graph capture of ``stream``; None if the stream is not being captured."""
        ...

    def stream_number(self, stream: int) -> Hashable:
        """Return a value that identifies a stream in this process, even among streams that had the same handle
        before."""
        ...

    def can_time(self, stream: int) -> bool:
        """Return whether it makes sense to measure the time of work on ``stream``."""
        ...

    def devices(self) -> tuple[int, ...]:
        """Return the ordinals of all devices."""
        ...

    def connect(self, ordinals: Sequence[int]) -> None:
        """Let kernels on each of these devices access the workspaces of the others, or raise DeviceError."""
        ...

    def using(self, ordinal: int) -> contextlib.AbstractContextManager:
        """Return a context inside which calls for this device take no detour."""
        ...

    def at_once(
        self, ordinals: tuple[int, ...], meeting: Any = None
    ) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Return a context for launches on these devices that wait for each other, and for those of the other ranks of
        a ``meeting``. They may start when it ends. It gives a function that makes the device ``ordinals[rank]``
        current."""
        ...

    def multiprocessors(self, ordinal: int) -> int: ...

    def name(self, ordinal: int) -> str: ...


@functools.lru_cache(maxsize=64)
def of(ordinal: int) -> Backend:
    """Return the backend of a device."""
    if ordinal >= 0:
        from .gpu import GPU

        return GPU
    from .emulated import DRY, EMULATOR, REMOTE

    return {device.DRY: DRY, device.REMOTE: REMOTE}.get(ordinal, EMULATOR)


_ORDINALS = {"gpu": 0, "emulator": device.HOST, "dry": device.DRY}  # of a device of each


def current() -> Backend:
    """Return the backend in use in this thread or asynchronous task."""
    return of(_ORDINALS[device.backend()])
