"""The emulator as a backend, and the backend of dry runs, which allocates and runs nothing."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import WorkspaceError, explain
from . import backend, device, shared, tensor_map
from .compiler import Kernel

_ALIGNMENT = 256
_MULTIPROCESSORS = 132  # of an H200, so that policies are those of the GPU
_workspaces: dict[int, np.ndarray] = {}
_addresses = itertools.count(1 << 40, 1 << 40)  # of arrays of dry runs: no two overlap


def _memory(size: int) -> tuple[int, np.ndarray]:
    """Allocate aligned host memory. Return its address and its owner."""
    owner = np.empty(size + _ALIGNMENT, np.uint8)
    return owner.ctypes.data + -owner.ctypes.data % _ALIGNMENT, owner


def _register(ptr: int, size: int, owner: np.ndarray, initialised: bool) -> None:
    """Let kernels access this memory of ``owner``. Unless it is ``initialised``, they must write bytes before they read
    them."""
    from ..emulator import DEVICE

    DEVICE.register(ptr, size, f"DeviceArray of {size} bytes", initialised=initialised, owner=owner)


def _fill(base: int, size: int, cleared: int) -> None:
    """Make memory a workspace: the first bytes are ``cleared``, and others set to 0xCD. If none are cleared, what a
    launch leaves there may depend on timing."""
    ctypes.memset(base, 0xCD, size)
    ctypes.memset(base, 0, cleared)
    _know(base, size, cleared > 0)


def _know(base: int, size: int, result: bool = True) -> None:
    """Let kernels access a workspace. Unless it is a ``result``, what a launch leaves there may depend on timing."""
    from ..emulator import DEVICE

    region = DEVICE.register(base, size, "the workspace")
    if region is not None:
        region.result = result


class _Emulator:
    on_host = True

    @staticmethod
    def ordinal(wanted: int | None) -> int:
        return device.HOST if wanted is None or wanted >= 0 else wanted

    @staticmethod
    def devices() -> tuple[int, ...]:
        from ..emulator import settings

        return tuple(map(device.emulated, range(settings().devices)))

    @staticmethod
    def connect(ordinals: Sequence[int]) -> None:
        """All memory is in one address space."""

    @staticmethod
    def using(ordinal: int) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    @staticmethod
    @contextlib.contextmanager
    def at_once(ordinals: tuple[int, ...], meeting: Any = None) -> Iterator[Callable[[int], None]]:
        from ..emulator import at_once

        with at_once() if meeting is None else at_once(meeting):
            yield lambda rank: None

    @staticmethod
    def launcher(kernel: Kernel, ordinal: int, grid: int, make_block: Callable, claim: Any) -> Callable:
        from . import workspace as workspaces

        block = make_block()
        facts: dict[str, Any] = {"cluster": kernel.cluster, "shared_bytes": kernel.smem, "programmatic": True}
        facts["device"] = device.emulated_number(ordinal)

        def run(addresses: tuple[int, ...], stream: int) -> None:
            from .. import emulator

            with emulator.LOCK:  # no other thread gets or frees this workspace during the launch
                block.put(addresses, None)
                if claim is not None:
                    here = claim(ordinal, stream)
                    block.bind(here)
                try:
                    emulator.launch(kernel.ptx, (grid, 1, 1), kernel.block, block.packed(), **facts)
                except BaseException:
                    workspaces.forget(ordinal, stream)  # an interrupted launch leaves undefined counters
                    raise

        return run

    @staticmethod
    def host_launcher(code: Any, ordinal: int, make_block: Callable, stream: int) -> Callable:
        from .. import emulator

        emulator.executable(code)
        block = make_block()

        def run(addresses: Sequence[int], numbers: Sequence, stream: int) -> None:
            with emulator.LOCK:
                block.put(addresses, numbers, stream)
                emulator.run(code, block.packed)

        return run

    @staticmethod
    def map_writer(tiled: tensor_map.TiledMap, place: int) -> Callable[[int], None]:
        return lambda address: tensor_map.encode_for_emulator(tiled, place, address)

    @staticmethod
    def allocate(size: int, ordinal: int, stream: int) -> tuple[int, object]:
        """Kernels must write the memory before they read it."""
        try:
            ptr, owner = _memory(size)
        except (MemoryError, ValueError) as error:
            raise WorkspaceError(explain("shape", f"{size} bytes", "free memory on this machine")) from error
        _register(ptr, size, owner, initialised=False)
        return ptr, owner

    allocate_here = allocate

    @staticmethod
    def copy_in(array: Any, source: int, stream: int) -> None:
        ctypes.memmove(array.ptr, source, array.nbytes)
        _register(array.ptr, array.nbytes, array.owner, initialised=True)

    @staticmethod
    def copy_out(array: Any, to: int, stream: int) -> None:
        ctypes.memmove(to, array.ptr, array.nbytes)

    @staticmethod
    def copy(to: Any, array: Any, stream: int) -> None:
        ctypes.memmove(to.ptr, array.ptr, array.nbytes)
        _register(to.ptr, to.nbytes, to.owner, initialised=True)

    @staticmethod
    def make_workspace(size: int, cleared: int, ordinal: int) -> int:
        """Kernels must not rely on bytes that are not ``cleared``."""
        base, owner = _memory(size)
        _fill(base, size, cleared)
        _workspaces[base] = owner
        return base

    @staticmethod
    def free_workspace(base: int, ordinal: int) -> bool:
        """No launch uses it any more. Were it left registered, every later launch would save and compare it."""
        from ..emulator import DEVICE

        DEVICE.unregister(base)
        del _workspaces[base]
        return True

    @staticmethod
    def make_shared(size: int, cleared: int, ordinal: int) -> tuple[int, bytes]:
        base, handle = shared.make_on_host(size)
        _fill(base, size, cleared)
        return base, handle

    @staticmethod
    def open_shared(handle: bytes, ordinal: int) -> int:
        base, size, here = shared.open_on_host(handle)
        if not here:
            _know(base, size)
        return base

    @staticmethod
    def copy_engine(ordinals: Sequence[int]) -> None:
        """Kernels copy, which are checked."""

    @staticmethod
    def identity(ordinal: int) -> tuple[str, str]:
        return shared.host(), f"{os.getpid()} {ordinal}"

    @staticmethod
    def meeting(name: str | None, size: int) -> Any:
        from ..emulator import meeting

        return meeting(name, size)

    @staticmethod
    def capture(stream: int) -> int | None:
        return None

    @staticmethod
    def stream_number(stream: int) -> Hashable:
        return stream

    @staticmethod
    def can_time(stream: int) -> bool:
        """The emulator's times say nothing about a GPU."""
        return False

    @staticmethod
    def multiprocessors(ordinal: int) -> int:
        return _MULTIPROCESSORS

    @staticmethod
    def name(ordinal: int) -> str:
        return "emulator"


