"""Many producers and many consumers at once: every item of ``x`` passes through one small ring of slots.

    giver threads of all blocks    place = tail++    wait for the slot's turn    store, release the turn
                                                           ^           |
                                                           |           v
    taker threads of all blocks    place = head++    load, release  <--  wait for the slot's turn

Each block gives and takes equally many items, so any number of resident blocks makes progress.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute

from cutesync.arguments import integer, whole
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.host import Step, Task, call, zeros
from cutesync.patterns.kernel import WARP, PatternKernel, part
from cutesync.runtime import arrays
from cutesync.sync.concurrent_queue import ConcurrentQueue

ITEMS, WARPS = 512, 4  # items a block passes on; warps that give, and that take


class Relay(PatternKernel):
    """Passes ``x`` on to ``out`` through a concurrent queue of ``2**m`` slots.

    In each block half of the warps give the block's part of x, and the other half take as many items, from any block.
    ``state``: tail, head, then the slots' turns, then the items.
    """

    name = "relay"

    def __init__(self, dtype, items: int, warps: int) -> None:
        self.dtype, self.items, self.warps = dtype, items, warps
        self.threads = 2 * warps * WARP

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        start = Int64(cute.arch.block_idx()[0]) * self.items
        count = Int32(cutlass.min(n - start, Int64(self.items)))
        slots = Int64(1) << m
        turns = cute.make_ptr(Int32, (state + 2).toint(), cute.AddressSpace.gmem, assumed_align=4)
        items = cute.make_ptr(
            self.dtype.cutlass, (turns + slots + slots % 2).toint(), cute.AddressSpace.gmem, assumed_align=8
        )
        queue = ConcurrentQueue(items, turns, state, m)
        source, target = part(x, start, self.items), part(out, start, self.items)
        half = self.warps * WARP
        if thread < half:
            for i in cutlass.range(thread, count, half, unroll=1):
                queue.give(self.dtype.cutlass(source[i]))
        else:
            for i in cutlass.range(thread - half, count, half, unroll=1):
                target[i] = queue.take(self.dtype.cutlass)


def run(x, capacity: int = 1024, *, items: int = ITEMS, stream=None):
    """The vector ``x`` in an order that depends on timing, each element once. ``capacity`` is a power of two."""
    capacity, items = whole(capacity, "capacity"), integer(items, "items", 1, 1 << 30)
    if capacity < 1 or capacity & (capacity - 1) or capacity > 1 << 30:
        raise ArgumentValueError(explain("capacity", capacity, "a power of two up to 2**30"))
    log, turns, size = capacity.bit_length() - 1, capacity + capacity % 2, arrays.adapter(x).view(x).dtype.size
    state = zeros(2 + turns // 2 + -(-capacity * size // 8), x, stream)
    return call(
        lambda x, _: Task(x, Step(lambda dtype: Relay(dtype, items, WARPS), items, m=log)), x, None, stream, state
    )


def reference(x: np.ndarray) -> np.ndarray:
    """The same elements, sorted: compare with the sorted result."""
    return np.sort(x)
