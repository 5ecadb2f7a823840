"""The CUDA driver: which GPUs there are, which one is current, their properties, streams and copies. No other module
asks the driver for these."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import threading
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from .. import env
from ..errors import LaunchError, NoGpuError, WorkspaceError, explain
from . import forks

_INVALID_CONTEXT = 201
ARCH = "sm_90a"
DEFAULT = (0, 1)  # both handles of the default stream
PER_THREAD = 2  # the handle that means another stream in each thread
HOST, DRY = -1, -2  # the ordinals of the emulator, which uses host memory, and of dry runs (see backend.py)
REMOTE = -1000  # the ordinal of every device that belongs to another process of a group


def emulated(number: int) -> int:
    """Return the ordinal of the emulator's device ``number``: HOST is the first."""
    return HOST if number == 0 else DRY - number


def emulated_number(ordinal: int) -> int:
    return 0 if ordinal == HOST else DRY - ordinal


@functools.lru_cache(maxsize=1)
def driver() -> Any:
    """Return ``cuda.bindings.driver``, initialised. Raise NoGpuError if there is no usable driver, LaunchError in a
    child that was forked after CUDA was initialised."""
    if _of_parent:
        advice = (
            'start the process with multiprocessing\'s "spawn", fork before the first use of a GPU, '
            "or set CUTESYNC_BACKEND=emulator in the child"
        )
        raise LaunchError(
            explain(
                "GPU",
                "a forked child of a process that had initialised CUDA",
                "a process of its own, which CUDA asks for",
                advice,
            )
        )
    try:
        from cuda.bindings import driver as cu
    except ImportError as error:
        raise NoGpuError(
            explain("cuda-python", f"no module ({error})", "the package cuda-python", "pip install cuda-python")
        ) from error
    try:
        (code,) = cu.cuInit(0)
    except RuntimeError as error:  # the bindings raise when libcuda is absent
        raise NoGpuError(
            explain("GPU", f"no NVIDIA driver ({error})", "a Hopper GPU with its driver", _ADVICE)
        ) from error
    if code != cu.CUresult.CUDA_SUCCESS:
        raise NoGpuError(explain("GPU", f"{code.name} from cuInit", "a Hopper GPU with its driver", _ADVICE))
    return cu


_ADVICE = "set CUTESYNC_BACKEND=emulator to run on the CPU"
_of_parent: list[bool] = []  # not empty in a child forked after CUDA was initialised


def _in_child() -> None:
    """Make ``driver`` raise in a forked child: CUDA does not survive a fork."""
    if driver.cache_info().currsize:
        _of_parent.append(True)
        driver.cache_clear()
        _function.cache_clear()


os.register_at_fork(after_in_child=_in_child)
_importing = forks.lock()


@functools.lru_cache(maxsize=1)
def import_core() -> None:
    """Import ``cuda.core`` in one thread while others wait: a thread that finds it half imported misses names."""
    with _importing:
        importlib.import_module("cuda.core.utils")


def check(result: Any, what: str) -> Any:
    """Return the values of a driver call's ``(code, *values)``. Raise if it failed; ``what`` names the call in the
    message."""
    code, *values = result
    if int(code):
        raise failure(int(code), what)
    return values[0] if len(values) == 1 else tuple(values)


def failure(code: int, what: str) -> Exception:
    """Return the exception for a driver error: WorkspaceError for lack of memory, else LaunchError."""
    cu = driver()
    name = cu.CUresult(code).name
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        return WorkspaceError(
            explain(what, name, "free memory on the device", "free arrays or empty the cache of your array library")
        )
    sticky = name in (
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    )
    advice = "an earlier kernel of this process failed; its context is lost, restart the process" if sticky else ""
    return LaunchError(explain(what, name, "CUDA_SUCCESS", advice))


@functools.lru_cache(maxsize=1)
def count() -> int:
    """Return the number of GPUs."""
    return check(driver().cuDeviceGetCount(), "cuDeviceGetCount")


def unavailable() -> str | None:
    """Return why no kernel can run on a GPU here; None if one can."""
    try:
        if not count():
            return "no GPU"
        require_hopper(0)
    except NoGpuError as error:
        return str(error)
    return None


