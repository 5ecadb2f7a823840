"""The one front door for arrays: any array in, (pointer, shape, dtype, device) out; results in the caller's own library.

Each array library has an adapter. Its ``identify`` returns the address and a cheap hashable that says everything else a plan depends
on, so that the second call with such an array finds its plan by one dictionary look-up. ``allocator(shape, dtype, ordinal)`` is a function
``empty(stream, other=False)`` that makes results for work on a stream, which is ``other`` if it need not be the library's current one; ``address`` gives theirs. Libraries are recognised by the name of the
array's type and are never imported here.
"""

from __future__ import annotations

import functools
import operator
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import BY_NAME, FLOAT8, DType
from ..dtypes import element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from . import device, device_array
from .device import HOST
from .device_array import DeviceArray


@dataclass(frozen=True)
class View:
    """What an array is, once checked: address, shape, element type, device, whether it may be written, and its strides in elements
    (None: C-contiguous)."""

    ptr: int
    shape: tuple[int, ...]
    dtype: DType
    device: int
    contiguous: bool
    writable: bool = True
    strides: tuple[int, ...] | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides in elements, whatever the layout."""
        return contiguous_strides(self.shape) if self.strides is None else self.strides

    @property
    def span(self) -> tuple[int, int]:
        """The bytes from the lowest to past the highest element: ``(start, stop)`` addresses, equal for an empty array."""
        if not self.size:
            return self.ptr, self.ptr
        reach = [(extent - 1) * step for extent, step in zip(self.shape, self.steps)]
        low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        return self.ptr + low * self.dtype.size, self.ptr + (high + 1) * self.dtype.size

    @property
    def size(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= max(extent, 1)
    return tuple(reversed(steps))


def share_memory(shape: tuple[int, ...], strides: tuple[int, ...], unit: int = 1) -> bool:
    """Whether elements of one array may lie in the same memory: some stride does not reach past all that the smaller ones span. ``unit`` is what an
    element takes, in the unit of the strides."""
    reach, shape = 0, () if 0 in shape else shape
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride < reach + unit:
            return True
        reach += stride * (extent - 1)
    return False


class _OwnArrays:
    """DeviceArray."""

    identify = identify_strided = staticmethod(operator.attrgetter("ptr", "signature"))
    address = staticmethod(operator.attrgetter("ptr"))
    allocator = staticmethod(device_array.allocator)
    stream = staticmethod(lambda ordinal: 0)

    @staticmethod
    def view(x: DeviceArray) -> View:
        return View(x.ptr, x.shape, x.dtype, x.device, True)


class _Torch:
    """torch.Tensor. Its current stream is asked for on every call."""

    def __init__(self) -> None:
        self.torch = sys.modules["torch"]
        self.address = self.torch.Tensor.data_ptr
        guards = getattr(getattr(self.torch._C, "_dynamo", None), "guards", None)
        self._quick = getattr(guards, "_empty_strided_cuda", None)
        self.stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None) or self._public_stream

    def _public_stream(self, ordinal: int) -> int:
        return self.torch.cuda.current_stream(ordinal).cuda_stream

    @staticmethod
    def identify(x) -> tuple[int, tuple]:
        return x.data_ptr(), (x.dtype, x.shape, x.get_device(), x.is_contiguous(), x.requires_grad)

    @staticmethod
    def identify_strided(x) -> tuple[int, tuple]:
        return x.data_ptr(), (x.dtype, x.shape, x.stride(), x.get_device(), x.requires_grad)

    def view(self, x) -> View:
        if x.device.type not in ("cuda", "cpu"):
            raise DeviceError(explain("array", f"a torch tensor on {x.device}", "one on a CUDA device", "x.cuda()"))
        if x.requires_grad and self.torch.is_grad_enabled():
            raise ArgumentValueError(explain("array", "a torch tensor that requires grad", "one that does not: no gradient is computed", "x.detach()"))
        if x.is_conj() or x.is_neg():
            raise ArgumentValueError(explain("array", "a lazily conjugated or negated tensor", "plain values", "x.resolve_conj().resolve_neg()"))
        ordinal = HOST if x.device.type == "cpu" else x.device.index
        return View(x.data_ptr(), tuple(x.shape), parse_dtype(x.dtype), ordinal, x.is_contiguous(), True, tuple(x.stride()))

    def allocator(self, shape: tuple[int, ...], dtype: DType, ordinal: int):
        """Memory belongs to the current stream: what stood there before may still be in use there, so another stream gets its own.

        ``torch.empty`` takes 3.1 us, ``torch.empty_strided`` 1.8, and what the code that torch.compile makes calls, on the current device, 1.0.
        """
        cuda, steps, element = self.torch.cuda, contiguous_strides(shape), getattr(self.torch, dtype.name)
        place = self.torch.device("cpu" if ordinal == HOST else f"cuda:{ordinal}")
        make = functools.partial(self.torch.empty_strided, shape, steps, dtype=element, device=place)
        if self._quick is not None and ordinal != HOST and cuda.device_count() == 1:
            make = functools.partial(self._quick, shape, steps, element)

        def empty(stream: int, other: bool = False):
            if other and ordinal != HOST:
                with cuda.stream(cuda.ExternalStream(stream, device=place) if stream else cuda.default_stream(place)):
                    return make()
            return make()

        return empty


class _Cupy:
    """cupy.ndarray."""

    def __init__(self) -> None:
        self.cupy = sys.modules["cupy"]

    @staticmethod
    def identify(x) -> tuple[int, tuple]:
        return x.data.ptr, (x.dtype, x.shape, x.data.device_id, x.flags.c_contiguous)

    @staticmethod
    def identify_strided(x) -> tuple[int, tuple]:
        return x.data.ptr, (x.dtype, x.shape, x.strides, x.data.device_id)

    @staticmethod
    def address(x) -> int:
        return x.data.ptr

    def stream(self, ordinal: int) -> int:
        del ordinal
        return self.cupy.cuda.get_current_stream().ptr

    def view(self, x) -> View:
        strides = tuple(stride // x.dtype.itemsize for stride in x.strides)
        return View(x.data.ptr, x.shape, parse_dtype(x.dtype), x.data.device_id, x.flags.c_contiguous, True, strides)

    def allocator(self, shape: tuple[int, ...], dtype: DType, ordinal: int):
        make, element, cuda = self.cupy.empty, dtype.numpy, self.cupy.cuda

        def empty(stream: int, other: bool = False):
            with cuda.Device(ordinal):
                if other:
                    with cuda.ExternalStream(stream):
                        return make(shape, element)
                return make(shape, element)

        return empty


class _Protocol:
    """Anything else with DLPack or the CUDA array interface, through ``cuda.core``. Results are DeviceArrays."""

    stream = staticmethod(lambda ordinal: 0)
    address, allocator = staticmethod(_OwnArrays.address), staticmethod(_OwnArrays.allocator)  # of results

    def identify(self, x) -> tuple[int, tuple]:
        view = self.view(x)
        return view.ptr, (view.dtype, view.shape, view.device, view.contiguous, view.writable)

    def identify_strided(self, x) -> tuple[int, tuple]:
        view = self.view(x)
        return view.ptr, (view.dtype, view.shape, view.device, view.strides, view.writable)

    def view(self, x) -> View:
        if not hasattr(x, "__dlpack__"):
            return _cuda_array_interface(x.__cuda_array_interface__)
        device.import_core()
        from cuda.core.utils import StridedMemoryView

        strided = StridedMemoryView.from_dlpack(x, stream_ptr=-1)
        try:
            element = strided.dtype
        except NotImplementedError:
            element = "bfloat16"
        contiguous = strided.strides is None or _is_c_contiguous(tuple(strided.shape), tuple(strided.strides))
        ordinal = strided.device_id if strided.is_device_accessible else HOST
        steps = None if strided.strides is None else tuple(strided.strides)
        return View(strided.ptr, tuple(strided.shape), parse_dtype(element), ordinal, contiguous, not strided.readonly, steps)


def _cuda_array_interface(facts: dict) -> View:
    """The View of a ``__cuda_array_interface__`` of any version. The caller orders work by the stream, as for every array."""
    ptr, readonly = facts["data"]
    element, shape, strides = np.dtype(facts["typestr"]), tuple(facts["shape"]), facts.get("strides")
    steps = None if strides is None else tuple(stride // element.itemsize for stride in strides)
    contiguous = steps is None or _is_c_contiguous(shape, steps)
    ordinal = device.of_pointer(ptr) if ptr else device.current()
    return View(ptr, shape, parse_dtype(element), ordinal, contiguous, not readonly, steps)


class _Numpy:
    """numpy.ndarray: copied to the device and back, or used in place by nobody."""

    @staticmethod
    def view(x: np.ndarray) -> View:
        return View(x.ctypes.data, x.shape, parse_dtype(x.dtype), HOST, x.flags.c_contiguous, x.flags.writeable)


def _is_c_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


OWN, NUMPY = _OwnArrays(), _Numpy()
ADAPTERS: dict[type, Any] = {DeviceArray: OWN, np.ndarray: NUMPY}


def adapter(x: object, argument: str = "x"):
    """The adapter of an array's library; ArgumentTypeError for what is no array."""
    found = ADAPTERS.get(type(x))
    if found is None:
        found = ADAPTERS[type(x)] = _new_adapter(x, argument)
    return found


