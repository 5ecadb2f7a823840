"""Tensor maps (the 128-byte operands of ``cp.async.bulk.tensor``): fields, bytes, and the elements a tile touches.

PTX ISA 5.5 "Tensors" and 9.7.9.27 "Bulk copy: tensor copy". Dimension 0 is the innermost, has no stride of its own and
is contiguous.

The bytes are opaque in CUDA; the layout here is what the DSL's ``cpasync.make_tiled_tma_atom`` was observed to build,
and ``tests/emulator/test_tensor_map.py`` observes it again on every run. Where each field sits:

    bytes 0-7     global address                    bytes 32-51  extents - 1, five 32-bit words
    bytes 8-11    the control word below            bytes 52-54  element strides - 1, three bits a dimension
    bytes 12-27   four strides / 16, low 32 bits    bytes 55-59  box - 1, one byte a dimension
    bytes 28-31   four strides / 16, high nibbles   bytes 60-127 not read

    control word: bit 0 im2col mode (see ``im2col.py``); 1-3 constant 1; 4-6 rank - 1; 7-10 element type;
    11-12 interleave; 13-14 swizzle; 15 NaN fill; 16 tf32; 17-31 hints for the cache (not read)

The DSL never sets interleave, NaN fill or the types s32, s64 and f32_ftz; for those the places are this module's own
choice (``encode`` and ``decode`` agree), so that a map made from the arguments of ``cuTensorMapEncodeTiled`` travels in
the same form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentValueError, explain
from .formats import F32, TF32, require
from .wgmma import swizzle as swizzle_addresses

if TYPE_CHECKING:
    from .im2col import Im2colMap

ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz")
"""In the order of ``tensormap.replace``'s ``.elemtype``."""
API_ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz")
"""In the order of ``CUtensorMapDataType``."""
ELEMENT_BYTES = {name: {"8": 1, "16": 2, "32": 4, "64": 8}[name.split("_")[0].lstrip("usftb")] for name in ELEMENTS}
SWIZZLES = (0, 32, 64, 128)
NAN_BITS = {size: 0x7FF77FF77FF77FF7 & ((1 << 8 * size) - 1) for size in (2, 4, 8)}
CONTROL_CONSTANT = 2
IM2COL = 1
TF32_BIT, NAN_BIT = 16, 15


