"""Producer and consumers, N stages, bulk copies both ways: how to move an array through a block at the speed of memory.

    producer warp   acquire(k) --> one bulk copy fills stage k % N ----full----+
                        ^                                                      v
                        +------empty------ release(k - 1) <-- consumer warp w: wait(k), f on its slice, in place,
                                           (copy k - 1 out      then one bulk copy out of shared memory
                                            has been read)

Each consumer warp owns a slice of every stage, so consumers never meet. A slice may be overwritten only when the copy out of it has read
it; a warp therefore releases fill k - 1 once it has started the copy of fill k, which leaves both copies in flight. That needs two stages.

Blocks are persistent: block b takes tiles b, b + blocks, ... The last tile's copies are shorter. Bulk copies move multiples of 16 bytes between
16-byte boundaries; what is left after the last one is done by block 0, element by element.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ..sync.ring import Ring
from ..sync.roles import Role, Roles
from .kernel import WARP, PatternKernel, part

VECTOR = 16  # bytes a lane handles at a time


class Streaming(PatternKernel):
    """``out[i] = fn(x[i])`` for ``n`` elements; 16-byte aligned arrays. ``stage_bytes`` is a multiple of 512 * ``consumers``."""

    name = "streaming"

    def __init__(self, fn, dtype, stages: int, stage_bytes: int, consumers: int) -> None:
        self.fn, self.dtype, self.stages, self.stage_bytes, self.consumers = fn, dtype, stages, stage_bytes, consumers
        self.slice_bytes = stage_bytes // consumers
        self.roles = Roles(Role("producer", 1), Role("consumer", consumers))
        self.threads = self.roles.threads
        self.smem = stages * (stage_bytes + 16) + 128

    @cute.jit
    def body(self, x, out, state, n, m):
        ring = Ring.make(self.stages, consumers=self.consumers)
        buffer = SmemAllocator().allocate_array(Uint8, self.stages * self.stage_bytes, byte_alignment=128)
        cute.arch.sync_threads()
        block, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        source, target = as_bytes(x), as_bytes(out)
        whole = n * self.dtype.size // VECTOR * VECTOR
        self.roles.run(
            producer=lambda _: self.produce(ring, buffer, source, whole, Int64(block), blocks),
            consumer=lambda warp: self.consume(ring, buffer, target, whole, Int64(block), blocks, warp),
        )
        if block == 0:
            self.finish(x, out, whole // self.dtype.size, n)

    @cute.jit
    def produce(self, ring: cutlass.Constexpr, buffer, source, whole: Int64, tile: Int64, blocks: Int32):
        k = Int32(0)
        while tile * self.stage_bytes < whole:
            start = tile * self.stage_bytes
            size = Int32(cutlass.min(whole - start, Int64(self.stage_bytes)))
            ring.acquire(k)
            ring.load(k, buffer + ring.stage(k) * self.stage_bytes, source + start, size)
            k += 1
            tile += blocks

    @cute.jit
    def consume(self, ring: cutlass.Constexpr, buffer, target, whole: Int64, tile: Int64, blocks: Int32, warp: Int32):
        lane = cute.arch.lane_idx()
        k = Int32(0)
        while tile * self.stage_bytes < whole:
            start = tile * self.stage_bytes + warp * self.slice_bytes
            size = Int32(cutlass.max(cutlass.min(whole - start, Int64(self.slice_bytes)), Int64(0)))
            mine = buffer + (ring.stage(k) * self.stage_bytes + warp * self.slice_bytes)
            ring.wait(k)
            for u in cutlass.range_constexpr(self.slice_bytes // (WARP * VECTOR)):
                at = (u * WARP + lane) * VECTOR
                if at < size:
                    self.apply(mine + at)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: these stores before the copy that reads them
            cute.arch.sync_warp()
            if lane == 0:
                if size > 0:
                    primitives.cp_async_bulk_global_shared_cta(target + start, mine, size)
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(1, read=True)  # all but this copy have read their slices
            if k > 0:
                ring.release(k - 1)
            k += 1
            tile += blocks
        if lane == 0:
            cute.arch.cp_async_bulk_wait_group(0)  # the shared memory must live as long as copies read it

    def apply(self, at) -> None:
        """``fn`` on the 16 bytes of shared memory at ``at``, in place."""
        start = cute.make_ptr(Int32, at.toint(), cute.AddressSpace.smem, assumed_align=VECTOR)
        words = cute.make_tensor(start, cute.make_layout(VECTOR // 4))
        held = cute.make_rmem_tensor(VECTOR // 4, Int32)
        cute.autovec_copy(words, held)
        values = cute.recast_tensor(held, self.dtype.cutlass)
        for i in range(VECTOR // self.dtype.size):
            values[i] = self.dtype.cutlass(self.fn(self.dtype.cutlass(values[i])))
        cute.autovec_copy(held, words)

    @cute.jit
    def finish(self, x, out, first: Int64, n: Int64):
        """The elements after the last whole 16 bytes."""
        at = first + cute.arch.thread_idx()[0]
        if at < n:
            part(out, at, 1)[0] = self.dtype.cutlass(self.fn(self.dtype.cutlass(part(x, at, 1)[0])))


def as_bytes(pointer):
    """A pointer to global memory, in bytes, known to lie on a 16-byte boundary."""
    return cute.make_ptr(Uint8, pointer.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR)
