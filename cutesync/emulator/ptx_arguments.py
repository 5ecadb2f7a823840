"""Arguments of ``check_ptx``: Python values as the bytes of kernel parameters."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, explain
from .check import Memory
from .formats import require
from .tensor_map import ELEMENT_BYTES, TensorMap, encode

_FLOATS = {2: "e", 4: "f", 8: "d"}
_MAP_BYTES, _MAP_ALIGNMENT, _POINTER = 128, 64, 8
_ELEMENTS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64"}


@dataclass(frozen=True, eq=False)
class TiledMap:
    """A tensor map (``CUtensorMap``) of an array, as ``cuTensorMapEncodeTiled`` makes it: an argument of ``check_ptx``.

    ``array``: of any library, with up to five axes, the last one contiguous, the strides of the others multiples of 16
    bytes, at an address that is one. ``box``: how many elements of each axis a copy moves, in the order of the array's
    axes (the last is dimension 0 of CUDA). ``swizzle``: 0, 32, 64 or 128 bytes. ``element``: the type's name in PTX
    ("tf32", "bf16") where the array's own does not say it. ``element_strides``: as the box; ``nan_fill``: what lies
    outside of the array is read as NaN instead of zero.

    A parameter of 128 bytes is the map itself, one of 8 bytes a pointer to it in global memory. The array may be
    reached by the map alone. ArgumentValueError says what a map cannot have.
    """

    array: Any
    box: tuple[int, ...]
    swizzle: int = 0
    element: str = ""
    element_strides: tuple[int, ...] = ()
    nan_fill: bool = False

    def encoded(self, memory: Memory, name: str) -> bytes:
        view = memory.view(self.array, name)
        size, steps = view.dtype.size, view.steps
        contiguous = bool(steps) and (steps[-1] == 1 or view.shape[-1] == 1)
        require(contiguous, f"{name}: the array of a tensor map", f"strides {steps}", "a contiguous last axis")
        element = self.element or _ELEMENTS.get(view.dtype.name, f"u{8 * size}")
        require(ELEMENT_BYTES.get(element) == size, f"{name}: element", repr(element), f"one of {size} bytes")
        strides = tuple(size * step for step in steps[-2::-1])
        box, each = tuple(self.box)[::-1], tuple(self.element_strides)[::-1]
        made = TensorMap(element, view.ptr, view.shape[::-1], strides, box, each, 0, self.swizzle, self.nan_fill)
        return encode(made)


def packed(value: Any, size: int, memory: Memory, name: str) -> bytes:
    """The bytes of one parameter of ``size`` bytes."""
    if isinstance(value, (tuple, list)):
        data = _structure(value, memory, name)[0]
    elif isinstance(value, float) and not isinstance(value, np.generic):
        if size not in _FLOATS:
            raise ArgumentTypeError(explain(name, "a float", f"{size} bytes", "give its bytes"))
        data = struct.pack("<" + _FLOATS[size], value)
    elif isinstance(value, int) and not isinstance(value, np.generic):
        data = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    elif isinstance(value, TiledMap) and size == _POINTER:
        data = _in_memory(value.encoded(memory, name), memory).to_bytes(_POINTER, "little")
    else:
        data = _member(value, memory, name)[0]
    if len(data) != size:
        raise ArgumentTypeError(explain(name, f"{len(data)} bytes ({value!r:.40})", f"{size} bytes"))
    return data


def _structure(members: Any, memory: Memory, name: str) -> tuple[bytes, int]:
    """The bytes and the alignment of a structure: each member at a multiple of its alignment, as in C."""
    data, widest = bytearray(), 1
    for i, member in enumerate(members):
        part, alignment = _member(member, memory, f"{name}[{i}]")
        data += bytes(-len(data) % alignment) + part
        widest = max(widest, alignment)
    return bytes(data) + bytes(-len(data) % widest), widest


def _member(value: Any, memory: Memory, name: str) -> tuple[bytes, int]:
    """The bytes and the alignment of a value whose type says its width."""
    if isinstance(value, (tuple, list)):
        return _structure(value, memory, name)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value), 1
    if isinstance(value, np.generic):
        return value.tobytes(), value.dtype.alignment
    if isinstance(value, (int, float)):
        raise ArgumentTypeError(explain(name, repr(value), "a NumPy scalar in a structure", "its width is not known"))
    if isinstance(value, TiledMap):
        return value.encoded(memory, name), _MAP_ALIGNMENT
    address = 0 if value is None else memory.view(value, name).ptr
    return address.to_bytes(_POINTER, "little"), _POINTER


def _in_memory(data: bytes, memory: Memory) -> int:
    """The address of a copy of a tensor map in global memory."""
    room = np.zeros(2 * _MAP_BYTES, np.uint8)
    start = -room.ctypes.data % _MAP_BYTES
    room[start : start + _MAP_BYTES] = np.frombuffer(data, np.uint8)
    memory.arrays.append(room)
    return room.ctypes.data + start
