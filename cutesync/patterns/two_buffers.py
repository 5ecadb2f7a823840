"""Producer and consumers in one block, with two buffers and two barriers a buffer, in three forms.

    producer warp    wait ready[b]    fill buffer b    arrive filled[b]      b = i % 2 for tile i
                        ^                                   |
    consumer warps   arrive ready[b]    use buffer b    wait filled[b]

``tokens``    Every thread of the block arrives at every barrier, also those that will not wait. A wait takes the token
              of an arrival.
``parity``    Only the side that signals arrives (32 threads for filled, the consumers for ready). A wait takes the
              parity of the phase.
``pipeline``  The DSL's ``PipelineAsync`` keeps the barriers and the parity. Of each consumer warp one lane arrives,
              which is safe only after ``sync_warp``.

Each thread moves one element at a time, so a warp has 128 bytes in flight; streaming.py has whole stages in flight.
This file shows the protocol. Any length and any buffer will do: the last tile is shorter.
"""

from __future__ import annotations

from typing import Any

import cutlass
import numpy as np
from cutlass import Int32, Int64, cute, pipeline

from cutesync.arguments import choice, integer, whole
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.host import Step, Task, blocks_of, call, consumer_warps, traceable
from cutesync.patterns.kernel import MOST_SHARED, WARP, PatternKernel, mapped, part, shared
from cutesync.sync.barrier import Barriers
from cutesync.sync.pipelines import acquire, await_filled
from cutesync.sync.roles import Role, Roles


class TwoBuffers(PatternKernel):
    """``out[i] = fn(x[i])`` for ``n`` elements, ``buffer`` at a time. A subclass says how the two sides wait."""

    make_sync: Any
    produce: Any
    consume: Any

    def __init__(self, fn, dtype, buffer: int, consumers: int) -> None:
        self.fn, self.dtype, self.buffer, self.consumers = fn, dtype, buffer, consumers
        self.roles = Roles(Role("producer", 1), Role("consumer", consumers))
        self.threads = self.roles.threads
        self.smem = 2 * buffer * dtype.size + 256

    @cute.jit
    def body(self, x, out, state, n, m):
        sync = self.make_sync()
        buffers = shared(self.dtype.cutlass, 2 * self.buffer, align=16).iterator
        cute.arch.sync_threads()
        block = Int64(cute.arch.block_idx()[0])
        self.roles.run(
            producer=lambda _: self.produce(sync, buffers, x, n, block),
            consumer=lambda _: self.consume(sync, buffers, out, n, block),
        )

    def fill(self, buffer, x, start, n) -> None:
        """The producer warp copies the tile that begins at element ``start``."""
        _copy(
            buffer,
            part(x, start, self.buffer),
            _left(n, start, self.buffer),
            cute.arch.thread_idx()[0],
            WARP,
            lambda value: value,
            self.buffer,
        )

    def use(self, buffer, out, start, n) -> None:
        """The consumer warps apply ``fn`` and store."""
        step = self.consumers * WARP
        fn = mapped(self.fn, self.dtype)
        _copy(
            part(out, start, self.buffer),
            buffer,
            _left(n, start, self.buffer),
            cute.arch.thread_idx()[0] - WARP,
            step,
            fn,
            self.buffer,
        )

    def half(self, buffers, i):
        """Buffer ``i % 2``."""
        return cute.make_tensor(buffers + (i % 2) * self.buffer, cute.make_layout(self.buffer))


def _left(n, start, most: int):
    return Int32(cutlass.min(n - start, Int64(most)))


@cute.jit
def _copy(
    target, source, count: Int32, first: Int32, step: cutlass.Constexpr, fn: cutlass.Constexpr, most: cutlass.Constexpr
):
    for j in cutlass.range(first, count, step, unroll=1):
        target[j] = fn(source[j])


class Tokens(TwoBuffers):
    """Barriers of all threads, waits by token."""

    name = "producer_consumer_tokens"

    def make_sync(self):
        ready = Barriers.make(2, self.threads, name="ready")
        return ready, Barriers.make(2, self.threads, name="filled")

    @cute.jit
    def produce(self, sync: cutlass.Constexpr, buffers, x, n: Int64, tile: Int64):
        ready, filled = sync
        i = Int32(0)
        while tile * self.buffer < n:
            ready[i % 2].arrive_and_wait()  # the consumers have arrived for tile i
            self.fill(self.half(buffers, i), x, tile * self.buffer, n)
            filled[i % 2].arrive()
            tile += cute.arch.grid_dim()[0]
            i += 1

    @cute.jit
    def consume(self, sync: cutlass.Constexpr, buffers, out, n: Int64, tile: Int64):
        ready, filled = sync
        ready[0].arrive()  # both buffers are ready to be filled for the first time
        ready[1].arrive()
        i = Int32(0)
        while tile * self.buffer < n:
            filled[i % 2].arrive_and_wait()
            self.use(self.half(buffers, i), out, tile * self.buffer, n)
            ready[i % 2].arrive()  # for tile i + 2
            tile += cute.arch.grid_dim()[0]
            i += 1


