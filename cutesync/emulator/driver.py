"""Runs a compiled cute function's own host code without a driver: its CUDA calls are answered here.

The DSL's host entry computes grids and packs parameters. The engine that runs it loads no shared library; each CUDA
symbol it needs is a callback. ``Executable`` is one compiled function made runnable: it records the launches of a call,
which then run in order. No other module of the project touches ``cutlass._mlir``.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

from ..errors import LaunchError
from . import limits, ptx
from .codegen import Program

_P, _I, _U, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_SUCCESS, _NOT_SUPPORTED = 0, 801
_COOPERATIVE_ATTRIBUTE, _CLUSTER_ATTRIBUTE, _PROGRAMMATIC_ATTRIBUTE = 2, 4, 6
_MAX_SHARED, _NON_PORTABLE = 8, 14  # cudaFuncAttribute: MaxDynamicSharedMemorySize, NonPortableClusterSizeAllowed
_ATTRIBUTE_BYTES = 72
_ABSENT = (0, 0, 0)
_ATTRIBUTES = {
    1: 1024,
    10: 32,
    16: 132,
    39: 2048,
    75: 9,
    76: 0,
    8: 49152,
    81: limits.SHARED_OF_SM,
    95: 1,
    97: limits.SHARED,
}


class _Config(ctypes.Structure):
    """The public layout of cudaLaunchConfig_t."""

    _fields_ = [("grid", _U * 3), ("block", _U * 3), ("shared", _S), ("stream", _P), ("attributes", _P), ("count", _U)]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: kernel, extents, dynamic shared memory, the bytes of the parameters, and launch attributes.

    ``cooperative``: all blocks are resident at once. ``clustered``: the launch has the cluster attribute, perhaps of
    one block. ``programmatic``: it may start before the launch before it in its stream has ended. ``max_cluster`` and
    ``max_shared`` are what the kernel's attributes allow.
    """

    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes
    cooperative: bool = False
    clustered: bool = False
    programmatic: bool = False
    max_cluster: int = limits.PORTABLE_CLUSTER
    max_shared: int = limits.SHARED


def _answer(value: int, kind=_I):
    """A callback that writes ``value`` where its first argument points."""

    def callback(place, *_) -> int:
        ctypes.cast(place, ctypes.POINTER(kind))[0] = value
        return _SUCCESS

    return callback


