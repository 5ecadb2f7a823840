"""The kernels of channel.py and relay.py."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ..sync.concurrent_queue import ConcurrentQueue
from ..sync.queue import STATE_WORDS, Queue
from .kernel import WARP, PatternKernel, part


class Give(PatternKernel):
    """Each block reads ``items * threads`` of the ``n`` elements of ``x`` and gives those to keep to the queue of ``m`` places in ``out``."""

    family, blocks_per_sm = "list", 4  # at most 64 registers a thread: 64 KiB of loads in flight a multiprocessor

    def __init__(self, keep, dtype, method: str, items: int, threads: int) -> None:
        self.keep, self.dtype, self.method, self.items, self.threads = keep, dtype, method, items, threads
        self.name = f"{self.family}_{method}"
        self.smem = 8 * threads // WARP + 16

    @cute.jit
    def body(self, x, out, state, n, m):
        queue = Queue(out, state, m)
        values, valid = self.candidates(x, n)
        if cutlass.const_expr(self.method == "block"):
            queue.give_block(values, valid, Queue.scratch(self.threads // WARP))
        else:
            for j in cutlass.range_constexpr(self.items):
                if cutlass.const_expr(self.method == "warp"):
                    queue.give(values[j], valid[j])
                else:
                    queue.give_each(values[j], valid[j])

    def candidates(self, x, n):
        """This thread's candidates, and which of them are to be kept. All loads come first."""
        first, last = self.reach(n)
        values = self.values(x, first, last)
        return values, [(j * WARP <= last) & self.keeps(x, value) for j, value in enumerate(values)]

    def reach(self, n):
        """``(first, last)``: candidate j of this thread is number ``first + 32 j`` (Int64), and is one if 32 j <= ``last`` (Int32).

        A warp has consecutive numbers, item j of its lanes before item j + 1.
        """
        warps = Int64(cute.arch.block_idx()[0]) * (self.threads // WARP) + cute.arch.thread_idx()[0] // WARP
        first = warps * (self.items * WARP) + cute.arch.lane_idx()
        return first, Int32(cutlass.min(n - 1 - first, Int64(self.items * WARP)))

    def values(self, x, first, last):
        """The candidates; beyond the end, the last of all is read again."""
        return [self.value(x, first, cutlass.min(Int32(j * WARP), last)) for j in range(self.items)]

    def value(self, x, first, offset):
        """Candidate number ``first + offset``."""
        return self.dtype.cutlass(part(x, first, self.items * WARP)[offset])

    def keeps(self, x, value):
        """Whether it is to be kept (Boolean)."""
        return Boolean(self.keep(value))


class Take(PatternKernel):
    """``n`` threads take one item each from the queue in ``x``, and give what they got to a queue in ``out``, whose state follows."""

    name = "channel_take"

    def __init__(self, dtype, threads: int) -> None:
        self.dtype, self.threads = dtype, threads

    @cute.jit
    def body(self, x, out, state, n, m):
        wanted = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0] < n
        got, value = Queue(x, state, Int64(0)).take(wanted, self.dtype.cutlass)
        Queue(out, state + STATE_WORDS, n).give(value, got)


class Relay(PatternKernel):
    """Passes ``x`` on to ``out`` through a concurrent queue of ``2**m`` slots. In each block half the warps give the block's part of x, and
    half take as many items as that, whosever they are. ``state``: tail, head, then the slots' turns, then the items."""

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
        items = cute.make_ptr(self.dtype.cutlass, (turns + slots + slots % 2).toint(), cute.AddressSpace.gmem, assumed_align=8)
        queue = ConcurrentQueue(items, turns, state, m)
        source, target = part(x, start, self.items), part(out, start, self.items)
        half = self.warps * WARP
        if thread < half:
            for i in cutlass.range(thread, count, half, unroll=1):
                queue.give(self.dtype.cutlass(source[i]))
        else:
            for i in cutlass.range(thread - half, count, half, unroll=1):
                target[i] = queue.take(self.dtype.cutlass)
