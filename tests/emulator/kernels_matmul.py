"""Kernels that multiply with the tensor cores: a small warp-specialised matmul, one of the full shape of a Hopper
matmul, and one warpgroup that touches the registers they work on."""

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int16, Int32, pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

SIDE, STAGES = 64, 2  # rows, columns and depth of a warpgroup's step; steps in flight
M, CLUSTER, CONSUMERS = 128, 2, 2  # of the full shape: rows of a block, blocks, warpgroups that multiply
STEPS = 4  # of k, all in shared memory at once


def k_major(pointer, rows, k):
    return cute.make_tensor(pointer, cute.make_layout((rows, k), stride=(k, 1)))


def operands(rows: int, stages: int, *source) -> tuple:
    """The multiplication of float16 matrices, both K-major, and the layouts of their stages."""
    major, row = cute.nvgpu.OperandMajorMode.K, LayoutEnum.ROW_MAJOR
    mma = hopper_helpers.make_trivial_tiled_mma(
        Float16, Float16, major, major, Float32, (rows // SIDE, 1, 1), (SIDE, SIDE), *source
    )
    tile = (rows, SIDE, SIDE)
    layout_a = hopper_helpers.make_smem_layout_a(row, tile, Float16, stages)
    return mma, layout_a, hopper_helpers.make_smem_layout_b(row, tile, Float16, stages)


def multiply(mma, accumulators, a, b, stage) -> None:
    """One stage is added to the accumulators by a group of its own."""
    warpgroup.fence()
    for block in range(SIDE // 16):
        cute.gemm(mma, accumulators, a[None, None, block, stage], b[None, None, block, stage], accumulators)
    warpgroup.commit_group()


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
        tx_count=2 * SIDE * SIDE * 2,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4),
    )
    ta, ga = cpasync.tma_partition(
        atom_a,
        0,
        cute.make_layout(1),
        cute.group_modes(sa, 0, 2),
        cute.group_modes(cute.local_tile(a, (SIDE, SIDE), (0, None)), 0, 2),
    )
    tb, gb = cpasync.tma_partition(
        atom_b,
        0,
        cute.make_layout(1),
        cute.group_modes(sb, 0, 2),
        cute.group_modes(cute.local_tile(b, (SIDE, SIDE), (0, None)), 0, 2),
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
        accumulators.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for _ in cutlass.range(steps, unroll=1):
            ring.consumer_wait(state)
            multiply(mma, accumulators, tca, tcb, state.index)
            warpgroup.wait_group(0)
            cute.arch.sync_warp()
            ring.consumer_release(state)
            state.advance()
        warpgroup.wait_group(0)
        for i in cutlass.range_constexpr(cute.size(accumulators)):
            tcc[i] = accumulators[i]


@cute.jit
def matmul(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, k: Int32):
    mma, layout_a, layout_b = operands(SIDE, STAGES)
    load, box = cpasync.CopyBulkTensorTileG2SOp(), (SIDE, SIDE)
    atom_a, ma = cpasync.make_tiled_tma_atom(load, k_major(a, SIDE, k), cute.slice_(layout_a, (None, None, 0)), box)
    atom_b, mb = cpasync.make_tiled_tma_atom(load, k_major(b, SIDE, k), cute.slice_(layout_b, (None, None, 0)), box)
    tc = k_major(c, SIDE, SIDE)
    matmul_kernel(atom_a, ma, atom_b, mb, tc, mma, layout_a, layout_b, (k + SIDE - 1) // SIDE).launch(
        grid=(1, 1, 1), block=(160, 1, 1)
    )


@cute.kernel
def clustered_kernel(
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
):
    """D (2 * 128, 64) = A B^T by a cluster of two blocks: block r computes rows 128 r and up, and loads half of B for
    both by multicast. A producer warpgroup has few registers; the epilogue of the two consumer warpgroups goes through
    stmatrix, swizzled shared memory and a tensor store."""
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
        tx_count=(M + SIDE) * SIDE * 2,
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
        cute.group_modes(cute.local_tile(a, (M, SIDE), (rank, None)), 0, 2),
    )
    tb, gb = cpasync.tma_partition(
        atom_b,
        rank,
        cute.make_layout(CLUSTER),
        cute.group_modes(sb, 0, 2),
        cute.group_modes(cute.local_tile(b, (SIDE, SIDE), (0, None)), 0, 2),
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
        accumulators = cute.make_rmem_tensor(part.partition_C(cute.make_identity_tensor((M, SIDE))).shape, Float32)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        accumulators.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for _ in cutlass.range(steps, unroll=1):
            ring.consumer_wait(state)
            multiply(mma, accumulators, tca, tcb, state.index)
            warpgroup.wait_group(0)
            ring.consumer_release(state)
            state.advance()
        store = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4, transpose=False), Float16)
        copier = cute.make_tiled_copy_C(store, mma).get_slice(mine)
        rounded = cute.make_rmem_tensor(accumulators.shape, Float16)
        rounded.store(accumulators.load().to(Float16))
        cute.copy(store, copier.retile(rounded), copier.partition_D(sd[None, None, 0]))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=1, number_of_threads=128 * CONSUMERS)
        if cute.arch.make_warp_uniform(thread // 32) == 4:
            td, gd = cpasync.tma_partition(
                atom_d,
                0,
                cute.make_layout(1),
                cute.group_modes(sd, 0, 2),
                cute.group_modes(cute.local_tile(d, (M, SIDE), (None, 0)), 0, 2),
            )
            cute.copy(atom_d, td[None, 0], gd[None, rank])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def clustered(a: cute.Pointer, b: cute.Pointer, d: cute.Pointer, k: Int32):
    mma, layout_a, layout_b = operands(M, STAGES)
    layout_d = hopper_helpers.make_smem_layout_epi(Float16, LayoutEnum.ROW_MAJOR, (M, SIDE), 1)
    stage_a, stage_b, stage_d = (cute.slice_(layout, (None, None, 0)) for layout in (layout_a, layout_b, layout_d))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    share = cpasync.CopyBulkTensorTileG2SMulticastOp()
    tb, td = k_major(b, SIDE, k), k_major(d, CLUSTER * M, SIDE)
    atom_a, ma = cpasync.make_tiled_tma_atom(load, k_major(a, CLUSTER * M, k), stage_a, (M, SIDE))
    atom_b, mb = cpasync.make_tiled_tma_atom(share, tb, stage_b, (SIDE, SIDE), num_multicast=CLUSTER)
    atom_d, md = cpasync.make_tiled_tma_atom(store, td, stage_d, (M, SIDE))
    steps, block = (k + SIDE - 1) // SIDE, (128 * (1 + CONSUMERS), 1, 1)
    clustered_kernel(atom_a, ma, atom_b, mb, atom_d, md, mma, layout_a, layout_b, layout_d, steps).launch(
        grid=(CLUSTER, 1, 1), block=block, cluster=(CLUSTER, 1, 1), min_blocks_per_mp=1
    )


@cute.kernel
def product_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    steps: Int32,
    from_registers: cutlass.Constexpr,
    fault: cutlass.Constexpr,
):
    """C = A B^T with one group of wgmma in flight across steps; A comes from registers or from shared memory."""
    thread = cute.arch.thread_idx()[0]
    allocator = SmemAllocator()
    sa = allocator.allocate_tensor(Float16, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
    sb = allocator.allocate_tensor(Float16, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
    for i in cutlass.range(thread, SIDE * SIDE, 128, unroll=1):
        for k in cutlass.range_constexpr(STEPS):
            sa[i // SIDE, i % SIDE, k] = a[i // SIDE, k * SIDE + i % SIDE]
            sb[i // SIDE, i % SIDE, k] = b[i // SIDE, k * SIDE + i % SIDE]
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.barrier()
    part = mma.get_slice(thread)
    tcb, tcc = mma.make_fragment_B(part.partition_B(sb)), part.partition_C(c)
    tcsa = part.partition_A(sa)
    accumulators = cute.make_rmem_tensor(tcc.shape, Float32)
    accumulators.fill(0.0)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    if cutlass.const_expr(fault == "one fence"):
        warpgroup.fence()
    for k in cutlass.range(steps, unroll=1):
        if cutlass.const_expr(from_registers):
            tca = mma.make_fragment_A(tcsa[None, None, None, 0])
            if cutlass.const_expr(fault != "fragment overwritten"):
                warpgroup.wait_group(0)
            for i in cutlass.range_constexpr(cute.size(tca)):
                tca[i] = tcsa[None, None, None, k][i]
            if cutlass.const_expr(fault not in ("no fence", "one fence")):
                warpgroup.fence()
            for block in cutlass.range_constexpr(SIDE // 16):
                cute.gemm(mma, accumulators, tca[None, None, block], tcb[None, None, block, k], accumulators)
            warpgroup.commit_group()
        else:
            tca = mma.make_fragment_A(tcsa)
            if cutlass.const_expr(fault not in ("no fence", "one fence")):
                warpgroup.fence()
            for block in cutlass.range_constexpr(SIDE // 16):
                cute.gemm(mma, accumulators, tca[None, None, block, k], tcb[None, None, block, k], accumulators)
            warpgroup.commit_group()
            if cutlass.const_expr(fault == "accumulators scaled"):
                accumulators[0] = accumulators[0] * Float32(0.5)
            warpgroup.wait_group(1)
    if cutlass.const_expr(fault != "read before the wait"):
        warpgroup.wait_group(0)
    for i in cutlass.range_constexpr(cute.size(accumulators)):
        tcc[i] = accumulators[i]


@cute.jit
def product(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    steps: Int32,
    from_registers: cutlass.Constexpr,
    fault: cutlass.Constexpr,
):
    ta, tb = (k_major(x, SIDE, STEPS * SIDE) for x in (a, b))
    source = warpgroup.OperandSource.RMEM if from_registers else warpgroup.OperandSource.SMEM
    mma, layout_a, layout_b = operands(SIDE, STEPS, source)
    product_kernel(ta, tb, k_major(c, SIDE, SIDE), mma, layout_a, layout_b, steps, from_registers, fault).launch(
        grid=(1, 1, 1), block=(128, 1, 1)
    )
