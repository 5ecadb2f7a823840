"""From a kernel's key to a kernel that can be launched: memory, then disk, then ``cute.compile``, under one lock.

A compiled kernel is stored as its cubin, its PTX (which the emulator runs) and the facts of its launch. The DSL is
imported only to compile: a process that finds all its kernels on disk never loads it.

All code of this package that enters the DSL's compiler, including the emulator's ``check``, does so inside ``alone()``.
The compiler traces the user's code there; if that code calls cutesync, it is an OperatorError. A fork waits until no
thread compiles (see forks.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from .. import env
from ..errors import CaptureError, CutesyncError, OperatorError, explain
from . import backend, cache, contexts, device, forks
from .tracing import quick_tracing, valid_names

_lock = threading.Lock()  # cute.compile aborts the process when two threads are in it
compiling = [0]  # the thread that holds the lock, or 0
forks.wait_for(_lock, mine=lambda: compiling[0] == get_ident())
_kernels: dict[tuple, Any] = {}
_counts = {"memory": 0, "disk": 0, "compiled": 0}


@dataclass
class Kernel:
    """Machine code and the facts of its launch. ``params`` are the sizes of its parameters in bytes, in order."""

    name: str
    cubin: bytes
    ptx: str
    block: tuple[int, int, int]
    smem: int
    params: tuple[int, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    handles: dict[int, int] = field(default_factory=dict)

    def handle(self, ordinal: int) -> int:
        """Return the CUfunction on device ``ordinal``; the library is loaded on first use. (Launching a CUkernel takes
        0.4 us longer.)"""
        found = self.handles.get(ordinal)
        return self._load(ordinal) if found is None else found

    def _load(self, ordinal: int) -> int:
        cu = device.driver()
        device.require_hopper(ordinal)
        with alone():
            if not self.handles:
                library = device.check(cu.cuLibraryLoadData(self.cubin, [], [], 0, [], [], 0), f"loading {self.name}")
                self._kernel = device.check(cu.cuLibraryGetKernel(library, self.name.encode()), f"finding {self.name}")
            if self.smem > 48 * 1024:
                attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                device.check(
                    cu.cuKernelSetAttribute(attribute, self.smem, self._kernel, ordinal),
                    f"shared memory of {self.name}",
                )
            with device.using(ordinal):
                self.handles[ordinal] = int(
                    device.check(cu.cuKernelGetFunction(self._kernel), f"function of {self.name}")
                )
        return self.handles[ordinal]


def get(
    key: tuple,
    build: Callable[[], tuple],
    *,
    stream: int = 0,
    load: Callable[[tuple], Any] | None = None,
    make: Callable[[tuple, Callable], Any] | None = None,
) -> Any:
    """Return the kernel that ``key`` identifies.

    ``build()`` returns ``(host_function, example_arguments, facts)`` for ``cute.compile``; ``facts`` has block, smem
    and cluster. Raise CaptureError if the kernel is not loaded while a graph is captured from ``stream``. ``load(key)``
    and ``make(key, build)`` read from disk and compile something else than a Kernel.
    """
    refuse_while_tracing()
    held = (key, env.DEBUG.get())  # on disk, the fingerprint includes the debug mode
    found = _kernels.get(held)
    if found is not None:
        _counts["memory"] += 1
        return found
    if backend.current().capture(stream) is not None:
        came, advice = f"a kernel not compiled yet ({key[0]})", "make the same call once before capturing"
        raise CaptureError(explain("graph capture", came, "kernels that are loaded", advice))
    with alone():
        if held not in _kernels:
            found = (load or _from_disk)(key)
            _kernels[held] = (make or _compile)(key, build) if found is None else found
            _counts["compiled" if found is None else "disk"] += 1
        return _kernels[held]


def counts() -> dict[str, int]:
    """Return how many kernels came from memory, from disk and from the compiler in this process."""
    return dict(_counts)


def _from_disk(key: tuple) -> Kernel | None:
    entry = cache.load(key)
    if entry is None:
        return None
    facts, cubin, ptx = entry
    return Kernel(
        facts["name"], cubin, ptx, tuple(facts["block"]), facts["smem"], tuple(facts["params"]), tuple(facts["cluster"])
    )


def _compile(key: tuple, build: Callable[[], tuple]) -> Kernel:
    host, arguments, facts = build()
    compiled = compile_alone(host, arguments, "--keep-cubin")
    ptx, cubin = compiled.__ptx__, compiled.__cubin__
    name, params = entry_point(ptx)
    facts = {"name": name, "params": params, "cluster": (1, 1, 1)} | facts
    cache.store(key, facts, cubin, ptx)
    return Kernel(name, cubin, ptx, facts["block"], facts["smem"], tuple(params), facts["cluster"])


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the compiler's lock: inside, other threads wait before they enter the DSL's compiler. Raise OperatorError if
    code that is being traced inside calls this."""
    refuse_while_tracing()
    with _lock:
        os.environ["CUTE_DSL_ARCH"] = device.ARCH  # with no GPU the DSL would target another architecture
        compiling[0] = get_ident()
        try:
            yield
        finally:
            compiling[0] = 0


