"""One prepared launch: its parameters lie in one block that is overwritten in place, and the driver is called directly.

The driver takes a kernel's parameters as an array of addresses. Both live in ctypes blocks made once a plan; a call writes the
pointers that changed and calls ``cuLaunchKernelEx`` through ctypes, which takes 4 machine words where ``cuLaunchKernel`` takes 11. On
an H200's host about 2.8 of the 3.1 us of that call are the driver's; ``cuda.core.launch`` takes 6 us there.

A kernel may start while what precedes it in the stream still runs (programmatic dependent launch), which hides its launch and its
preparations. So each must pass ``griddepcontrol.wait`` before it touches global memory (see ``sync.overlap``).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from . import device, forks, tensor_map
from . import workspace as workspaces
from .compiler import Kernel, compiling, refuse_while_tracing
from .tensor_map import TiledMap

_CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 4, 6  # CU_LAUNCH_ATTRIBUTE_*
_WRONG_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE: another device is current, or none


class _Config(ctypes.Structure):
    """CUlaunchConfig of the CUDA driver API."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an identifier, padding, and a value of 64 bytes, here three words."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


@functools.lru_cache(maxsize=1)
def _entry():
    """``cuLaunchKernelEx``, which is given ctypes objects: with no ints to convert, a call takes 0.1 us less."""
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.restype = ctypes.c_int
    return function


def bits(value: int | float, size: int, floating: bool) -> int:
    """A scalar parameter as the integer whose low ``size`` bytes are its bits; a float too large for float32 is infinite, as in NumPy."""
    if not floating:
        return value & ((1 << 8 * size) - 1)
    with np.errstate(over="ignore"):
        return int(np.asarray(value, f"f{size}").view(f"u{size}"))


class Launch:
    """A kernel with its grid and parameter block on one device.

    ``values`` are the parameters in order, 8 bytes each: addresses, and scalars as their bits. The first two are the input and the
    output, which every call gives anew. With ``workspace = (counters, slots)``, the positions of those two parameters, a call also
    binds the workspace of its stream, which has at least ``slots`` slots.

    ``run(x, out, stream)`` writes what changed and launches; ``run(x, out, stream, other)`` also gives the third parameter, which
    is a second output or another input. One call at a time holds the block's lock, so threads may share a Launch.
    """

    __slots__ = ("kernel", "parameters", "run")

    def __init__(
        self,
        kernel: Kernel,
        ordinal: int,
        grid: int,
        values: Sequence[int],
        workspace: tuple[int, int] | None = None,
        slots: int = 0,
    ) -> None:
        self.kernel = kernel
        self.parameters = (ctypes.c_uint64 * len(values))(*values)
        self.run = (
            self._on_emulator(grid, workspace, slots)
            if ordinal == device.HOST
            else self._on_gpu(ordinal, grid, workspace, slots)
        )

    def _on_gpu(self, ordinal: int, grid: int, workspace: tuple[int, int] | None, slots: int):
        kernel, parameters = self.kernel, self.parameters
        first = ctypes.addressof(parameters)
        addresses = (ctypes.c_void_p * len(parameters))(*(first + 8 * i for i in range(len(parameters))))
        attribute = _Attribute(_PROGRAMMATIC_SERIALIZATION, 0, (1,))
        config = _Config((grid, 1, 1), kernel.block, kernel.smem, None, ctypes.addressof(attribute), 1)
        entry, lock, handle = _entry(), forks.lock(), ctypes.c_void_p(kernel.handle(ordinal))
        config_at, addresses_at = ctypes.byref(config), ctypes.byref(addresses)
        bound = held = None

        def bind(stream: int):
            """Returns what the caller holds until the launch is enqueued; the workspace of the default stream is held as long as it is bound."""
            nonlocal bound, held
            config.stream, bound, found = stream, stream, None
            if workspace is not None:
                found = workspaces.counters_and_slots(ordinal, stream, slots)
                parameters[workspace[0]], parameters[workspace[1]] = found.addresses
            held = found if stream in device.DEFAULT else None
            return found

        def run(x: int, out: int, stream: int, other: int = 0, alive=(config, attribute, addresses)) -> None:
            if compiling[0]:
                refuse_while_tracing()
            with lock:
                parameters[0] = x
                parameters[1] = out
                if other:
                    parameters[2] = other
                if (
                    stream != bound or stream > 1
                ):  # a stream that may be capturing, or a new one with an old handle, is bound anew
                    here = bind(stream)  # noqa: F841 (see there)
                code = entry(config_at, handle, addresses_at, None)
                if code in _WRONG_CONTEXT:
                    with device.using(ordinal):
                        code = entry(config_at, handle, addresses_at, None)
            if code:
                raise device.failure(code, f"launch of {kernel.name}")

        return run

    def _on_emulator(self, grid: int, workspace: tuple[int, int] | None, slots: int):
        kernel, parameters = self.kernel, self.parameters

        def run(x: int, out: int, stream: int, other: int = 0) -> None:
            from .. import emulator

            with emulator.LOCK:  # until the launch is over nobody else gets, or gives up, this workspace
                parameters[0], parameters[1] = x, out
                if other:
                    parameters[2] = other
                if workspace is not None:
                    here = workspaces.counters_and_slots(device.HOST, stream, slots)
                    parameters[workspace[0]], parameters[workspace[1]] = here.addresses
                try:
                    emulator.launch(
                        kernel.ptx,
                        (grid, 1, 1),
                        kernel.block,
                        list(parameters),
                        cluster=kernel.cluster,
                        shared_bytes=kernel.smem,
                        programmatic=True,
                    )
                except BaseException:
                    workspaces.forget(
                        device.HOST, stream
                    )  # a launch that stopped half way leaves its counters in between
                    raise

        return run


