"""A small warp-specialised matmul for the emulator's tests: tensor copies in, wgmma, a plain store epilogue. ``fault``
names what is wrong.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.utils import hopper_helpers

M, N, K, STAGES = 64, 64, 64, 2


@cute.kernel
def matmul_kernel(
    atom_a: cute.CopyAtom,
    a: cute.Tensor,
    atom_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    steps: Int32,
    fault: cutlass.Constexpr,
):
    """One tile of C = A B^T, both K-major: warps 0-3 multiply, warp 4 loads."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(thread // 32)
    allocator = SmemAllocator()
    barriers = allocator.allocate_array(cutlass.Int64, 2 * STAGES)
    sa = allocator.allocate_tensor(Float16, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
    sb = allocator.allocate_tensor(Float16, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=STAGES,
        barrier_storage=barriers,
        tx_count=(M + N) * K * 2,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
    )
    ta, ga = cpasync.tma_partition(
        atom_a,
        0,
        cute.make_layout(1),
        cute.group_modes(sa, 0, 2),
        cute.group_modes(cute.local_tile(a, (M, K), (0, None)), 0, 2),
    )
    tb, gb = cpasync.tma_partition(
        atom_b,
        0,
        cute.make_layout(1),
        cute.group_modes(sb, 0, 2),
        cute.group_modes(cute.local_tile(b, (N, K), (0, None)), 0, 2),
    )
    if warp == 4:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for k in cutlass.range(steps, unroll=1):
            ring.producer_acquire(state)
            cute.copy(atom_a, ga[None, k], ta[None, state.index], tma_bar_ptr=ring.producer_get_barrier(state))
            cute.copy(atom_b, gb[None, k], tb[None, state.index], tma_bar_ptr=ring.producer_get_barrier(state))
            ring.producer_commit(state)
            state.advance()
        ring.producer_tail(state)
    else:
        part = mma.get_slice(thread)
        tca, tcb, tcc = (
            mma.make_fragment_A(part.partition_A(sa)),
            mma.make_fragment_B(part.partition_B(sb)),
            part.partition_C(c),
        )
        accumulators = cute.make_rmem_tensor(tcc.shape, Float32)
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
            if cutlass.const_expr(fault != "release_before_wait"):
                warpgroup.wait_group(0)
            cute.arch.sync_warp()
            ring.consumer_release(state)
            state.advance()
        warpgroup.wait_group(0)
        for i in cutlass.range_constexpr(cute.size(accumulators)):
            tcc[i] = accumulators[i]


@cute.jit
def matmul(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, k: Int32, fault: cutlass.Constexpr):
    ta = cute.make_tensor(a, cute.make_layout((M, k), stride=(k, 1)))
    tb = cute.make_tensor(b, cute.make_layout((N, k), stride=(k, 1)))
    tc = cute.make_tensor(c, cute.make_layout((M, N), stride=(N, 1)))
    k_major = cute.nvgpu.OperandMajorMode.K
    mma = hopper_helpers.make_trivial_tiled_mma(Float16, Float16, k_major, k_major, Float32, (1, 1, 1), (M, N))
    row = cutlass.tensor_utils.LayoutEnum.ROW_MAJOR
    layout_a = hopper_helpers.make_smem_layout_a(row, (M, N, K), Float16, STAGES)
    layout_b = hopper_helpers.make_smem_layout_b(row, (M, N, K), Float16, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, ma = cpasync.make_tiled_tma_atom(load, ta, cute.slice_(layout_a, (None, None, 0)), (M, K))
    atom_b, mb = cpasync.make_tiled_tma_atom(load, tb, cute.slice_(layout_b, (None, None, 0)), (N, K))
    matmul_kernel(atom_a, ma, atom_b, mb, tc, mma, layout_a, layout_b, (k + K - 1) // K, fault).launch(
        grid=(1, 1, 1), block=(160, 1, 1)
    )
