"""The CUDA calls of host code that the DSL compiled, and their answers.

The DSL's host code calls symbols such as ``_cudaLaunchKernelEx``, each a wrapper of the function of CUDA of that name.
``HostCalls`` has a callback for each symbol that one compiled module calls. Launches go to ``launched``. A module that
calls a symbol without an answer is refused before it runs.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LaunchError, explain
from . import facts, heap, limits, ptx
from .codegen import Program
from .tensor_map import encode, from_encode_arguments

_P, _I, _U, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_SUCCESS, _INVALID, _INVALID_LAUNCH, _TOO_LARGE, _NOT_SUPPORTED = 0, 1, 9, 720, 801
_COOPERATIVE_ATTRIBUTE, _CLUSTER_ATTRIBUTE, _PROGRAMMATIC_ATTRIBUTE = 2, 4, 6
MAX_SHARED, _NON_PORTABLE = 8, 14  # cudaFuncAttribute: MaxDynamicSharedMemorySize, NonPortableClusterSizeAllowed
_ATTRIBUTE_BYTES, _MAP_BYTES = 72, 128
_ABSENT = (0, 0, 0)


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
    workspace: int = 0  # of a cooperative launch: the address of what cooperative groups synchronize the grid with
    clustered: bool = False
    programmatic: bool = False
    max_cluster: int = limits.PORTABLE_CLUSTER
    max_shared: int = limits.SHARED


def calls_of(module: str) -> set[str]:
    """The CUDA symbols that a module of the DSL, given as text, calls and does not define."""
    return set(re.findall(r"llvm\.func (?:\w+ )*@(_cu\w+|cuda_dialect_assert_success)\([^\n]*(?<!\{)$", module, re.M))


def _word(place: int, value: int, kind: Any = _I) -> int:
    """Write an answer where a call's argument points."""
    kind.from_address(place).value = value
    return _SUCCESS


def _numbers(place: int, kind: Any, count: int) -> tuple[int, ...]:
    return tuple((kind * count).from_address(place))


