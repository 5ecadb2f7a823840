"""Compiled host functions: a user's ``@cute.jit`` function as the DSL's host code with its kernels inside.

The DSL's compiler turns a host function into a module of LLVM's dialect of MLIR, which computes grids and tensor maps
and launches the kernels. Its text is what is kept on disk. It is made executable as the DSL itself does for its own
file cache: by its execution engine. On a GPU the engine calls the CUDA runtime; on the emulator, ``emulator.driver``
answers these calls.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ..errors import LaunchError, explain
from . import cache, compiler


class HostCode:
    """A compiled host function: the name of its entry, its module as text, and the PTX of its kernels."""

    def __init__(self, function_name: str, text: str, ptx: str) -> None:
        self.function_name, self.text, self.__ptx__ = function_name, text, ptx

    @functools.cached_property
    def ir_module(self) -> Any:
        import cutlass.cute  # noqa: F401 (registers the dialects)
        from cutlass._mlir import ir as untyped

        ir: Any = untyped
        with ir.Context():
            return ir.Module.parse(self.text)

    @functools.cached_property
    def engine(self) -> Any:
        from cutlass._mlir.execution_engine import ExecutionEngine
        from cutlass.cutlass_dsl import CuTeDSL

        return ExecutionEngine(self.ir_module, opt_level=2, shared_libs=CuTeDSL._get_dsl().get_shared_libs())

    @property
    def entry(self) -> Callable[[Any], None]:
        """The function that launches: it takes a Block's ``packed`` by reference."""
        found = ctypes.CFUNCTYPE(None)(self._symbol("_mlir_ciface_" + self.function_name))
        found.argtypes = None  # type: ignore[assignment]  # ctypes then converts nothing
        return found

    def load(self, devices: int) -> int:
        """Load the kernels on the first ``devices`` GPUs. Return the CUDA runtime's error code, 0 for success."""
        library, ordinal, error = ctypes.c_void_p(), ctypes.c_int32(0), ctypes.c_int32(0)
        library_at = ctypes.pointer(library)  # the entries take the addresses of their arguments
        self._call("cuda_init", ctypes.pointer(library_at), ctypes.pointer(error))
        for device in range(devices if not error.value else 0):
            ordinal.value = device
            self._call("cuda_load_to_device", *map(ctypes.pointer, (library_at, ordinal, error)))
            if error.value:
                break
        return error.value

    def _call(self, name: str, *arguments: Any) -> None:
        packed = (ctypes.c_void_p * len(arguments))(*(ctypes.cast(a, ctypes.c_void_p) for a in arguments))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._symbol(name))(packed)

    def _symbol(self, name: str) -> int:
        address = self.engine.raw_lookup(name)
        if not address:
            raise LaunchError(explain("compiled host function", f"no entry {name}", "a function that launches kernels"))
        return address


def get(key: tuple, build: Callable[[], tuple], stream: int) -> HostCode:
    """Return the compiled function that ``key`` identifies: from memory, from disk, or from the compiler.

    ``build()`` returns ``(host_function, example_arguments)``. Raise CaptureError if it must be compiled or read while
    a graph is captured from ``stream``.
    """
    return compiler.get(key, build, stream=stream, load=_from_disk, make=_compile)


def compiled(host: Callable, examples: list, options: str = "") -> HostCode:
    """Compile a host function, inside ``compiler.alone()``."""
    made = compiler.compile_alone(host, examples, options)
    return HostCode(made.function_name, str(made.ir_module), made.__ptx__)


def _from_disk(key: tuple) -> HostCode | None:
    entry = cache.load(key)
    if entry is None:
        return None
    facts, module, ptx = entry
    return HostCode(facts["name"], module.decode(), ptx)


def _compile(key: tuple, build: Callable[[], tuple]) -> HostCode:
    code = compiled(*build())
    launches: dict = {"block": (), "smem": 0, "params": (), "cluster": ()}  # the module's own business
    cache.store(key, {"name": code.function_name} | launches, code.text.encode(), code.__ptx__)
    return code
