"""``cuda.bindings`` in a checked script: its functions are answered here, or refused by name.

The types and enumerations of ``cuda.bindings`` stay. Streams and events are handles without effect: each launch has
ended when it returns. Device memory is that of ``heap``; kernels in PTX that the script loads itself are launched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from ...errors import LaunchError, explain
from .. import facts, heap, limits
from ..host_calls import HostCalls
from ..tensor_map import encode, from_encode_arguments
from . import graphs
from .session import Graph, Session, refused as refused_call

_MAP_BYTES = 128
_Values = tuple


class Answers(graphs.GraphAnswers):
    """Answers by the names of the functions, without their prefix: each returns what follows the status."""

    def __init__(self, driver: ModuleType, runtime: ModuleType, session: Session) -> None:
        self.driver, self.runtime, self.session = driver, runtime, session
        self.calls: dict[int, HostCalls] = {}
        self.functions: dict[int, tuple[HostCalls, str]] = {}
        self.graphs: dict[int, Graph] = {}

    # --- devices and contexts ---------------------------------------------------------------------------------------

    def device_count(self, *_: Any) -> _Values:
        return (1,)

    def device(self, *_: Any) -> _Values:
        return (self.driver.CUdevice(0),)

    def ordinal(self, *_: Any) -> _Values:
        return (0,)

    def device_name(self, *_: Any) -> _Values:
        return (facts.NAME.encode(),)

    def device_attribute(self, attribute: Any, *_: Any) -> _Values:
        return (facts.attribute(int(attribute)),)

    def capability(self, *_: Any) -> _Values:
        return facts.CAPABILITY

    def total_memory(self, *_: Any) -> _Values:
        return (facts.MEMORY,)

    def memory_info(self, *_: Any) -> _Values:
        return facts.MEMORY, facts.MEMORY

    def version(self, *_: Any) -> _Values:
        return (facts.DRIVER_VERSION,)

    def context(self, *_: Any) -> _Values:
        return (self.driver.CUcontext(1),)

    def properties(self, *_: Any) -> _Values:
        made = self.runtime.cudaDeviceProp()
        made.name, made.totalGlobalMem = facts.NAME.encode().ljust(256, b"\0"), facts.MEMORY
        made.major, made.minor = facts.CAPABILITY
        for name, number in _PROPERTIES.items():
            if hasattr(made, name):
                setattr(made, name, facts.attribute(number))
        made.maxThreadsDim, made.maxGridSize = list(limits.BLOCK), list(limits.GRID)
        return (made,)

    def error_text(self, error: Any) -> _Values:
        return (getattr(error, "name", str(error)).encode(),)

    def nothing(self, *_: Any, **__: Any) -> _Values:
        return ()

    def zero(self, *_: Any) -> _Values:
        return (0,)

    def elapsed(self, *_: Any) -> _Values:
        return (1.0,)

    def stream(self, *_: Any, **__: Any) -> _Values:
        return (self.driver.CUstream(1),)

    def runtime_stream(self, *_: Any) -> _Values:
        return (self.runtime.cudaStream_t(1),)

    def event(self, *_: Any, **__: Any) -> _Values:
        return (self.driver.CUevent(1),)

    def runtime_event(self, *_: Any) -> _Values:
        return (self.runtime.cudaEvent_t(1),)

    # --- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, size: int, *_: Any) -> _Values:
        return (self.driver.CUdeviceptr(heap.keep(int(size), f"{size} bytes of cuMemAlloc")),)

    def runtime_allocate(self, size: int, *_: Any) -> _Values:
        return (heap.keep(int(size), f"{size} bytes of cudaMalloc"),)

    def free(self, address: Any, *_: Any) -> _Values:
        if int(address) and not heap.release(int(address)):
            raise LaunchError(explain("free", f"address {int(address):#x}", "what an allocation returned"))
        return ()

    def copy(self, to: Any, source: Any, size: int, *_: Any, **__: Any) -> _Values:
        return self._write(_address(to), partial(ctypes.memmove, _address(to), _address(source), int(size)))

    def fill8(self, to: Any, value: int, count: int, *_: Any) -> _Values:
        return self._fill(to, (int(value) & 0xFF).to_bytes(1, "little"), count)

    def fill16(self, to: Any, value: int, count: int, *_: Any) -> _Values:
        return self._fill(to, (int(value) & 0xFFFF).to_bytes(2, "little"), count)

    def fill32(self, to: Any, value: int, count: int, *_: Any) -> _Values:
        return self._fill(to, (int(value) & 0xFFFFFFFF).to_bytes(4, "little"), count)

    def _fill(self, to: Any, unit: bytes, count: int) -> _Values:
        size = len(unit) * int(count)
        return self._write(_address(to), lambda: ctypes.memmove(_address(to), unit * int(count), size))

    def _write(self, address: int, write: Callable[[], Any]) -> _Values:
        """Write memory, or leave it to the graph that is being captured."""

        def work() -> None:
            write()
            heap.initialised(address)

        self.session.enqueue(work)
        return ()

    def encode_tiled(self, kind: Any, rank: int, address: Any, *rest: Any) -> _Values:
        dims, strides, box, steps, interleave, swizzle, _, fill = rest
        numbers: list[Any] = [tuple(int(x) for x in xs) for xs in (dims, strides, box, steps)]
        numbers[1] = numbers[1][: int(rank) - 1]
        words: Any = (int(x) for x in (interleave, swizzle, fill))
        made = self.driver.CUtensorMap()
        data = encode(from_encode_arguments(int(kind), _address(address), *numbers, *words))
        ctypes.memmove(made.getPtr(), data, _MAP_BYTES)
        return (made,)

    # --- modules and launches ---------------------------------------------------------------------------------------

    def load(self, image: Any, *_: Any) -> _Values:
        """A library of PTX text; machine code has no kernels here."""
        data = image if isinstance(image, (bytes, bytearray)) else b""
        text = bytes(data).rstrip(b"\0").decode("utf-8", "replace")
        number = len(self.calls) + 1
        self.calls[number] = HostCalls(text if ".entry" in text else "", self.session.launch)
        return (number,)

    def load_module(self, image: Any, *_: Any) -> _Values:
        return (self.driver.CUmodule(*self.load(image)),)

    def load_library(self, image: Any, *_: Any) -> _Values:
        return (self.driver.CUlibrary(*self.load(image)),)

    def load_runtime_library(self, image: Any, *_: Any) -> _Values:
        return (self.runtime.cudaLibrary_t(*self.load(image)),)

    def function(self, module: Any, name: Any) -> _Values:
        calls, text = self.calls[int(module)], name.decode() if isinstance(name, bytes) else str(name)
        if calls.text and text not in calls.module.functions:
            raise LaunchError(explain("kernel", text, f"one of {', '.join(calls.module.functions)}"))
        self.functions[len(self.functions) + 1] = calls, text
        return (self.driver.CUfunction(len(self.functions)),)

    def kernels(self, count: int, library: Any) -> _Values:
        return ([self.driver.CUkernel(1)] * int(count),)

    def function_of_kernel(self, kernel: Any) -> _Values:
        return (self.driver.CUfunction(int(kernel)),)

    def set_attribute(self, attribute: Any, value: int, kernel: Any, *_: Any) -> _Values:
        return self.set_function_attribute(kernel, attribute, value)

    def set_function_attribute(self, function: Any, attribute: Any, value: int) -> _Values:
        calls, name = self.functions.get(int(function), (None, ""))
        if calls is not None:
            calls.set_attribute(name, int(attribute), int(value))
        return ()

    def launch(self, function: Any, *rest: Any) -> _Values:
        (*extents, shared, _, arguments, _) = rest
        calls, name = self.functions.get(int(function), (None, ""))
        if calls is None or not calls.text:
            raise LaunchError(explain("cuLaunchKernel", "machine code", "a kernel loaded from PTX text"))
        places = _pointers(arguments)
        calls.launch(name, tuple(map(int, extents[:3])), tuple(map(int, extents[3:])), int(shared), places)
        calls.reraise()
        return ()

    def clusters(self, function: Any, config: Any) -> _Values:
        blocks = 1
        for attribute in config.attrs or ():
            if attribute.id == self.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
                extent = attribute.value.clusterDim
                blocks = max(extent.x, 1) * max(extent.y, 1) * max(extent.z, 1)
        return (limits.multiprocessors() // blocks,)

    def blocks(self, function: Any, threads: int, shared: int, *_: Any) -> _Values:
        return (facts.blocks_of_multiprocessor(int(threads), int(shared)),)

    def shared_left(self, *_: Any) -> _Values:
        return (limits.SHARED,)


def _address(x: Any) -> int:
    if isinstance(x, (bytes, bytearray, memoryview)) or hasattr(x, "ctypes"):
        import numpy as np

        return int(np.frombuffer(x, np.uint8).ctypes.data) if not hasattr(x, "ctypes") else int(x.ctypes.data)
    return int(x)


def _pointers(arguments: Any) -> int:
    """The address of an array of pointers to the parameters of a kernel, as cuda.bindings takes them."""
    if arguments is None or isinstance(arguments, int):
        return arguments or 0
    if isinstance(arguments, tuple) and len(arguments) == 2:
        values, kinds = arguments
        cells = [
            v if hasattr(v, "_as_parameter_") or isinstance(v, ctypes._SimpleCData) else (k or ctypes.c_void_p)(int(v))
            for v, k in zip(values, kinds)
        ]
        places = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(c) for c in cells])
        _kept[:] = [cells, places]
        return ctypes.addressof(places)
    return _address(arguments)


_kept: list[Any] = []
_PROPERTIES = {
    "multiProcessorCount": 16,
    "sharedMemPerBlock": 8,
    "sharedMemPerBlockOptin": 97,
    "sharedMemPerMultiprocessor": 81,
    "reservedSharedMemPerBlock": 111,
    "regsPerBlock": 12,
    "regsPerMultiprocessor": 82,
    "warpSize": 10,
    "maxThreadsPerBlock": 1,
    "maxThreadsPerMultiProcessor": 39,
    "maxBlocksPerMultiProcessor": 106,
    "l2CacheSize": 38,
    "memoryBusWidth": 37,
    "clusterLaunch": 120,
    "cooperativeLaunch": 95,
    "unifiedAddressing": 41,
}
_A = Answers
_DRIVER: dict[Callable, str] = {
    _A.nothing: "Init CtxSynchronize CtxSetCurrent CtxPushCurrent CtxDestroy DevicePrimaryCtxRelease StreamDestroy "
    "StreamSynchronize StreamWaitEvent StreamQuery EventDestroy EventRecord EventSynchronize EventQuery LibraryUnload "
    "ModuleUnload ProfilerStart ProfilerStop MemPrefetchAsync CtxResetPersistingL2Cache FuncSetCacheConfig "
    "GraphDestroy GraphExecDestroy GraphUpload",
    _A.device_count: "DeviceGetCount",
    _A.device: "DeviceGet CtxGetDevice",
    _A.device_name: "DeviceGetName",
    _A.device_attribute: "DeviceGetAttribute",
    _A.capability: "DeviceComputeCapability",
    _A.total_memory: "DeviceTotalMem",
    _A.memory_info: "MemGetInfo",
    _A.version: "DriverGetVersion",
    _A.context: "CtxGetCurrent CtxCreate CtxPopCurrent DevicePrimaryCtxRetain StreamGetCtx",
    _A.error_text: "GetErrorName GetErrorString",
    _A.elapsed: "EventElapsedTime",
    _A.stream: "StreamCreate StreamCreateWithPriority",
    _A.event: "EventCreate",
    _A.allocate: "MemAlloc MemAllocAsync MemAllocManaged",
    _A.free: "MemFree MemFreeAsync",
    _A.copy: "Memcpy MemcpyAsync MemcpyHtoD MemcpyHtoDAsync MemcpyDtoH MemcpyDtoHAsync MemcpyDtoD MemcpyDtoDAsync",
    _A.fill8: "MemsetD8 MemsetD8Async",
    _A.fill16: "MemsetD16 MemsetD16Async",
    _A.fill32: "MemsetD32 MemsetD32Async",
    _A.encode_tiled: "TensorMapEncodeTiled",
    _A.load_module: "ModuleLoadData ModuleLoadDataEx",
    _A.load_library: "LibraryLoadData",
    _A.function: "ModuleGetFunction LibraryGetKernel",
    _A.kernels: "LibraryEnumerateKernels",
    _A.function_of_kernel: "KernelGetFunction",
    _A.set_attribute: "KernelSetAttribute",
    _A.set_function_attribute: "FuncSetAttribute",
    _A.zero: "FuncGetAttribute KernelGetAttribute",
    _A.launch: "LaunchKernel",
    _A.clusters: "OccupancyMaxActiveClusters",
    _A.blocks: "OccupancyMaxActiveBlocksPerMultiprocessor OccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    _A.shared_left: "OccupancyAvailableDynamicSMemPerBlock",
}
_RUNTIME: dict[Callable, str] = {
    _A.nothing: "SetDevice DeviceSynchronize StreamDestroy StreamSynchronize StreamWaitEvent StreamQuery EventDestroy "
    "EventRecord EventSynchronize EventQuery LibraryUnload ProfilerStart ProfilerStop GetLastError PeekAtLastError "
    "DeviceReset InitDevice GraphDestroy GraphExecDestroy GraphUpload",
    _A.device_count: "GetDeviceCount",
    _A.ordinal: "GetDevice",
    _A.device_attribute: "DeviceGetAttribute",
    _A.properties: "GetDeviceProperties",
    _A.memory_info: "MemGetInfo",
    _A.version: "DriverGetVersion RuntimeGetVersion",
    _A.error_text: "GetErrorName GetErrorString",
    _A.elapsed: "EventElapsedTime",
    _A.runtime_stream: "StreamCreate StreamCreateWithFlags StreamCreateWithPriority",
    _A.runtime_event: "EventCreate EventCreateWithFlags",
    _A.runtime_allocate: "Malloc MallocAsync MallocManaged MallocHost HostAlloc",
    _A.free: "Free FreeAsync FreeHost",
    _A.copy: "Memcpy MemcpyAsync",
    _A.fill8: "Memset MemsetAsync",
    _A.load_runtime_library: "LibraryLoadData",
    _A.blocks: "OccupancyMaxActiveBlocksPerMultiprocessor",
}


def _replace(module: ModuleType, prefix: str, success: Any, table: dict[Callable, str], answers: Answers) -> None:
    found = {prefix + name: answer for answer, names in table.items() for name in names.split()}

    def answered(name: str, answer: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> tuple:
            return (success, *answer(answers, *arguments, *named.values()))

        call.__name__ = name
        return call

    def refused(name: str) -> Callable:
        def call(*arguments: Any, **named: Any) -> tuple:
            raise refused_call(name)

        return call

    for name in dir(module):
        whole = name.startswith(prefix) and name[len(prefix) : len(prefix) + 1].isupper()
        if whole and not isinstance(getattr(module, name), type):
            setattr(module, name, answered(name, found[name]) if name in found else refused(name))


def install(session: Session) -> None:
    """Answer for the rest of the process."""
    from cuda.bindings import driver, nvrtc, runtime

    answers = Answers(driver, runtime, session)
    for name in ("nvrtcGetCUBINSize", "nvrtcGetCUBIN"):  # of machine code the PTX is loaded
        setattr(nvrtc, name, getattr(nvrtc, name.replace("CUBIN", "PTX")))
    _replace(driver, "cu", driver.CUresult.CUDA_SUCCESS, _DRIVER | graphs.DRIVER, answers)
    _replace(runtime, "cuda", runtime.cudaError_t.cudaSuccess, _RUNTIME | graphs.RUNTIME, answers)