class MapLaunch:
    """A kernel that takes tensor maps, with its grid (one-dimensional, in blocks) and parameter block on one device.

    ``parameters`` in the kernel's order: a ``TiledMap`` (128 bytes), ``bytes`` as they are, or an int of up to 8 bytes. ``arrays`` are the
    positions of those that hold an address: of a map, or an int that is one. ``run(addresses, stream)`` writes the addresses, in the
    order of ``arrays``, that differ from the last call's, and launches. One call at a time holds the block's lock. With ``workspace =
    (counters, scratch, bytes, bytes)``, the positions of two addresses and how much lies there, a call also binds memory of its stream: the
    counters are zero at first, the scratch holds anything.
    """

    __slots__ = ("kernel", "parameters", "run")

    def __init__(
        self,
        kernel: Kernel,
        ordinal: int,
        grid: int,
        parameters: Sequence[TiledMap | bytes | int],
        arrays: Sequence[int],
        workspace: tuple[int, int, int, int] | None = None,
    ) -> None:
        self.kernel = kernel
        block = _Block(parameters, ordinal)
        self.parameters = block
        self.run = (
            self._on_emulator(grid, block, arrays, workspace)
            if ordinal == device.HOST
            else self._on_gpu(ordinal, grid, block, arrays, workspace)
        )

    def _on_gpu(self, ordinal: int, grid: int, block: _Block, arrays: Sequence[int], workspace):
        kernel = self.kernel
        attributes = (_Attribute * 2)(
            _Attribute(_PROGRAMMATIC_SERIALIZATION, 0, (1,)), _Attribute(_CLUSTER_DIMENSION, 0, kernel.cluster)
        )
        config = _Config(
            (grid, 1, 1),
            kernel.block,
            kernel.smem,
            None,
            ctypes.addressof(attributes),
            2 if kernel.cluster != (1, 1, 1) else 1,
        )
        entry, lock, handle = _entry(), forks.lock(), ctypes.c_void_p(kernel.handle(ordinal))
        config_at, addresses_at = ctypes.byref(config), ctypes.byref(block.addresses)
        known: tuple[int, ...] | None = None
        bound = 0

        def run(addresses: tuple[int, ...], stream: int, alive=(config, attributes, block)) -> None:
            nonlocal known, bound
            if compiling[0]:
                refuse_while_tracing()
            with lock:
                if addresses != known:
                    for i, (position, address) in enumerate(zip(arrays, addresses)):
                        if known is None or known[i] != address:
                            block.put(position, address)
                    known = addresses
                if workspace is not None:
                    here = block.bind(workspace, stream)  # noqa: F841 (held until the launch is enqueued)
                if stream != bound:
                    config.stream = bound = stream
                code = entry(config_at, handle, addresses_at, None)
                if code in _WRONG_CONTEXT:
                    with device.using(ordinal):
                        code = entry(config_at, handle, addresses_at, None)
            if code:
                raise device.failure(code, f"launch of {kernel.name}")

        return run

    def _on_emulator(self, grid: int, block: _Block, arrays: Sequence[int], workspace):
        kernel = self.kernel

        def run(addresses: tuple[int, ...], stream: int) -> None:
            from .. import emulator

            with emulator.LOCK:  # until the launch is over nobody else gets, or gives up, this workspace
                for position, address in zip(arrays, addresses):
                    block.put(position, address)
                if workspace is not None:
                    here = block.bind(workspace, stream)  # noqa: F841
                try:
                    emulator.launch(
                        kernel.ptx,
                        (grid, 1, 1),
                        kernel.block,
                        block.packed(),
                        cluster=kernel.cluster,
                        shared_bytes=kernel.smem,
                        programmatic=True,
                    )
                except BaseException:
                    workspaces.forget(
                        device.HOST, stream
                    )  # a launch that stopped half way leaves its counters in between
                    raise

        return run