class Executable:
    """One compiled cute function. ``record(packed)`` runs its host code and returns the launches it made."""

    def __init__(self, compiled):
        self.text = getattr(compiled, "__ptx__", None)
        if not self.text or compiled.ir_module is None:
            raise LaunchError(
                "the emulator needs the PTX and the host module of a kernel: compile it with the option --keep-ptx"
            )
        self.compiled = compiled
        self.module = ptx.parse(self.text)
        self.programs: dict[str, Program] = {}
        self.kernels: list[str] = []
        self.attributes: dict[tuple[int, int], int] = {}
        self.launches: list[Launch] = []
        self.failure: BaseException | None = None
        self.callbacks = self._callbacks()
        self.entry = self._engine()

    def program(self, name: str) -> Program:
        if name not in self.programs:
            if name not in self.module.functions:
                raise LaunchError(f"the PTX holds no kernel named {name}")
            self.programs[name] = Program(self.module.functions[name], self.module)
        return self.programs[name]

    def _engine(self):
        from cutlass._mlir.execution_engine import ExecutionEngine

        compiled = self.compiled
        self.engine = ExecutionEngine(compiled.ir_module, opt_level=2, shared_libs=[])
        for symbol, callback in self.callbacks.items():
            self.engine.raw_register_runtime(symbol, ctypes.cast(callback, _P))
        self._load_library()
        address = self.engine.raw_lookup("_mlir_ciface_" + compiled.function_name)
        if not address:
            raise LaunchError(f"the compiled module has no entry {compiled.function_name}")
        return ctypes.CFUNCTYPE(None, _P)(address)

    def _load_library(self) -> None:
        """Let the module fetch its kernel handles, as it would from a driver."""
        library, device, error = _P(), _I(0), _I(0)
        library_at = ctypes.pointer(library)
        for name, values in (("cuda_init", (library_at, error)), ("cuda_load_to_device", (library_at, device, error))):
            address = self.engine.raw_lookup(name)
            if not address:
                continue
            cells = [ctypes.pointer(v) for v in values]
            packed = (_P * len(cells))(*[ctypes.cast(c, _P) for c in cells])
            ctypes.CFUNCTYPE(_I, _P)(address)(packed)

    def record(self, packed, edit=None) -> list[Launch]:
        """Run the host code with its packed arguments and return its launches.

        ``packed`` holds pointers to the values, the last one to the result. ``edit`` changes the PTX of these launches
        first: tests plant faults with it.
        """
        self.launches, self.failure = [], None
        original = self.module, self.programs
        if edit is not None:
            self.module, self.programs = ptx.parse(edit(self.text)), {}
        try:
            self.entry(packed)
        finally:
            self.module, self.programs = original
        if self.failure is not None:
            raise self.failure
        return self.launches

    # --- the CUDA runtime, as far as host code calls it ---------------------------------------------------------------

    def _callbacks(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "_cudaLaunchKernelEx": ctypes.CFUNCTYPE(_I, _P, _P, _P)(self._guard(self._launch)),
            "_cudaLibraryLoadData": ctypes.CFUNCTYPE(_I, _P, _P, _P, _P, _I, _P, _P, _I)(_answer(1, _P)),
            "_cudaLibraryGetKernel": ctypes.CFUNCTYPE(_I, _P, _P, _P)(self._get_kernel),
            "_cudaGetDevice": ctypes.CFUNCTYPE(_I, _P)(_answer(0)),
            "_cudaDeviceGetAttribute": ctypes.CFUNCTYPE(_I, _P, _I, _I)(self._device_attribute),
            "_cudaKernelSetAttributeForDevice": ctypes.CFUNCTYPE(_I, _P, _I, _I, _I)(self._set_attribute),
            "_cudaFuncSetAttribute": ctypes.CFUNCTYPE(_I, _P, _I, _I)(self._set_attribute),
            "_cuKernelGetAttribute": ctypes.CFUNCTYPE(_I, _P, _I, _P, _I)(_answer(0)),
            "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": ctypes.CFUNCTYPE(_I, _P, _P, _I, _S)(_answer(1)),
        }
        accept = ctypes.CFUNCTYPE(_I)(lambda: _SUCCESS)
        refuse = ctypes.CFUNCTYPE(_I)(lambda: _NOT_SUPPORTED)
        declared = set(re.findall(r"llvm\.func @(_cu\w+)\(", str(self.compiled.ir_module)))
        for symbol in sorted(declared - set(made)):
            made[symbol] = accept if "SetAttribute" in symbol or "SetDevice" in symbol else refuse
        return made

    def _guard(self, callback):
        """Exceptions cannot cross the C frames of the host code: the first is kept for ``record``."""

        def run(*args):
            try:
                return callback(*args)
            except BaseException as fault:
                self.failure = self.failure or fault
                return _NOT_SUPPORTED

        return run

    def _launch(self, config, kernel, arguments) -> int:
        c = ctypes.cast(config, ctypes.POINTER(_Config)).contents
        program = self.program(self.kernels[(kernel or 1) - 1])
        wanted = (_CLUSTER_ATTRIBUTE, _COOPERATIVE_ATTRIBUTE, _PROGRAMMATIC_ATTRIBUTE)
        cluster, cooperative, programmatic = (self._attribute(c, attribute) for attribute in wanted)
        declared = limits.padded(program.function.cluster or ())
        launch = Launch(
            program,
            tuple(c.grid),
            tuple(c.block),
            declared if cluster == _ABSENT else cluster,
            int(c.shared),
            self._parameters(program, arguments),
            bool(cooperative[0]),
            cluster != _ABSENT,
            bool(programmatic[0]),
            max_cluster=limits.LARGEST_CLUSTER
            if self.attributes.get((kernel, _NON_PORTABLE))
            else limits.PORTABLE_CLUSTER,
            max_shared=self.attributes.get((kernel, _MAX_SHARED), limits.PLAIN_SHARED),
        )
        limits.check(launch)
        self.launches.append(launch)
        return _SUCCESS

    @staticmethod
    def _attribute(config: _Config, wanted: int) -> Any:
        """The first words of a launch attribute; zeros where it is not given."""
        for i in range(config.count):
            at = config.attributes + i * _ATTRIBUTE_BYTES
            if ctypes.c_int.from_address(at).value == wanted:
                return tuple((_U * 3).from_address(at + 8))
        return _ABSENT

    def _set_attribute(self, kernel, attribute, value, *_) -> int:
        self.attributes[kernel, attribute] = value
        return _SUCCESS

    @staticmethod
    def _parameters(program: Program, arguments) -> bytes:
        pointers = ctypes.cast(arguments, ctypes.POINTER(_P))
        out = bytearray(program.function.param_bytes())
        for i, p in enumerate(program.function.params):
            out[p.offset : p.offset + p.size] = ctypes.string_at(pointers[i], p.size)
        return bytes(out)

    def _get_kernel(self, kernel, _, name) -> int:
        text = ctypes.string_at(name).decode()
        if text not in self.kernels:
            self.kernels.append(text)
        ctypes.cast(kernel, ctypes.POINTER(_P))[0] = self.kernels.index(text) + 1
        return _SUCCESS

    @staticmethod
    def _device_attribute(value, attribute, _) -> int:
        """Device attributes of an H200 (``_ATTRIBUTES``, by cudaDeviceAttr); 0 for others."""
        ctypes.cast(value, ctypes.POINTER(_I))[0] = _ATTRIBUTES.get(attribute, 0)
        return _SUCCESS
