"""The GPU backend: launches, memory and workspaces through the CUDA driver."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..errors import CaptureError, LaunchError, explain
from . import device, forks, shared, slots, tensor_map
from .compiler import Kernel, alone, compiling, refuse_while_tracing
from .copy_engine import CopyEngine, enable_peers
from .host_code import HostCode

_CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 4, 6  # CU_LAUNCH_ATTRIBUTE_*
_WRONG_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE: another device is current, or none


class _Config(ctypes.Structure):
    """CUlaunchConfig of the CUDA driver API."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an identifier, padding, and a value of 64 bytes, here three words."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


@functools.lru_cache(maxsize=64)
def _attributes(cluster: tuple[int, int, int]) -> Any:
    """Return the attributes of a launch, which the driver only reads; the last is the cluster."""
    serialization = _Attribute(_PROGRAMMATIC_SERIALIZATION, 0, (1,))
    return (_Attribute * 2)(serialization, _Attribute(_CLUSTER_DIMENSION, 0, cluster))


@functools.lru_cache(maxsize=1)
def _entry() -> Any:
    """Return ``cuLaunchKernelEx``. It is called with ctypes objects: without ints to convert, a call takes 0.1 us
    less."""
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.restype = ctypes.c_int
    return function


class _Gpu:
    on_host = False

    @staticmethod
    def ordinal(wanted: int | None) -> int:
        return device.current() if wanted is None else wanted

    @staticmethod
    def devices() -> tuple[int, ...]:
        return tuple(range(device.count()))

    @staticmethod
    def connect(ordinals: Sequence[int]) -> None:
        for ordinal in ordinals:
            device.require_hopper(ordinal)
            enable_peers(ordinal, [other for other in ordinals if other != ordinal])

    using = staticmethod(device.using)

    @staticmethod
    def at_once(ordinals: tuple[int, ...], meeting: Any = None) -> device.Switch:
        """Launches are asynchronous: nothing waits for the end of the context."""
        return device.Switch(device.contexts(ordinals))

    @staticmethod
    def launcher(kernel: Kernel, ordinal: int, grid: int, make_block: Callable, claim: Any) -> Callable:
        block = make_block()
        attributes, count = _attributes(kernel.cluster), 1 if kernel.cluster == (1, 1, 1) else 2
        config = _Config((grid, 1, 1), kernel.block, kernel.smem, None, ctypes.addressof(attributes), count)
        entry, lock, handle = _entry(), forks.lock(), ctypes.c_void_p(kernel.handle(ordinal))
        config_at, addresses_at, put = ctypes.byref(config), ctypes.byref(block.addresses), block.put
        bound = held = known = None

        def bind(stream: int) -> Any:
            """Write the stream and the addresses of its workspace into the launch. Return the workspace, which the
            caller holds until the launch is enqueued; that of the default stream is held as long as it is bound."""
            nonlocal bound, held
            bound = found = None  # until a workspace is there: the claim may fail
            if claim is not None:
                found = claim(ordinal, stream)
                block.bind(found)
            config.stream = bound = stream
            held = found if stream in device.DEFAULT else None
            return found

        def run(addresses: tuple[int, ...], stream: int, alive: Any = attributes) -> None:
            nonlocal known
            if compiling[0]:
                refuse_while_tracing()
            with lock:
                if addresses != known:
                    before, known = known, None
                    put(addresses, before)
                    known = addresses
                # Streams other than the default one are bound on every call: one may be capturing, or be new and have
                # an old handle.
                if stream != bound or stream > 1:
                    here = bind(stream)  # noqa: F841 (held until the launch is enqueued)
                code = entry(config_at, handle, addresses_at, None)
                if code in _WRONG_CONTEXT:
                    with device.using(ordinal):
                        code = entry(config_at, handle, addresses_at, None)
            if code:
                raise device.failure(code, f"launch of {kernel.name}")

        return run

    @staticmethod
    def host_launcher(code: HostCode, ordinal: int, make_block: Callable, stream: int) -> Callable:
        """A call takes a block that no other call uses, which is cheaper than a lock. Threads that call at the same
        time make further blocks; so does a call after one that was interrupted or refused, which keeps its block."""
        entry, name, several = _host_entry(code, ordinal, stream), code.function_name, device.count() > 1
        free: list[Callable] = []
        take, put_back = free.pop, free.append

        def run(addresses: Sequence[int], numbers: Sequence, stream: int) -> None:
            if compiling[0]:
                refuse_while_tracing()
            try:
                mine = take()
            except IndexError:
                mine = make_block(entry).put
            if several and not device.is_current(ordinal):  # the CUDA runtime launches on the current device
                with device.using(ordinal):
                    error = mine(addresses, numbers, stream)
            else:
                error = mine(addresses, numbers, stream)
            put_back(mine)
            if error:
                raise _runtime_failure(error, f"host function {name}")

        return run

    @staticmethod
    def map_writer(tiled: tensor_map.TiledMap, place: int) -> Callable[[int], None]:
        """Encode the map for the first address; afterwards only replace the address in it."""
        encoded = False

        def write(address: int) -> None:
            nonlocal encoded
            if encoded:
                tensor_map.move(place, address)
            else:
                tensor_map.encode(tiled, place, address)
                encoded = True

        return write

    @staticmethod
    def allocate(size: int, ordinal: int, stream: int) -> tuple[int, object]:
        found = slots.take(ordinal) if size <= slots.SLOT and stream in device.DEFAULT else None
        if found is not None:
            return found
        if device.is_current(ordinal):
            return _Gpu.allocate_here(size, ordinal, stream)
        with device.using(ordinal):
            return _Gpu.allocate_here(size, ordinal, stream)

    @staticmethod
    def allocate_here(size: int, ordinal: int, stream: int) -> tuple[int, object]:
        small = size <= slots.SLOT and stream in device.DEFAULT
        found = slots.take(ordinal) if small else None
        if found is not None:
            return found
        if stream not in device.DEFAULT and device.capturing(stream):
            advice = "give DeviceArrays, and a result as out=, made before the capture"
            came = "a call that allocates or copies from NumPy"
            raise CaptureError(explain("graph capture", came, "arrays that exist", advice))
        memory, default, of_handle = _memory(ordinal)
        size = slots.CHUNK if small else size or 1
        try:
            owner = memory.allocate(size, stream=of_handle(stream) if stream else default)
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):
                raise device.failure(2, f"allocating {size} bytes") from error
            raise
        return slots.add(ordinal, owner) if small else (int(owner.handle), owner)

    @staticmethod
    def copy_in(array: Any, source: int, stream: int) -> None:
        with device.using(array.device):
            device.copy_in(array.ptr, source, array.nbytes, stream)
            device.synchronize(stream)

    @staticmethod
    def copy_out(array: Any, to: int, stream: int) -> None:
        with device.using(array.device):
            device.copy_out(to, array.ptr, array.nbytes, stream)

    @staticmethod
    def copy(to: Any, array: Any, stream: int) -> None:
        with device.using(array.device):
            cu = device.driver()
            device.check(cu.cuMemcpyDtoDAsync(to.ptr, array.ptr, array.nbytes, stream), "cuMemcpyDtoDAsync")

    @staticmethod
    def make_workspace(size: int, cleared: int, ordinal: int) -> int:
        """Works during a graph capture, too: all of the memory is cleared on a separate stream."""
        cu = device.driver()
        with device.uncaptured(), device.using(ordinal):
            base = int(device.check(cu.cuMemAlloc(size), "workspace"))
            stream = device.check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
            device.check(cu.cuMemsetD8Async(base, 0, size, stream), "cuMemsetD8Async")
            device.synchronize(stream)
            device.check(cu.cuStreamDestroy(stream), "cuStreamDestroy")
        return base

    @staticmethod
    def free_workspace(base: int, ordinal: int) -> bool:
        with device.uncaptured(), device.using(ordinal):
            return not int(device.driver().cuMemFree(base)[0])

    copy_engine = CopyEngine
    make_shared = staticmethod(shared.make)
    open_shared = staticmethod(shared.open_handle)
    identity = staticmethod(shared.identity)

    @staticmethod
    def meeting(name: str | None, size: int) -> None:
        """Kernels of different processes run at the same time anyway."""

    @staticmethod
    def capture(stream: int) -> int | None:
        if not device.capturing(stream):
            return None
        return int(device.check(device.driver().cuStreamGetCaptureInfo(stream), "cuStreamGetCaptureInfo")[1])

    @staticmethod
    def stream_number(stream: int) -> Hashable:
        return stream if stream in device.DEFAULT else device.stream_id(stream)

    @staticmethod
    def can_time(stream: int) -> bool:
        return not device.capturing(stream)

    @staticmethod
    def multiprocessors(ordinal: int) -> int:
        return device.attribute(ordinal, "MULTIPROCESSOR_COUNT")

    name = staticmethod(device.name)


