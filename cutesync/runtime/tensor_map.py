"""Tensor maps on the host: the 128-byte operands of TMA copies, encoded by the driver, or on the emulator by the
emulator's encoder.

A kernel compiled by the DSL takes each map as a ``.param`` of 128 bytes aligned to 64, followed by the dynamic extents
of the tensor that the DSL pairs with it. So a launch does not need the DSL: it encodes each map once per shape, and
replaces the address in it (``cuTensorMapReplaceAddress``) when the array's address changes.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from ..errors import LaunchError, explain

BYTES, ALIGNMENT = 128, 64
_TYPES = {
    "uint8": 0,
    "int8": 0,
    "float8_e4m3fn": 0,
    "float8_e5m2": 0,
    "int32": 3,
    "float16": 6,
    "float32": 7,
    "bfloat16": 9,
    "tfloat32": 11,
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTE_TO_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B: an L2 miss loads a line (256 bytes: 3 % slower)


@dataclass(frozen=True)
class TiledMap:
    """The arguments of ``cuTensorMapEncodeTiled``, except the address. Dimension 0 is the contiguous one.

    ``element`` names the type; ``extents`` and ``box`` are in elements, ``strides`` in bytes for dimensions 1 and up,
    multiples of 16; ``swizzle`` is in bytes. Elements outside the extents are read as zero and not written.
    """

    element: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def description(self) -> tuple:
        """The element type, extents, strides, box, element strides, interleaving and swizzle, as the driver encodes
        them."""
        ones = (1,) * len(self.extents)
        return _TYPES[self.element], self.extents, self.strides, self.box, ones, 0, _SWIZZLES[self.swizzle]


def encode(tiled: TiledMap, place: int, address: int) -> None:
    """Encode the map of a tensor at ``address`` on a GPU into the 128 bytes at ``place``, a multiple of 64."""
    kind, extents, strides, box, ones, interleave, swizzle = tiled.description
    rank, long, word = len(extents), ctypes.c_uint64, ctypes.c_uint32
    sizes = (long * rank)(*extents), (long * rank)(*strides), (word * rank)(*box), (word * rank)(*ones)
    code = _driver()[0](place, kind, rank, address, *sizes, interleave, swizzle, _PROMOTE_TO_128_BYTES, 0)
    if code:
        came = f"CUDA error {code} for {tiled} at {address:#x}"
        raise LaunchError(explain("tensor map", came, "what cuTensorMapEncodeTiled takes"))


def encode_for_emulator(tiled: TiledMap, place: int, address: int) -> None:
    """Encode the map of a tensor in the emulator's memory."""
    from ..emulator.tensor_map import encode, from_encode_arguments

    kind, *rest = tiled.description
    ctypes.memmove(place, encode(from_encode_arguments(kind, address, *rest, 0)), BYTES)


def move(place: int, address: int) -> None:
    """Replace the address in the map at ``place``, which ``encode`` wrote, with another multiple of 16."""
    code = _driver()[1](place, address)
    if code:
        raise LaunchError(explain("tensor map", f"CUDA error {code} for address {address:#x}", "a multiple of 16"))


@functools.lru_cache(maxsize=1)
def _driver() -> Any:
    """Return ``cuTensorMapEncodeTiled`` and ``cuTensorMapReplaceAddress``."""
    library = ctypes.CDLL("libcuda.so.1")
    encode, replace = library.cuTensorMapEncodeTiled, library.cuTensorMapReplaceAddress
    pointer, number = ctypes.c_void_p, ctypes.c_int
    encode.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
    replace.argtypes = [pointer, pointer]
    encode.restype = replace.restype = ctypes.c_int
    return encode, replace