class _Forced:
    """One ``forced`` block; ``entered`` until it is left."""

    __slots__ = ("entered", "name")

    def __init__(self, name: str) -> None:
        self.name, self.entered = name, True


_forced: ContextVar[tuple[_Forced, ...]] = ContextVar("cutesync_backend", default=())


def backend() -> str:
    """Return "gpu", "emulator" or "dry": that of the innermost ``forced`` block, else by CUTESYNC_BACKEND and the GPUs
    of this machine."""
    for block in reversed(_forced.get()):
        if block.entered:  # a task may outlive the block that it was started in
            return block.name
    return _chosen()


@functools.lru_cache(maxsize=1)
def _chosen() -> str:
    wanted = env.BACKEND.get()
    if wanted != "auto":
        return wanted
    reason = unavailable()
    if reason is None:
        return "gpu"
    warnings.warn(f"cutesync: kernels run on the emulator, slowly: {reason}", stacklevel=2)
    return "emulator"


@contextlib.contextmanager
def forced(name: str) -> Any:
    """Use this backend inside, in this thread or asynchronous task, on every machine."""
    block = _Forced(name)
    _forced.set((*_forced.get(), block))
    try:
        yield
    finally:
        block.entered = False
        _forced.set(tuple(other for other in _forced.get() if other.entered))


@functools.lru_cache(maxsize=64)
def attribute(device: int, name: str) -> int:
    """Return a CUdevice_attribute, given the end of its name, e.g. ``MULTIPROCESSOR_COUNT``."""
    cu = driver()
    return check(cu.cuDeviceGetAttribute(getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device), name)


def capability(device: int) -> tuple[int, int]:
    return attribute(device, "COMPUTE_CAPABILITY_MAJOR"), attribute(device, "COMPUTE_CAPABILITY_MINOR")


def name(device: int) -> str:
    return check(driver().cuDeviceGetName(128, device), "cuDeviceGetName").partition(b"\0")[0].decode().strip()


def require_hopper(device: int) -> None:
    """Raise NoGpuError unless the device runs sm_90a code."""
    if capability(device) != (9, 0):
        major, minor = capability(device)
        raise NoGpuError(
            explain(f"GPU {device}", f"{name(device)} (sm_{major}{minor})", "a Hopper GPU (sm_90: H100, H200)", _ADVICE)
        )


