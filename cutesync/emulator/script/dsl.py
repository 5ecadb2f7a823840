"""The DSL of a checked script: it compiles for sm_90a, and its host code launches on the emulator.

The DSL stays as it is, direct calls of ``@cute.jit`` functions, compiled objects and tvm-ffi functions included. Only
the engines that run host code are made here, with callbacks in place of the CUDA runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import LaunchError, explain
from ...runtime import device
from .. import chains, heap
from ..device import DEVICE
from ..host_calls import HostCalls, calls_of
from .session import Session, caller

_P, _I = ctypes.c_void_p, ctypes.c_int
_PREFIXES = "CUTE_DSL", "CUTE_EXPERIMENTAL_DSL"
_CACHES = "QUACK_CACHE_ENABLED", "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"
_compiling: list[Any] = []  # the DSLs that are compiling, the innermost one last


def environment() -> dict[str, str]:
    """Variables that the DSL reads when it is imported, and those of caches that keep compiled objects."""
    settings = {"ARCH": device.ARCH, "DISABLE_FILE_CACHING": "1", "LINEINFO": "1"}
    own = {f"{prefix}_{name}": value for prefix in _PREFIXES for name, value in settings.items()}
    return own | dict.fromkeys(_CACHES, "0")


def install(session: Session) -> None:
    """Change the DSL's classes for the rest of the process."""
    os.environ.update(environment())
    import cutlass.cute  # noqa: F401
    from cutlass.base_dsl import compiler, dsl

    folder = tempfile.TemporaryDirectory(prefix="cutesync-", ignore_cleanup_errors=True)
    _keep_ptx(compiler, folder)
    base: Any = dsl.BaseDSL
    plain = base._compile_or_jit_module

    @functools.wraps(plain)
    def compile_or_jit_module(self: Any, *arguments: Any, **named: Any) -> Any:
        _compiling.append(self)
        try:
            return plain(self, *arguments, **named)
        finally:
            _compiling.pop()

    base._compile_or_jit_module = compile_or_jit_module

    def jit(self: Any, module: Any, opt_level: int = 2, shared_libs: Any = ()) -> Any:
        return engine_of(self.execution_engine.ExecutionEngine, module, opt_level, session)

    maker: Any = compiler.Compiler
    maker.jit = jit
    chains.record()
    _host_arrays(session)
    _functions_of_tvm()
    _exports()
    _benchmarks(session)


def _keep_ptx(compiler: Any, folder: tempfile.TemporaryDirectory) -> None:
    """Every compilation keeps its PTX, with line numbers. (The environment variable for it would turn the DSL's cache
    off.)"""
    plain = compiler.CompileOptions.apply_envar_settings

    def apply_envar_settings(self: Any, envar: Any, function_name: str) -> None:
        self.options[compiler.KeepPTX].value = True
        self.options[compiler.GenerateLineInfo].value = True
        if self.options[compiler.DumpDir].value == "":
            self.options[compiler.DumpDir].value = folder.name
        plain(self, envar, function_name)

    compiler.CompileOptions.apply_envar_settings = apply_envar_settings


def _ptx() -> str:
    """The PTX of the compilation under way; empty for host code without kernels."""
    if not _compiling or not _compiling[-1].num_kernels:
        return ""
    path = _compiling[-1].compile_options.full_ptx_path
    text = Path(path).read_text(encoding="utf-8").rstrip("\0") if path and Path(path).exists() else ""
    if ".entry" not in text:
        raise LaunchError(explain("compiling", "no PTX of the kernel", "room in the temporary folder", "set TMPDIR"))
    return text


def engine_of(make: Callable, module: Any, opt_level: int, session: Session) -> Any:
    """An engine for a module whose CUDA calls are answered here."""
    calls = HostCalls(_ptx(), session.launch, session.failed)
    calls.enqueue = session.enqueue
    text = str(module)
    symbols: dict[str, Any] = dict(calls.callbacks(calls_of(text)))
    if "cuda_dialect_" in text:
        symbols.update(_runtime_of_tvm(calls))
    engine = make(module, opt_level=opt_level, shared_libs=[])
    for symbol, callback in symbols.items():
        engine.raw_register_runtime(symbol, ctypes.cast(callback, _P))
    for symbol, address in _libraries_of_tvm(text).items():
        engine.raw_register_runtime(symbol, _P(address))
    engine.cutesync = calls, symbols
    return engine


def _host_arrays(session: Session) -> None:
    """NumPy arrays that become tensors of the DSL are memory that kernels may access."""
    from cutlass.cute import runtime

    tensor: Any = runtime._Tensor
    plain = tensor.__init__

    def init(self: Any, array: Any, *arguments: Any, **named: Any) -> None:
        plain(self, array, *arguments, **named)
        if isinstance(array, np.ndarray) and array.size and not heap.holds(array.ctypes.data):
            session.note(f"NumPy array at {caller()}: used in place; a GPU cannot access it")
            while isinstance(array.base, np.ndarray):
                array = array.base
            low, high = np.lib.array_utils.byte_bounds(array)
            DEVICE.register(low, high - low, f"array {array.dtype}{list(array.shape)}", owner=array)

    tensor.__init__ = init


# --- tvm-ffi ----------------------------------------------------------------------------------------------------------