class _Block:
    """The bytes of mixed parameters: each at a multiple of 64 in one buffer, so that maps are encoded in place."""

    def __init__(self, parameters: Sequence[TiledMap | bytes | int], ordinal: int) -> None:
        self.maps = {i: p for i, p in enumerate(parameters) if isinstance(p, TiledMap)}
        self.ordinal, self.sizes, offsets, end = ordinal, [], [], 0
        for p in parameters:
            self.sizes.append(tensor_map.BYTES if isinstance(p, TiledMap) else len(p) if isinstance(p, bytes) else 8)
            offsets.append(end)
            end += -(-self.sizes[-1] // tensor_map.ALIGNMENT) * tensor_map.ALIGNMENT
        self.buffer = ctypes.create_string_buffer(end + tensor_map.ALIGNMENT)
        first = ctypes.addressof(self.buffer)
        first += -first % tensor_map.ALIGNMENT
        self.addresses = (ctypes.c_void_p * len(offsets))(*(first + offset for offset in offsets))
        for place, p in zip(self.addresses, parameters):
            if isinstance(p, bytes):
                ctypes.memmove(place, p, len(p))
            elif isinstance(p, int):
                ctypes.c_uint64.from_address(place).value = p
        self.encoded: set[int] = set()

    def put(self, position: int, address: int) -> None:
        """Write an address into a parameter: a map is encoded the first time and moved from then on."""
        place = self.addresses[position]
        if position not in self.maps:
            ctypes.c_uint64.from_address(place).value = address
        elif position in self.encoded and self.ordinal != device.HOST:
            tensor_map.move(place, address)
        else:
            self.maps[position].write(place, address, self.ordinal)
            self.encoded.add(position)

    def bind(self, workspace: tuple[int, int, int, int], stream: int) -> workspaces.Workspace:
        """Write the addresses of the workspace of a stream."""
        counters, scratch, counter_bytes, scratch_bytes = workspace
        found = workspaces.counters_and_scratch(self.ordinal, stream, counter_bytes, scratch_bytes)
        for position, address in zip((counters, scratch), found.addresses):
            self.put(position, address)
        return found

    def packed(self) -> list[int]:
        """One integer a parameter, as the emulator takes them."""
        return [
            int.from_bytes(ctypes.string_at(place, size), "little") for place, size in zip(self.addresses, self.sizes)
        ]
