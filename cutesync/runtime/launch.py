"""One prepared launch: its parameters lie in one block that is overwritten in place, and the driver is called directly.

The driver takes a kernel's parameters as an array of addresses. Both live in ctypes blocks made once a plan; a call writes the
pointers that changed, the stream, and calls ``cuLaunchKernelEx``: 4 machine words through ctypes, about 2 us in all, where the DSL's
own compiled host entry takes 3.1 us and ``cuda.core.launch`` 6 us (measured on an H200's host).
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from typing import Sequence

from . import device
from . import workspace as workspaces
from .compiler import Kernel


class _Config(ctypes.Structure):
    """CUlaunchConfig of the CUDA driver API."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id and 64 bytes of value."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


_CLUSTER_DIMENSION = 4
_INVALID_CONTEXT = 201


@functools.lru_cache(maxsize=1)
def _entry():
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    return function


def bits(value: int | float, size: int, floating: bool) -> int:
    """A scalar parameter as the integer whose low ``size`` bytes are its bits."""
    code = {4: "f", 8: "d"}[size] if floating else {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
    return int.from_bytes(struct.pack("<" + code, value if floating else value & ((1 << 8 * size) - 1)).ljust(8, b"\0"), "little")


class Launch:
    """A kernel with its grid and parameter block on one device.

    ``values`` are the parameters in order, 8 bytes each: addresses, and scalars as their bits. The first two are the input and the
    output, which every call gives anew. With ``workspace = (counters, slots)``, the positions of those two parameters, a call also
    binds the workspace of its stream.

    ``run(x, out, stream)`` writes what changed and launches. One call at a time holds the block's lock, so threads may share a Launch.
    """

    __slots__ = ("kernel", "parameters", "run")

    def __init__(self, kernel: Kernel, ordinal: int, grid: int, values: Sequence[int], workspace: tuple[int, int] | None = None) -> None:
        self.kernel = kernel
        self.parameters = (ctypes.c_uint64 * len(values))(*values)
        self.run = self._on_gpu(ordinal, grid, workspace)

    def _on_gpu(self, ordinal: int, grid: int, workspace: tuple[int, int] | None):
        kernel, parameters = self.kernel, self.parameters
        first = ctypes.addressof(parameters)
        addresses = (ctypes.c_void_p * len(parameters))(*(first + 8 * i for i in range(len(parameters))))
        config = _Config((grid, 1, 1), kernel.block, kernel.smem)
        if kernel.cluster != (1, 1, 1):
            attribute = _Attribute(_CLUSTER_DIMENSION, 0, kernel.cluster)
            config.attributes, config.count = ctypes.addressof(attribute), 1
        else:
            attribute = None
        entry, lock = _entry(), threading.Lock()
        arguments = ctypes.addressof(config), kernel.handle(ordinal), ctypes.addressof(addresses)
        config_at, handle, addresses_at = arguments
        bound = None

        def bind(stream: int) -> None:
            nonlocal bound
            config.stream = stream
            if workspace is not None:
                parameters[workspace[0]], parameters[workspace[1]] = workspaces.counters_and_slots(ordinal, stream)
            bound = stream

        def run(x: int, out: int, stream: int, alive=(addresses, attribute)) -> None:
            with lock:
                parameters[0] = x
                parameters[1] = out
                if stream != bound or stream > 2:  # a stream that may be capturing is bound anew
                    bind(stream)
                code = entry(config_at, handle, addresses_at, None)
                if code == _INVALID_CONTEXT:  # a thread that has not used CUDA yet
                    device.current()
                    code = entry(config_at, handle, addresses_at, None)
            if code:
                raise device.failure(code, f"launch of {kernel.name}")

        return run
