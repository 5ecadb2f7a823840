"""Where arrays of random calls live: NumPy, cutesync's own, torch, CuPy. Each array lies in a larger piece of memory
whose rest must stay as it is."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import cutesync as cs
from cutesync.dtypes import FLOAT8, DType, element_type
from cutesync.runtime import device
from cutesync.runtime.view import contiguous_strides

ZONE = 128  # elements on each side: whole lines of memory, so that an offset of 0 is aligned to all that kernels ask


def strided(flat: np.ndarray, start: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """The elements of ``flat`` at ``start`` and on, with strides of ``steps`` elements. (``as_strided`` does not know
    float8.)"""
    return np.ndarray(shape, flat.dtype, flat, start * flat.itemsize, tuple(step * flat.itemsize for step in steps))


class Library:
    """NumPy. ``strided``: it has views of any strides; ``contiguous_only``: what most families demand of its arrays."""

    name, strided, contiguous_only, on_device = "numpy", True, False, False

    def holds(self, element: DType) -> bool:
        return True

    def memory(self, flat: np.ndarray):
        """A copy of one dimension."""
        return flat.copy()

    def view(self, memory, start: int, shape: tuple[int, ...], steps: tuple[int, ...]):
        return strided(memory, start, shape, steps)

    def numpy(self, array) -> np.ndarray:
        """What a call returned, or memory, on the host."""
        return np.asarray(array)

    def pointer(self, memory) -> int:
        return memory.ctypes.data

    def write(self, memory, flat: np.ndarray) -> None:
        memory[:] = flat

    def made(self, result) -> bool:
        """Whether a result is of this library."""
        return isinstance(result, (np.ndarray, np.generic))


class Own(Library):
    """DeviceArray."""

    name, strided, contiguous_only, on_device = "own", False, True, True

    def memory(self, flat):
        return cs.asarray(flat)

    def view(self, memory, start, shape, steps):
        count = int(np.prod(shape, dtype=np.int64))
        return memory[start : start + count].reshape(*shape) if shape else memory[start : start + 1].reshape(())

    def pointer(self, memory) -> int:
        return memory.ptr

    def write(self, memory, flat) -> None:
        flat = np.ascontiguousarray(flat)
        if memory.device == device.HOST:
            ctypes.memmove(memory.ptr, flat.ctypes.data, flat.nbytes)
        else:
            device.copy_in(memory.ptr, flat.ctypes.data, flat.nbytes, 0)
            device.synchronize(0)

    def made(self, result) -> bool:
        return isinstance(result, cs.DeviceArray)


class Torch(Library):
    name, contiguous_only, on_device = "torch", True, True

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def holds(self, element: DType) -> bool:
        return hasattr(self.torch, element.name)

    def memory(self, flat):
        return (
            self.torch.from_numpy(flat.view(np.uint8).copy())
            .cuda()
            .view(getattr(self.torch, element_type(flat.dtype).name))
        )

    def view(self, memory, start, shape, steps):
        return self.torch.as_strided(memory, shape, steps, start)

    def numpy(self, array) -> np.ndarray:
        if not isinstance(array, self.torch.Tensor):
            return np.asarray(array)
        flat = array
        if (
            array.dim() != 1 or array.stride(0) != 1
        ):  # a copy makes other bytes of a bool that is neither 0 nor 1, so memory is not copied
            flat = self.torch.empty(array.numel(), dtype=array.dtype, device=array.device).copy_(array.reshape(-1))
        raw = flat.view(self.torch.uint8).cpu().numpy()
        return raw.view(element_type(array.dtype).numpy).reshape(tuple(array.shape))

    def pointer(self, memory) -> int:
        return memory.data_ptr()

    def write(self, memory, flat) -> None:
        memory.view(self.torch.uint8).copy_(self.torch.from_numpy(flat.view(np.uint8).copy()))

    def made(self, result) -> bool:
        return isinstance(result, self.torch.Tensor)


class Cupy(Library):
    name, contiguous_only, on_device = "cupy", True, True

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def holds(self, element: DType) -> bool:
        return element.name != "bfloat16" and element.name not in FLOAT8

    def memory(self, flat):
        return self.cupy.asarray(flat)

    def view(self, memory, start, shape, steps):
        return self.cupy.lib.stride_tricks.as_strided(
            memory[start:], shape, tuple(step * memory.itemsize for step in steps)
        )

    def numpy(self, array) -> np.ndarray:
        return array.get() if isinstance(array, self.cupy.ndarray) else np.asarray(array)

    def pointer(self, memory) -> int:
        return memory.data.ptr

    def write(self, memory, flat) -> None:
        memory.set(flat)

    def made(self, result) -> bool:
        return isinstance(result, self.cupy.ndarray)


def root(array) -> str:
    return type(array).__module__.partition(".")[0]


def importable(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return name in sys.modules


@dataclass(eq=False)
class Placed:
    """An array within memory of its own; ``before`` is what that memory held, on the host."""

    library: Library
    memory: Any
    before: np.ndarray
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    array: Any

    def within(self, flat: np.ndarray) -> np.ndarray:
        """The array's elements in a copy of the memory."""
        return strided(flat, self.start, self.shape, self.steps)

    def fault(self, written: np.ndarray | None = None) -> str | None:
        """What is wrong with the memory: everything must be as before, but for the result that was ``written``."""
        wanted = self.before.copy()
        if written is not None:
            self.within(wanted)[...] = written
        now = self.library.numpy(self.memory)
        changed = np.flatnonzero((now.view(np.uint8) != wanted.view(np.uint8)).reshape(len(now), -1).any(1))
        if not len(changed):
            return None
        first, last = int(changed[0]) - self.start, int(changed[-1]) - self.start
        where = f"from {first} to {last} counted from the array of {self.shape}, strides {self.steps}"
        return f"{len(changed)} elements of memory changed that are no result, {where}"

    def refill(self, values: np.ndarray) -> None:
        """Other elements in the same memory."""
        self.within(self.before)[...] = values
        self.library.write(self.memory, self.before)


def place(
    library: Library,
    rng: np.random.Generator,
    values: np.ndarray,
    offset: int = 0,
    steps: tuple[int, ...] | None = None,
) -> Placed:
    """``values`` in memory of ``library``, ``offset`` elements past an aligned address, with strides of ``steps``
    elements (None: contiguous)."""
    steps = contiguous_strides(values.shape) if steps is None else steps
    span = 1 + sum((extent - 1) * step for extent, step in zip(values.shape, steps)) if values.size else 0
    start = ZONE + offset
    before = np.frombuffer(rng.bytes((start + span + ZONE) * values.itemsize), values.dtype).copy()
    memory = library.memory(before)
    placed = Placed(
        library, memory, before, start, values.shape, steps, library.view(memory, start, values.shape, steps)
    )
    placed.refill(values)
    return placed