def _runtime_of_tvm(calls: HostCalls) -> dict[str, Any]:
    """What the DSL's own runtime library answers for functions of tvm-ffi."""
    loaded: set[int] = set()

    def load(state: int, init: int, load_to_device: int, raise_error: int) -> int:
        if state in loaded:
            return 0
        library = _P()
        error = ctypes.CFUNCTYPE(_I, _P)(init)(ctypes.addressof(library))
        error = error or ctypes.CFUNCTYPE(_I, _P, _I)(load_to_device)(ctypes.addressof(library), 0)
        if error:
            return error
        loaded.add(state)
        return 0

    name = ctypes.create_string_buffer(b"an error of the emulated driver")

    def raised(detail: Any, code: int) -> None:
        """Functions of tvm-ffi ask for this after a call that failed."""
        text = str(calls.failure or f"CUDA error {code}").encode()
        set_error = _tvm_library().TVMFFIErrorSetRaisedFromCStr
        set_error(b"RuntimeError", text)

    void = None
    return {
        "cuda_dialect_init_library_once": ctypes.CFUNCTYPE(_I, _P, _P, _P, _P)(load),
        "cuda_dialect_unload_library_once": ctypes.CFUNCTYPE(void, _P)(lambda state: None),
        "cuda_dialect_get_error_name": ctypes.CFUNCTYPE(_P, _I)(lambda code: ctypes.addressof(name)),
        "CuteDSLRT_TVMFFISetRaisedCudaError": ctypes.CFUNCTYPE(void, _P, _I)(raised),
        "CuteDSLRT_TVMFFISetRaisedCudaLaunchError": ctypes.CFUNCTYPE(void, _P, _I)(raised),
    }


@functools.lru_cache(maxsize=1)
def _tvm_library() -> Any:
    from tvm_ffi import libinfo

    return ctypes.CDLL(libinfo.find_libtvm_ffi())


def _libraries_of_tvm(text: str) -> dict[str, int]:
    """The addresses of the symbols of libtvm_ffi that a module calls."""
    names = set(re.findall(r"@(TVMFFI\w+)\(", text))
    found = {}
    for name in names:
        with contextlib.suppress(AttributeError):
            found[name] = ctypes.cast(getattr(_tvm_library(), name), _P).value or 0
    return found


def _functions_of_tvm() -> None:
    """A function of tvm-ffi uses the engine that it is given."""
    try:
        import tvm_ffi
        from cutlass.cutlass_dsl import tvm_ffi_provider
    except ImportError:
        return

    def create(self: Any) -> Any:
        if self.engine is None:
            return None
        engine = self.engine
        packed = ctypes.CFUNCTYPE(None, _P)(engine.raw_lookup("__tvm_ffi_" + self.function_name))

        def call(handle: int, arguments: int, count: int, result: int) -> int:
            """Engines give functions that take an array of pointers to their arguments, the result's last."""
            cells = _P(handle), _P(arguments), ctypes.c_int32(count), _P(result), _I(0)
            packed((_P * len(cells))(*[ctypes.addressof(cell) for cell in cells]))
            return cells[-1].value

        function = ctypes.CFUNCTYPE(_I, _P, _P, ctypes.c_int32, _P)(call)
        engine.cutesync_call = function
        address = ctypes.cast(function, _P).value
        return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=engine)

    function: Any = tvm_ffi_provider.TVMFFIJitCompiledFunctionBase
    function._create_tvm_ffi_function = create


# --- exported objects -------------------------------------------------------------------------------------------------


def _exports() -> None:
    """Compiled functions may be exported. An object that is loaded holds machine code and no PTX: it is refused."""
    from cutlass.base_dsl.export import external_binary_module
    from cutlass.base_dsl.jit_executor import JitCompiledFunction
    from cutlass.cute import runtime

    compiled: Any = JitCompiledFunction
    plain = compiled.dump_to_object

    def dump(self: Any, function_prefix: str) -> bytes:
        for path in runtime.find_runtime_libraries(enable_tvm_ffi=False):  # it looks symbols up that they define
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        return plain(self, function_prefix)

    def refuse(self: Any, file_path: str, *_: Any, **__: Any) -> None:
        came, advice = f"{file_path} at {caller()}, which holds machine code", "turn caches of compiled kernels off"
        raise LaunchError(explain("an exported object", came, "kernels that this script compiles", advice))

    compiled.dump_to_object = dump
    module: Any = external_binary_module.ExternalBinaryModule
    module.__init__ = refuse


# --- benchmarks -------------------------------------------------------------------------------------------------------


def _benchmarks(session: Session) -> None:
    """Benchmarks of the DSL make one call."""
    import cutlass.cute.testing
    import cutlass.testing

    def benchmark(
        callable: Callable, *, kernel_arguments: Any = None, workspace_generator: Any = None, **_: Any
    ) -> float:
        session.note(f"benchmark at {caller()}: one call, and the time that it returns says nothing")
        given = workspace_generator() if workspace_generator is not None else kernel_arguments
        callable(*(given.args if given else ()), **(given.kwargs if given else {}))
        return 1.0

    for module in (cutlass.testing, cutlass.cute.testing):
        module.benchmark = benchmark  # type: ignore[attr-defined]