def _new_adapter(x: object, argument: str):
    roots = {base.__module__.partition(".")[0] for base in type(x).__mro__}
    if "torch" in roots and hasattr(x, "data_ptr"):
        return _Torch()
    if "cupy" in roots and hasattr(x, "data"):
        return _Cupy()
    if isinstance(x, np.ndarray):
        return NUMPY
    if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
        return _Protocol()
    raise ArgumentTypeError(explain(argument, _describe(x), "an array (NumPy, torch, CuPy, DLPack or __cuda_array_interface__)", "use np.asarray for sequences"))


def _describe(x: object) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def checked(x: object, argument: str, *, writable: bool = False, strided: bool = False) -> View:
    """The View of an array that a kernel may use: aligned to its element, on a device this backend can reach, and contiguous. With
    ``strided`` any strides will do, and float8 (which is what matmul takes)."""
    view = adapter(x, argument).view(x)
    if view.dtype.name in FLOAT8 and not strided:
        raise ArgumentTypeError(explain(argument, f"elements of {view.dtype}", "one of " + ", ".join(BY_NAME), "float8 is for matmul"))
    if not view.contiguous and not strided:
        raise ArgumentValueError(explain(argument, f"a non-contiguous array of shape {view.shape}", "a C-contiguous one", "copy it first (.contiguous(), ascontiguousarray)"))
    if view.size and view.ptr % view.dtype.size:
        raise ArgumentValueError(explain(argument, f"address {view.ptr:#x} for {view.dtype}", f"a multiple of {view.dtype.size} bytes", "copy it first"))
    if writable and not view.writable:
        raise ArgumentValueError(explain(argument, "a read-only array", "a writable one", "copy it first"))
    on_host = view.device == HOST
    if on_host and device.backend() == "emulator" and type(x) is not DeviceArray:
        raise DeviceError(explain(argument, f"a {type(x).__name__} in host memory", "a NumPy array or a DeviceArray: the emulator is in use", "np.asarray(x)"))
    if on_host and device.backend() == "gpu":
        raise DeviceError(explain(argument, "an array in host memory", "an array on a GPU or a NumPy array", "move it to the device"))
    if not on_host and device.backend() == "emulator":
        raise DeviceError(explain(argument, f"an array on GPU {view.device}", "an array in host memory: the emulator is in use", "set CUTESYNC_BACKEND=gpu"))
    return view


def same_device(first: View, second: View, argument: str) -> None:
    if first.device != second.device:
        raise DeviceError(explain(argument, f"an array on device {second.device}", f"the device of x, {first.device}"))


def stream_handle(stream: object) -> int:
    """The raw handle of what a user gave as stream: an int, anything with ``__cuda_stream__``, a CUstream, or a torch stream."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream, older cupy.cuda.Stream
        if isinstance(getattr(stream, name, None), int):
            return getattr(stream, name)
    if type(stream).__name__ in ("CUstream", "cudaStream_t"):
        return int(stream)
    raise ArgumentTypeError(explain("stream", _describe(stream), "None, an int, a CUstream or an object with __cuda_stream__"))
