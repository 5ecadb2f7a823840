"""Arrays of all libraries: their addresses, shapes, types and devices; and results in the caller's library.

Each library has an adapter. ``identify`` returns an array's address, and a hashable signature that holds everything
else a plan depends on. ``allocator(shape, dtype, ordinal)`` returns a function ``empty(stream, other=False)`` that
makes results for work on ``stream``; ``other`` says that this may differ from the library's current stream. ``address``
returns the address of a result. ``guard`` is None, or ``guard(xs)`` returns ``same(*ys)``, which tells whether so many
arrays have the types of these and the signatures that ``identify_strided`` returns, or None. Libraries are recognised
by the name of the array's type and are never imported here.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, FLOAT8, DType, element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, described, explain, shown
from . import backend, device, device_array
from .device import HOST
from .device_array import DeviceArray
from .streams import stream_handle as stream_handle  # exported with the arrays
from .torch_arrays import Torch
from .view import View, in_elements, is_c_contiguous


def share_memory(shape: tuple[int, ...], strides: tuple[int, ...], unit: int = 1) -> bool:
    """Return whether elements of an array may share memory: a stride is smaller than the span of the dimensions with
    smaller strides. ``unit`` is the size of an element, in the unit of the strides."""
    reach, shape = 0, () if 0 in shape else shape
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride < reach + unit:
            return True
        reach += stride * (extent - 1)
    return False


class _OwnArrays:
    """Adapter of DeviceArray."""

    guard = None

    identify = identify_strided = staticmethod(operator.attrgetter("ptr", "signature"))
    address = staticmethod(operator.attrgetter("ptr"))
    allocator = staticmethod(device_array.allocator)
    stream = staticmethod(lambda ordinal: 0)
    view = staticmethod(operator.attrgetter("view"))


class _Cupy:
    """Adapter of cupy.ndarray."""

    guard = None

    def __init__(self) -> None:
        self.cupy = sys.modules["cupy"]

    @staticmethod
    def identify(x: Any) -> tuple[int, tuple]:
        return x.data.ptr, (x.dtype, x.shape, x.data.device_id, x.flags.c_contiguous)

    @staticmethod
    def identify_strided(x: Any) -> tuple[int, tuple]:
        return x.data.ptr, (x.dtype, x.shape, x.strides, x.data.device_id)

    @staticmethod
    def address(x: Any) -> int:
        return x.data.ptr

    def stream(self, ordinal: int) -> int:
        return self.cupy.cuda.get_current_stream().ptr

    def view(self, x: Any) -> View:
        dtype = parse_dtype(x.dtype)
        return View(
            x.data.ptr, x.shape, dtype, x.data.device_id, x.flags.c_contiguous, True, in_elements(x.strides, dtype.size)
        )

    def allocator(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Any:
        make, element, cuda = self.cupy.empty, dtype.numpy, self.cupy.cuda

        def empty(stream: int, other: bool = False) -> Any:
            with cuda.Device(ordinal):
                if other:
                    with cuda.ExternalStream(stream):
                        return make(shape, element)
                return make(shape, element)

        return empty


class _Protocol:
    """Adapter of every other array with DLPack or the CUDA array interface. Results are DeviceArrays.

    The interface requires a consumer to wait for the stream in its entry ``stream``, unless the user orders the work.
    Here the user does, as for every array: by giving that stream as ``stream=``, or by making the call's stream wait
    for it. DLPack exporters are asked not to synchronize.
    """

    guard, stream = None, staticmethod(lambda ordinal: 0)
    address, allocator = staticmethod(_OwnArrays.address), staticmethod(_OwnArrays.allocator)  # of results

    def identify(self, x: Any) -> tuple[int, tuple]:
        view = self.view(x)
        return view.ptr, (view.dtype, view.shape, view.device, view.contiguous, view.writable)

    def identify_strided(self, x: Any) -> tuple[int, tuple]:
        view = self.view(x)
        return view.ptr, (view.dtype, view.shape, view.device, view.strides, view.writable)

    def view(self, x: Any) -> View:
        if not hasattr(x, "__dlpack__"):
            if not hasattr(x, "__cuda_array_interface__"):  # another object of its type had one
                raise ArgumentTypeError(explain("array", described(x), _ARRAYS, _OF_SEQUENCES))
            return _cuda_array_interface(x.__cuda_array_interface__)
        device.import_core()
        from cuda.core.utils import StridedMemoryView

        try:
            strided = StridedMemoryView.from_dlpack(x, stream_ptr=-1)
            element = _dlpack_type(strided)
        except Exception as error:  # raised by the exporter, or for its array
            came = f"{described(x)} whose DLPack export fails ({type(error).__name__}: {error})"
            raise ArgumentTypeError(explain("array", came, _ARRAYS)) from error
        contiguous = strided.strides is None or is_c_contiguous(tuple(strided.shape), tuple(strided.strides))
        ordinal = strided.device_id if strided.is_device_accessible else HOST
        steps = None if strided.strides is None else tuple(strided.strides)
        return View(
            strided.ptr, tuple(strided.shape), parse_dtype(element), ordinal, contiguous, not strided.readonly, steps
        )


def _dlpack_type(strided: Any) -> Any:
    """Return the element type of a ``StridedMemoryView``. Without ml_dtypes its ``dtype`` raises for bfloat16."""
    try:
        return strided.dtype
    except NotImplementedError as error:
        if "bfloat16" not in str(error):
            raise
        return "bfloat16"


def _cuda_array_interface(facts: Any) -> View:
    """Return the View of a ``__cuda_array_interface__`` of any version. The caller orders work on the stream, as for
    every array."""
    try:
        ptr, readonly = facts["data"]
        typestr, shape, strides = facts["typestr"], tuple(map(operator.index, facts["shape"])), facts.get("strides")
        ptr, strides = operator.index(ptr or 0), None if strides is None else tuple(map(operator.index, strides))
        if not isinstance(typestr, str):
            raise TypeError(f"typestr {shown(typestr)}")
        if any(extent < 0 for extent in shape) or (strides is not None and len(strides) != len(shape)):
            raise ValueError(f"shape {shape} and strides {strides}")
        if not 0 <= ptr < 1 << 64 or (ptr == 0 and 0 not in shape):
            raise ValueError(f"address {ptr:#x} for shape {shape}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        allowed = "shape, typestr, data=(address, read-only) and strides as the CUDA array interface has them"
        raise ArgumentTypeError(
            explain("__cuda_array_interface__", f"{type(error).__name__}: {error}", allowed)
        ) from error
    if facts.get("mask") is not None:
        allowed = "one without: every element counts"
        raise ArgumentTypeError(
            explain("__cuda_array_interface__", "an array with a mask", allowed, "fill the masked elements")
        )
    dtype = parse_dtype(typestr, "typestr")
    steps = None if strides is None else in_elements(strides, dtype.size)
    contiguous = steps is None or is_c_contiguous(shape, steps)
    ordinal = device.of_pointer(ptr) if ptr else device.current()
    return View(ptr, shape, dtype, ordinal, contiguous, not readonly, steps)


def on_device(x: np.ndarray, argument: str, stream: int, strided: bool) -> DeviceArray:
    """Copy a NumPy array to the current device. With ``strided``, an array in Fortran order keeps that order."""
    kind = view_of(x, argument).dtype
    if strided and x.ndim > 1 and not x.flags.c_contiguous and np.swapaxes(x, -1, -2).flags.c_contiguous:
        return device_array.transposed(device_array.from_numpy(np.swapaxes(x, -1, -2), kind, stream=stream))
    return device_array.from_numpy(x, kind, stream=stream)


class _Numpy:
    """Adapter of numpy.ndarray: copied to the device; results are copied back. ``calls`` makes the whole call."""

    calls: Any = None

    @staticmethod
    def view(x: np.ndarray) -> View:
        return View(x.ctypes.data, x.shape, parse_dtype(x.dtype), HOST, x.flags.c_contiguous, x.flags.writeable)


class _Sharded:
    """Adapter of ``dist.Sharded``, which has no address: ``calls`` makes the whole call (``dist.calls``), and
    ``on_each(x, make)`` returns a Sharded of ``make(ordinal)`` for each device of ``x``. ``repeated`` identifies one as
    ``identify_strided`` does another array, with address 0."""

    guard = None
    calls: Any = None
    repeated: Any = None
    on_each: Any = None

    @staticmethod
    def identify(x: Any) -> tuple[int, tuple]:
        came = "a Sharded beside an array on one device, or for a function that takes none"
        raise DeviceError(explain("array", came, "arrays sharded alike, for the functions in cutesync/dist/README.md"))

    identify_strided = view = identify


OWN, NUMPY, SHARDED = _OwnArrays(), _Numpy(), _Sharded()
ADAPTERS: dict[type, Any] = {DeviceArray: OWN, np.ndarray: NUMPY}


def view_of(x: Any, argument: str) -> View:
    """Return the View of an array. Errors name the argument that it is."""
    try:
        return adapter(x, argument).view(x)
    except (ArgumentTypeError, ArgumentValueError, DeviceError) as error:
        _, _, rest = str(error).partition(": ")
        raise type(error)(f"{argument}: {rest}") from error


def facts(x: Any, argument: str) -> tuple[DType, tuple[int, ...]]:
    """Return the type and the shape of an array, which may be a Sharded."""
    known = x if adapter(x, argument) is SHARDED else view_of(x, argument)
    return known.dtype, tuple(known.shape)


def made_beside(x: Any, make: Callable[[int], Any]) -> Any:
    """Return ``make(ordinal)`` of the device of an array; for a Sharded, of all its devices."""
    if adapter(x) is SHARDED:
        return SHARDED.on_each(x, make)
    return make(adapter(x).view(x).device)


def adapter(x: object, argument: str = "x") -> Any:
    """Return the adapter of an array's library; raise ArgumentTypeError for an object that is no array."""
    found = ADAPTERS.get(type(x))
    if found is None:
        found = ADAPTERS[type(x)] = _new_adapter(x, argument)
    return found


