"""Device memory that several processes of one host use: CUDA's interprocess handles, and for the emulator memory behind
a file descriptor."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from pathlib import Path

from ..errors import DeviceError, explain
from . import device

_BLOCK = 1 << 21  # the driver shares whole blocks of so many bytes: no other memory may lie in one
_mapped: dict[int, mmap.mmap] = {}  # by address: memory of the emulator, never freed


@functools.lru_cache(maxsize=1)
def host() -> str:
    """Return what tells this host from others: its name does not, in containers."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identity(ordinal: int) -> tuple[str, str]:
    """Return what tells the host of a GPU from others, and the GPU from others of the host."""
    cu = device.driver()
    return host(), device.check(cu.cuDeviceGetUuid(ordinal), "cuDeviceGetUuid").bytes.hex()


def make(size: int, cleared: int, ordinal: int) -> tuple[int, bytes]:
    """Allocate memory of a GPU, all of it cleared. Return its address, and the handle for other processes."""
    from .gpu import GPU

    base = GPU.make_workspace(-(-size // _BLOCK) * _BLOCK, cleared, ordinal)
    with device.uncaptured(), device.using(ordinal):
        handle = device.check(device.driver().cuIpcGetMemHandle(base), "cuIpcGetMemHandle")
    return base, bytes(handle.reserved)


def open_handle(handle: bytes, ordinal: int) -> int:
    """Return the address at which kernels on GPU ``ordinal`` access memory that another process has made."""
    cu = device.driver()
    given = cu.CUipcMemHandle()
    given.reserved = handle
    with device.uncaptured(), device.using(ordinal):
        code, base = cu.cuIpcOpenMemHandle(given, cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    if int(code):
        came = f"GPU {ordinal}, which cannot open memory of another rank ({code.name})"
        allowed = "GPUs of one host with peer access to each other"
        raise DeviceError(
            explain("devices", came, allowed, "see nvidia-smi topo -p2p r; Group.local() needs no handles")
        )
    return int(base)


def make_on_host(size: int) -> tuple[int, bytes]:
    """Allocate memory of this host. Return its address, and the handle for other processes."""
    number = os.memfd_create("cutesync")
    os.ftruncate(number, size)
    base = _map(number, size)
    return base, f"{os.getpid()} {number} {size} {base}".encode()


def open_on_host(handle: bytes) -> tuple[int, int, bool]:
    """Return the address and the size of memory behind a handle, and whether this process has made it."""
    process, number, size, base = map(int, handle.split())
    if process == os.getpid():
        return base, size, True
    own = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
    try:
        return _map(own, size), size, False
    finally:
        os.close(own)


def _map(number: int, size: int) -> int:
    memory = mmap.mmap(number, size)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _mapped[base] = memory
    return base
