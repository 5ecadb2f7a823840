"""Scans over the items of a block, in thread order, for any associative operator.

A thread scans its items, the lanes of a warp scan the threads' aggregates by shuffles, and the warps exchange theirs
through shared memory: one block barrier, a second one with a prefix. The method is that of ``cub::BlockScan`` with
``BLOCK_SCAN_WARP_SCANS``.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute

from ..errors import ArgumentValueError, explain
from ..warp import LANES, Maybe, scan_states, shift_up
from .edges import Fixed, block_threads, rank
from .operators import StateType, block_shape
from .reduce import get, partial_array, put, state_array, store_partial
from .warps import scan_partials

FRONT_ALIGNMENT = 16
"""Of each value of the state in front. The compiler reads three neighbouring words as a vector of four, and the fourth
may belong to another array, which another warp writes."""


class Scan(Fixed):
    """Block-wide scans for your own kernels, in the manner of ``cub::BlockScan``.

    ``dtype`` is a DSL class (``cutlass.Float32``), ``block_dim`` the block's shape, a multiple of 32 threads in all.
    The items are in blocked arrangement: the thread of row-major rank t (x fastest) holds items ``t * n .. t * n + n -
    1`` in a register tensor of n. With a tuple of classes as ``dtype``, items are states of several values: a tuple of
    register tensors, and operators, ``initial`` and ``prefix`` take and return tuples. Both methods return ``(scanned,
    aggregate)``: fresh register tensors, and in every thread the aggregate of all the block's items, without what came
    in front of them. All threads of the block call together. In front of the first item comes one of

    - ``initial``, a value;
    - ``prefix``, a function of the aggregate that all lanes of the first warp call; the answer of thread 0 counts. It
      is the place for a look-back, or for the running total of a loop over tiles.

    ``op`` is a name, which applies to each value of a state, or an associative callable of two values. Make one at the
    top of the kernel: it allocates its shared memory then, a state and a flag a warp and one state. Two calls on one
    object need a barrier (``cute.arch.sync_threads()``) between them.

    >>> offsets, total = block.Scan(cutlass.Int32, block_dim=(128, 1, 1)).exclusive(counts)
    """

    def __init__(self, dtype, block_dim=(256, 1, 1)) -> None:
        self._states = StateType(dtype)
        self.dtype, self.block_dim = dtype, block_shape(block_dim)
        self._warps = block_threads(block_dim) // LANES
        self._partials = partial_array(self._states.types, self._warps)
        self._front = state_array(self._states.types, 1, FRONT_ALIGNMENT)

    def inclusive(self, items, op="add", *, initial=None, prefix=None):
        """Item i becomes the aggregate of items 0 to i."""
        return self._scan(items, op, initial, prefix, False)

    def exclusive(self, items, op="add", *, initial=None, prefix=None):
        """Item i becomes the aggregate of items 0 to i - 1. The first becomes what is in front of it, by default the
        identity of a named ``op``."""
        if initial is None and prefix is None:
            initial = self._states.identity(op)
            if initial is None:
                raise ArgumentValueError(
                    explain(
                        "op",
                        f"{op!r}, which has no identity, in an exclusive scan",
                        "a first result",
                        "give initial= or prefix=",
                    )
                )
        return self._scan(items, op, initial, prefix, True)

    def _scan(self, items, op, initial, prefix, exclusive: bool):
        if initial is not None and prefix is not None:
            raise ArgumentValueError(explain("prefix", "initial= as well", "one of the two"))
        combine = self._states.combine(op)
        first, *others = self._items(items)
        running = [first]
        for state in others:
            running.append(combine(running[-1], state))
        before, aggregate = self._before(running[-1], combine)
        if prefix is not None:
            before = Maybe.of(self._from_first_warp(prefix, aggregate)).then(before, combine)
        elif initial is not None:
            before = Maybe.of(self._states.of(initial, "initial")).then(before, combine)
        tensors = tuple(cute.make_rmem_tensor((len(running),), t) for t in self._states.types)
        for i, state in enumerate([before.state, *running[:-1]] if exclusive else running):
            put(tensors, i, state if exclusive and i == 0 else before.append(state, combine).state)
        return self._states.given(tensors), self._states.given(aggregate)

    def _items(self, items) -> list:
        """The states of a thread, in order; a tensor forgets whether its integers are signed."""
        tensors = self._states.parts(items, "items")
        counts = [cute.size(tensor) for tensor in tensors]
        if len(set(counts)) > 1:
            raise ArgumentValueError(explain("items", f"tensors of {counts} items", "as many of each value"))
        return [get(tensors, i, self._states.types) for i in range(counts[0])]

    @cute.jit
    def _before(self, own, combine: cutlass.Constexpr):
        """What comes before this thread (``Maybe``), and the aggregate of all threads."""
        thread = rank(self.block_dim)
        lane = thread % LANES
        inclusive = scan_states(own, combine, lane)
        if lane == LANES - 1:
            store_partial(self._partials, thread // LANES, Maybe.of(inclusive))
        cute.arch.sync_threads()
        prefix, aggregate = scan_partials(
            self._partials, Int32(0), self._warps, thread // LANES, lane, self._states.types, combine
        )
        return prefix.then(Maybe(shift_up(inclusive), lane > 0), combine), aggregate.state

    @cute.jit
    def _from_first_warp(self, prefix: cutlass.Constexpr, aggregate):
        """What ``prefix`` returns to thread 0, in every thread."""
        thread = rank(self.block_dim)
        if thread < LANES:
            state = self._states.traced("prefix", prefix, aggregate)
            if thread == 0:
                put(self._front, 0, state)
        cute.arch.sync_threads()
        return get(self._front, 0, self._states.types)
