"""Reduction across the threads of a block, in thread order, for any associative operator.

Every warp reduces its lanes by shuffles, and its lane 0 stores the warp's partial in shared memory. After one barrier
warp 0 reduces the partials. Shared memory: one state and one flag a warp. The method is that of ``cub::BlockReduce``
with ``BLOCK_REDUCE_WARP_REDUCTIONS``, made order-keeping.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute
from cutlass.memory import SmemAllocator

from ..warp import LANES, Maybe, broadcast, reduce_states, reduce_valid
from .edges import Fixed, block_threads, rank
from .operators import StateType, block_shape


def state_array(types, count: int, alignment: int = 1):
    """Shared memory for ``count`` states: one tensor of ``count`` elements a member, at a multiple of ``alignment``
    bytes. Call at the top of a kernel."""
    allocator, layout = SmemAllocator(), cute.make_layout((count,))
    return tuple(cute.make_tensor(allocator.allocate_array(t, count, byte_alignment=alignment), layout) for t in types)


def state_bytes(types, count: int) -> int:
    """Upper bound of the shared memory that ``state_array`` takes."""
    return sum(t.width // 8 * count + 16 for t in types)


def put(members, i, state) -> None:
    """Store a state at position ``i`` of a state array (shared or global memory)."""
    for member, value in zip(members, state):
        member[i] = value


def get(members, i, types):
    """Load the state at position ``i`` of a state array. A tensor forgets whether its integers are signed, so ``types``
    says it."""
    return tuple(t(member[i]) for t, member in zip(types, members))


def partial_array(types, count: int):
    """Shared memory for ``count`` partials (``warp.Maybe``): a state array whose last member is the flag."""
    return state_array((*types, Int32), count)


def partial_bytes(types, count: int) -> int:
    """Upper bound of the shared memory that ``partial_array`` takes."""
    return state_bytes((*types, Int32), count)


def store_partial(partials, i, partial: Maybe) -> None:
    """Store a partial at position ``i``. One lane calls."""
    put(partials, i, partial.pack())


def load_partial(partials, i, types) -> Maybe:
    """Load the partial at position ``i``."""
    return Maybe.unpack(get(partials, i, (*types, Int32)))


@cute.jit
def reduce_warps(partial: Maybe, combine: cutlass.Constexpr, partials, thread: Int32):
    """Reduce one partial a warp (the same in all its lanes) over the block. The warps with a valid one come first.

    ``partials`` is a ``partial_array``, a place a warp; its reuse needs a block barrier between. Thread 0 gets the
    block's partial. One block barrier inside."""
    lane = thread % LANES
    warp = thread // LANES
    warps = cute.size(partials[0])
    if lane == 0:
        store_partial(partials, warp, partial)
    cute.arch.sync_threads()
    count = Int32(0)
    state = partial.state
    if warp == 0:
        loaded = load_partial(partials, cutlass.min(lane, warps - 1), tuple(type(value) for value in state))
        count = cute.arch.popc(cute.arch.vote_ballot_sync(loaded.valid & (lane < warps)))
        state = reduce_valid(loaded.state, count, combine, lane)
    return Maybe(state, count > 0)


@cute.jit
def reduce_threads(partial: Maybe, combine: cutlass.Constexpr, partials, thread: Int32):
    """As ``reduce_warps`` for one partial a thread; the threads with a valid one come first."""
    count = cute.arch.popc(cute.arch.vote_ballot_sync(partial.valid))
    state = reduce_valid(partial.state, count, combine, thread % LANES)
    return reduce_warps(Maybe(state, count > 0), combine, partials, thread)


@cute.jit
def all_reduce_warps(state, combine: cutlass.Constexpr, partials, thread: Int32):
    """As ``reduce_warps`` for a state that every warp has. Each warp reduces all of them, so every thread gets the
    block's."""
    lane = thread % LANES
    warps = cute.size(partials[0])
    if lane == 0:
        store_partial(partials, thread // LANES, Maybe.of(state))
    cute.arch.sync_threads()
    loaded = load_partial(partials, cutlass.min(lane, warps - 1), tuple(type(value) for value in state))
    return broadcast(reduce_valid(loaded.state, Int32(warps), combine, lane))


class Reduce(Fixed):
    """Block-wide reduction for your own kernels, in the manner of ``cub::BlockReduce``.

    ``dtype`` is a DSL class (``cutlass.Float32``), or a tuple of them for states of several values. ``block_dim`` is
    the block's shape (threads in row-major rank order, a multiple of 32 in all). Make one at the top of the kernel: it
    allocates its shared memory then, a state and a flag a warp.

    >>> total = block.Reduce(cutlass.Float32, block_dim=(256, 1, 1))(value, "add")   # valid in thread 0
    """

    def __init__(self, dtype, block_dim=(256, 1, 1)) -> None:
        self._states = StateType(dtype)
        self.dtype, self.block_dim = dtype, block_shape(block_dim)
        self._partials = partial_array(self._states.types, block_threads(block_dim) // LANES)

    def __call__(self, value, op="add"):
        """The aggregate of every thread's ``value`` in thread order: in thread 0; other threads get an undefined value.

        ``op`` is a name or an associative callable. For states of several values, ``value`` and the result are tuples;
        a callable takes two tuples and returns one, and a name applies to each value. A second call on the same object
        needs ``cute.arch.sync_threads()`` before it.
        """
        state, combine, thread = self._of_warp(value, op)
        return self._states.given(reduce_warps(Maybe.of(state), combine, self._partials, thread).state)

    def all_reduce(self, value, op="add"):
        """As a call, but every thread gets the aggregate."""
        state, combine, thread = self._of_warp(value, op)
        return self._states.given(all_reduce_warps(state, combine, self._partials, thread))

    def _of_warp(self, value, op):
        """The aggregate of a warp, in each of its lanes, the operator on states, and the thread's rank."""
        combine, thread = self._states.combine(op), rank(self.block_dim)
        return reduce_states(self._states.of(value, "value"), combine, thread % LANES), combine, thread
