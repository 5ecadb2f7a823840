"""One warpgroup multiplies with the tensor cores and touches the registers they work on, in time or (``fault``) not."""

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32
from cutlass.cute.nvgpu import warpgroup
from cutlass.memory import SmemAllocator
from cutlass.utils import hopper_helpers

SIDE, STEPS, DEPTH = 64, 4, 64


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
    for i in cutlass.range(thread, SIDE * DEPTH, 128, unroll=1):
        for k in cutlass.range_constexpr(STEPS):
            sa[i // DEPTH, i % DEPTH, k] = a[i // DEPTH, k * DEPTH + i % DEPTH]
            sb[i // DEPTH, i % DEPTH, k] = b[i // DEPTH, k * DEPTH + i % DEPTH]
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
            for block in cutlass.range_constexpr(DEPTH // 16):
                cute.gemm(mma, accumulators, tca[None, None, block], tcb[None, None, block, k], accumulators)
            warpgroup.commit_group()
        else:
            tca = mma.make_fragment_A(tcsa)
            if cutlass.const_expr(fault not in ("no fence", "one fence")):
                warpgroup.fence()
            for block in cutlass.range_constexpr(DEPTH // 16):
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
    ta, tb = (cute.make_tensor(x, cute.make_layout((SIDE, STEPS * DEPTH), stride=(STEPS * DEPTH, 1))) for x in (a, b))
    tc = cute.make_tensor(c, cute.make_layout((SIDE, SIDE), stride=(SIDE, 1)))
    k_major = cute.nvgpu.OperandMajorMode.K
    source = warpgroup.OperandSource.RMEM if from_registers else warpgroup.OperandSource.SMEM
    mma = hopper_helpers.make_trivial_tiled_mma(
        Float16, Float16, k_major, k_major, Float32, (1, 1, 1), (SIDE, SIDE), source
    )
    row = cutlass.tensor_utils.LayoutEnum.ROW_MAJOR
    layout_a = hopper_helpers.make_smem_layout_a(row, (SIDE, SIDE, DEPTH), Float16, STEPS)
    layout_b = hopper_helpers.make_smem_layout_b(row, (SIDE, SIDE, DEPTH), Float16, STEPS)
    product_kernel(ta, tb, tc, mma, layout_a, layout_b, steps, from_registers, fault).launch(
        grid=(1, 1, 1), block=(128, 1, 1)
    )
