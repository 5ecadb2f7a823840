"""Runs a case on the whole emulator: PTX reader, generated code, memory, asynchronous copies, barriers."""

import struct
from dataclasses import replace

import numpy as np

from cutesync.emulator import ptx
from cutesync.emulator.codegen import Program
from cutesync.emulator.driver import Launch
from cutesync.emulator.im2col import Im2colMap, encode_im2col
from cutesync.emulator.run import Device, Settings, run_launch
from cutesync.emulator.tensor_map import encode

from .case import Case, MapOf


def run(case: Case, settings: Settings | None = None) -> np.ndarray:
    """The case's output array as the emulator leaves it."""
    module = ptx.parse(case.ptx)
    program = Program(module.functions["litmus"], module)
    arrays = {place: _aligned(a) for place, a in enumerate(case.arguments) if isinstance(a, np.ndarray)}
    parameters = bytearray(program.function.param_bytes())
    for place, (slot, argument) in enumerate(zip(program.function.params, case.arguments, strict=True)):
        data = _bytes(argument, arrays.get(place), arrays)
        parameters[slot.offset : slot.offset + len(data)] = data
    device = Device()
    extents = (case.grid, 1, 1), (case.block, 1, 1), program.function.cluster or (1, 1, 1)
    launch = Launch(program, *extents, case.shared_bytes, bytes(parameters))
    with device.arrays(*arrays.values()):
        run_launch(launch, device, settings or Settings())
    return arrays[case.output]


class Emulator:
    """Stands in for ``device.Device`` in the command line."""

    name = "the emulator"

    def run(self, case: Case) -> np.ndarray:
        return run(case)

    def alive(self) -> bool:
        return True


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 256 bytes, as a GPU allocates."""
    room = np.zeros(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _bytes(argument, array: np.ndarray | None, arrays: dict[int, np.ndarray]) -> bytes:
    if isinstance(argument, MapOf):
        m = argument.tensor_map
        placed = replace(m, address=arrays[argument.argument].ctypes.data + m.address)
        return encode_im2col(placed) if isinstance(m, Im2colMap) else encode(placed)
    if array is not None:
        return struct.pack("<Q", array.ctypes.data)
    return struct.pack("<Q", argument)
