"""Producer and consumers, N stages, bulk copies in: how to move an array through a block at the speed of memory.

    producer warp   draw a tile --> acquire(k) --> one bulk copy fills stage k % N ----full----+
                                        ^                                                      v
                                        +------empty------ release(k) <-- consumer warp w: wait(k), its slice into
                                                           registers, then f, and 16-byte stores, a line a warp

Each consumer warp owns a slice of every stage, so consumers do not wait for one another. A stage is free once its
slices are in registers: the stores do not hold it. (Bulk copies out of shared memory are as fast, but a stage must wait
until they have read it.)

Blocks draw tiles as tickets, instead of by a fixed stride: see sync/tickets.py for what that gains. The producer writes
the number of the tile beside its stage; its arrival at the full barrier publishes it, and a number below 0 ends the
work. The copy of the last tile is shorter. Bulk copies move multiples of 16 bytes between 16-byte boundaries; block 0
computes the elements after the last whole 16 bytes.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int32, Int64, Uint8, cute

from cutesync.arguments import integer, whole
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.host import Step, Task, blocks_of, call, consumer_warps, traceable
from cutesync.patterns.kernel import MOST_SHARED, WARP, PatternKernel, mapped, part, shared
from cutesync.sync.gather import GROUPS_OFFSET
from cutesync.sync.ring import Ring
from cutesync.sync.roles import Role, Roles
from cutesync.sync.tickets import Tickets

VECTOR = 16  # bytes a lane handles at a time
HELD = 8  # of them in registers at once
DONE = -1  # the number that says that there are no more tiles
STAGES, STAGE_BYTES, BLOCKS_PER_SM = 8, 8192, 3  # 3 * 64 KiB of stages a multiprocessor
CONSUMERS = 8  # warps
UNIT = WARP * VECTOR  # bytes that a consumer warp handles at a time


class Streaming(PatternKernel):
    """``out[i] = fn(x[i])`` for ``n`` elements of 16-byte aligned arrays.

    ``stage_bytes`` is a multiple of 512 * ``consumers``. ``state`` is the counters of the stream's workspace.
    """

    name = "streaming"

    def __init__(self, fn, dtype, stages: int, stage_bytes: int, consumers: int) -> None:
        self.fn, self.dtype, self.stages, self.stage_bytes, self.consumers = fn, dtype, stages, stage_bytes, consumers
        self.slice_bytes = stage_bytes // consumers
        self.roles = Roles(Role("producer", 1), Role("consumer", consumers))
        self.threads = self.roles.threads
        self.smem = stages * (stage_bytes + 20) + 128

    @cute.jit
    def body(self, x, out, state, n, m):
        ring = Ring.make(self.stages, consumers=self.consumers)
        numbers = shared(Int32, self.stages)
        buffer = shared(Uint8, self.stages * self.stage_bytes, align=128).iterator
        cute.arch.sync_threads()
        whole = n * self.dtype.size // VECTOR * VECTOR
        counters = cute.make_ptr(Int32, state.toint(), cute.AddressSpace.gmem, assumed_align=4)
        tickets = Tickets(
            counters + GROUPS_OFFSET, Int32((whole + self.stage_bytes - 1) // self.stage_bytes), cute.arch.grid_dim()[0]
        )
        self.roles.run(
            producer=lambda _: self.produce(ring, numbers, buffer, memory(x), whole, tickets),
            consumer=lambda warp: self.consume(ring, numbers, buffer, memory(out), whole, warp),
        )
        if cute.arch.block_idx()[0] == 0:
            self.finish(x, out, whole // self.dtype.size, n)

    @cute.jit
    def produce(self, ring: cutlass.Constexpr, numbers, buffer, source, whole: Int64, tickets: cutlass.Constexpr):
        lane = cute.arch.lane_idx()
        k, tile, drawn = Int32(0), Int32(0), Int32(0)
        if lane == 0:
            tile = tickets.draw()
        tile = cute.arch.shuffle_sync(tile, 0)
        while tile != DONE:
            if (lane == 0) & (tile < tickets.count):
                drawn = tickets.draw()  # the next ticket arrives while this stage is waited for
            start = Int64(tile) * self.stage_bytes
            size = Int32(cutlass.max(cutlass.min(whole - start, Int64(self.stage_bytes)), Int64(0)))
            ring.acquire(k)
            if lane == 0:
                numbers[ring.stage(k)] = tile if tile < tickets.count else Int32(DONE)
            ring.load(k, buffer + ring.stage(k) * self.stage_bytes, source + start, size)
            k += 1
            tile = cute.arch.shuffle_sync(drawn, 0) if tile < tickets.count else Int32(DONE)

    @cute.jit
    def consume(self, ring: cutlass.Constexpr, numbers, buffer, target, whole: Int64, warp: Int32):
        k = Int32(0)
        ring.wait(k)
        tile = Int32(numbers[ring.stage(k)])
        while tile != DONE:
            start = Int64(tile) * self.stage_bytes + warp * self.slice_bytes
            size = Int32(cutlass.max(cutlass.min(whole - start, Int64(self.slice_bytes)), Int64(0)))
            mine = buffer + (ring.stage(k) * self.stage_bytes + warp * self.slice_bytes)
            vectors = self.slice_bytes // (WARP * VECTOR)
            for first in cutlass.range_constexpr(0, vectors, HELD):
                count = min(HELD, vectors - first)
                held = cute.make_rmem_tensor(cute.make_layout((VECTOR // 4, count), stride=(1, VECTOR // 4)), Int32)
                for u in cutlass.range_constexpr(count):
                    take(held, u, mine, (first + u) * WARP * VECTOR, size)
                if cutlass.const_expr(first + count == vectors):
                    ring.release(k)
                for u in cutlass.range_constexpr(count):
                    self.apply(held, u)
                    give(held, u, target + start, (first + u) * WARP * VECTOR, size)
            k += 1
            ring.wait(k)
            tile = Int32(numbers[ring.stage(k)])

    def apply(self, held, u: int) -> None:
        """``fn`` on a vector of registers."""
        values = cute.recast_tensor(held[(None, u)], self.dtype.cutlass)
        for i in range(VECTOR // self.dtype.size):
            values[i] = mapped(self.fn, self.dtype)(values[i])

    @cute.jit
    def finish(self, x, out, first: Int64, n: Int64):
        """The elements after the last whole 16 bytes."""
        at = first + cute.arch.thread_idx()[0]
        if at < n:
            part(out, at, 1)[0] = mapped(self.fn, self.dtype)(part(x, at, 1)[0])


@cute.jit
def take(held, u: cutlass.Constexpr, source, begin: cutlass.Constexpr, size: Int32):
    """This lane's vector of the 512 bytes from ``begin`` on into ``held``, if it lies below ``size``."""
    at = begin + cute.arch.lane_idx() * VECTOR
    if at < size:
        cute.autovec_copy(words(source + at), held[(None, u)])