GPU = _Gpu()
_entries: dict[HostCode, Callable] = {}


def _host_entry(code: HostCode, ordinal: int, stream: int) -> Callable:
    """Return the entry of a host function. On first use its kernels are loaded, on all GPUs at once as the DSL does."""
    found = _entries.get(code)
    if found is not None:
        return found
    device.require_hopper(ordinal)
    if device.capturing(stream):
        came, advice = f"a host function not loaded yet ({code.function_name})", "make the same call once before"
        raise CaptureError(explain("graph capture", came, "functions that are loaded", advice))
    with alone(), device.using(ordinal):
        error = code.load(device.count())
        if error:
            raise _runtime_failure(error, f"loading {code.function_name}")
        return _entries.setdefault(code, code.entry)


def _runtime_failure(code: int, what: str) -> Exception:
    """Return the exception for an error of the CUDA runtime; most codes are those of the driver."""
    try:
        return device.failure(code, what)
    except ValueError:
        import cuda.bindings.runtime as cudart

        return LaunchError(explain(what, cudart.cudaError_t(code).name, "cudaSuccess"))


@functools.lru_cache(maxsize=64)
def _memory(ordinal: int) -> tuple:
    """Return ``cuda.core``'s memory resource of a device, its default stream, and the function that makes a stream of a
    handle. They are cached because looking them up takes microseconds."""
    device.import_core()
    from cuda.core import Device, Stream

    with device.using(ordinal):
        gpu = Device(ordinal)
        gpu.set_current()
        return gpu.memory_resource, gpu.default_stream, Stream.from_handle
