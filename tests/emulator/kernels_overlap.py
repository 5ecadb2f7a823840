"""A launch that may start before the one before it has ended, for the emulator's tests. ``how`` says who waits for that
one, and when.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

THREADS = 64


@cute.kernel
def add_kernel(x: cute.Pointer, y: cute.Pointer, weights: cute.Pointer, how: cutlass.Constexpr):
    """``y = x + weights``, an element a thread. A bulk copy brings the weights."""
    thread = cute.arch.thread_idx()[0]
    i = cute.arch.block_idx()[0] * THREADS + thread
    allocator = SmemAllocator()
    barrier = allocator.allocate_array(cutlass.Int64, 1)
    copied = allocator.allocate_tensor(Int32, cute.make_layout(THREADS), byte_alignment=16)
    cute.arch.griddepcontrol_launch_dependents()
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(how == "one warp of two"):
        if thread < 32:
            cute.arch.griddepcontrol_wait()
    if cutlass.const_expr(how == "every thread"):
        cute.arch.griddepcontrol_wait()
    cute.arch.sync_threads()
    if thread == 0:
        if cutlass.const_expr(how == "the copying thread"):
            cute.arch.griddepcontrol_wait()
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, 4 * THREADS)
        source = cute.make_tensor(
            cute.make_ptr(Int32, weights.toint(), cute.AddressSpace.gmem, assumed_align=16), cute.make_layout(THREADS)
        )
        cute.copy(cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Int32), source, copied, mbar_ptr=barrier)
    if cutlass.const_expr(how == "after the copy"):
        cute.arch.griddepcontrol_wait()
    cute.arch.mbarrier_wait(barrier, 0)
    cute.make_tensor(y, cute.make_layout(1 << 20))[i] = (
        cute.make_tensor(x, cute.make_layout(1 << 20))[i] + copied[thread]
    )


@cute.jit
def add(
    x: cute.Pointer,
    y: cute.Pointer,
    weights: cute.Pointer,
    blocks: Int32,
    how: cutlass.Constexpr,
    overlaps: cutlass.Constexpr,
):
    add_kernel(x, y, weights, how).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), use_pdl=overlaps)


@cute.kernel
def tile_kernel(atom: cute.CopyAtom, out: cute.Tensor, late: cutlass.Constexpr):
    """One warp fills a tile of shared memory, which TMA stores, before (``late``) or after the wait."""
    lane = cute.arch.thread_idx()[0]
    tile = SmemAllocator().allocate_tensor(Int32, cute.make_layout((8, 32), stride=(32, 1)), byte_alignment=128)
    for row in cutlass.range_constexpr(8):
        tile[row, lane] = row * 32 + lane
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    if cutlass.const_expr(not late):
        cute.arch.griddepcontrol_wait()
    source, target = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(out, 0, 2)
    )
    cute.copy(atom, source, target)
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)
    if cutlass.const_expr(late):
        cute.arch.griddepcontrol_wait()


@cute.jit
def store_tile(y: cute.Pointer, late: cutlass.Constexpr):
    layout = cute.make_layout((8, 32), stride=(32, 1))
    atom, mapped = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), cute.make_tensor(y, layout), layout, (8, 32)
    )
    tile_kernel(atom, mapped, late).launch(grid=(1, 1, 1), block=(32, 1, 1), use_pdl=True)