class HostCalls:
    """Answers the calls of one compiled module, whose kernels are in the PTX ``text``."""

    def __init__(self, text: str, launched: Callable[[Launch], None], failed: Callable | None = None) -> None:
        self.text, self.launched, self.failed = text, launched, failed
        self.parsed: Any = None
        self.programs: dict[str, Program] = {}
        self.kernels: list[str] = []
        self.attributes: dict[tuple[str, int], int] = {}
        self.failure: BaseException | None = None
        self.asserted = False  # whether host code without a way to report it got an error
        self.code = _NOT_SUPPORTED  # what host code gets if the call under way fails
        self.enqueue: Callable[[Callable[[], None]], None] = lambda work: work()  # what a stream does with copies

    def callbacks(self, symbols: set[str]) -> dict[str, Any]:
        """A C function for each symbol. Raise LaunchError if there is no answer for one."""
        unknown = sorted(symbols - set(_ANSWERS))
        if unknown:
            came = f"calls of {', '.join(name.lstrip('_') for name in unknown)}"
            raise LaunchError(explain("host code", came, "CUDA calls that the emulator answers"))
        made = {}
        for symbol in symbols:
            kinds, answer = _ANSWERS[symbol]
            made[symbol] = ctypes.CFUNCTYPE(_I, *kinds)(self._guard(answer))
        return made

    def _guard(self, answer: Callable) -> Callable:
        """Exceptions cannot cross the C frames of host code: the first is kept for ``reraise``, ``failed`` gets all."""

        def run(*arguments: Any) -> int:
            try:
                self.code = _NOT_SUPPORTED
                code = answer(self, *arguments)
                return _SUCCESS if code is None else code
            except BaseException as fault:
                self.failure = self.failure or fault
                if self.failed is not None:
                    self.failed(fault)
                return self.code

        return run

    def reraise(self) -> None:
        """Raise what went wrong in a callback since the last time."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    # --- kernels and launches ---------------------------------------------------------------------------------------

    @property
    def module(self) -> Any:
        if self.parsed is None:
            self.parsed = ptx.parse(self.text)
        return self.parsed

    def program(self, name: str) -> Program:
        if name not in self.programs:
            if name not in self.module.functions:
                raise LaunchError(f"the PTX holds no kernel named {name}")
            self.programs[name] = Program(self.module.functions[name], self.module)
        return self.programs[name]

    def _load_library(self, library: int, *_: Any) -> int:
        return _word(library, 1, _P)

    def _get_kernel(self, kernel: int, library: int, name: int) -> int:
        text = ctypes.string_at(name).decode()
        if text not in self.kernels:
            self.kernels.append(text)
        return _word(kernel, self.kernels.index(text) + 1, _P)

    def _name(self, kernel: int | None) -> str:
        return self.kernels[(kernel or 1) - 1]

    def _set_attribute(self, kernel: int, attribute: int, value: int, *_: Any) -> None:
        self.set_attribute(self._name(kernel), attribute, value)

    def set_attribute(self, name: str, attribute: int, value: int) -> None:
        """Note an attribute of a kernel (cudaFuncAttribute)."""
        self.attributes[name, attribute] = value

    def _blocks(self, place: int, kernel: int, threads: int, shared: int, *_: Any) -> int:
        return _word(place, facts.blocks_of_multiprocessor(threads, shared))

    def _launch_plain(self, kernel: int, *rest: Any) -> None:
        (*extents, arguments, shared, _) = rest
        self.launch(self._name(kernel), tuple(extents[:3]), tuple(extents[3:]), shared, arguments)

    def _launch(self, config: int, kernel: int, arguments: int) -> None:
        c = _Config.from_address(config)
        given = {}
        for i in range(c.count):
            at = c.attributes + i * _ATTRIBUTE_BYTES
            given[_I.from_address(at).value] = tuple((_U * 3).from_address(at + 8))
        self.launch(self._name(kernel), tuple(c.grid), tuple(c.block), int(c.shared), arguments, given)

    def launch(
        self, name: str, grid: Any, block: Any, shared: int, arguments: int, given: dict[int, tuple] | None = None
    ) -> None:
        """Launch a kernel: ``arguments`` is the address of pointers to its parameters, ``given`` the attributes."""
        program, given = self.program(name), given or {}
        asserted, self.asserted = self.asserted, False
        if asserted:
            raise LaunchError(f"launch of {name}: a CUDA call before it failed")
        cluster = given.get(_CLUSTER_ATTRIBUTE, _ABSENT)
        portable = not self.attributes.get((name, _NON_PORTABLE))
        launch = Launch(
            program,
            grid,
            block,
            limits.padded(program.function.cluster or ()) if cluster == _ABSENT else cluster,
            shared,
            self._parameters(program, arguments),
            cooperative=bool(given.get(_COOPERATIVE_ATTRIBUTE, _ABSENT)[0]),
            clustered=cluster != _ABSENT,
            programmatic=bool(given.get(_PROGRAMMATIC_ATTRIBUTE, _ABSENT)[0]),
            max_cluster=limits.PORTABLE_CLUSTER if portable else limits.LARGEST_CLUSTER,
            max_shared=self.attributes.get((name, MAX_SHARED), limits.PLAIN_SHARED),
        )
        self.code = _TOO_LARGE if launch.cooperative else _INVALID_LAUNCH
        limits.check(launch)
        self.code = _NOT_SUPPORTED
        self.launched(launch)

    @staticmethod
    def _parameters(program: Program, arguments: int) -> bytes:
        pointers = ctypes.cast(arguments, ctypes.POINTER(_P))
        out = bytearray(program.function.param_bytes())
        for i, p in enumerate(program.function.params):
            out[p.offset : p.offset + p.size] = ctypes.string_at(pointers[i], p.size)
        return bytes(out)

    def _assert_success(self, code: int) -> None:
        """The DSL's own runtime ends the process for an error here; the emulator refuses the next launch."""
        self.asserted = self.asserted or bool(code)

    # --- devices, memory, streams and events ------------------------------------------------------------------------

    def _device_attribute(self, place: int, attribute: int, device: int) -> int:
        return _word(place, facts.attribute(attribute))

    def _zero(self, place: int, *_: Any) -> int:
        return _word(place, 0)

    def _one(self, place: int, *_: Any) -> int:
        return _word(place, 1)

    def _handle(self, place: int, *_: Any) -> int:
        """Of a stream or an event: all are one to the emulator."""
        return _word(place, 1, _P)

    def _accept(self, *_: Any) -> None:
        """Launches have ended when they return: there is nothing to wait for."""

    def _elapsed(self, place: int, *_: Any) -> int:
        ctypes.c_float.from_address(place).value = 1.0
        return _SUCCESS

    def _malloc(self, place: int, size: int, *_: Any) -> int:
        return _word(place, heap.keep(size, f"{size} bytes of cudaMalloc"), _P)

    def _free(self, address: int | None, *_: Any) -> int:
        return _SUCCESS if not address or heap.release(address) else _INVALID

    def _memcpy(self, to: int, source: int, size: int, *_: Any) -> None:
        self._write(to, ctypes.memmove, source, size)

    def _memset(self, to: int, value: int, size: int, *_: Any) -> None:
        self._write(to, ctypes.memset, value, size)

    def _write(self, to: int, write: Callable, *given: int) -> None:
        def work() -> None:
            write(to, *given)
            heap.initialised(to)

        self.enqueue(work)

    def _encode_tiled(self, place: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        dims, strides, box, steps, interleave, swizzle, _, fill = rest
        extents, steps_of = _numbers(dims, ctypes.c_uint64, rank), _numbers(steps, ctypes.c_uint32, rank)
        bytes_between = _numbers(strides, ctypes.c_uint64, rank - 1)
        sizes = extents, bytes_between, _numbers(box, ctypes.c_uint32, rank), steps_of
        made = from_encode_arguments(kind, address or 0, *sizes, interleave, swizzle, fill)
        ctypes.memmove(place, encode(made), _MAP_BYTES)
        return _SUCCESS


_C = HostCalls
_ANSWERS: dict[str, tuple[tuple, Callable]] = {
    "_cudaLaunchKernelEx": ((_P, _P, _P), _C._launch),
    "_cudaLaunchKernel": ((_P, *[_I] * 6, _P, _S, _P), _C._launch_plain),
    "_cudaLibraryLoadData": ((_P, _P, _P, _P, _I, _P, _P, _I), _C._load_library),
    "_cuLibraryLoadData": ((_P, _P, _P, _P, _I, _P, _P, _I), _C._load_library),
    "_cudaLibraryGetKernel": ((_P, _P, _P), _C._get_kernel),
    "_cuLibraryGetKernel": ((_P, _P, _P), _C._get_kernel),
    "_cudaLibraryUnload": ((_P,), _C._accept),
    "_cuLibraryUnload": ((_P,), _C._accept),
    "_cudaKernelSetAttributeForDevice": ((_P, _I, _I, _I), _C._set_attribute),
    "_cudaFuncSetAttribute": ((_P, _I, _I), _C._set_attribute),
    "_cuKernelGetAttribute": ((_P, _I, _P, _I), _C._zero),
    "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": ((_P, _P, _I, _S), _C._blocks),
    "_cuTensorMapEncodeTiled": ((_P, _I, _I, _P, _P, _P, _P, _P, _I, _I, _I, _I), _C._encode_tiled),
    "_cuDeviceGet": ((_P, _I), _C._zero),
    "_cudaGetDevice": ((_P,), _C._zero),
    "_cudaSetDevice": ((_I,), _C._accept),
    "_cudaGetDeviceCount": ((_P,), _C._one),
    "_cudaDeviceGetAttribute": ((_P, _I, _I), _C._device_attribute),
    "_cudaDeviceSynchronize": ((), _C._accept),
    "_cudaStreamCreate": ((_P,), _C._handle),
    "_cudaStreamDestroy": ((_P,), _C._accept),
    "_cudaStreamSynchronize": ((_P,), _C._accept),
    "_cudaStreamWaitEvent": ((_P, _P, _I), _C._accept),
    "_cudaEventCreate": ((_P,), _C._handle),
    "_cudaEventDestroy": ((_P,), _C._accept),
    "_cudaEventRecord": ((_P, _P), _C._accept),
    "_cudaEventElapsedTime": ((_P, _P, _P), _C._elapsed),
    "_cudaProfilerStart": ((), _C._accept),
    "_cudaProfilerStop": ((), _C._accept),
    "cuda_dialect_assert_success": ((_I,), _C._assert_success),
    "_cudaMalloc": ((_P, _S), _C._malloc),
    "_cudaMallocAsync": ((_P, _S, _P), _C._malloc),
    "_cudaFree": ((_P,), _C._free),
    "_cudaFreeAsync": ((_P, _P), _C._free),
    "_cudaMemcpy": ((_P, _P, _S, _I), _C._memcpy),
    "_cudaMemcpyAsync": ((_P, _P, _S, _I, _P), _C._memcpy),
    "_cudaMemset": ((_P, _I, _S), _C._memset),
    "_cudaMemsetAsync": ((_P, _I, _S, _P), _C._memset),
}
"""The types of the parameters of each symbol, and its answer."""
