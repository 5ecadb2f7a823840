"""``cupy.RawKernel`` and ``RawModule``: CUDA C++ that NVRTC compiles to PTX, launched here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArgumentTypeError, LaunchError, explain
from ...runtime import device
from ..host_calls import MAX_SHARED, HostCalls
from .host_arrays import plain
from .session import Session, caller

_COOPERATIVE = 2  # launch attribute
_ARCHITECTURE = ("-arch", "--gpu-architecture")  # options that the emulator's own takes the place of


def compiled(source: str, options: Sequence[str]) -> str:
    """The PTX of CUDA C++ for sm_90a, with line numbers."""
    from cuda.bindings import nvrtc

    def checked(result: tuple) -> Any:
        if int(result[0]):
            text = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
            nvrtc.nvrtcGetProgramLog(program, text)
            raise LaunchError(f"NVRTC, at {caller()}: {text.decode(errors='replace').strip()}")
        return result[1] if len(result) > 1 else None

    name = caller().split(":")[0] + ".cu"
    program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])[1]
    own = [o for o in options if not o.startswith(_ARCHITECTURE)]
    flags = [f"--gpu-architecture={device.ARCH}", "-lineinfo", "-default-device", *own]
    checked(nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags]))
    text = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, text))
    return text.rstrip(b"\0").decode()


def _bytes(x: Any) -> bytes:
    """An argument as CuPy gives it to a kernel: arrays by address, numbers of Python in 64 bits."""
    if isinstance(x, np.ndarray):
        return int(plain(x).ctypes.data).to_bytes(8, "little")
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr()).to_bytes(8, "little")
    if hasattr(x, "__cuda_array_interface__"):
        return int(x.__cuda_array_interface__["data"][0]).to_bytes(8, "little")
    if isinstance(x, (bool, int, float, complex, np.generic)):
        return np.asarray(x).tobytes()
    raise ArgumentTypeError(explain("an argument of a kernel", type(x).__name__, "arrays and numbers"))


class Kernel:
    """One kernel of CUDA C++."""

    def __init__(self, calls: Callable[[], HostCalls], name: str, cooperative: bool = False) -> None:
        self.calls, self.name, self.cooperative = calls, name, cooperative
        self._shared = 0

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self._shared

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        self._shared = size
        self.calls().set_attribute(self.name, MAX_SHARED, size)

    def compile(self, *_: Any) -> None:
        self.calls()

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, **_: Any
    ) -> None:
        calls, values = self.calls(), [_bytes(x) for x in args]
        parameters = calls.program(self.name).function.params
        if len(parameters) != len(values):
            raise LaunchError(explain(f"arguments of {self.name}", len(values), f"{len(parameters)}"))
        cells = [ctypes.create_string_buffer(value, max(p.size, len(value))) for value, p in zip(values, parameters)]
        places = (ctypes.c_void_p * max(len(cells), 1))(*map(ctypes.addressof, cells))
        blocks, threads = ((*map(int, extent), 1, 1)[:3] for extent in (grid, block))
        given: dict[int, tuple] = {_COOPERATIVE: (1, 0, 0)} if self.cooperative else {}
        calls.launch(self.name, blocks, threads, shared_mem, ctypes.addressof(places), given)
        calls.reraise()


def classes(session: Session) -> dict[str, Any]:
    """The classes of the module ``cupy``."""

    class RawModule:
        def __init__(
            self,
            *,
            code: str | None = None,
            path: str | None = None,
            options: Sequence[str] = (),
            enable_cooperative_groups: bool = False,
            **_: Any,
        ) -> None:
            self.code, self.path, self.options = code, path, options
            self.cooperative = enable_cooperative_groups
            self.made: HostCalls | None = None

        def compile(self, *_: Any) -> HostCalls:
            if self.made is None:
                text = Path(self.path).read_text() if self.path else compiled(self.code or "", self.options)
                self.made = HostCalls(text, session.launch, session.failed)
            return self.made

        def get_function(self, name: str) -> Kernel:
            return Kernel(self.compile, name, self.cooperative)

    def raw_kernel(code: str, name: str, options: Sequence[str] = (), **how: Any) -> Kernel:
        return RawModule(code=code, options=options, **how).get_function(name)

    return {"RawModule": RawModule, "RawKernel": raw_kernel}
