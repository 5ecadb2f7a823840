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
    function.restype = ctypes.c_int
    return function


def bits(value: int | float, size: int, floating: bool) -> int:
    """A scalar parameter as the integer whose low ``size`` bytes are its bits."""
    code = {4: "f", 8: "d"}[size] if floating else {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
    return int.from_bytes(struct.pack("<" + code, value if floating else value & ((1 << 8 * size) - 1)).ljust(8, b"\0"), "little")


class Launch:
    """A kernel with its grid and parameter block on one device. ``slots`` hold pointers and scalars, 8 bytes each, in order."""

    __slots__ = ("_attributes", "_call", "_config", "_parameters", "kernel", "lock", "slots")

    def __init__(self, kernel: Kernel, ordinal: int, grid: int, values: Sequence[int]) -> None:
        self.kernel = kernel
        self.lock = threading.Lock()
        self.slots = (ctypes.c_uint64 * len(values))(*values)
        first = ctypes.addressof(self.slots)
        self._parameters = (ctypes.c_void_p * len(values))(*(first + 8 * i for i in range(len(values))))
        self._config = _Config((grid, 1, 1), kernel.block, kernel.smem)
        if kernel.cluster != (1, 1, 1):
            self._attributes = _Attribute(_CLUSTER_DIMENSION, 0, kernel.cluster)
            self._config.attributes, self._config.count = ctypes.addressof(self._attributes), 1
        addresses = ctypes.addressof(self._config), kernel.handle(ordinal), ctypes.addressof(self._parameters)
        self._call = functools.partial(_entry(), *map(ctypes.c_void_p, addresses), None)

    def __call__(self, stream: int) -> None:
        """Launch on ``stream`` with the parameters in ``slots``. The caller holds ``lock`` from its first write to here."""
        self._config.stream = stream
        code = self._call()
        if code:
            self._recover(code)

    def _recover(self, code: int) -> None:
        if code == _INVALID_CONTEXT:  # a thread that has not used CUDA yet
            device.current()
            code = self._call()
        if code:
            raise device.failure(code, f"launch of {self.kernel.name}")
