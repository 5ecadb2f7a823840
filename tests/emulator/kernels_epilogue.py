"""The full shape of a Hopper matmul for the emulator's tests: a cluster of two blocks sharing B by multicast, a
producer warpgroup with few registers, two consumer warpgroups, and an epilogue through stmatrix, swizzled shared
memory and a tensor store. ``fault`` as elsewhere."""

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int16, Int32, pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

M, N, K, STAGES, CLUSTER, CONSUMERS = 128, 64, 64, 2, 2, 2
THREADS = 128 * (1 + CONSUMERS)


@cute.kernel
def kernel(
    atom_a: cute.CopyAtom,
    a: cute.Tensor,
    atom_b: cute.CopyAtom,
    b: cute.Tensor,
    atom_d: cute.CopyAtom,
    d: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    layout_d: cute.ComposedLayout,
    steps: Int32,
    fault: cutlass.Constexpr,
):
    """D (2 * 128, 64) = A B^T: block r of the cluster computes rows 128 r and up; each loads half of B for both."""
    thread = cute.arch.thread_idx()[0]
    group = cute.arch.make_warp_uniform(thread // 128)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    allocator = SmemAllocator()
    barriers = allocator.allocate_array(cutlass.Int64, 2 * STAGES)
    sa = allocator.allocate_tensor(Float16, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
    sb = allocator.allocate_tensor(Float16, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
    sd = allocator.allocate_tensor(Float16, layout_d.outer, byte_alignment=1024, swizzle=layout_d.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        barrier_storage=barriers,
        tx_count=(M + N) * K * 2,
        cta_layout_vmnk=cute.make_layout((1, 2, 1, 1)),
        mcast_mode_mn=(0, 1),
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, CLUSTER * 4 * CONSUMERS),
    )
    ta, ga = cpasync.tma_partition(
        atom_a,
        0,
        cute.make_layout(1),
        cute.group_modes(sa, 0, 2),
        cute.group_modes(cute.local_tile(a, (M, K), (rank, None)), 0, 2),
    )
    tb, gb = cpasync.tma_partition(
        atom_b,
        rank,
        cute.make_layout(CLUSTER),
        cute.group_modes(sb, 0, 2),
        cute.group_modes(cute.local_tile(b, (N, K), (0, None)), 0, 2),
    )
    if group == 0:
        cute.arch.setmaxregister_decrease(40)
        if cute.arch.make_warp_uniform(thread // 32) == 0:
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for k in cutlass.range(steps, unroll=1):
                ring.producer_acquire(state)
                cute.copy(atom_a, ga[None, k], ta[None, state.index], tma_bar_ptr=ring.producer_get_barrier(state))
                cute.copy(
                    atom_b,
                    gb[None, k],
                    tb[None, state.index],
                    tma_bar_ptr=ring.producer_get_barrier(state),
                    mcast_mask=Int16(3),
                )
                ring.producer_commit(state)
                state.advance()
            ring.producer_tail(state)
    else:
        cute.arch.setmaxregister_increase(232)
        mine = thread - 128
        part = mma.get_slice(mine)
        tca, tcb = mma.make_fragment_A(part.partition_A(sa)), mma.make_fragment_B(part.partition_B(sb))
        accumulators = cute.make_rmem_tensor(part.partition_C(cute.make_identity_tensor((M, N))).shape, Float32)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        mma.set(warpgroup.Field.ACCUMULATE, False)
        for _ in cutlass.range(steps, unroll=1):
            ring.consumer_wait(state)
            warpgroup.fence()
            for block in cutlass.range_constexpr(K // 16):
                cute.gemm(
                    mma,
                    accumulators,
                    tca[None, None, block, state.index],
                    tcb[None, None, block, state.index],
                    accumulators,
                )
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ring.consumer_release(state)
            state.advance()
        store = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4, transpose=False), Float16)
        copier = cute.make_tiled_copy_C(store, mma).get_slice(mine)
        rounded = cute.make_rmem_tensor(accumulators.shape, Float16)
        rounded.store(accumulators.load().to(Float16))
        cute.copy(store, copier.retile(rounded), copier.partition_D(sd[None, None, 0]))
        if cutlass.const_expr(fault != "no_proxy_fence"):
            cute.arch.fence_proxy("async.shared", space="cta")
        if cutlass.const_expr(fault != "no_named_barrier"):
            cute.arch.barrier(barrier_id=1, number_of_threads=128 * CONSUMERS)
        if cute.arch.make_warp_uniform(thread // 32) == 4:
            td, gd = cpasync.tma_partition(
                atom_d,
                0,
                cute.make_layout(1),
                cute.group_modes(sd, 0, 2),
                cute.group_modes(cute.local_tile(d, (M, N), (None, 0)), 0, 2),
            )
            cute.copy(atom_d, td[None, 0], gd[None, rank])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def matmul(a: cute.Pointer, b: cute.Pointer, d: cute.Pointer, k: Int32, fault: cutlass.Constexpr):
    ta = cute.make_tensor(a, cute.make_layout((CLUSTER * M, k), stride=(k, 1)))
    tb = cute.make_tensor(b, cute.make_layout((N, k), stride=(k, 1)))
    td = cute.make_tensor(d, cute.make_layout((CLUSTER * M, N), stride=(N, 1)))
    k_major = cute.nvgpu.OperandMajorMode.K
    mma = hopper_helpers.make_trivial_tiled_mma(Float16, Float16, k_major, k_major, Float32, (CONSUMERS, 1, 1), (64, N))
    row = LayoutEnum.ROW_MAJOR
    layout_a = hopper_helpers.make_smem_layout_a(row, (M, N, K), Float16, STAGES)
    layout_b = hopper_helpers.make_smem_layout_b(row, (M, N, K), Float16, STAGES)
    layout_d = hopper_helpers.make_smem_layout_epi(Float16, row, (M, N), 1)
    atom_a, ma = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), ta, cute.slice_(layout_a, (None, None, 0)), (M, K)
    )
    atom_b, mb = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(),
        tb,
        cute.slice_(layout_b, (None, None, 0)),
        (N, K),
        num_multicast=CLUSTER,
    )
    atom_d, md = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), td, cute.slice_(layout_d, (None, None, 0)), (M, N)
    )
    kernel(atom_a, ma, atom_b, mb, atom_d, md, mma, layout_a, layout_b, layout_d, (k + K - 1) // K, fault).launch(
        grid=(CLUSTER, 1, 1), block=(THREADS, 1, 1), cluster=(CLUSTER, 1, 1), min_blocks_per_mp=1
    )
