"""Listings of the source documents, rebuilt with their defects (and without, where that shows the difference)."""

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator

from .hosts import host
from .kernels_basic import vector
from .kernels_matmul import SIDE, STAGES, k_major, multiply, operands

THREADS = 64


@host(block=THREADS, grid=lambda n, **_: (n + THREADS - 1) // THREADS)
@cute.kernel
def global_reduction(x: cute.Pointer, n: Int32):
    """The naive global reduction: a tree over the whole array, with a barrier that orders one block only."""
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    data = vector(x, n)
    stride = Int32(1)
    while stride < n:
        if i % (2 * stride) == 0:
            if i + stride < n:
                data[i] = data[i] + data[i + stride]
        cute.arch.barrier()
        stride = stride * 2


@host(block=THREADS, grid=lambda n, **_: (n + THREADS - 1) // THREADS)
@cute.kernel
def atomic_reduction(x: cute.Pointer, out: cute.Pointer, n: Int32):
    """The atomic reduction, which never zeroes its output."""
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if i < n:
        cute.arch.atomic_add(out, vector(x, n)[i])


@host(block=THREADS, grid=None)
@cute.kernel
def block_reduction(x: cute.Pointer, out: cute.Pointer):
    """A block reduction with no bound on its reads."""
    t = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    cell = SmemAllocator().allocate_tensor(Int32, cute.make_layout(THREADS), byte_alignment=16)
    cell[t] = vector(x, 1 << 20)[block * THREADS + t]
    cute.arch.barrier()
    for step in cutlass.range_constexpr(6):
        if t % (2 << step) == 0:
            cell[t] = cell[t] + cell[t + (1 << step)]
        cute.arch.barrier()
    if t == 0:
        vector(out, 1 << 20)[block] = cell[0]


@host(block=64)
@cute.kernel
def two_partitions(x: cute.Pointer, y: cute.Pointer, n: Int32, length: cutlass.Constexpr, tail: cutlass.Constexpr):
    """Producer and consumer warps, two buffers, two mbarriers a buffer. The listing runs n / length rounds: a ragged
    tail is dropped.
    """
    t = cute.arch.thread_idx()[0]
    lane = t % 32
    allocator = SmemAllocator()
    ready = allocator.allocate_array(cutlass.Int64, 2)
    filled = allocator.allocate_array(cutlass.Int64, 2)
    buffer = allocator.allocate_tensor(Int32, cute.make_layout((length, 2)), byte_alignment=16)
    if t < 2:
        cute.arch.mbarrier_init(ready + t, 32)
        cute.arch.mbarrier_init(filled + t, 32)
        cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    rounds = n // length
    if cutlass.const_expr(tail):
        rounds = (n + length - 1) // length
    for i in cutlass.range(rounds, unroll=1):
        half, parity = i % 2, i // 2 % 2
        if t < 32:
            cute.arch.mbarrier_wait(ready + half, parity ^ 1)
            for j in cutlass.range(lane, length, 32, unroll=1):
                if i * length + j < n:
                    buffer[j, half] = vector(x, n)[i * length + j]
            cute.arch.mbarrier_arrive(filled + half)
        else:
            cute.arch.mbarrier_wait(filled + half, parity)
            for j in cutlass.range(lane, length, 32, unroll=1):
                if i * length + j < n:
                    vector(y, n)[i * length + j] = buffer[j, half] + 1
            cute.arch.mbarrier_arrive(ready + half)


@host(block=THREADS)
@cute.kernel
def take(items: cute.Pointer, count: cute.Pointer, got: cute.Pointer):
    """ProCon's take: the counter goes down before anybody looks whether there was something to take."""
    t = cute.arch.thread_idx()[0]
    place = cute.arch.atomic_add(count, Int32(-1))
    if place >= 1:
        vector(got, THREADS)[t] = vector(items, THREADS)[place - 1]


@cute.kernel
def skeleton_kernel(
    atom_a: cute.CopyAtom,
    a: cute.Tensor,
    atom_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    steps: Int32,
    faults: cutlass.Constexpr,
):
    """The matmul skeleton: warpgroup 1 loads, warpgroup 0 multiplies. ``faults`` are the listing's own, by name."""
    thread = cute.arch.thread_idx()[0]
    warp = cute.arch.make_warp_uniform(thread // 32)
    allocator = SmemAllocator()
    full = allocator.allocate_array(cutlass.Int64, STAGES)
    empty = allocator.allocate_array(cutlass.Int64, STAGES)
    sa = allocator.allocate_tensor(Float16, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
    sb = allocator.allocate_tensor(Float16, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
    if thread == 0:
        for s in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + s, 128 if "full_counts_128" in faults else 1)
            if cutlass.const_expr("no_empty_init" not in faults):
                cute.arch.mbarrier_init(empty + s, 128)
        cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
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
    if warp >= 4:
        if cutlass.const_expr("setmaxnreg_one_warp" in faults):
            if warp == 4:
                cute.arch.setmaxregister_decrease(40)
        else:
            cute.arch.setmaxregister_decrease(40)
        if warp == 4:
            for k in cutlass.range(steps, unroll=1):
                stage, parity = k % STAGES, k // STAGES % 2
                if cutlass.const_expr("no_parity" in faults):
                    parity = Int32(1)
                cute.arch.mbarrier_wait(empty + stage, parity ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, 2 * SIDE * SIDE * 2)
                cute.copy(atom_a, ga[None, k], ta[None, stage], tma_bar_ptr=full + stage)
                cute.copy(atom_b, gb[None, k], tb[None, stage], tma_bar_ptr=full + stage)
    else:
        cute.arch.setmaxregister_increase(232)
        part = mma.get_slice(thread)
        tca, tcb, tcc = (
            mma.make_fragment_A(part.partition_A(sa)),
            mma.make_fragment_B(part.partition_B(sb)),
            part.partition_C(c),
        )
        accumulators = cute.make_rmem_tensor(tcc.shape, Float32)
        accumulators.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for k in cutlass.range(steps, unroll=1):
            stage, parity = k % STAGES, k // STAGES % 2
            if cutlass.const_expr("no_parity" in faults):
                parity = Int32(0)
            cute.arch.mbarrier_wait(full + stage, parity)
            multiply(mma, accumulators, tca, tcb, stage)
            if cutlass.const_expr("release_after_commit" not in faults):
                warpgroup.wait_group(0)
            cute.arch.mbarrier_arrive(empty + stage)
        warpgroup.wait_group(0)
        for i in cutlass.range_constexpr(cute.size(accumulators)):
            tcc[i] = accumulators[i]


@cute.jit
def skeleton(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, k: Int32, faults: cutlass.Constexpr):
    ta, tb, tc = k_major(a, SIDE, k), k_major(b, SIDE, k), k_major(c, SIDE, SIDE)
    mma, layout_a, layout_b = operands(SIDE, STAGES)
    load = cpasync.CopyBulkTensorTileG2SOp()
    atom_a, ma = cpasync.make_tiled_tma_atom(load, ta, cute.slice_(layout_a, (None, None, 0)), (SIDE, SIDE))
    atom_b, mb = cpasync.make_tiled_tma_atom(load, tb, cute.slice_(layout_b, (None, None, 0)), (SIDE, SIDE))
    steps = k // SIDE if "drops_tail" in faults else (k + SIDE - 1) // SIDE
    skeleton_kernel(atom_a, ma, atom_b, mb, tc, mma, layout_a, layout_b, steps, faults).launch(
        grid=(1, 1, 1), block=(256, 1, 1), min_blocks_per_mp=1
    )
