"""Arrays of the device without torch or CuPy: NumPy arrays in ``heap``.

``DeviceArray`` is an ndarray whose memory is in device memory; so are the results of NumPy's functions on it. It
exports itself as an array of the device, by DLPack and ``__cuda_array_interface__``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .. import heap
from .session import caller

KDL_CUDA = 2
_KDL_BFLOAT = 4
_DEVICE, _CODE = 8, 20  # offsets of the device type and of the type code in DLTensor


class DeviceArray(np.ndarray):
    """An array in device memory, or a view of one."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **how: Any) -> Any:
        if out is not None:
            how["out"] = tuple(map(plain, out))
        result = getattr(ufunc, method)(*map(plain, inputs), **how)
        if out is not None:
            return out[0] if len(out) == 1 else out
        return device_array(result, type(self))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = func(*plain(args), **{name: plain(value) for name, value in kwargs.items()})
        return device_array(result, type(self))

    def __dlpack__(self, **_: Any) -> Any:
        """A capsule that says that the array is on the device."""
        bfloat = self.dtype.name == "bfloat16"
        capsule = (plain(self).view(np.uint16) if bfloat else plain(self)).__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        at = pointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(at + _DEVICE).value = KDL_CUDA
        if bfloat:
            ctypes.c_uint8.from_address(at + _CODE).value = _KDL_BFLOAT
        return capsule

    def __dlpack_device__(self) -> Any:
        return KDL_CUDA, 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3, "stream": None}


def plain(x: Any) -> Any:
    """Arguments of a function of NumPy with ordinary arrays in place of device arrays, in the same memory."""
    if isinstance(x, DeviceArray):
        return x.view(np.ndarray)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(plain, x))
    return x


def device_array(x: Any, kind: type[DeviceArray] = DeviceArray, *, fresh: bool = False) -> Any:
    """A result of NumPy in device memory: arrays, and tuples and lists of them; other things stay as they are."""
    if isinstance(x, (list, tuple)):
        return type(x)(device_array(member, kind) for member in x)
    if isinstance(x, np.generic):
        x = np.asarray(x)
    if not isinstance(x, np.ndarray):
        return x
    if x.size and heap.holds(x.ctypes.data):
        return np.ndarray.view(x, kind)
    name = f"{x.dtype}{list(x.shape)} made at {caller()}"
    memory = heap.allocate(x.nbytes, name, fresh=fresh)[: x.nbytes]
    order: Any = "F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C"
    made = np.ndarray(x.shape, x.dtype, memory, order=order)
    if not fresh:
        made[...] = x
    return made.view(kind)
