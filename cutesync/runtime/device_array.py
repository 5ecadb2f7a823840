"""DeviceArray: a C-contiguous array on the GPU, for users without an array library. NumPy inputs are copied into one.

It owns a ``cuda.core`` buffer (on the emulator, a NumPy array) and supports DLPack, the CUDA array interface and
``numpy.asarray``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import DType, element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, WorkspaceError, explain, shown
from . import backend, device
from .view import View, contiguous_strides, is_c_contiguous

_MOST_BYTES = 1 << 63  # the range of a signed 64-bit offset


class DeviceArray:
    """A C-contiguous array of ``shape`` and ``dtype`` (a cutesync DType) at address ``ptr`` of GPU ``device``.

    Make one with ``cs.asarray`` (copies a NumPy array in) or ``cs.empty``; read it with ``np.asarray``. Slicing the
    first axis and ``reshape`` give views. Work on it is ordered by the stream that each call is given (default: the
    default stream).
    """

    __slots__ = ("device", "dtype", "owner", "ptr", "shape", "signature")

    def __init__(self, ptr: int, shape: tuple[int, ...], dtype: DType, ordinal: int, owner: object) -> None:
        self.ptr, self.shape, self.dtype, self.device, self.owner = ptr, shape, dtype, ordinal, owner
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

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return a NumPy copy, after waiting for the default stream."""
        host = to_numpy(self)
        return host if dtype is None else host.astype(dtype)

    def __getitem__(self, rows: Any) -> DeviceArray:
        """A view of consecutive entries of the first axis: ``x[a:b]``."""
        if not isinstance(rows, slice) or rows.step not in (None, 1) or not self.shape:
            raise ArgumentValueError(
                explain(
                    "DeviceArray index", shown(rows), "a slice a:b of the first axis", "use np.asarray(x) for the rest"
                )
            )
        try:
            first, stop, _ = rows.indices(self.shape[0])
        except TypeError as error:
            raise ArgumentTypeError(explain("DeviceArray index", shown(rows), "a slice of ints")) from error
        shape = (max(0, stop - first), *self.shape[1:])
        offset = first * math.prod(self.shape[1:]) * self.dtype.size
        return DeviceArray(self.ptr + offset, shape, self.dtype, self.device, self.owner)

    def reshape(self, *shape: Any) -> DeviceArray:
        shape = _shape(shape[0] if len(shape) == 1 else shape)
        if math.prod(shape) != self.size:
            raise ArgumentValueError(
                explain("reshape", f"{shape} for {self.size} elements", "a shape of as many elements")
            )
        return DeviceArray(self.ptr, shape, self.dtype, self.device, self.owner)

    @property
    def __cuda_array_interface__(self) -> dict:
        if backend.of(self.device).on_host:
            raise AttributeError("this DeviceArray lives in the emulator's memory; use np.asarray(x)")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.ptr, False),
            "strides": None,
            "version": 3,
            "stream": 1,
        }

    def _view(self) -> Any:
        device.import_core()
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        buffer = Buffer.from_handle(self.ptr, self.nbytes, owner=self)
        return StridedMemoryView.from_buffer(buffer, self.shape, dtype=self.dtype.numpy)

    def __dlpack__(self, **options: Any) -> Any:
        exporter = np.asarray(self) if backend.of(self.device).on_host else self._view()
        return exporter.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if backend.of(self.device).on_host else (2, self.device)


class Strided:
    """The memory of a DeviceArray, from its element ``offset`` on, with another ``shape`` and strides ``steps``, in
    elements. No bounds are checked."""

    __slots__ = ("owner", "ptr", "signature", "view")

    def __init__(self, array: DeviceArray, shape: tuple[int, ...], steps: tuple[int, ...], offset: int = 0) -> None:
        self.owner, self.ptr = array.owner, array.ptr + offset * array.dtype.size
        contiguous = is_c_contiguous(shape, steps)
        self.view = View(self.ptr, shape, array.dtype, array.device, contiguous, True, steps)
        self.signature = (array.dtype, array.device, shape, steps)


def transposed(array: DeviceArray) -> Strided:
    """Return the array with its last two axes exchanged."""
    *outer, rows, columns = array.shape
    *steps, row, one = contiguous_strides(array.shape)
    return Strided(array, (*outer, columns, rows), (*steps, one, row))


