"""A prepared launch: each call updates its parameters in place and calls the driver directly.

The driver takes a kernel's parameters as an array of addresses. The parameters and this array are ctypes objects that
are made once per plan. A call writes the pointers that changed and calls ``cuLaunchKernelEx`` through ctypes; this
function takes 4 machine words where ``cuLaunchKernel`` takes 11. On an H200's host it takes 3.1 us, of which the driver
takes about 2.8; ``cuda.core.launch`` takes 6 us there.

A kernel may start while earlier work of the stream still runs (programmatic dependent launch), which hides its launch
and its prologue. Each kernel must therefore execute ``griddepcontrol.wait`` before it accesses global memory (see
``sync.overlap``).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..dtypes import BY_NAME
from ..errors import ArgumentValueError, explain
from . import backend, device_array, forks, workspace as workspaces
from .kernel import KernelSpec, Scalar, bytes_of
from .tensor_map import ALIGNMENT, TiledMap

Run = Callable[[tuple[int, ...], int], None]
"""``run(addresses, stream)`` enqueues work on arrays. The addresses are in the order of ``arrays``, which the launch
was made with."""
Value = int | float | bytes | TiledMap | None
Claim = Callable[[int, int], workspaces.Workspace]
"""``claim(ordinal, stream)`` returns a workspace. Its addresses become the parameters "counters" and "scratch"."""


class Launch:
    """A kernel with its grid (blocks, one-dimensional) and parameters on one device.

    ``values`` are the constant parameters, by name; parameters that are not given, or None, are 0. ``arrays`` names the
    parameters that each call gives: pointers and tensor maps. With ``claim`` a call also binds a workspace of its
    stream to "counters" and "scratch". ``run(addresses, stream)`` writes what changed and launches the kernel. A lock
    admits one call at a time, so threads may share a Launch.
    """

    __slots__ = ("kernel", "run")

    def __init__(
        self,
        spec: KernelSpec,
        ordinal: int,
        grid: int,
        values: Mapping[str, Value],
        arrays: Sequence[str] = ("x", "out"),
        claim: Claim | None = None,
        stream: int = 0,
    ) -> None:
        if not 0 < grid < 1 << 31:
            allowed = "fewer than 2**31 blocks"
            raise ArgumentValueError(explain("x", f"a shape that needs {grid} blocks", allowed, "work on it in pieces"))
        self.kernel = spec.kernel(stream)
        place = backend.of(ordinal)
        self.run: Run = place.launcher(self.kernel, ordinal, grid, lambda: Block(spec, values, arrays, place), claim)


class Block:
    """The parameters of a launch in one buffer. Each begins at a multiple of 64 bytes, so that tensor maps are encoded
    in place.

    ``addresses`` is the array that the driver takes. ``put(addresses, before)`` writes the addresses of the arrays;
    ``before`` are those written last, or None. A tensor map is encoded again only if its address differs.
    """

    def __init__(
        self, spec: KernelSpec, values: Mapping[str, Value], arrays: Sequence[str], place: backend.Backend
    ) -> None:
        parameters = spec.parameters
        self.sizes = sizes = [p.size for p in parameters]
        ends = list(itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
        self.buffer = ctypes.create_string_buffer(ends[-1] + ALIGNMENT)
        first = ctypes.addressof(self.buffer)
        first += -first % ALIGNMENT
        at = {p.name: first + place for p, place in zip(parameters, (0, *ends))}
        self.addresses = (ctypes.c_void_p * len(at))(*at.values())
        self._cells: list[tuple[int, ctypes.c_uint64]] = []
        self._maps: list[tuple[int, Callable[[int], None]]] = []
        for p in parameters:
            value = values.get(p.name)
            if isinstance(value, bytes):
                ctypes.memmove(at[p.name], value, len(value))
            elif value is not None and not isinstance(value, TiledMap):
                kind = p.kind if isinstance(p, Scalar) else "Uint64"
                ctypes.c_uint64.from_address(at[p.name]).value = bits(value, kind)
        for i, name in enumerate(arrays):
            tiled = values.get(name)
            if isinstance(tiled, TiledMap):
                self._maps.append((i, place.map_writer(tiled, at[name])))
            else:
                self._cells.append((i, ctypes.c_uint64.from_address(at[name])))
        self._workspace = [ctypes.c_uint64.from_address(at[name]) for name in ("counters", "scratch") if name in at]

    def put(self, addresses: tuple[int, ...], before: tuple[int, ...] | None) -> None:
        for i, cell in self._cells:
            cell.value = addresses[i]
        for i, write in self._maps:
            if before is None or before[i] != addresses[i]:
                write(addresses[i])

    def bind(self, found: workspaces.Workspace) -> None:
        for cell, address in zip(self._workspace, found.addresses):
            cell.value = address

    def packed(self) -> list[int]:
        """Return one integer per parameter, as the emulator takes them."""
        return [int.from_bytes(ctypes.string_at(at, size), "little") for at, size in zip(self.addresses, self.sizes)]


def bits(value: int | float, kind: str) -> int:
    """Return a scalar of the DSL's type ``kind`` as an integer whose low bytes are its bits. A float beyond the range
    of float32 becomes infinite, as in NumPy."""
    size = bytes_of(kind)
    if not kind.startswith(("Float", "BFloat")):
        return int(value) & ((1 << 8 * size) - 1)
    if kind == "BFloat16":  # which NumPy may not have: the upper half of a float32, rounded to even
        word = bits(value, "Float32")
        return 0x7FC0 if value != value else (word + 0x7FFF + (word >> 16 & 1)) >> 16
    if size == 4:
        return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value
    with np.errstate(over="ignore"):
        return int(np.asarray(value, f"f{size}").view(f"u{size}"))


_capturing = forks.lock(threading.RLock)
_held = [0]  # bytes of temporaries of the runs that a thread with this lock is in


def in_turn(steps: Sequence[tuple[Run, tuple[int, ...]]], temporaries: Sequence[int], ordinal: int) -> Run:
    """Return one run that performs several launches in order. Each launch comes with its arrays, as indices into one
    list: the call's own arrays, followed by the temporaries.

    ``temporaries`` are sizes in bytes. The memory is allocated and freed in stream order; in a capture, where nothing
    can be allocated, it is scratch memory that the graph keeps. A step may itself be such a run: its temporaries then
    lie behind those of the run around it.
    """
    # one launch that takes the call's own arrays as they come
    if len(steps) == 1 and not temporaries and list(steps[0][1]) == list(range(len(steps[0][1]))):
        return steps[0][0]
    kind = BY_NAME["uint8"]
    ends = list(itertools.accumulate((-(-size // 256) * 256 for size in temporaries), initial=0))

    def launch_all(places: tuple[int, ...], stream: int) -> None:
        for launch, arrays in steps:
            launch(tuple(places[i] for i in arrays), stream)

    def run(addresses: tuple[int, ...], stream: int) -> None:
        if temporaries and backend.of(ordinal).capture(stream) is not None:
            with _capturing:  # another thread's launches on this stream come before these or after
                first, _held[0] = _held[0], _held[0] + ends[-1]
                try:
                    base = first + workspaces.scratch(ordinal, stream, _held[0], "temporaries").addresses[0]
                    return launch_all((*addresses, *(base + end for end in ends[:-1])), stream)
                finally:
                    _held[0] = first
        held = [device_array.allocate((size,), kind, ordinal, stream) for size in temporaries]
        return launch_all((*addresses, *(array.ptr for array in held)), stream)

    return run


def nothing(addresses: tuple[int, ...], stream: int) -> None:
    """Launch nothing: the run of an empty result."""