def beside(x: object, argument: str) -> Any:
    """Return the adapter of an array given in addition to one on a device; raise DeviceError for NumPy arrays."""
    found = ADAPTERS.get(type(x))
    if found is None:
        found = adapter(x, argument)
    if found is NUMPY:
        advice = f"cutesync.asarray({argument}), or NumPy arrays alone"
        raise DeviceError(
            explain(argument, "a NumPy array beside arrays on a device", "an array on the same device", advice)
        )
    return found


_ARRAYS = "an array (NumPy, torch, CuPy, DLPack or __cuda_array_interface__)"
_OF_SEQUENCES = "use np.asarray for sequences"


def _new_adapter(x: object, argument: str) -> Any:
    """Return the adapter for a new type. Raise for types whose arrays mean more than their elements."""
    roots = {base.__module__.partition(".")[0] for base in type(x).__mro__}
    if "torch" in roots and hasattr(x, "data_ptr") and hasattr(x, "is_neg"):
        base = sys.modules["torch"].Tensor
        if getattr(type(x), "__torch_dispatch__", None) is not getattr(base, "__torch_dispatch__", None):
            allowed = "a plain tensor: this type gives operations a meaning of its own"
            raise ArgumentTypeError(
                explain(argument, described(x), allowed, "give the tensor inside it (DTensor: x.to_local())")
            )
        return Torch()
    if "cupy" in roots and hasattr(x, "data"):
        return _Cupy()
    if isinstance(x, np.ndarray):
        device_array.require_plain(x, argument)
        return NUMPY
    exports = hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")
    if exports and not isinstance(x, type):  # a class has the attributes of its objects
        return _Protocol()
    raise ArgumentTypeError(explain(argument, described(x), _ARRAYS, _OF_SEQUENCES))


