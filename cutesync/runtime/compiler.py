"""From a kernel's key to a kernel that can be launched: memory, then disk, then ``cute.compile``, under one lock.

What is kept of a compilation is its cubin, its PTX (which the emulator runs) and its launch facts. The DSL is imported only to
compile: a process that finds all its kernels on disk never loads it.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Callable

from ..errors import CaptureError, OperatorError, explain
from . import cache, device
from .tracing import quick_tracing

_lock = threading.Lock()  # cute.compile aborts the process when two threads are in it
_kernels: dict[tuple, Kernel] = {}
_counts = {"memory": 0, "disk": 0, "compiled": 0}


@dataclass
class Kernel:
    """Machine code and what a launch of it needs. ``params`` are the byte sizes of its parameters, in order."""

    name: str
    cubin: bytes
    ptx: str
    block: tuple[int, int, int]
    smem: int
    params: tuple[int, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    handles: dict[int, int] = field(default_factory=dict)

    def handle(self, ordinal: int) -> int:
        """The CUfunction on device ``ordinal``: the library is loaded on first use. (A CUkernel would launch too, 0.4 us slower.)"""
        found = self.handles.get(ordinal)
        return self._load(ordinal) if found is None else found

    def _load(self, ordinal: int) -> int:
        cu = device.driver()
        device.require_hopper(ordinal)
        with _lock:
            if not self.handles:
                library = device.check(cu.cuLibraryLoadData(self.cubin, [], [], 0, [], [], 0), f"loading {self.name}")
                self._kernel = device.check(cu.cuLibraryGetKernel(library, self.name.encode()), f"finding {self.name}")
            if self.smem > 48 * 1024:
                attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                device.check(cu.cuKernelSetAttribute(attribute, self.smem, self._kernel, ordinal), f"shared memory of {self.name}")
            with device.using(ordinal):
                self.handles[ordinal] = int(device.check(cu.cuKernelGetFunction(self._kernel), f"function of {self.name}"))
        return self.handles[ordinal]


def get(key: tuple, build: Callable[[], tuple], *, on_disk: bool = True, stream: int = 0, warm: str = "") -> Kernel:
    """The kernel that ``key`` names.

    ``build()`` returns ``(host_function, example_arguments, facts)`` for ``cute.compile``; ``facts`` has block, smem and cluster.
    ``on_disk`` is False for operators that have no key. ``stream`` and ``warm`` serve one message: a kernel that is missing while
    a graph is captured from ``stream`` is a CaptureError that names the call to make first.
    """
    found = _kernels.get(key)
    if found is not None:
        _counts["memory"] += 1
        return found
    if device.backend() == "gpu" and device.capturing(stream):
        raise CaptureError(explain("graph capture", f"a kernel not compiled yet ({key[0]})", "kernels that are loaded", f"call {warm} once before capturing"))
    with _lock:
        if key not in _kernels:
            _kernels[key] = _from_disk(key) if on_disk else None
            if _kernels[key] is None:
                del _kernels[key]
                _kernels[key] = _compile(key, build, on_disk)
        return _kernels[key]


def counts() -> dict[str, int]:
    """How many kernels came from memory, from disk and from the compiler in this process."""
    return dict(_counts)


def _from_disk(key: tuple) -> Kernel | None:
    entry = cache.load(key)
    if entry is None:
        return None
    facts, cubin, ptx = entry
    _counts["disk"] += 1
    return Kernel(facts["name"], cubin, ptx, tuple(facts["block"]), facts["smem"], tuple(facts["params"]), tuple(facts["cluster"]))


def _compile(key: tuple, build: Callable[[], tuple], on_disk: bool) -> Kernel:
    os.environ["CUTE_DSL_ARCH"] = device.ARCH  # with no GPU the DSL would target another architecture
    import cutlass.cute as cute

    host, arguments, facts = build()
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {device.ARCH} --keep-ptx --keep-cubin --dump-dir={folder} --generate-line-info"
        try:
            with quick_tracing():
                compiled = cute.compile(host, *arguments, options=options)
        except Exception as error:
            found = _operator_error(error)
            if found is None:
                raise
            raise found.with_traceback(None) from found.__cause__  # without the DSL's frames
        ptx, cubin = compiled.__ptx__, compiled.__cubin__
    name, params = entry_point(ptx)
    facts = {"name": name, "params": params, "cluster": (1, 1, 1)} | facts
    _counts["compiled"] += 1
    if on_disk:
        cache.store(key, facts, cubin, ptx)
    return Kernel(name, cubin, ptx, facts["block"], facts["smem"], tuple(params), facts["cluster"])


def _operator_error(error: BaseException | None) -> OperatorError | None:
    """The OperatorError under what the DSL made of it, if a user's callable is to blame."""
    while error is not None:
        if isinstance(error, OperatorError):
            return error
        error = error.__cause__ or error.__context__
    return None


def entry_point(ptx: str) -> tuple[str, list[int]]:
    """Name and parameter sizes (bytes) of the one kernel in a PTX text."""
    name, parameters = re.search(r"\.entry\s+(\w+)\s*\((.*?)\)", ptx, re.S).groups()
    sizes = []
    for line in filter(None, (part.strip() for part in parameters.split(","))):
        array = re.search(r"\.b8\s+\w+\[(\d+)\]", line)
        sizes.append(int(array[1]) if array else int(re.search(r"\.param\s+\.[a-z](\d+)", line)[1]) // 8)
    return name, sizes
