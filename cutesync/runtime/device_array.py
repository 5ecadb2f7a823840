"""DeviceArray: a plain C-contiguous array on the GPU for those who have no array library, and what NumPy inputs are copied to.

It owns a ``cuda.core`` buffer (or, on the emulator, a NumPy array) and speaks DLPack, the CUDA array interface and NumPy.
"""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np

from ..dtypes import DType
from ..dtypes import element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, CaptureError, explain
from . import device
from .device import HOST


class DeviceArray:
    """A C-contiguous array of ``shape`` and ``dtype`` (a cutesync DType) at address ``ptr`` of GPU ``device``.

    Make one with ``cs.asarray`` (copies a NumPy array in) or ``cs.empty``; read it with ``np.asarray``. Slicing the first axis and
    ``reshape`` give views. Work on it is ordered on the stream the calls are given (default: the default stream).
    """

    __slots__ = ("_owner", "device", "dtype", "ptr", "shape", "signature")

    def __init__(self, ptr: int, shape: tuple[int, ...], dtype: DType, ordinal: int, owner: object) -> None:
        self.ptr, self.shape, self.dtype, self.device, self._owner = ptr, shape, dtype, ordinal, owner
        self.signature = _signature(dtype, shape, ordinal)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """A NumPy copy; waits for the default stream."""
        del copy
        host = np.empty(self.shape, self.dtype.storage)
        if host.nbytes:
            if self.device == HOST:
                ctypes.memmove(host.ctypes.data, self.ptr, host.nbytes)
            else:
                with device.using(self.device):
                    device.copy_out(host.ctypes.data, self.ptr, host.nbytes, 0)
        host = host.view(self.dtype.numpy)
        return host if dtype is None else host.astype(dtype)

    def __getitem__(self, rows) -> DeviceArray:
        """A view of consecutive entries of the first axis: ``x[a:b]``."""
        if not isinstance(rows, slice) or rows.step not in (None, 1) or not self.shape:
            raise ArgumentValueError(explain("DeviceArray index", repr(rows), "a slice a:b of the first axis", "use np.asarray(x) for the rest"))
        first, stop, _ = rows.indices(self.shape[0])
        shape = (max(0, stop - first), *self.shape[1:])
        offset = first * math.prod(self.shape[1:]) * self.dtype.size
        return DeviceArray(self.ptr + offset, shape, self.dtype, self.device, self._owner)

    def reshape(self, *shape) -> DeviceArray:
        shape = _shape(shape[0] if len(shape) == 1 else shape)
        if math.prod(shape) != self.size:
            raise ArgumentValueError(explain("reshape", f"{shape} for {self.size} elements", "a shape of as many elements"))
        return DeviceArray(self.ptr, shape, self.dtype, self.device, self._owner)

    @property
    def __cuda_array_interface__(self) -> dict:
        if self.device == HOST:
            raise AttributeError("this DeviceArray lives in the emulator's memory; use np.asarray(x)")
        return {"shape": self.shape, "typestr": self.dtype.numpy.str, "data": (self.ptr, False), "strides": None, "version": 3, "stream": 1}

    def _view(self):
        device.import_core()
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        buffer = Buffer.from_handle(self.ptr, self.nbytes, owner=self)
        return StridedMemoryView.from_buffer(buffer, self.shape, dtype=self.dtype.numpy)

    def __dlpack__(self, **options):
        return self._view().__dlpack__(**options) if self.device != HOST else np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device) if self.device != HOST else (1, 0)


class Signature:
    """What a plan depends on besides the address. Equal arrays share one object, so comparing and hashing is by identity."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def _signature(dtype: DType, shape: tuple[int, ...], ordinal: int) -> Signature:
    del dtype, shape, ordinal
    return Signature()


def allocate(shape: tuple[int, ...], dtype: DType, ordinal: int | None = None, stream: int = 0) -> DeviceArray:
    """An uninitialised DeviceArray, allocated in stream order on ``stream``."""
    nbytes = math.prod(shape) * dtype.size
    if device.backend() == "emulator":
        owner = np.empty(nbytes + 256, np.uint8)
        ptr = owner.ctypes.data + -owner.ctypes.data % 256
        _show_to_emulator(ptr, nbytes, owner, initialised=False)
        return DeviceArray(ptr, shape, dtype, HOST, owner)
    ordinal = device.current() if ordinal is None else ordinal
    if device.capturing(stream):
        advice = "give DeviceArrays, and a result as out=, made before the capture"
        raise CaptureError(explain("graph capture", "a call that allocates or copies from NumPy", "arrays that exist", advice))
    with device.using(ordinal):
        owner = _buffer(max(nbytes, 1), ordinal, stream)
    return DeviceArray(int(owner.handle), shape, dtype, ordinal, owner)


def _show_to_emulator(ptr: int, nbytes: int, owner: np.ndarray, initialised: bool) -> None:
    """Let kernels on the emulator touch this memory of ``owner``. Bytes not ``initialised`` must be written before they are read."""
    from ..emulator import DEVICE

    DEVICE.register(ptr, nbytes, f"DeviceArray of {nbytes} bytes", initialised=initialised, owner=owner)


def _buffer(nbytes: int, ordinal: int, stream: int):
    device.import_core()
    from cuda.core import Device, Stream

    gpu = Device(ordinal)
    gpu.set_current()
    try:
        return gpu.memory_resource.allocate(nbytes, stream=Stream.from_handle(stream) if stream else gpu.default_stream)
    except Exception as error:
        if "OUT_OF_MEMORY" in str(error):
            raise device.failure(2, f"allocating {nbytes} bytes") from error
        raise


def from_numpy(array: np.ndarray, dtype: DType, ordinal: int | None = None, stream: int = 0) -> DeviceArray:
    """Copy a NumPy array to the device. The bytes are read before this returns."""
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray gives a scalar an axis
    result = allocate(array.shape, dtype, ordinal, stream)
    if array.nbytes:
        if result.device == HOST:
            ctypes.memmove(result.ptr, array.ctypes.data, array.nbytes)
            _show_to_emulator(result.ptr, array.nbytes, result._owner, initialised=True)
        else:
            with device.using(result.device):
                device.copy_in(result.ptr, array.ctypes.data, array.nbytes, stream)
                device.synchronize(stream)
    return result


def empty(shape, dtype) -> DeviceArray:
    """An uninitialised DeviceArray on the current device. ``shape`` is an int or a tuple; ``dtype`` a name or a NumPy type."""
    return allocate(_shape(shape), parse_dtype(dtype))


def _shape(shape) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if not isinstance(extents, (tuple, list)) or not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in extents):
        raise ArgumentTypeError(explain("shape", repr(shape), "an int or a tuple of ints"))
    if any(n < 0 for n in extents):
        raise ArgumentValueError(explain("shape", repr(shape), "extents of 0 or more"))
    return tuple(int(n) for n in extents)


def asarray(x) -> DeviceArray:
    """``x`` as a DeviceArray on the current device: a copy of what NumPy makes of it. A DeviceArray is returned as it is."""
    if isinstance(x, DeviceArray):
        return x
    host = np.asarray(x)
    return from_numpy(host, parse_dtype(host.dtype, "x"))