def checked(x: object, argument: str, *, writable: bool = False, strided: bool = False, float8: bool = False) -> View:
    """Return the View of an array that a kernel can use: aligned to its elements, on a device of the current backend,
    and C-contiguous. With ``strided``, any strides are accepted; with ``float8``, these types (by matmul)."""
    view = view_of(x, argument)
    if view.dtype.name in FLOAT8 and not float8:
        raise ArgumentTypeError(
            explain(argument, f"elements of {view.dtype}", "one of " + ", ".join(BY_NAME), "float8 is for matmul")
        )
    if not view.contiguous and not strided:
        raise ArgumentValueError(
            explain(
                argument,
                f"a non-contiguous array of shape {view.shape}",
                "a C-contiguous one",
                "copy it first (.copy(), .contiguous(), ascontiguousarray)",
            )
        )
    if view.ptr % view.dtype.size and view.size:
        raise ArgumentValueError(
            explain(
                argument,
                f"address {view.ptr:#x} for {view.dtype}",
                f"a multiple of {view.dtype.size} bytes",
                "copy it first",
            )
        )
    if writable and not view.writable:
        raise ArgumentValueError(explain(argument, "a read-only array", "a writable one", "copy it first"))
    on_host, emulated = backend.of(view.device).on_host, backend.current().on_host
    if on_host and emulated and type(x) is not DeviceArray:
        allowed = "a NumPy array or a DeviceArray: the emulator is in use"
        raise DeviceError(explain(argument, f"a {type(x).__name__} in host memory", allowed, "np.asarray(x)"))
    if on_host and not emulated:
        allowed = "an array on a GPU or a NumPy array"
        raise DeviceError(explain(argument, "an array in host memory", allowed, "move it to the device"))
    if emulated and not on_host:
        allowed = "an array in host memory: the emulator is in use"
        raise DeviceError(explain(argument, f"an array on GPU {view.device}", allowed, "set CUTESYNC_BACKEND=gpu"))
    return view


def same_device(first: View, second: View, argument: str, name: str) -> None:
    """Raise unless the array ``argument`` lies on the device of the first one, called ``name``."""
    if first.device != second.device:
        allowed = f"the device of {name}, {first.device}"
        raise DeviceError(explain(argument, f"an array on device {second.device}", allowed))
