"""DeviceArray: an array on the GPU, for users without an array library. NumPy inputs are copied into one.

It owns a ``cuda.core`` buffer (on the emulator, a NumPy array) and supports DLPack, the CUDA array interface and
``numpy.asarray``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from operator import index
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, DType, element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, WorkspaceError, explain, shown
from . import backend, device
from .indexing import axis_number, broadcast, permutation, relaid, reshaped, select
from .view import View, is_c_contiguous

_MOST_BYTES = 1 << 63  # the range of a signed 64-bit offset


def _left_to_numpy(symbol: str) -> Callable:
    """Return the method of an operator that DeviceArrays do not have."""

    def refuse(self: DeviceArray, *others: Any) -> Any:
        came = f"a DeviceArray of shape {self.shape}"
        advice = "np.asarray(x) waits and copies; functions of cutesync work on the device"
        raise ArgumentTypeError(explain(f"operator {symbol}", came, "NumPy arrays", advice))

    return refuse


class DeviceArray:
    """An array of ``shape`` and ``dtype`` (a cutesync DType) whose first element is at address ``ptr`` of GPU
    ``device``.

    Make one with ``cs.asarray`` (copies a NumPy array in) or ``cs.empty``; read it with ``np.asarray``. Basic indexing
    (ints, slices with any step, None, ``...``), ``.T``, ``transpose``, ``swapaxes``, ``broadcast_to`` and ``reshape``
    give views of the same memory, as in NumPy. Functions that need C-contiguous arrays refuse other views: give them
    ``x.copy()``. ``float(x)``, ``int(x)``,
    ``bool(x)``, ``x.item()`` and ``np.asarray`` wait for the default stream. Work on an array is ordered by the stream
    that each call is given (default: the default stream). Arithmetic and comparisons are left to NumPy: the operators
    raise an error that says so.
    """

    __slots__ = ("device", "dtype", "owner", "ptr", "shape", "signature", "steps")

    def __init__(
        self,
        ptr: int,
        shape: tuple[int, ...],
        dtype: DType,
        ordinal: int,
        owner: object,
        steps: tuple[int, ...] | None = None,
    ) -> None:
        """``steps`` are the strides in elements; None, also from then on, for a C-contiguous array."""
        self.ptr, self.shape, self.dtype, self.device, self.owner = ptr, shape, dtype, ordinal, owner
        self.steps = None if steps is None or 0 in shape or is_c_contiguous(shape, steps) else steps
        self.signature = _signature(dtype, shape, ordinal, self.steps)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in bytes, as NumPy's."""
        return tuple(step * self.dtype.size for step in self.view.steps)

    @property
    def view(self) -> View:
        return View(self.ptr, self.shape, self.dtype, self.device, self.steps is None, True, self.steps)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError(explain("len", "a DeviceArray of shape ()", "at least one dimension"))
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return a NumPy copy, after waiting for the default stream."""
        if copy is False:
            raise ArgumentValueError(explain("copy", "False", "None or True: the elements lie on the device"))
        host = to_numpy(self)
        return host if dtype is None else host.astype(dtype)

    def item(self) -> Any:
        """Wait for the default stream; return the only element as a Python number."""
        if self.size != 1:
            raise ArgumentTypeError(explain("array", f"shape {self.shape}", "an array of one element"))
        return to_numpy(self).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            allowed = "an array of one element: the truth value of others is ambiguous"
            raise ArgumentValueError(explain("bool", f"shape {self.shape}", allowed, "cs.any(x) or cs.all(x)"))
        return bool(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise ArgumentTypeError(explain("index", f"{self.dtype} of shape {self.shape}", "a 0-d array of integers"))
        return int(self.item())

    def __getitem__(self, index: Any) -> DeviceArray:
        """Return a view: ``x[i]``, ``x[-1]``, ``x[a:b:step]``, ``x[..., None]``."""
        return self.as_strided(*select(index, self.shape, self.view.steps))

    @property
    def T(self) -> DeviceArray:
        """A view with the axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> DeviceArray:
        """Return a view with the axes in another order: ``x.transpose(1, 0, 2)`` or ``x.transpose((1, 0, 2))``; without
        arguments, in reverse order."""
        steps, order = self.view.steps, permutation(axes, self.ndim)
        return self.as_strided(tuple(self.shape[i] for i in order), tuple(steps[i] for i in order))

    def swapaxes(self, axis1: int, axis2: int) -> DeviceArray:
        """Return a view with two axes exchanged."""
        order = list(range(self.ndim))
        i, j = (axis_number(axis, self.ndim, "swapaxes") for axis in (axis1, axis2))
        order[i], order[j] = j, i
        return self.transpose(order)

    def broadcast_to(self, shape: Any) -> DeviceArray:
        """Return a view of the shape that repeats the elements along axes of extent 1 and along new first axes. Several
        elements of it share memory: use it as an input only."""
        wanted = _shape(shape)
        return self.as_strided(wanted, broadcast(wanted, self.shape, self.view.steps))

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return a view of the shape; one extent may be -1. Strided arrays have one where the strides allow it, by the
        rule of NumPy: copy others first."""
        wanted = reshaped(_shape(shape[0] if len(shape) == 1 else shape, low=-1), self.size)
        steps = None if self.steps is None else relaid(wanted, self.shape, self.steps)
        if steps is None and self.steps is not None:
            allowed = f"strides that allow shape {wanted}"
            raise ArgumentValueError(explain("reshape", f"strides {self.strides}", allowed, "x.copy().reshape(...)"))
        return self.as_strided(wanted, steps)

    def copy(self) -> DeviceArray:
        """Return a C-contiguous copy, in order on the default stream. Views that are not contiguous are copied through
        the host, which waits."""
        if self.steps is not None:
            return from_numpy(to_numpy(self, storage=True), self.dtype, self.device)
        result = allocate(self.shape, self.dtype, self.device)
        if self.size:
            backend.of(self.device).copy(result, self, 0)
        return result

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, memo: dict) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> tuple:
        """A pickle has the elements, after waiting for the default stream; it is loaded to the current device."""
        return _loaded, (to_numpy(self, storage=True), self.dtype.name)

    def astype(self, dtype: Any) -> DeviceArray:
        """Return a copy with another element type, converted by NumPy on the host: this waits for the default
        stream."""
        wanted = parse_dtype(dtype)
        return self.copy() if wanted is self.dtype else from_numpy(to_numpy(self).astype(wanted.numpy), wanted)

    def as_strided(self, shape: tuple[int, ...], steps: tuple[int, ...] | None, offset: int = 0) -> DeviceArray:
        """Return this memory with another layout, from element ``offset`` on: ``steps`` are the strides in elements,
        None for a C-contiguous array. All are integers of any type. No bounds are checked."""
        ptr = self.ptr + index(offset) * self.dtype.size
        steps = None if steps is None else tuple(map(index, steps))
        return DeviceArray(ptr, tuple(map(index, shape)), self.dtype, self.device, self.owner, steps)

    @property
    def __cuda_array_interface__(self) -> dict:
        if backend.of(self.device).on_host:
            raise AttributeError("this DeviceArray lives in the emulator's memory; use np.asarray(x)")
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.ptr, False),
            "strides": None if self.steps is None else self.strides,
            "version": 3,
            "stream": 1,
        }

    def _exporter(self) -> Any:
        device.import_core()
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        start, stop = self.view.span
        if start != self.ptr:
            raise BufferError(explain("DLPack export", f"strides {self.strides}", "strides of 0 or more", "x.copy()"))
        buffer = Buffer.from_handle(self.ptr, stop - start, owner=self)
        return StridedMemoryView.from_buffer(buffer, self.shape, self.steps, dtype=self.dtype.numpy)

    def __dlpack__(self, **options: Any) -> Any:
        exporter = np.asarray(self) if backend.of(self.device).on_host else self._exporter()
        return exporter.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if backend.of(self.device).on_host else (2, self.device)

    __hash__ = None  # type: ignore[assignment]  # as NumPy's arrays
    __eq__, __ne__ = _left_to_numpy("=="), _left_to_numpy("!=")
    __lt__, __le__ = _left_to_numpy("<"), _left_to_numpy("<=")
    __gt__, __ge__ = _left_to_numpy(">"), _left_to_numpy(">=")
    __add__ = __radd__ = _left_to_numpy("+")
    __sub__ = __rsub__ = __neg__ = _left_to_numpy("-")
    __mul__ = __rmul__ = _left_to_numpy("*")
    __truediv__ = __rtruediv__ = _left_to_numpy("/")
    __floordiv__ = __rfloordiv__ = _left_to_numpy("//")
    __mod__ = __rmod__ = _left_to_numpy("%")
    __pow__ = __rpow__ = _left_to_numpy("**")
    __matmul__ = __rmatmul__ = _left_to_numpy("@ (cs.matmul has it)")
    __and__ = __rand__ = _left_to_numpy("&")
    __or__ = __ror__ = _left_to_numpy("|")
    __xor__ = __rxor__ = _left_to_numpy("^")
    __lshift__ = __rlshift__ = _left_to_numpy("<<")
    __rshift__ = __rrshift__ = _left_to_numpy(">>")
    __invert__, __abs__ = _left_to_numpy("~"), _left_to_numpy("abs")


def transposed(array: DeviceArray) -> DeviceArray:
    """Return the array with its last two axes exchanged."""
    shape, steps = array.shape, array.view.steps
    return array.as_strided((*shape[:-2], shape[-1], shape[-2]), (*steps[:-2], steps[-1], steps[-2]))


class Signature:
    """Stands for the type, shape, strides and device of an array, on which a plan depends. Equal arrays share one
    object, so comparison and hashing are by identity."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def _signature(dtype: DType, shape: tuple[int, ...], ordinal: int, steps: tuple[int, ...] | None) -> Signature:
    return Signature()