@cute.jit
def give(held, u: cutlass.Constexpr, target, begin: cutlass.Constexpr, size: Int32):
    """The inverse of ``take``."""
    at = begin + cute.arch.lane_idx() * VECTOR
    if at < size:
        cute.autovec_copy(held[(None, u)], words(target + at))


def words(pointer):
    """The 16 bytes at ``pointer``, as a tensor of four words."""
    return cute.make_tensor(
        cute.make_ptr(Int32, pointer.toint(), pointer.memspace, assumed_align=VECTOR), cute.make_layout(VECTOR // 4)
    )


def memory(pointer):
    """A pointer to global memory, in bytes, known to lie on a 16-byte boundary."""
    return cute.make_ptr(Uint8, pointer.toint(), cute.AddressSpace.gmem, assumed_align=VECTOR)


def run(x, fn, *, stages: int = STAGES, buffer=None, consumers=None, blocks=None, out=None, stream=None):
    """``fn`` of every element of the vector ``x``; the arguments are those of producer_consumer.py."""
    fn, stages, consumers = traceable(fn, "fn"), whole(stages, "stages"), consumer_warps(consumers, CONSUMERS)
    blocks = None if blocks is None else integer(blocks, "blocks", 1, (1 << 31) - 1)
    unit = consumers * UNIT
    buffer = unit * max(1, STAGE_BYTES // unit) if buffer is None else whole(buffer, "buffer")
    total = stages * buffer
    if stages < 1:
        raise ArgumentValueError(explain("stages", stages, "at least 1"))
    if buffer < 1 or buffer % unit:
        needed = f"a multiple of {consumers} consumers * {UNIT} = {unit} bytes"
        raise ArgumentValueError(explain("buffer", f"{buffer} bytes", needed))
    if total + 1024 > MOST_SHARED:
        got, needed = f"{stages} * {buffer} = {total} bytes", f"at most {MOST_SHARED - 1024} bytes of shared memory"
        raise ArgumentValueError(explain("stages * buffer", got, needed))

    def task(x, out):
        target = out.ptr if out else 0
        if (x.ptr | target) % 16:
            got, needed = f"x at {x.ptr:#x} and out at {target:#x}", "multiples of 16: bulk copies need that"
            raise ArgumentValueError(explain("form 'bulk'", got, needed, "form='auto' of producer_consumer"))
        grid = blocks_of(x, blocks, buffer, max(1, min(BLOCKS_PER_SM, (MOST_SHARED + 1024) // (total + 2048))))
        return Task(x, Step(lambda dtype: Streaming(fn, dtype, stages, buffer, consumers), blocks=grid, counted=True))

    return call(task, x, out, stream)


def reference(x: np.ndarray, fn) -> np.ndarray:
    """The same in NumPy."""
    return np.asarray(fn(np.asarray(x))).astype(x.dtype)