class Signature:
    """Stands for the type, shape and device of an array, on which a plan depends. Equal arrays share one object, so
    comparison and hashing are by identity."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def _signature(dtype: DType, shape: tuple[int, ...], ordinal: int) -> Signature:
    return Signature()


def allocate(shape: tuple[int, ...], dtype: DType, ordinal: int | None = None, stream: int = 0) -> DeviceArray:
    """Return an uninitialised DeviceArray, allocated in stream order on ``stream``."""
    return allocator(shape, dtype, backend.current().ordinal(ordinal))(stream)


def allocator(shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable[..., DeviceArray]:
    """Return a function that makes such arrays on a stream."""
    nbytes = math.prod(shape) * dtype.size
    if nbytes >= _MOST_BYTES:
        raise ArgumentValueError(explain("shape", f"{shown(shape)} of {dtype}", "an array of fewer than 2**63 bytes"))
    memory = backend.of(ordinal).allocate

    def empty(stream: int, other: bool = False) -> DeviceArray:
        ptr, owner = memory(nbytes, ordinal, stream)
        return DeviceArray(ptr, shape, dtype, ordinal, owner)

    return empty


def from_numpy(array: np.ndarray, dtype: DType, ordinal: int | None = None, stream: int = 0) -> DeviceArray:
    """Copy a NumPy array to the device. Its bytes have been read when this returns."""
    try:
        array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes a 0-d array 1-d
    except MemoryError as error:  # a view that repeats its elements may be larger than any memory
        raise WorkspaceError(explain("array", f"{array.nbytes} bytes to copy", "free memory on the host")) from error
    result = allocate(array.shape, dtype, ordinal, stream)
    if array.nbytes:
        backend.of(result.device).copy_in(result, array.ctypes.data, stream)
    return result


def to_numpy(array: DeviceArray, stream: int = 0) -> np.ndarray:
    """Wait for the work on ``stream``; return a NumPy copy of ``array``."""
    host = np.empty(array.shape, array.dtype.storage)
    if host.nbytes:
        backend.of(array.device).copy_out(array, host.ctypes.data, stream)
    return host.view(array.dtype.numpy)


def empty(shape: Any, dtype: Any) -> DeviceArray:
    """Return an uninitialised DeviceArray on the current device. ``shape`` is an int or a tuple; ``dtype`` a name or a
    NumPy type."""
    return allocate(_shape(shape), parse_dtype(dtype))


def _shape(shape: Any) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if not isinstance(extents, (tuple, list)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in extents
    ):
        raise ArgumentTypeError(explain("shape", shown(shape), "an int or a tuple of ints"))
    if any(not 0 <= n < _MOST_BYTES for n in extents):
        raise ArgumentValueError(explain("shape", shown(shape), "extents of 0 or more, below 2**63"))
    return tuple(int(n) for n in extents)


def asarray(x: Any) -> DeviceArray:
    """Return ``x`` as a DeviceArray on the current device: a copy of ``numpy.asarray(x)``. A DeviceArray is returned
    unchanged."""
    if isinstance(x, DeviceArray):
        return x
    if isinstance(x, np.ndarray):
        require_plain(x, "x")
    try:
        host = np.asarray(x)
    except Exception as error:  # raised by NumPy, or by the object's __array__
        raise ArgumentTypeError(
            explain("x", f"{shown(x)} ({type(error).__name__}: {error})", "what NumPy can make an array of")
        ) from error
    return from_numpy(host, parse_dtype(host.dtype, "x"))


def require_plain(x: np.ndarray, argument: str) -> None:
    """Raise for NumPy arrays that mean more than their elements: arrays with a mask or units, and every type with
    operations of its own."""
    kind = type(x)
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(
            explain(
                argument,
                f"a {kind.__name__}: its mask would be lost",
                "an array without a mask",
                f"{argument}.filled(value)",
            )
        )
    if (
        kind.__array_ufunc__ is not np.ndarray.__array_ufunc__
        or kind.__array_function__ is not np.ndarray.__array_function__
    ):
        raise ArgumentTypeError(
            explain(
                argument,
                f"a {kind.__name__}, whose operations are its own",
                "a plain NumPy array",
                f"np.asarray({argument})",
            )
        )