def allocate(shape: tuple[int, ...], dtype: DType, ordinal: int | None = None, stream: int = 0) -> DeviceArray:
    """Return an uninitialised DeviceArray, allocated in stream order on ``stream``."""
    return allocator(shape, dtype, backend.current().ordinal(ordinal))(stream)


def allocator(shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable[..., DeviceArray]:
    """Return a function that makes such arrays on a stream."""
    nbytes = math.prod(shape) * dtype.size
    if nbytes >= _MOST_BYTES:
        raise ArgumentValueError(explain("shape", f"{shown(shape)} of {dtype}", "an array of fewer than 2**63 bytes"))
    memory, at = backend.of(ordinal).allocate, placer(shape, dtype, ordinal)
    return lambda stream, other=False: at(*memory(nbytes, ordinal, stream))


def placer(shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable[[int, object], DeviceArray]:
    """Return a function that makes such arrays of memory that exists: of its address and its owner."""
    new, kind, signature = object.__new__, DeviceArray, _signature(dtype, shape, ordinal, None)

    def at(ptr: int, owner: object) -> DeviceArray:
        y = new(kind)
        y.ptr, y.owner = ptr, owner
        y.shape, y.dtype, y.device, y.steps, y.signature = shape, dtype, ordinal, None, signature
        return y

    return at


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


def _loaded(host: np.ndarray, dtype: str) -> DeviceArray:
    """Return the DeviceArray of a pickle."""
    return from_numpy(host, parse_dtype(dtype))


def to_numpy(array: DeviceArray, stream: int = 0, storage: bool = False) -> np.ndarray:
    """Wait for the work on ``stream``; return a NumPy copy of ``array``, with ``storage`` in the type of the same
    width that NumPy always has."""
    element = array.dtype.storage
    if array.steps is None:
        host = np.empty(array.shape, element)
        if host.nbytes:
            backend.of(array.device).copy_out(array, host.ctypes.data, stream)
    else:  # all bytes from the lowest to the highest element
        start, stop = array.view.span
        whole = DeviceArray(start, (stop - start,), BY_NAME["uint8"], array.device, array.owner)
        data = to_numpy(whole, stream)
        host = np.ndarray(array.shape, element, data, array.ptr - start, array.strides).copy()
    return host if storage else host.view(array.dtype.numpy)


def empty(shape: Any, dtype: Any) -> DeviceArray:
    """Return an uninitialised DeviceArray on the current device. ``shape`` is an int or a tuple; ``dtype`` a name or a
    NumPy type."""
    return allocate(_shape(shape), parse_dtype(dtype))


def _shape(shape: Any, low: int = 0) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if not isinstance(extents, (tuple, list)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in extents
    ):
        raise ArgumentTypeError(explain("shape", shown(shape), "an int or a tuple of ints"))
    if any(not low <= n < _MOST_BYTES for n in extents):
        raise ArgumentValueError(explain("shape", shown(shape), f"extents of {low} or more, below 2**63"))
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


def same_memory(x: np.ndarray, out: np.ndarray) -> bool:
    """Return whether both have the same elements at the same addresses, as ``x`` and ``x[:]`` have."""
    return x.ctypes.data == out.ctypes.data and (x.dtype, x.shape, x.strides) == (out.dtype, out.shape, out.strides)
