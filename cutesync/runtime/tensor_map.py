"""Tensor maps on the host: the 128-byte operands of TMA copies, encoded by the driver, or for the emulator by its own encoder.

A kernel compiled by the DSL takes each map as a ``.param`` of 128 bytes aligned to 64, followed by the dynamic extents of the tensor that
the DSL pairs with it. So a launch needs no DSL: it encodes the maps itself, once for a shape, and writes a new address into a map
(``cuTensorMapReplaceAddress``) when an array comes from another place.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from ..errors import LaunchError, explain
from . import device

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
_PROMOTE_TO_256_BYTES = 3  # sectors that a miss brings into the L2


@dataclass(frozen=True)
class TiledMap:
    """What ``cuTensorMapEncodeTiled`` is told, but for the address. Dimension 0 is the contiguous one.

    ``element`` names the type; ``extents`` and ``box`` are in elements, ``strides`` in bytes for dimensions 1 and up, multiples of 16;
    ``swizzle`` is in bytes. Elements outside the extents are read as zero and not written.
    """

    element: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    def write(self, place: int, address: int, ordinal: int) -> None:
        """Encode the map for a tensor at ``address`` into the 128 bytes at ``place``, which is a multiple of 64."""
        rank = len(self.extents)
        steps = (1,) * rank
        if ordinal == device.HOST:
            from ..emulator.tensor_map import encode, from_encode_arguments

            described = from_encode_arguments(
                _TYPES[self.element],
                address,
                self.extents,
                self.strides,
                self.box,
                steps,
                0,
                _SWIZZLES[self.swizzle],
                0,
            )
            ctypes.memmove(place, encode(described), BYTES)
            return
        extents, strides = (ctypes.c_uint64 * rank)(*self.extents), (ctypes.c_uint64 * rank)(*self.strides)
        box, ones = (ctypes.c_uint32 * rank)(*self.box), (ctypes.c_uint32 * rank)(*steps)
        encode, _ = _driver()
        code = encode(
            place,
            _TYPES[self.element],
            rank,
            address,
            extents,
            strides,
            box,
            ones,
            0,
            _SWIZZLES[self.swizzle],
            _PROMOTE_TO_256_BYTES,
            0,
        )
        if code:
            raise LaunchError(
                explain(
                    "tensor map", f"CUDA error {code} for {self} at {address:#x}", "what cuTensorMapEncodeTiled takes"
                )
            )


def move(place: int, address: int) -> None:
    """Give the map at ``place``, made for a GPU, another address (a multiple of 16)."""
    code = _driver()[1](place, address)
    if code:
        raise LaunchError(explain("tensor map", f"CUDA error {code} for address {address:#x}", "a multiple of 16"))


@functools.lru_cache(maxsize=1)
def _driver():
    """``cuTensorMapEncodeTiled`` and ``cuTensorMapReplaceAddress``."""
    library = ctypes.CDLL("libcuda.so.1")
    encode, replace = library.cuTensorMapEncodeTiled, library.cuTensorMapReplaceAddress
    pointer, word = ctypes.c_void_p, ctypes.c_uint32
    encode.argtypes = [pointer, ctypes.c_int, word, pointer, pointer, pointer, pointer, pointer] + [ctypes.c_int] * 4
    replace.argtypes = [pointer, pointer]
    encode.restype = replace.restype = ctypes.c_int
    return encode, replace
