"""Tensor maps of im2col mode (PTX ISA 5.5.4, "Im2col mode"): a column of pixels, each with some of its channels.

The tensor is N, (D, H,) W, C with C innermost: dimension 0 is the channel, the last is the image. A *bounding box* lies
in the space of (W, H, D): from ``lower`` (included) to extent + ``upper`` (excluded). Starting at the coordinates of
the copy, ``pixels`` base positions are visited: along W by its element stride until the box ends, then the next row
from ``lower``, and so on to the next image. Each base position plus the copy's offsets is a pixel; pixels outside the
tensor are filled. Shared memory holds one row of ``channels`` a pixel.

The bytes are those of ``tensor_map``, except for bit 0 of the control word, which is set, and

    byte 55      channels - 1
    bytes 56-59  lower, then upper corners: signed fields of 16, 8 or 5 bits for one, two or three dimensions
                 (the upper ones start at byte 58)
    bytes 60-61  pixels - 1
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from .formats import require
from .tensor_map import Tensor, TensorMap, Transfer, encode, wrapped
from .wgmma import swizzle as swizzle_addresses

CORNER_BITS = {1: 16, 2: 8, 3: 5}


@dataclass(frozen=True)
class Im2colMap(Tensor):
    """``lower`` and ``upper`` are for W, H, D; ``element_strides`` as in ``TensorMap``."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    nan_fill: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "element_strides", self.element_strides or (1,) * len(self.extents))
        spatial = len(self.extents) - 2
        fine = spatial in CORNER_BITS and (len(self.lower), len(self.upper)) == (spatial, spatial)
        came = f"rank {len(self.extents)}, corners {self.lower} {self.upper}"
        require(fine, "im2col map", came, "rank 3 to 5, a corner for each of W, H, D")
        half = 1 << (CORNER_BITS[spatial] - 1)
        fine = all(-half <= corner < half for corner in self.lower + self.upper)
        require(fine, "im2col corners", (self.lower, self.upper), f"{-half} to {half - 1} at this rank")
        fine = 0 < self.channels <= 256 and 0 < self.pixels <= 1024
        came = f"{self.channels} channels, {self.pixels} pixels"
        require(fine, "im2col column", came, "at most 256 channels and 1024 pixels")
        _ = self.tiled  # its own checks

    @property
    def tiled(self) -> TensorMap:
        """The fields that both modes share, with a box of one pixel."""
        box = (self.channels, *(1,) * (len(self.extents) - 1))
        steps = self.element_strides
        return TensorMap(
            self.element, self.address, self.extents, self.strides, box, steps, 0, self.swizzle, self.nan_fill
        )

    def transfer(
        self, coordinates: tuple[int, ...], shared_address: int, offsets: tuple[int, ...] = (), *, store: bool = False
    ) -> Transfer:
        """What a copy that starts at ``coordinates`` (C, W, H, D, N) touches; ``offsets``: (W, H, D), 0 for a store."""
        fine = len(coordinates) == self.rank and len(offsets) in (0, self.rank - 2)
        allowed = f"{self.rank} coordinates and {self.rank - 2} offsets"
        require(fine, "im2col coordinates", (coordinates, offsets), allowed)
        self.check_corner(coordinates if store else coordinates[:1], store)
        positions = self._walk(coordinates[1:])
        positions[:, :-1] += np.array(offsets or (0,) * (self.rank - 2))
        channel = coordinates[0] + np.arange(self.channels)
        exists = np.logical_and.reduce((positions >= 0) & (positions < np.array(self.extents[1:])), axis=1)
        in_bounds = exists[:, None] & (
            (channel >= 0) & (channel < (self.tiled.stored_extent if store else self.extents[0]))
        )
        pixels = wrapped(self.address) + positions @ np.array(self.strides, np.int64)
        addresses = pixels[:, None] + channel * self.element_bytes
        row = self.swizzle or self.channels * self.element_bytes
        shared = (
            shared_address
            + np.arange(self.pixels, dtype=np.int64)[:, None] * row
            + np.arange(self.channels) * self.element_bytes
        )
        return Transfer(
            addresses.ravel(),
            in_bounds.ravel(),
            swizzle_addresses(shared.ravel(), self.swizzle),
            self.element_bytes,
            self.tiled.fill,
        )

    def _walk(self, start: tuple[int, ...]) -> np.ndarray:
        """The base positions (W, H, D, N), shape (pixels, rank - 1), in the order of traversal."""
        position, visited = list(start), np.empty((self.pixels, self.rank - 1), np.int64)
        for pixel in range(self.pixels):
            visited[pixel] = position
            for d, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
                position[d] += self.element_strides[1 + d]
                if position[d] < self.extents[1 + d] + high:
                    break
                position[d] = low
            else:
                position[-1] += 1
        return visited


def decode_im2col(data: bytes, m: TensorMap) -> Im2colMap:
    """The map in ``data``, whose fields of both modes have been read already."""
    spatial = m.rank - 2
    require(spatial in CORNER_BITS, "im2col map", f"rank {m.rank}", "3 to 5")
    bits = CORNER_BITS[spatial]
    lower, upper = (_signed_fields(half, bits, spatial) for half in struct.unpack_from("<HH", data, 56))
    (pixels,) = struct.unpack_from("<H", data, 60)
    return Im2colMap(
        m.element,
        m.address,
        m.extents,
        m.strides,
        lower,
        upper,
        m.box[0],
        pixels + 1,
        m.element_strides,
        m.swizzle,
        m.nan_fill,
    )


def _signed_fields(word: int, bits: int, count: int) -> tuple[int, ...]:
    raw = [(word >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]
    return tuple(v - (1 << bits) if v >> (bits - 1) else v for v in raw)


def encode_im2col(m: Im2colMap) -> bytes:
    """128 bytes that ``tensor_map.decode`` reads back."""
    data = bytearray(encode(m.tiled))
    data[8] |= 1
    bits = CORNER_BITS[m.rank - 2]
    halves = (sum((c & ((1 << bits) - 1)) << (bits * i) for i, c in enumerate(corner)) for corner in (m.lower, m.upper))
    struct.pack_into("<HHH", data, 56, *halves, m.pixels - 1)
    return bytes(data)
