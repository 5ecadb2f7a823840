"""Reduction across the threads of a block, in thread order, for any associative operator.

Every warp folds its lanes by shuffles, lane 0 of each warp leaves its state in shared memory, and after one barrier warp 0 folds
those. Shared memory: one state and one flag a warp. The method is that of ``cub::BlockReduce`` with
``BLOCK_REDUCE_WARP_REDUCTIONS``, made order-keeping.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32
from cutlass.memory import SmemAllocator

from ..warp import LANES, reduce_states, reduce_valid
from .edges import block_threads
from .operators import block_shape, element_dtype, register_of, scalar_operator


def state_array(types, count: int):
    """Shared memory for ``count`` states: one tensor of ``count`` elements a member. Call at the top of a kernel."""
    allocator = SmemAllocator()
    return tuple(cute.make_tensor(allocator.allocate_array(t, count), cute.make_layout((count,))) for t in types)


def state_bytes(types, count: int) -> int:
    """Upper bound of the shared memory that ``state_array`` takes."""
    return sum(t.width // 8 * count + 16 for t in types)


def put(members, i, state) -> None:
    """Store a state at position ``i`` of a state array (shared or global memory)."""
    for member, value in zip(members, state):
        member[i] = value


def get(members, i, types):
    """Load the state at position ``i`` of a state array. A tensor forgets whether its integers are signed: ``types`` says it."""
    return tuple(t(member[i]) for t, member in zip(types, members))


def fold_storage(types, warps: int):
    """Shared memory for ``fold_warps``: a state and a flag a warp. Reuse needs a block barrier between."""
    return state_array((*types, Int32), warps)


def fold_storage_bytes(types, warps: int) -> int:
    """Upper bound of the bytes ``fold_storage`` takes."""
    return state_bytes((*types, Int32), warps)


@cute.jit
def fold_warps(state, valid: Boolean, combine: cutlass.Constexpr, storage, thread: Int32):
    """Fold one state a warp (the same in all its lanes) over the block. The warps with ``valid`` set come first; the operator sees
    only theirs. Thread 0 gets ``(any valid, state)``; one block barrier inside."""
    lane = thread % LANES
    warp = thread // LANES
    warps = cute.size(storage[0])
    if lane == 0:
        put(storage, warp, (*state, Int32(valid)))
    cute.arch.sync_threads()
    count = Int32(0)
    if warp == 0:
        slot = cutlass.min(lane, warps - 1)
        *loaded, flag = get(storage, slot, (*(type(value) for value in state), Int32))
        count = cute.arch.popc(cute.arch.vote_ballot_sync((flag != 0) & (lane < warps)))
        state = reduce_valid(tuple(loaded), count, combine, lane)
    return count > 0, state


@cute.jit
def fold_threads(state, valid: Boolean, combine: cutlass.Constexpr, storage, thread: Int32):
    """As ``fold_warps`` for one state a thread; the threads with ``valid`` set come first."""
    count = cute.arch.popc(cute.arch.vote_ballot_sync(valid))
    state = reduce_valid(state, count, combine, thread % LANES)
    return fold_warps(state, count > 0, combine, storage, thread)


class Reduce:
    """Block-wide reduction for your own kernels, in the manner of ``cub::BlockReduce``.

    ``dtype`` is a DSL class (``cutlass.Float32``), ``block_dim`` the block's shape (threads in row-major rank order, a multiple of
    32 in all). Make one at the top of the kernel: it allocates its shared memory then.

    >>> total = block.Reduce(cutlass.Float32, block_dim=(256, 1, 1))(value, "add")   # valid in thread 0
    """

    def __init__(self, dtype, block_dim=(256, 1, 1)) -> None:
        element_dtype(dtype)
        block_dim = (*block_shape(block_dim), 1, 1)[:3]
        self.dtype, self.block_dim = dtype, block_dim
        self._storage = fold_storage((dtype,), block_threads(block_dim) // LANES)

    def __call__(self, value, op="add"):
        """The fold of every thread's ``value`` in thread order: in thread 0; other threads get an undefined value.

        ``op`` is a name or an associative callable. A second call on the same object needs ``cute.arch.sync_threads()`` before it.
        """
        fn = scalar_operator(op, self.dtype)

        def combine(a, b):
            return (fn(a[0], b[0]),)

        x, y, z = cute.arch.thread_idx()
        thread = x + self.block_dim[0] * (y + self.block_dim[1] * z)
        state = reduce_states((register_of(value, self.dtype, "value"),), combine, thread % LANES)
        return fold_warps(state, Boolean(True), combine, self._storage, thread)[1][0]
