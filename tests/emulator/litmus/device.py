"""Runs a case on a GPU through the CUDA driver's C interface, with nothing but ctypes: the PTX is compiled by the
driver itself.
"""

import ctypes
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

import numpy as np

from cutesync.emulator.im2col import Im2colMap
from cutesync.emulator.tensor_map import API_ELEMENTS, SWIZZLES, TensorMap

from .case import Case, MapOf

MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class DriverError(RuntimeError):
    """A call of the CUDA driver that did not return success."""


class Device:
    """The first GPU. After a kernel that faults no call of this process succeeds any more: ``alive`` tells."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.number = c_int()
        self.call("cuDeviceGet", byref(self.number), 0)
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(context), self.number)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorName(code, byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")

    def alive(self) -> bool:
        return self.driver.cuCtxSynchronize() == 0

    @property
    def name(self) -> str:
        text = (c_char * 128)()
        self.call("cuDeviceGetName", text, 128, self.number)
        return text.value.decode()

    def run(self, case: Case) -> np.ndarray:
        """The case's output array as the GPU leaves it."""
        module, function = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", byref(module), case.ptx.encode() + b"\0")
        pointers: dict[int, c_uint64] = {}
        try:
            self.call("cuModuleGetFunction", byref(function), module, b"litmus")
            for place, argument in enumerate(case.arguments):
                if isinstance(argument, np.ndarray):
                    pointers[place] = self.upload(argument)
            values = [
                self.parameter(argument, pointers.get(place), pointers) for place, argument in enumerate(case.arguments)
            ]
            slots = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
            self.call("cuFuncSetAttribute", function, MAX_SHARED, case.shared_bytes)
            one = c_uint(1)
            self.call(
                "cuLaunchKernel",
                function,
                c_uint(case.grid),
                one,
                one,
                c_uint(case.block),
                one,
                one,
                c_uint(case.shared_bytes),
                None,
                slots,
                None,
            )
            self.call("cuCtxSynchronize")
            result = np.empty_like(case.arguments[case.output])
            self.call("cuMemcpyDtoH_v2", c_void_p(result.ctypes.data), pointers[case.output], c_size_t(result.nbytes))
            return result
        finally:
            for pointer in pointers.values():
                self.driver.cuMemFree_v2(pointer)
            self.driver.cuModuleUnload(module)

    def upload(self, array: np.ndarray) -> c_uint64:
        pointer, data = c_uint64(), np.ascontiguousarray(array)
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(max(data.nbytes, 256)))
        self.call("cuMemcpyHtoD_v2", pointer, c_void_p(data.ctypes.data), c_size_t(data.nbytes))
        return pointer

    def parameter(self, argument, pointer: c_uint64 | None, pointers: dict[int, c_uint64]):
        if isinstance(argument, MapOf):
            return self.encode(argument.tensor_map, pointers[argument.argument].value)
        return c_uint64(argument) if pointer is None else pointer

    def encode(self, m: TensorMap | Im2colMap, base: int) -> ctypes.Array:
        """``cuTensorMapEncodeTiled`` or ``cuTensorMapEncodeIm2col``; the 128 bytes must lie on a multiple of 64."""
        room = (c_char * 192)()
        aligned = (c_char * 128).from_buffer(room, -ctypes.addressof(room) % 64)
        extents, strides = (c_uint64 * m.rank)(*m.extents), (c_uint64 * max(m.rank - 1, 1))(*m.strides)
        steps = (c_uint32 * m.rank)(*m.element_strides)
        head = (
            aligned,
            c_int(API_ELEMENTS.index(m.element)),
            c_uint32(m.rank),
            c_void_p(base + m.address),
            extents,
            strides,
        )
        tail = (steps, c_int(0), c_int(SWIZZLES.index(m.swizzle)), c_int(0), c_int(int(m.nan_fill)))
        if isinstance(m, Im2colMap):
            corners = ((c_int * len(c))(*c) for c in (m.lower, m.upper))
            self.call("cuTensorMapEncodeIm2col", *head, *corners, c_uint32(m.channels), c_uint32(m.pixels), *tail)
        else:
            self.call("cuTensorMapEncodeTiled", *head, (c_uint32 * m.rank)(*m.box), *tail)
        return aligned
