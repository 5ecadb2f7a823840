"""Neighbouring items across the threads of a block: shuffles inside a warp, shared memory only where two warps meet.

Shared memory: the first and the last item of every warp. One block barrier an exchange. (CUB keeps two items a thread.)
"""

from __future__ import annotations

import cutlass
from cutlass import Float32, Int32, Uint8, cute
from cutlass.memory import SmemAllocator

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..warp import LANES
from .operators import block_shape, element_dtype


def block_threads(block_dim) -> int:
    """How many threads a block of this shape has; ArgumentValueError unless it is whole warps."""
    x, y, z = block_dim = (*block_shape(block_dim), 1, 1)[:3]
    threads = x * y * z
    if threads % LANES or not 0 < threads <= 1024:
        raise ArgumentValueError(
            explain("block_dim", f"{block_dim} ({threads} threads)", "a multiple of 32 threads, at most 1024")
        )
    return threads


def rank(block_dim):
    """This thread's row-major rank in its block, x fastest."""
    x, y, z = cute.arch.thread_idx()
    wide, high = (*block_dim, 1, 1)[:2]
    return x + wide * (y + high * z)


def stored(dtype):
    """The type whose bytes hold a ``dtype`` in memory."""
    return Uint8 if dtype is cutlass.Boolean else dtype


def allocate(dtype, count: int):
    """A shared-memory tensor of ``count`` elements. Call at the top of a kernel."""
    return cute.make_tensor(SmemAllocator().allocate_array(stored(dtype), count), cute.make_layout((count,)))


def given_or_allocated(storage, dtype, count: int):
    """``storage``, once checked, or new shared memory of ``count`` elements."""
    if storage is None:
        return allocate(dtype, count)
    if (
        storage.element_type.width != stored(dtype).width or cute.size(storage) < count
    ):  # a tensor forgets whether its integers are signed
        came = f"{cute.size(storage)} elements of {storage.element_type.__name__}"
        raise ArgumentTypeError(
            explain("storage", came, f"at least {count} elements of {stored(dtype).__name__} in shared memory")
        )
    return storage


class Fixed:
    """A collective that a kernel may use inside its loops and branches: they change nothing of it."""

    def __extract_mlir_values__(self) -> list:
        return []

    def __new_from_mlir_values__(self, values):
        return self


def registers(values, dtype):
    """A fresh register tensor of the values as ``dtype``."""
    tensor = cute.make_rmem_tensor((len(values),), stored(dtype))
    for i, value in enumerate(values):
        tensor[i] = stored(dtype)(value)
    return tensor


def shuffled(value, shuffle, *arguments):
    """A shuffle of a value of any DSL type: narrow ones travel in 32 bits, which hold them exactly."""
    kind = type(value)
    if kind.width < 32:
        value = Float32(value) if kind.is_float else Int32(value)
    return kind(type(value)(shuffle(value, *arguments)))


class Edges:
    """The exchange. ``storage`` is shared memory of ``2 * warps`` elements, allocated here unless given."""

    def __init__(self, dtype, block_dim, storage=None) -> None:
        self.dtype, self.block_dim, self.threads = dtype, block_shape(block_dim), block_threads(block_dim)
        self.storage = given_or_allocated(storage, dtype, 2 * self.threads // LANES)

    @cute.jit
    def exchange(self, first, last):
        """``(previous, following)``: the ``last`` of the thread before and the ``first`` of the thread behind this one.
        The outermost threads, which have no such neighbour, get their own argument. An argument may be None; its answer
        is then None."""
        thread = rank(self.block_dim)
        warp = thread // LANES
        lane = thread % LANES
        warps = self.threads // LANES
        storage = self.storage
        if cutlass.const_expr(last is not None):
            if lane == LANES - 1:
                storage[warp] = stored(self.dtype)(last)
        if cutlass.const_expr(first is not None):
            if lane == 0:
                storage[warps + warp] = stored(self.dtype)(first)
        cute.arch.sync_threads()
        if cutlass.const_expr(last is not None):
            last = shuffled(last, cute.arch.shuffle_sync_up, 1)
            if (lane == 0) & (warp > 0):
                last = self.dtype(storage[warp - 1])
        if cutlass.const_expr(first is not None):
            first = shuffled(first, cute.arch.shuffle_sync_down, 1)
            if (lane == LANES - 1) & (warp < warps - 1):
                first = self.dtype(storage[warps + warp + 1])
        return last, first


class Neighbours(Fixed):
    """What the collectives of neighbouring items are made with: see ``Discontinuity``, whose arguments these are."""

    def __init__(self, dtype, block_dim=(256, 1, 1), storage=None) -> None:
        self._element = element_dtype(dtype)
        self.dtype, self.block_dim = dtype, block_shape(block_dim)
        self._edges = Edges(dtype, block_dim, storage)

    @staticmethod
    def storage(dtype, block_dim=(256, 1, 1)):
        """Shared memory for one such collective, to be shared by several that use it in turn."""
        return allocate(dtype, 2 * block_threads(block_dim) // LANES)

    def _items(self, items) -> list:
        """The thread's items as values; a tensor forgets whether its integers are signed."""
        return [self.dtype(items[i]) for i in range(cute.size(items))]