def wrapped(address: int) -> int:
    """An address modulo 2**64, as int64. Maps of ragged tensors start far outside of them, and their largest
    coordinates lead back by overflow."""
    return (address + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class Transfer:
    """One tile between global and shared memory, element by element, in the order of the box (dimension 0 fastest).

    ``global_addresses`` and ``shared_addresses`` are int64 byte addresses, ``in_bounds`` says which elements are
    copied, for a load those that exist in the tensor: it writes ``fill`` (raw bits) to the others, a store leaves them
    out. ``transaction_bytes`` counts all of them.
    """

    global_addresses: np.ndarray
    in_bounds: np.ndarray
    shared_addresses: np.ndarray
    element_bytes: int
    fill: int

    @property
    def transaction_bytes(self) -> int:
        return self.in_bounds.size * self.element_bytes

    def coarse(self) -> Transfer:
        """The same copy in units of 16 bytes, if all of it is in bounds and whole units are contiguous at both ends."""
        count = 16 // self.element_bytes
        first = self.global_addresses[0]
        if (
            count == 1
            or len(self.in_bounds) % count
            or not self.in_bounds.all()
            or (first | self.shared_addresses[0]) % 16
        ):
            return self
        places, stop = self.global_addresses[::count], self.global_addresses[count - 1 :: count]
        if (places & 15).any() or (stop - places != 16 - self.element_bytes).any():
            return self
        return Transfer(places, self.in_bounds[::count], self.shared_addresses[::count], 16, self.fill)


@dataclass(frozen=True)
class Tensor:
    """What maps of both modes say about the tensor. ``strides`` are in bytes, for dimensions 1 and up."""

    element: str
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element]

    @property
    def rounds(self) -> bool:
        return self.element.startswith("tf32")

    @property
    def stored_extent(self) -> int:
        """Where a row ends for a store, which writes whole multiples of 16 bytes (seen on an H200)."""
        unit = 16 // self.element_bytes
        return -(-self.extents[0] // unit) * unit

    def check_corner(self, coordinates: tuple[int, ...], store: bool = False) -> None:
        """Where a box may start. Anything else is an illegal instruction on an H200."""
        unit = 16 // self.element_bytes
        allowed = f"a multiple of {unit}: boxes start at multiples of 16 bytes"
        require(coordinates[0] % unit == 0, "tensor map inner coordinate", coordinates[0], allowed)
        allowed = "0 or more: only loads may start before the tensor"
        require(not store or min(coordinates) >= 0, "tensor map coordinates of a store", coordinates, allowed)

    def loaded(self, data: np.ndarray) -> np.ndarray:
        """Bytes of elements as a load leaves them in shared memory: tf32 is rounded, others (f32_ftz too) are copied.

        An H200 rounds to nearest even and keeps subnormals. (tf32_ftz was not measured; here it does not flush.)
        """
        if not self.rounds:
            return data
        bits = np.ascontiguousarray(data).view(np.uint32)
        rounded = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        if np.count_nonzero(magnitude > np.uint32(F32.inf_code)):
            rounded = np.where(magnitude > np.uint32(F32.inf_code), np.uint32(TF32.nan), rounded)
        return rounded.view(np.uint8)


@dataclass(frozen=True)
class TensorMap(Tensor):
    """A tiled tensor map. ``swizzle`` is in bytes (0: none)."""

    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    nan_fill: bool = False

    def __post_init__(self) -> None:
        rank = len(self.extents)
        object.__setattr__(self, "element_strides", self.element_strides or (1,) * rank)
        require(self.element in ELEMENTS, "tensor map element", repr(self.element), " ".join(ELEMENTS))
        lengths = (len(self.strides), len(self.box), len(self.element_strides))
        fine = 1 <= rank <= 5 and lengths == (rank - 1, rank, rank)
        require(fine, "tensor map rank", rank, "1 to 5, one stride less, and a box of the same rank")
        inner = self.box[0] * self.element_bytes
        strides = all(s % 16 == 0 and 0 <= s < 1 << 40 for s in self.strides)
        for what, came, fine, allowed in (
            ("address", self.address, self.address % 16 == 0, "a multiple of 16"),
            ("extents", self.extents, all(0 < e <= 1 << 32 for e in self.extents), "1 to 2**32"),
            ("strides", self.strides, strides, "multiples of 16 below 2**40"),
            ("box", self.box, all(0 < b <= 256 for b in self.box), "1 to 256"),
            ("element strides", self.element_strides, all(0 < s <= 8 for s in self.element_strides), "1 to 8"),
            ("swizzle", self.swizzle, self.swizzle in SWIZZLES, "0, 32, 64 or 128 bytes"),
            ("interleave", self.interleave, self.interleave == 0, "none: interleaved layouts are not emulated"),
            ("inner box", f"{inner} bytes", inner % 16 == 0, "a multiple of 16 bytes"),
            (
                "inner box",
                f"{inner} bytes",
                not self.swizzle or inner <= self.swizzle,
                f"at most the {self.swizzle} bytes of its swizzle",
            ),
        ):
            require(fine, f"tensor map {what}", came, allowed)

    @property
    def tile(self) -> tuple[int, ...]:
        """Elements of the box in shared memory: a strided dimension keeps every n-th. Dimension 0 is never strided."""
        return (self.box[0], *(-(-b // s) for b, s in zip(self.box[1:], self.element_strides[1:], strict=True)))

    @property
    def fill(self) -> int:
        return NAN_BITS[self.element_bytes] if self.nan_fill and self.element[0] in "ftb" else 0

    def transfer(self, coordinates: tuple[int, ...], shared_address: int, *, store: bool = False) -> Transfer:
        """What a copy of the box at ``coordinates`` (dimension 0 first) to or from ``shared_address`` touches.

        Only loads may have negative coordinates. In shared memory the box is dense, but with a swizzle its innermost
        rows are as long as the swizzle.
        """
        fine = len(coordinates) == self.rank
        require(fine, "tensor coordinates", len(coordinates), f"{self.rank}, the rank of the map")
        require(shared_address % 128 == 0, "tensor map shared address", hex(shared_address), "a multiple of 128")
        self.check_corner(coordinates, store)
        relative, shared_offsets = _box_offsets(self)
        pitches = (self.element_bytes, *self.strides)
        origin = wrapped(self.address + sum(c * p for c, p in zip(coordinates, pitches, strict=True)))
        in_bounds = np.ones(self.tile, bool)
        extents = (self.stored_extent, *self.extents[1:]) if store else self.extents
        for dimension, (start, extent, step) in enumerate(zip(coordinates, extents, self._steps, strict=True)):
            index = start + step * np.arange(self.tile[dimension], dtype=np.int64)
            exists = (index >= 0) & (index < extent)
            if not exists.all():
                in_bounds &= exists.reshape([-1 if d == dimension else 1 for d in range(self.rank)])
        shared = swizzle_addresses(shared_offsets + shared_address, self.swizzle)
        return Transfer(relative + origin, in_bounds.ravel(order="F"), shared, self.element_bytes, self.fill)

    @property
    def _steps(self) -> tuple[int, ...]:
        return (1, *self.element_strides[1:])


@lru_cache(maxsize=256)
def _box_offsets(tensor_map: TensorMap) -> tuple[np.ndarray, np.ndarray]:
    """Byte offsets of the box's elements: in global memory from the first one, in shared memory before swizzling."""
    index = np.indices(tensor_map.tile, dtype=np.int64).reshape(tensor_map.rank, *tensor_map.tile)
    size = tensor_map.element_bytes
    in_global, in_shared, pitch = np.int64(0), np.int64(0), size
    for dimension, (step, stride) in enumerate(zip(tensor_map._steps, (size, *tensor_map.strides), strict=True)):
        in_global = in_global + index[dimension] * (step * stride)
        in_shared = in_shared + index[dimension] * pitch
        pitch = (
            (tensor_map.swizzle or tensor_map.tile[0] * size) if dimension == 0 else pitch * tensor_map.tile[dimension]
        )
    return in_global.ravel(order="F"), in_shared.ravel(order="F")


def from_encode_arguments(
    data_type: int,
    address: int,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    element_strides: tuple[int, ...],
    *modes: int,
) -> TensorMap:
    """A map from the arguments of ``cuTensorMapEncodeTiled``, enumerations as integers.

    ``modes`` are interleave, swizzle and out-of-bounds fill; the cache hint (L2 promotion) is left out.
    """
    interleave, swizzle, fill = modes
    fine = 0 <= data_type < len(API_ELEMENTS) and 0 <= swizzle < len(SWIZZLES)
    require(fine, "tensor map", f"data type {data_type}, swizzle {swizzle}", "those of sm_90")
    element, swizzle_bytes = API_ELEMENTS[data_type], SWIZZLES[swizzle]
    return TensorMap(element, address, extents, strides, box, element_strides, interleave, swizzle_bytes, bool(fill))


# --- bytes ------------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> TensorMap | Im2colMap:
    """The map in (at least the first 64 of) its 128 bytes."""
    require(len(data) >= 64, "tensor map", f"{len(data)} bytes", "128 bytes")
    address, control, *words = struct.unpack_from("<QI4II5I", data)
    low, high, extents = words[:4], words[4], words[5:]
    rank = ((control >> 4) & 7) + 1
    code = (control >> 7) & 15
    im2col = control & IM2COL
    constant = CONTROL_CONSTANT if control & CONTROL_CONSTANT else 0  # none in a map that a kernel makes from zeros
    fine = control & 15 == constant | im2col and rank <= 5 and code < ELEMENTS.index("tf32")
    came, advice = f"control word {control:#x}", "check the kernel's parameters"
    require(fine, "tensor map", came, "a map built for sm_90", advice)
    element = ELEMENTS[code]
    if (control >> TF32_BIT) & 1:
        element = {"f32": "tf32", "f32_ftz": "tf32_ftz"}[element]
    strides = [(low[i] | ((high >> (4 * i)) & 15) << 32) << 4 for i in range(rank - 1)]
    steps = int.from_bytes(data[52:55], "little")
    box = (data[55] + 1, *(1,) * (rank - 1)) if im2col else tuple(b + 1 for b in data[55 : 55 + rank])
    found = TensorMap(
        element,
        address,
        tuple(e + 1 for e in extents[:rank]),
        tuple(strides),
        box,
        tuple(((steps >> (3 * i)) & 7) + 1 for i in range(rank)),
        (control >> 11) & 3,
        SWIZZLES[(control >> 13) & 3],
        bool((control >> NAN_BIT) & 1),
    )
    if not im2col:
        return found
    from .im2col import decode_im2col

    return decode_im2col(data, found)


def encode(tensor_map: TensorMap) -> bytes:
    """128 bytes that ``decode`` reads back; those of the DSL but for its cache hints."""
    element = tensor_map.element
    code = ELEMENTS.index(element.replace("tf32", "f32"))
    control = CONTROL_CONSTANT | (tensor_map.rank - 1) << 4 | code << 7 | SWIZZLES.index(tensor_map.swizzle) << 13
    control |= int(tensor_map.nan_fill) << NAN_BIT | int(element.startswith("tf32")) << TF32_BIT
    units = [s >> 4 for s in tensor_map.strides] + [0] * (5 - tensor_map.rank)
    high = sum((u >> 32) << (4 * i) for i, u in enumerate(units))
    extents = [e - 1 for e in tensor_map.extents] + [0] * (5 - tensor_map.rank)
    steps = sum((s - 1) << (3 * i) for i, s in enumerate(tensor_map.element_strides))
    head = struct.pack("<QI4II5I", tensor_map.address, control, *(u & 0xFFFFFFFF for u in units), high, *extents)
    return (head + steps.to_bytes(3, "little") + bytes(b - 1 for b in tensor_map.box)).ljust(128, b"\0")


def replace_field(data: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """``tensormap.replace.tile.<field>`` (PTX ISA 9.7.9.26): new bytes. ``value``: rank - 1, or a mode's number."""
    if not data[8] & CONTROL_CONSTANT:
        return _with_bits(bytearray(data), field, value, ordinal)
    old = decode(data)
    if not isinstance(old, TensorMap):
        raise ArgumentValueError(explain("tensormap.replace", "an im2col map", "a tiled map"))

    def at(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(value if i == ordinal else v for i, v in enumerate(values))

    changes: dict[str, Callable[[], dict[str, Any]]] = {
        "global_address": lambda: {"address": value},
        "global_dim": lambda: {"extents": at(old.extents)},
        "global_stride": lambda: {"strides": at(old.strides)},
        "box_dim": lambda: {"box": at(old.box)},
        "element_stride": lambda: {"element_strides": at(old.element_strides)},
        "elemtype": lambda: {"element": ELEMENTS[value]},
        "swizzle_mode": lambda: {"swizzle": SWIZZLES[value]},
        "interleave_layout": lambda: {"interleave": value},
        "fill_mode": lambda: {"nan_fill": bool(value)},
        "rank": lambda: _with_rank(old, value + 1),
    }
    require(field in changes, "tensormap.replace", repr(field), " ".join(changes))
    return encode(replace(old, **changes[field]()))


def _with_bits(data: bytearray, field: str, value: int, ordinal: int) -> bytes:
    """One field of a map that a kernel makes from zeros: only its use by a copy says whether it is a right one."""
    control = int.from_bytes(data[8:12], "little")
    modes = {"rank": (4, 7), "elemtype": (7, 15), "interleave_layout": (11, 3), "swizzle_mode": (13, 3)}
    if field == "global_address":
        struct.pack_into("<Q", data, 0, value)
    elif field == "global_stride":
        (high,) = struct.unpack_from("<I", data, 28)
        struct.pack_into("<I", data, 12 + 4 * ordinal, value >> 4 & 0xFFFFFFFF)
        struct.pack_into("<I", data, 28, high & ~(15 << 4 * ordinal) | (value >> 36 & 15) << 4 * ordinal)
    elif field == "global_dim":
        struct.pack_into("<I", data, 32 + 4 * ordinal, value - 1 & 0xFFFFFFFF)
    elif field == "element_stride":
        steps = int.from_bytes(data[52:55], "little") & ~(7 << 3 * ordinal) | (value - 1 & 7) << 3 * ordinal
        data[52:55] = steps.to_bytes(3, "little")
    elif field == "box_dim":
        data[55 + ordinal] = value - 1 & 255
    else:
        tf32 = field == "elemtype" and ELEMENTS[value].startswith("tf32")
        value = ELEMENTS.index(ELEMENTS[value].replace("tf32", "f32")) if tf32 else value
        shift, mask = modes.get(field, (NAN_BIT, 1))
        control = control & ~(mask << shift) | (value & mask) << shift
        control = control | 1 << TF32_BIT if tf32 else control
        data[8:12] = control.to_bytes(4, "little")
    return bytes(data)


def _with_rank(old: TensorMap, rank: int) -> dict[str, tuple[int, ...]]:
    def fit(values: tuple[int, ...], length: int, filler: int) -> tuple[int, ...]:
        return (values + (filler,) * length)[:length]

    return {
        "extents": fit(old.extents, rank, 1),
        "strides": fit(old.strides, rank - 1, 0),
        "box": fit(old.box, rank, 1),
        "element_strides": fit(old.element_strides, rank, 1),
    }
