"""Warp-specialised pipelines for the emulator's tests: one producer warp, two consumer warps, a ring of stages."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from .hosts import host

ROWS, COLUMNS, STAGES, CONSUMERS = 8, 32, 3, 2
TILE_BYTES = ROWS * COLUMNS * 4
ARRIVALS = CONSUMERS  # a stage that is released


@cute.kernel
def stream_kernel(atom: cute.CopyAtom, source: cute.Tensor, out: cute.Tensor, tiles: Int32):
    """``out = source + 1``, tile by tile through shared memory: tensor copies in, ordinary loads and stores out."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(thread // 32)
    lane = thread % 32
    allocator = SmemAllocator()
    barriers = allocator.allocate_array(cutlass.Int64, 2 * STAGES)
    tile = allocator.allocate_tensor(
        Float32, cute.make_layout((ROWS, COLUMNS, STAGES), stride=(COLUMNS, 1, ROWS * COLUMNS)), byte_alignment=128
    )
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        barrier_storage=barriers,
        tx_count=TILE_BYTES,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, ARRIVALS),
    )
    shared, tiled = cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(tile, 0, 2),
        cute.group_modes(cute.local_tile(source, (ROWS, COLUMNS), (None, 0)), 0, 2),
    )
    if warp == 0:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for i in cutlass.range(tiles, unroll=1):
            ring.producer_acquire(state)
            cute.copy(atom, tiled[None, i], shared[None, state.index], tma_bar_ptr=ring.producer_get_barrier(state))
            ring.producer_commit(state)
            state.advance()
        ring.producer_tail(state)
    else:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for i in cutlass.range(tiles, unroll=1):
            ring.consumer_wait(state)
            for r in cutlass.range_constexpr(ROWS // CONSUMERS):
                row = r * CONSUMERS + warp - 1
                out[i * ROWS + row, lane] = tile[row, lane, state.index] + Float32(1.0)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            ring.consumer_release(state)
            state.advance()


@cute.jit
def stream_tiles(x: cute.Pointer, y: cute.Pointer, tiles: Int32):
    layout = cute.make_layout((tiles * ROWS, COLUMNS), stride=(COLUMNS, 1))
    source, out = cute.make_tensor(x, layout), cute.make_tensor(y, layout)
    atom, mapped = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(),
        source,
        cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1)),
        (ROWS, COLUMNS),
    )
    stream_kernel(atom, mapped, out, tiles).launch(grid=(1, 1, 1), block=(32 * (1 + CONSUMERS), 1, 1))


@host(block=64)
@cute.kernel
def fill(out: cute.Pointer, tiles: Int32):
    """Two shared buffers in turn: all threads fill one, then one thread copies it to global memory in bulk."""
    thread = cute.arch.thread_idx()[0]
    buffer = SmemAllocator().allocate_tensor(Int32, cute.make_layout((64, 2)), byte_alignment=128)
    for i in cutlass.range(tiles, unroll=1):
        half = i % 2
        if thread == 0:
            cute.arch.cp_async_bulk_wait_group(1, read=True)
        cute.arch.barrier()
        buffer[thread, half] = i * 64 + thread
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier()
        if thread == 0:
            primitives.cp_async_bulk_global_shared_cta(out + i * 64, buffer.iterator + half * 64, 256)
            cute.arch.cp_async_bulk_commit_group()
    if thread == 0:
        cute.arch.cp_async_bulk_wait_group(0)


@host(block=96)
@cute.kernel
def take_turns(out: cute.Pointer, rounds: Int32):
    """Warp 0 tells ``rounds`` times, by a barrier that counts one arrival; warp 1 listens, and answers so that it is
    not overrun. Warp 2 waits for the last phase only, once the block barrier says that it is the last one."""
    thread = cute.arch.thread_idx()[0]
    barriers = SmemAllocator().allocate_array(cutlass.Int64, 2)
    told, heard = barriers, barriers + 1
    if thread == 0:
        cute.arch.mbarrier_init(told, 1)
        cute.arch.mbarrier_init(heard, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    if thread == 0:
        for i in cutlass.range(rounds, unroll=1):
            cute.arch.mbarrier_wait(heard, (i + 1) % 2)
            cute.arch.mbarrier_arrive(told)
    if thread == 32:
        for i in cutlass.range(rounds, unroll=1):
            cute.arch.mbarrier_wait(told, i % 2)
            cute.arch.mbarrier_arrive(heard)
        cute.make_tensor(out, cute.make_layout(1))[0] = rounds
    cute.arch.barrier()
    if thread == 64:
        cute.arch.mbarrier_wait(told, (rounds - 1) % 2)