class Parity(TwoBuffers):
    """Barriers of the side that signals, waits by the parity of the phase: tile i is phase i // 2 of its buffer."""

    name = "producer_consumer_parity"

    def make_sync(self):
        ready = Barriers.make(2, self.consumers * WARP, name="ready")
        return ready, Barriers.make(2, WARP, name="filled")

    @cute.jit
    def produce(self, sync: cutlass.Constexpr, buffers, x, n: Int64, tile: Int64):
        ready, filled = sync
        i = Int32(0)
        while tile * self.buffer < n:
            ready[i % 2].wait_parity((i // 2 & 1) ^ 1)  # the phase before: on a new barrier it counts as over
            self.fill(self.half(buffers, i), x, tile * self.buffer, n)
            filled[i % 2].arrive()
            tile += cute.arch.grid_dim()[0]
            i += 1

    @cute.jit
    def consume(self, sync: cutlass.Constexpr, buffers, out, n: Int64, tile: Int64):
        ready, filled = sync
        i = Int32(0)
        while tile * self.buffer < n:
            filled[i % 2].wait_parity(i // 2 & 1)
            self.use(self.half(buffers, i), out, tile * self.buffer, n)
            ready[i % 2].arrive()
            tile += cute.arch.grid_dim()[0]
            i += 1


class Pipeline(TwoBuffers):
    """The DSL's own pipeline: 32 producer threads arrive at full, one lane of each consumer warp at empty."""

    name = "producer_consumer_pipeline"

    def make_sync(self):
        group = lambda count: pipeline.CooperativeGroup(pipeline.Agent.Thread, count)  # noqa: E731
        barriers = shared(Int64, 4).iterator
        return pipeline.PipelineAsync.create(
            num_stages=2, barrier_storage=barriers, producer_group=group(WARP), consumer_group=group(self.consumers)
        )

    @cute.jit
    def produce(self, sync: cutlass.Constexpr, buffers, x, n: Int64, tile: Int64):
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 2)
        while tile * self.buffer < n:
            acquire(sync, state)
            self.fill(self.half(buffers, state.index), x, tile * self.buffer, n)
            sync.producer_commit(state)
            state.advance()
            tile += cute.arch.grid_dim()[0]

    @cute.jit
    def consume(self, sync: cutlass.Constexpr, buffers, out, n: Int64, tile: Int64):
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 2)
        while tile * self.buffer < n:
            await_filled(sync, state)
            self.use(self.half(buffers, state.index), out, tile * self.buffer, n)
            cute.arch.sync_warp()  # the release is one lane's; the others must be done
            if cute.arch.lane_idx() == 0:
                sync.consumer_release(state)
            state.advance()
            tile += cute.arch.grid_dim()[0]


FORMS = {"tokens": Tokens, "parity": Parity, "pipeline": Pipeline}
BUFFER, CONSUMERS, BLOCKS_PER_SM = 1024, 4, 8  # elements of a buffer, consumer warps


def run(x, fn, *, form: str = "parity", buffer=None, consumers=None, blocks=None, out=None, stream=None):
    """``fn`` of every element of the vector ``x``; the arguments are those of producer_consumer.py."""
    fn, kernel = traceable(fn, "fn"), FORMS[choice(form, "form", FORMS)]
    buffer = BUFFER if buffer is None else whole(buffer, "buffer")
    consumers = consumer_warps(consumers, CONSUMERS)
    blocks = None if blocks is None else integer(blocks, "blocks", 1, (1 << 31) - 1)

    def task(x, _):
        total = 2 * buffer * x.dtype.size
        if buffer < 1 or total + 1024 > MOST_SHARED:
            came, most = f"2 * {buffer} * {x.dtype.size} = {total} bytes", MOST_SHARED - 1024
            raise ArgumentValueError(explain("buffer", came, f"1 element to {most} bytes of shared memory"))
        grid = blocks_of(x, blocks, total // 2, BLOCKS_PER_SM)
        return Task(x, Step(lambda dtype: kernel(fn, dtype, buffer, consumers), blocks=grid))

    return call(task, x, out, stream)


def reference(x: np.ndarray, fn) -> np.ndarray:
    """The same in NumPy."""
    return np.asarray(fn(np.asarray(x))).astype(x.dtype)
