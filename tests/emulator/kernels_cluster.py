"""Clusters for the emulator's tests: distributed shared memory, remote arrivals, asynchronous stores, multicast."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, pipeline
from cutlass.cute.arch import inline_ptx, map_dsmem_ptr
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from .hosts import host

PEERS = 4
GATHERED = 4 * PEERS  # bytes
ROWS, COLUMNS, STAGES, TILES = 16, 32, 2, 5


def meet() -> None:
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@host(block=32, grid=None, cluster=(PEERS, 1, 1))
@cute.kernel
def read_peer(out: cute.Pointer):
    """Every block reads what its neighbour in the cluster wrote into shared memory."""
    thread = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    rank = cute.arch.block_idx_in_cluster()
    cell = SmemAllocator().allocate_tensor(Int32, cute.make_layout(32), byte_alignment=16)
    cell[thread] = block * 100 + thread
    meet()
    peer = map_dsmem_ptr(cell.iterator, (rank + 1) % PEERS)
    theirs = inline_ptx(
        "ld.shared::cluster.u32 {$w0}, [{$r0}];",
        write_only_types=[Int32],
        read_only_args=[(peer + (31 - thread)).toint()],
    )
    cute.make_tensor(out, cute.make_layout(1 << 20))[block * 32 + thread] = theirs
    meet()


@host(block=32, grid=None, cluster=(PEERS, 1, 1))
@cute.kernel
def gather(out: cute.Pointer):
    """Each block sends one number to every block of its cluster by ``st.async``; each adds up what came."""
    thread = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    rank = cute.arch.block_idx_in_cluster()
    allocator = SmemAllocator()
    barrier = allocator.allocate_array(cutlass.Int64, 1)
    cell = allocator.allocate_tensor(Int32, cute.make_layout(PEERS), byte_alignment=16)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, GATHERED)
    meet()
    if thread < PEERS:
        cute.arch.store_async_dsmem(cell.iterator + rank, block + 1, barrier, thread)
    cute.arch.mbarrier_wait(barrier, 0)
    if thread == 0:
        total = Int32(0)
        for i in cutlass.range_constexpr(PEERS):
            total = total + cell[i]
        cute.make_tensor(out, cute.make_layout(1 << 20))[block] = total
    meet()


@host(block=32, grid=2, cluster=(2, 1, 1))
@cute.kernel
def hand_over(out: cute.Pointer, scope: cutlass.Constexpr):
    """Block 0 writes into block 1's shared memory and arrives on its mbarrier at ``scope``; block 1 waits and reads."""
    thread = cute.arch.thread_idx()[0]
    rank = cute.arch.block_idx_in_cluster()
    allocator = SmemAllocator()
    barrier = allocator.allocate_array(cutlass.Int64, 1)
    cell = allocator.allocate_tensor(Int32, cute.make_layout(32), byte_alignment=16)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 32)
        cute.arch.mbarrier_init_fence()
    meet()
    if rank == 0:
        inline_ptx(
            "st.shared::cluster.u32 [{$r0}], {$r1};",
            read_only_args=[(map_dsmem_ptr(cell.iterator, 1) + thread).toint(), thread * 3],
        )
        inline_ptx(
            f"mbarrier.arrive.release.{scope}.shared::cluster.b64 _, [{{$r0}}];",
            read_only_args=[map_dsmem_ptr(barrier, 1).toint()],
        )
    else:
        inline_ptx(
            "{ .reg .pred P; AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [{$r0}], 0; "
            "@!P bra AGAIN; }",
            read_only_args=[barrier.toint()],
        )
        cute.make_tensor(out, cute.make_layout(32))[thread] = cell[31 - thread]
    meet()


@cute.kernel
def multicast_kernel(atom: cute.CopyAtom, source: cute.Tensor, out: cute.Tensor):
    """Both blocks of a cluster get every tile; each loads half of it for both. Block r writes to ``out[r]``."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(thread // 32)
    lane = thread % 32
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    allocator = SmemAllocator()
    barriers = allocator.allocate_array(cutlass.Int64, 2 * STAGES)
    tile = allocator.allocate_tensor(
        Float32, cute.make_layout((ROWS, COLUMNS, STAGES), stride=(COLUMNS, 1, ROWS * COLUMNS)), byte_alignment=128
    )
    cluster = cute.make_layout((1, 1, 2, 1))
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        barrier_storage=barriers,
        tx_count=ROWS * COLUMNS * 4,
        cta_layout_vmnk=cluster,
        mcast_mode_mn=(1, 0),
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 2),
    )
    shared, tiled = cpasync.tma_partition(
        atom,
        rank,
        cute.make_layout(2),
        cute.group_modes(tile, 0, 2),
        cute.group_modes(cute.local_tile(source, (ROWS, COLUMNS), (None, 0)), 0, 2),
    )
    if warp == 0:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for i in cutlass.range(TILES, unroll=1):
            ring.producer_acquire(state)
            cute.copy(
                atom,
                tiled[None, i],
                shared[None, state.index],
                tma_bar_ptr=ring.producer_get_barrier(state),
                mcast_mask=cutlass.Int16(3),
            )
            ring.producer_commit(state)
            state.advance()
        ring.producer_tail(state)
    else:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for i in cutlass.range(TILES, unroll=1):
            ring.consumer_wait(state)
            for r in cutlass.range_constexpr(ROWS):
                out[rank, i * ROWS + r, lane] = tile[r, lane, state.index]
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            ring.consumer_release(state)
            state.advance()


@cute.jit
def multicast(x: cute.Pointer, y: cute.Pointer):
    source = cute.make_tensor(x, cute.make_layout((TILES * ROWS, COLUMNS), stride=(COLUMNS, 1)))
    out = cute.make_tensor(y, cute.make_layout((2, TILES * ROWS, COLUMNS), stride=(TILES * ROWS * COLUMNS, COLUMNS, 1)))
    atom, mapped = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(),
        source,
        cute.make_layout((ROWS, COLUMNS), stride=(COLUMNS, 1)),
        (ROWS, COLUMNS),
        num_multicast=2,
    )
    multicast_kernel(atom, mapped, out).launch(grid=(2, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1))