def refuse_while_tracing() -> None:
    """Raise OperatorError if this thread is compiling: then the caller is code that is being traced."""
    if compiling[0] == get_ident():
        advice = "call cutesync before, and let the callable capture the result"
        raise OperatorError(
            explain("callable", "a call of cutesync while it is traced", "operations on its arguments", advice)
        )


def compile_alone(host: Callable, arguments: Sequence, options: str = "") -> Any:
    """Run ``cute.compile`` for sm_90a, with PTX and line information, inside ``alone()``. Raise OperatorError if a
    user's callable is at fault."""
    import cutlass.cute as cute

    with _temporary_folder() as folder, quick_tracing(), valid_names():
        options = f"--gpu-arch {device.ARCH} --keep-ptx --dump-dir={shlex.quote(folder)} --generate-line-info {options}"
        try:
            compiled = cute.compile(host, *arguments, options=options, no_jit_engine=True)  # a tenth of the time
        except Exception as error:
            found = _operator_error(error)
            if found is None:
                raise
            raise found.with_traceback(None) from found.__cause__  # without the DSL's frames
        finally:
            contexts.forget()
        if not compiled.kernel_info:
            raise _cannot_compile("a host function that launches no kernel", "one kernel or more", "")
        # Without room for the file, the DSL returns a file name in place of PTX, or a part of it.
        if ".entry" not in compiled.__ptx__ or compiled.__ptx__[-1] not in "\n\0":
            raise _cannot_compile(
                f"no whole PTX in the temporary folder {folder}", "room to write it", "free space there, or set TMPDIR"
            )
        return compiled


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """Make a folder for one compilation, which only this process deletes. (Every forked child that exits would delete a
    ``tempfile.TemporaryDirectory``.)"""
    try:
        folder = tempfile.mkdtemp(prefix="cutesync-")
    except OSError as error:
        raise _cannot_compile(
            f"no folder for temporary files ({error})", "one that can be written", "free space there, or set TMPDIR"
        ) from None
    owner = os.getpid()
    try:
        if set(folder) & set("'{}\n"):
            raise _cannot_compile(
                f"the temporary folder {folder!r}",
                "a name without quotes and braces, which the DSL misreads",
                "set TMPDIR",
            )
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _cannot_compile(came: str, allowed: str, advice: str) -> CutesyncError:
    return CutesyncError(explain("compiling", came, allowed, advice))


def _operator_error(error: BaseException | None) -> OperatorError | None:
    """Return the OperatorError among the causes of the DSL's error; None if no user's callable is at fault."""
    while error is not None:
        if isinstance(error, OperatorError):
            return error
        error = error.__cause__ or error.__context__
    return None


def entry_point(ptx: str) -> tuple[str, list[int]]:
    """Return the name and the parameter sizes (bytes) of the only kernel in a PTX text."""
    ((name, parameters),) = re.findall(r"\.entry\s+(\w+)\s*\((.*?)\)", ptx, re.S)
    found = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)[^\[,]*(?:\[(\d+)\])?", parameters)
    return name, [int(count or 1) * int(width) // 8 for width, count in found]
