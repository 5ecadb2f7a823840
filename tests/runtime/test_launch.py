"""What a launch tells the driver: a driver of our own stands in for libcuda and reads it back."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace

import pytest

from cutesync.dtypes import FLOAT32
from cutesync.emulator.tensor_map import decode, encode, from_encode_arguments
from cutesync.runtime import compiler, device, gpu, launch, tensor_map
from cutesync.runtime.compiler import Kernel
from cutesync.runtime.emulated import EMULATOR
from cutesync.runtime.kernel import KernelSpec, Packed, Pointer, Scalar
from cutesync.runtime.launch import Launch
from cutesync.runtime.tensor_map import TiledMap

MAP = TiledMap("bfloat16", (520, 1000, 3), (1040, 1040000), (64, 128, 1), 128)


class Driver:
    """Answers cuLaunchKernelEx, cuTensorMapEncodeTiled and cuTensorMapReplaceAddress."""

    def __init__(self) -> None:
        self.launches, self.encoded, self.moved = [], 0, 0

    def encode(self, place, kind, rank, address, *how) -> int:
        extents, strides, box, steps, interleave, swizzle, promotion, fill = how
        assert place % 64 == 0 and promotion in range(4)
        made = from_encode_arguments(
            kind,
            address,
            tuple(extents),
            tuple(strides)[: rank - 1],
            tuple(box),
            tuple(steps),
            interleave,
            swizzle,
            fill,
        )
        ctypes.memmove(place, encode(made), 128)
        self.encoded += 1
        return 0

    def move(self, place, address) -> int:
        ctypes.c_uint64.from_address(place).value = address
        self.moved += 1
        return 0

    def launch(self, config_at, function, addresses_at, extra) -> int:
        config, function = config_at._obj, function.value
        attributes = [
            struct.unpack_from("<i4x3I", ctypes.string_at(config.attributes + 72 * i, 72)) for i in range(config.count)
        ]
        parameters = [ctypes.string_at(place, size) for place, size in zip(addresses_at._obj, (128, 12, 8, 8))]
        self.launches.append(
            (tuple(config.grid), tuple(config.block), config.smem, config.stream, attributes, function, parameters)
        )
        return 0


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(gpu, "_entry", lambda: made.launch)
    monkeypatch.setattr(tensor_map, "_driver", lambda: (made.encode, made.move))
    monkeypatch.setattr(Kernel, "handle", lambda self, ordinal: 77)
    monkeypatch.setattr(compiler, "get", lambda key, build, stream: key[1])
    return made


def spec(*parameters, cluster=(1, 1, 1)) -> KernelSpec:
    """A kernel of a tensor map, 12 bytes, and two parameters more. What its compilation gives stands in its key."""
    kernel = Kernel("k", b"", "", (384, 1, 1), 229440, (), cluster)
    return KernelSpec(("k", kernel), (Packed("map", 128), Packed("extents", 12), *parameters), None)


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
def test_what_the_driver_is_told(driver, cluster):
    values = {"map": MAP, "extents": struct.pack("<3i", 1, 2, 3), "n": -5}
    kernel = spec(Scalar("n", "Int64"), Pointer("out", FLOAT32), cluster=cluster)
    made = Launch(kernel, 0, 132, values, ("map", "out"))
    for addresses, stream in (((0x1000, 0x2000), 9), ((0x1000, 0x2000), 0), ((0x5000, 0x2000), 9)):
        made.run(addresses, stream)
        grid, block, smem, told_stream, attributes, function, parameters = driver.launches[-1]
        assert (grid, block, smem, told_stream or 0, function) == ((132, 1, 1), (384, 1, 1), 229440, stream, 77)
        overlaps = (6, 1, 0, 0)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        assert attributes == ([overlaps] if cluster == (1, 1, 1) else [overlaps, (4, 2, 1, 1)])
        found = decode(parameters[0])
        assert (found.address, found.extents, found.strides, found.box, found.swizzle, found.element) == (
            addresses[0],
            MAP.extents,
            MAP.strides,
            MAP.box,
            MAP.swizzle,
            "bf16",
        )
        assert struct.unpack("<3i", parameters[1]) == (1, 2, 3)
        assert [int.from_bytes(p, "little") for p in parameters[2:]] == [2**64 - 5, addresses[1]]
    assert (driver.encoded, driver.moved) == (1, 1), "a map is encoded once, and moved when its array does"


def test_the_workspace_is_that_of_the_stream(driver):
    asked = []

    def claim(*arguments):
        asked.append(arguments)
        return SimpleNamespace(addresses=(0x100 * arguments[1], 0x10000 * arguments[1]))

    kernel = spec(Pointer("counters", FLOAT32), Pointer("scratch", FLOAT32))
    made = Launch(kernel, 0, 4, {"map": MAP}, ("map",), claim)
    for stream in (7, 8):
        made.run((0x1000,), stream)
        assert [int.from_bytes(p, "little") for p in driver.launches[-1][-1][2:]] == [0x100 * stream, 0x10000 * stream]
    assert asked == [(0, 7), (0, 8)]


def test_what_the_driver_refuses_is_said(monkeypatch):
    monkeypatch.setattr(tensor_map, "_driver", lambda: (lambda *_: 1, lambda *_: 1))
    with pytest.raises(device.LaunchError, match="cuTensorMapEncodeTiled"):
        tensor_map.encode(MAP, 0, 0x1000)
    with pytest.raises(device.LaunchError, match="multiple of 16"):
        tensor_map.move(0, 0x1008)


def test_temporaries_of_a_run_in_a_run_of_a_capture_lie_behind_its_own(monkeypatch):
    monkeypatch.setattr(type(EMULATOR), "capture", staticmethod(lambda stream: 1))
    sizes: list[int] = []

    def scratch(ordinal: int, stream: int, size: int, purpose: str) -> SimpleNamespace:
        sizes.append(size)
        return SimpleNamespace(addresses=(4096,))

    monkeypatch.setattr(launch.workspaces, "scratch", scratch)
    seen: list[tuple[int, ...]] = []

    def note(addresses: tuple[int, ...], stream: int) -> None:
        seen.append(addresses)

    inner = launch.in_turn([(note, (0, 1, 2))], (8, 300), -1)
    outer = launch.in_turn([(inner, (0,)), (note, (1,)), (inner, (1,))], (1000,), -1)
    for _ in range(2):
        outer((7,), 0)
    assert seen == [(7, 5120, 5376), (4096,), (4096, 5120, 5376)] * 2
    assert sizes == [1024, 1792, 1792] * 2
