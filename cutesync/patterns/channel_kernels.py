"""The kernels of channel.py, output_list.py and compaction.py."""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, cute

from cutesync.dtypes import BOOL
from cutesync.monoid import traced
from cutesync.patterns.kernel import WARP, PatternKernel, part
from cutesync.sync.queue import STATE_WORDS, Queue


class Give(PatternKernel):
    """Each block reads ``items * threads`` of the ``n`` elements of ``x`` and gives those to keep to the queue ``out``.

    The queue has ``m`` places. A warp has ``items * 32`` consecutive candidates, each lane ``vector`` (which divides
    ``items``) consecutive ones at a time. ``x`` lies on a boundary of ``vector`` elements, of at most 16 bytes.
    """

    family, blocks_per_sm = "list", 4  # at most 64 registers a thread: 64 KiB of loads in flight a multiprocessor

    def __init__(self, keep, dtype, method: str, items: int, threads: int, vector: int = 1) -> None:
        self.keep, self.dtype, self.method, self.items, self.threads, self.vector = (
            keep,
            dtype,
            method,
            items,
            threads,
            vector,
        )
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
        first, count = self.reach(n)
        values = self.values(x, first, count)
        return values, [(self.place(j) < count) & self.keeps(x, value) for j, value in enumerate(values)]

    def reach(self, n):
        """``(first, count)``: the number of the warp's first candidate, and how many it has (maybe below 1)."""
        first = (Int64(cute.arch.block_idx()[0]) * (self.threads // WARP) + cute.arch.thread_idx()[0] // WARP) * (
            self.items * WARP
        )
        return first, Int32(cutlass.min(n - first, Int64(self.items * WARP)))

    def place(self, j: int):
        """Where among the warp's candidates this lane's candidate ``j`` is."""
        return (j // self.vector * WARP + cute.arch.lane_idx()) * self.vector + j % self.vector

    def values(self, x, first, count):
        """The candidates; those that do not exist are whatever the registers hold."""
        held = load(x + first, count, self.items, self.vector, self.dtype)
        return [self.dtype.cutlass(held[j]) for j in range(self.items)]

    def keeps(self, x, value):
        """Whether it is to be kept (Boolean)."""
        return Boolean(traced("keep", self.keep, (value,), None, BOOL))


@cute.jit
def load(
    source: cute.Pointer, count: Int32, items: cutlass.Constexpr, vector: cutlass.Constexpr, dtype: cutlass.Constexpr
):
    """A lane's candidates of the ``count`` at ``source``: whole vectors where the warp is full, else one by one."""
    wide = vector * dtype.size % 4 == 0  # registers hold words; their parts are extracted later
    each = vector * dtype.size // 4 if wide else vector
    held = cute.make_rmem_tensor(
        cute.make_layout((each, items // vector), stride=(1, each)), Int32 if wide else dtype.cutlass
    )
    lane = cute.arch.lane_idx()
    elements = cute.recast_tensor(held, dtype.cutlass) if wide else held
    elements = cute.make_tensor(elements.iterator, cute.make_layout(items))
    if count == items * WARP:
        for u in cutlass.range_constexpr(items // vector):
            start = source + (u * WARP + lane) * vector
            start = cute.make_ptr(
                held.element_type, start.toint(), cute.AddressSpace.gmem, assumed_align=vector * dtype.size
            )
            cute.autovec_copy(cute.make_tensor(start, cute.make_layout(each)), held[(None, u)])
    else:
        for j in cutlass.range_constexpr(items):
            place = (j // vector * WARP + lane) * vector + j % vector
            if place < count:
                elements[j] = part(source, 0, items * WARP)[place]
    return elements


class Take(PatternKernel):
    """``n`` threads take an item each from the queue in ``x`` and give it to that in ``out``, whose state follows."""

    name = "channel_take"

    def __init__(self, dtype, threads: int) -> None:
        self.dtype, self.threads = dtype, threads

    @cute.jit
    def body(self, x, out, state, n, m):
        wanted = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0] < n
        got, value = Queue(x, state, Int64(0)).take(wanted, self.dtype.cutlass)
        Queue(out, state + STATE_WORDS, n).give(value, got)
