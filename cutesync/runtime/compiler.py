"""From a kernel's key to a kernel that can be launched: memory, then disk, then ``cute.compile``, under one lock.

What is kept of a compilation is its cubin, its PTX (which the emulator runs) and its launch facts. The DSL is imported
only to compile: a process that finds all its kernels on disk never loads it.

Everything of this package that enters the DSL's compiler does so inside ``alone()``, the emulator's ``check`` included.
What the compiler traces there is the user's code; a call of cutesync from it is an OperatorError. A fork waits until
nobody compiles (see forks.py).
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
from . import backend, cache, device, forks
from .tracing import quick_tracing

_lock = threading.Lock()  # cute.compile aborts the process when two threads are in it
compiling = [0]  # the thread that holds the lock; 0 is none
forks.wait_for(_lock, mine=lambda: compiling[0] == get_ident())
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
        """The CUfunction on device ``ordinal``: the library is loaded on first use. (A CUkernel would launch too, 0.4
        us slower.)"""
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


def get(key: tuple, build: Callable[[], tuple], *, stream: int = 0) -> Kernel:
    """The kernel that ``key`` names.

    ``build()`` returns ``(host_function, example_arguments, facts)`` for ``cute.compile``; ``facts`` has block, smem
    and cluster. A kernel that is missing while a graph is captured from ``stream`` is a CaptureError.
    """
    refuse_while_tracing()
    held = (key, env.DEBUG.get())  # on disk the fingerprint has it
    found = _kernels.get(held)
    if found is not None:
        _counts["memory"] += 1
        return found
    if backend.current().capture(stream) is not None:
        came, advice = f"a kernel not compiled yet ({key[0]})", "make the same call once before capturing"
        raise CaptureError(explain("graph capture", came, "kernels that are loaded", advice))
    with alone():
        if held not in _kernels:
            _kernels[held] = _from_disk(key) or _compile(key, build)
        return _kernels[held]


def counts() -> dict[str, int]:
    """How many kernels came from memory, from disk and from the compiler in this process."""
    return dict(_counts)


def _from_disk(key: tuple) -> Kernel | None:
    entry = cache.load(key)
    if entry is None:
        return None
    facts, cubin, ptx = entry
    _counts["disk"] += 1
    return Kernel(
        facts["name"], cubin, ptx, tuple(facts["block"]), facts["smem"], tuple(facts["params"]), tuple(facts["cluster"])
    )


def _compile(key: tuple, build: Callable[[], tuple]) -> Kernel:
    host, arguments, facts = build()
    compiled = compile_alone(host, arguments, "--keep-cubin")
    ptx, cubin = compiled.__ptx__, compiled.__cubin__
    name, params = entry_point(ptx)
    facts = {"name": name, "params": params, "cluster": (1, 1, 1)} | facts
    _counts["compiled"] += 1
    cache.store(key, facts, cubin, ptx)
    return Kernel(name, cubin, ptx, facts["block"], facts["smem"], tuple(params), facts["cluster"])


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, no other thread is in the DSL's compiler; they wait. From code that is traced inside, it is an
    OperatorError."""
    refuse_while_tracing()
    with _lock:
        os.environ["CUTE_DSL_ARCH"] = device.ARCH  # with no GPU the DSL would target another architecture
        compiling[0] = get_ident()
        try:
            yield
        finally:
            compiling[0] = 0


def refuse_while_tracing() -> None:
    """Raise if this thread compiles: only code that is traced can come here then."""
    if compiling[0] == get_ident():
        advice = "call cutesync before, and let the callable capture the result"
        raise OperatorError(
            explain("callable", "a call of cutesync while it is traced", "operations on its arguments", advice)
        )


def compile_alone(host: Callable, arguments: Sequence, options: str = "") -> Any:
    """``cute.compile`` for sm_90a, with PTX and line information, inside ``alone()``. A user's callable at fault is an
    OperatorError."""
    import cutlass.cute as cute

    with _temporary_folder() as folder, quick_tracing():
        options = f"--gpu-arch {device.ARCH} --keep-ptx --dump-dir={shlex.quote(folder)} --generate-line-info {options}"
        try:
            compiled = cute.compile(host, *arguments, options=options)
        except Exception as error:
            found = _operator_error(error)
            if found is None:
                raise
            raise found.with_traceback(None) from found.__cause__  # without the DSL's frames
        if (
            ".entry" not in compiled.__ptx__ or compiled.__ptx__[-1] not in "\n\0"
        ):  # the name of a file that is not there, or half of it
            raise _cannot_compile(
                f"no whole PTX in the temporary folder {folder}", "room to write it", "free space there, or set TMPDIR"
            )
        return compiled


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """A folder for one compilation, this process's. (``tempfile.TemporaryDirectory`` is deleted by every forked child
    that exits.)"""
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
    """The OperatorError under what the DSL made of it, if a user's callable is to blame."""
    while error is not None:
        if isinstance(error, OperatorError):
            return error
        error = error.__cause__ or error.__context__
    return None


def entry_point(ptx: str) -> tuple[str, list[int]]:
    """Name and parameter sizes (bytes) of the one kernel in a PTX text."""
    ((name, parameters),) = re.findall(r"\.entry\s+(\w+)\s*\((.*?)\)", ptx, re.S)
    found = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)[^\[,]*(?:\[(\d+)\])?", parameters)
    return name, [int(count or 1) * int(width) // 8 for width, count in found]