class _Dry(_Emulator):
    """The backend of dry runs: its addresses are never read or written."""

    @staticmethod
    def ordinal(wanted: int | None) -> int:
        return device.DRY

    @staticmethod
    def launcher(kernel: Kernel, ordinal: int, grid: int, make_block: Callable, claim: Any) -> Callable:
        return lambda addresses, stream: None

    @staticmethod
    def allocate(size: int, ordinal: int, stream: int) -> tuple[int, object]:
        """Return addresses that are never accessed, so far apart that no two arrays overlap."""
        return next(_addresses), None

    allocate_here = allocate

    @staticmethod
    def copy_in(array: Any, source: int, stream: int) -> None:
        del array, source, stream

    @staticmethod
    def copy(to: Any, array: Any, stream: int) -> None:
        del to, array, stream

    @staticmethod
    def copy_out(array: Any, to: int, stream: int) -> None:
        """Write zeros."""
        ctypes.memset(to, 0, array.nbytes)


class _Remote(_Dry):
    """The backend of devices that belong to other processes: what is launched there, these launch themselves. Its
    arrays have shapes and types, and addresses that are never accessed."""

    @property
    def on_host(self) -> bool:  # type: ignore[override]
        return backend.current().on_host

    @staticmethod
    def ordinal(wanted: int | None) -> int:
        return device.REMOTE


EMULATOR, DRY, REMOTE = _Emulator(), _Dry(), _Remote()
