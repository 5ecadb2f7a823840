"""What all reduction kernels share: one argument list, one launch, one way to store a result; and the kernel that only
stores results."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

from cutlass import Int32, Int64, cute

from ...sync.overlap import await_launches

# A launch's arguments.
#
# The array ``x`` is seen as (outer, length, inner): ``length`` elements are reduced for each of outer * inner results
# in ``out``. ``init`` is a register value, read only with ``has_init``. ``slots`` and ``counters`` are the workspace
# (see ``sync.gather``); ``splits`` blocks share a result, and ``tiles`` tiles cover ``inner``.
Arguments = namedtuple("Arguments", "x out init slots counters outer length inner splits tiles")


class ReduceKernel:
    """A compiled reduction. A subclass defines ``body``, which gets the ``Arguments``."""

    body: Any

    def __init__(self, monoid, has_init: bool, threads: int, smem: int, blocks_per_sm: int) -> None:
        self.monoid, self.has_init = monoid, has_init
        self.threads, self.smem, self.blocks_per_sm = threads, smem, blocks_per_sm

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        out: cute.Pointer,
        init,
        slots: cute.Pointer,
        counters: cute.Pointer,
        outer: Int64,
        length: Int64,
        inner: Int64,
        splits: Int32,
        tiles: Int32,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_reduce", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, init, slots, counters, outer, length, inner, splits, tiles).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=self.blocks_per_sm,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        x: cute.Pointer,
        out: cute.Pointer,
        init,
        slots: cute.Pointer,
        counters: cute.Pointer,
        outer: Int64,
        length: Int64,
        inner: Int64,
        splits: Int32,
        tiles: Int32,
    ):
        await_launches()
        self.body(Arguments(x, out, init, slots, counters, outer, length, inner, splits, tiles))

    def result(self, init, state):
        """The element to store for an aggregate."""
        return self.monoid.lower(self.monoid.combine((init,), state) if self.has_init else state)

    def aligned_result(self, out, place, count: int, aligned: bool):
        """``count`` consecutive results at a multiple of ``count``, as a tensor; with ``aligned``, ``out`` lies on a
        16-byte boundary."""
        size = self.monoid.result.size
        align = math.gcd(count * size, 16) if aligned else size
        start = cute.make_ptr(
            self.monoid.result.cutlass, (out + place).toint(), cute.AddressSpace.gmem, assumed_align=align
        )
        return cute.make_tensor(start, cute.make_layout((count,)))

    def store_result(self, a: Arguments, place, state) -> None:
        """Store the result number ``place``."""
        cute.make_tensor(a.out + place, cute.make_layout((1,)))[0] = self.result(a.init, state)


class FillReduce(ReduceKernel):
    """The result of reducing nothing: ``init`` is stored in ``outer`` results, 256 a block."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, False, 256, 0, 1)  # ``init`` is the result: it is not combined with another

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        place = Int64(block) * 256 + thread
        if place < a.outer:
            self.store_result(a, place, (a.init,))