@functools.lru_cache(maxsize=64)
def _primary_context(device: int) -> int:
    return int(check(driver().cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain"))


def current() -> int:
    """Return the ordinal of the current device. If the thread has no context, make device 0's primary context
    current."""
    cu = driver()
    if not int(check(cu.cuCtxGetCurrent(), "cuCtxGetCurrent")):
        check(cu.cuCtxSetCurrent(_primary_context(0)), "cuCtxSetCurrent")
    return int(check(cu.cuCtxGetDevice(), "cuCtxGetDevice"))


def of_pointer(address: int) -> int:
    """Return the ordinal of the device that owns the memory at ``address``."""
    cu = driver()
    ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(cu.cuPointerGetAttribute(ordinal, address), "cuPointerGetAttribute"))


class using:
    """Make ``device`` current inside, and restore the previous context afterwards. A context of the device that is
    current already stays, also if it is not the primary one."""

    __slots__ = ("_before", "_device")

    def __init__(self, device: int) -> None:
        self._device, self._before = device, 0

    def __enter__(self) -> None:
        before, wanted = current_context(), _primary_context(self._device)
        if before == wanted or (before and int(check(driver().cuCtxGetDevice(), "cuCtxGetDevice")) == self._device):
            return
        make_current(wanted)
        self._before = before

    def __exit__(self, *error: object) -> None:
        if self._before:
            make_current(self._before)


class _Answer(threading.local):
    """Where the driver writes a thread's current context."""

    def __init__(self) -> None:
        self.found = ctypes.c_void_p()
        self.place = ctypes.byref(self.found)


_answer = _Answer()


def current_context() -> int:
    """Return the handle of the thread's current context; 0 if it has none."""
    answer = _answer
    code = _function("cuCtxGetCurrent", 1)(answer.place)
    if code:
        raise failure(code, "cuCtxGetCurrent")
    return answer.found.value or 0


def is_current(device: int) -> bool:
    """Return whether the primary context of a device is the thread's current one."""
    return current_context() == _primary_context(device)


def make_current(context: int) -> None:
    """Make a context current, given its handle. Through ctypes a call takes a fraction of a microsecond."""
    code = _function("cuCtxSetCurrent", 1)(context)
    if code:
        raise failure(code, "cuCtxSetCurrent")


class Switch:
    """A context for work on several devices in turn: called with a rank, it makes the primary context of that device
    current. At the end the context that was current before is so again."""

    __slots__ = ("_before", "_contexts", "_now")

    def __init__(self, contexts: Sequence[int]) -> None:
        self._contexts = contexts
        self._before = self._now = 0

    def __enter__(self) -> Switch:
        self._before = self._now = current_context()
        return self

    def __call__(self, rank: int) -> None:
        wanted = self._contexts[rank]
        if wanted != self._now:
            make_current(wanted)
            self._now = wanted

    def __exit__(self, *error: object) -> None:
        if self._now != self._before and self._before:
            make_current(self._before)


@functools.lru_cache(maxsize=64)
def contexts(ordinals: tuple[int, ...]) -> tuple[int, ...]:
    """Return the handles of the primary contexts of these devices."""
    return tuple(map(_primary_context, ordinals))


def capturing(stream: int) -> bool:
    """Return whether a graph is being captured from ``stream``. Every call on a stream other than the default one asks
    this: some 0.2 us through ctypes."""
    if stream in DEFAULT:  # the default stream cannot be captured
        return False
    status = ctypes.c_int()
    _ask_stream("cuStreamIsCapturing", stream, status)
    return status.value != 0


@contextlib.contextmanager
def uncaptured() -> Any:
    """Use the relaxed capture mode inside, in this thread: captures of other threads then forbid no calls. torch's
    allocator does the same."""
    cu = driver()
    relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    mode = check(cu.cuThreadExchangeStreamCaptureMode(relaxed), "capture mode")
    try:
        yield
    finally:
        check(cu.cuThreadExchangeStreamCaptureMode(mode), "capture mode")


def stream_id(stream: int) -> Any:
    """Return a value that identifies a stream in this process, even among streams that had the same handle before. It
    is neither 0 nor 1, the default stream."""
    number = ctypes.c_uint64()
    _ask_stream("cuStreamGetId", stream, number)
    return 2 + number.value if stream != PER_THREAD else (number.value, threading.get_ident())


def _ask_stream(name: str, stream: int, answer: Any) -> None:
    """Call the driver function ``name`` on a stream; the result is written to ``answer``."""
    code = _function(name, 2)(stream, ctypes.byref(answer))
    if code == _INVALID_CONTEXT:  # the per-thread stream, in a thread that has no context yet
        current()
        code = _function(name, 2)(stream, ctypes.byref(answer))
    if code:
        raise failure(code, name)


def call(name: str, *words: Any) -> None:
    """Call a driver function whose arguments are words: handles, addresses, sizes. That takes less than by
    ``cuda.bindings``."""
    code = _function(name, len(words))(*words)
    if code:
        raise failure(code, name)


@functools.lru_cache(maxsize=16)
def _function(name: str, count: int) -> Any:
    """Return a driver function of ``count`` words."""
    driver()
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    function.argtypes = [ctypes.c_void_p] * count
    function.restype = ctypes.c_int
    return function


def synchronize(stream: int) -> None:
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize")


def copy_in(destination: int, source: int, size: int, stream: int) -> None:
    """Copy ``size`` bytes of host memory to the device, ordered on ``stream``."""
    check(driver().cuMemcpyHtoDAsync(destination, source, size, stream), "cuMemcpyHtoDAsync")


def copy_out(destination: int, source: int, size: int, stream: int) -> None:
    """Copy ``size`` bytes of device memory to the host and wait for it."""
    check(driver().cuMemcpyDtoHAsync(destination, source, size, stream), "cuMemcpyDtoHAsync")
    synchronize(stream)
