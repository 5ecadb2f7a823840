"""Split-K: several blocks each multiply a share of K for one tile, and one of them adds the shares up, in their order.

Up to 8 blocks whose shares fit are a cluster, and meet in the shared memory of its first block (``meet``): the others store their
accumulators there and leave. Such a launch has a cluster for every tile, which ends with it.

More blocks, or larger tiles, meet in global memory (``gather_shares``), and the one that finishes last adds up. Every consumer warpgroup
writes its accumulators to the workspace and counts itself in. Nobody waits: whoever finds all the others counted reads all shares, share 0
first, so the sum is bitwise the same whoever that is, and stores the tile. The counter wraps to zero by itself (atom.inc), which is what the
next launch needs; what the shares hold between launches does not matter.

Every tile is cut into the same number of equal shares, which suits few tiles and a long K. Stream-K, which cuts only the tiles of the last
wave, is left out: on an H200 an exchange through global memory takes some 2.5 us, and the choice of tile sizes fills the last wave well enough
that cutting it gains less (512 x 8192 x 8192 is 128 tiles of 128 x 256 for 132 multiprocessors).
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.barrier import Barriers
from .policy import WARPGROUP

VECTOR = 4  # accumulators that a thread moves at a time: 16 bytes


@cute.jit
def gather_shares(
    accumulators,
    partials: cute.Pointer,
    counters: cute.Pointer,
    notice,
    place: Int32,
    share: Int32,
    splits: Int32,
    group: Int32,
    thread: Int32,
):
    """Whether this warpgroup came last to its part ``place`` of a tile; if so the accumulators hold the sum of all shares.

    ``partials`` has ``splits`` shares a place, each as (vector, thread, element); ``counters`` one word a place, zero before and after.
    ``notice`` is a word of shared memory a warpgroup, between its thread 0 and the rest. The named barrier 1 + group, 128 threads, is passed
    twice: when all have written their accumulators (the atomic's release then covers them all), and when the notice is there.
    """
    vectors = cute.size(accumulators) // VECTOR
    flat = cute.make_tensor(accumulators.iterator, cute.make_layout((VECTOR, vectors)))
    shape = cute.make_layout((VECTOR, vectors), stride=(1, VECTOR * WARPGROUP))
    first = partials + (Int64(place) * splits * (vectors * VECTOR * WARPGROUP) + thread * VECTOR)
    cute.autovec_copy(flat, share_of(first, share, shape))
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=WARPGROUP)
    if thread == 0:
        notice[group] = cute.arch.inline_ptx(
            "atom.global.acq_rel.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
            write_only_types=[Int32],
            read_only_args=[counters + place, splits - 1],
        )
    cute.arch.barrier(barrier_id=1 + group, number_of_threads=WARPGROUP)
    last = notice[group] == splits - 1
    if last:
        cute.autovec_copy(share_of(first, Int32(0), shape), flat)
        for other in cutlass.range(1, splits, unroll=1):
            add_share(flat, share_of(first, other, shape))
    return last


@cute.jit
def meet(
    accumulators,
    shares: cute.Pointer,
    arrived: Barriers,
    splits: cutlass.Constexpr,
    rank: Int32,
    group: Int32,
    thread: Int32,
):
    """Whether this is the first block of the cluster, whose accumulators then hold the sum of all shares.

    ``shares`` has ``splits - 1`` shares of each warpgroup's part of a tile, each as (vector, thread, element); only those of block 0 are used, and once a
    launch. ``arrived[group]`` of block 0 expects the 128 threads of each other block, which arrive when they have stored: release and acquire at
    cluster scope. Block 0 is there as long as it waits, and nobody reads from the others.
    """
    vectors = cute.size(accumulators) // VECTOR
    words = vectors * VECTOR * WARPGROUP
    flat = cute.make_tensor(accumulators.iterator, cute.make_layout((VECTOR, vectors)))
    shape = cute.make_layout((VECTOR, vectors), stride=(1, VECTOR * WARPGROUP))
    first = shares + (group * (splits - 1) * words + thread * VECTOR)
    if rank > 0:
        cute.autovec_copy(flat, vectors_at(cute.arch.map_dsmem_ptr(first + (rank - 1) * words, 0), shape))
        arrived[group].arrive_remote(0)
    else:
        arrived[group].wait_parity(0)
        for other in cutlass.range_constexpr(splits - 1):
            add_share(flat, vectors_at(first + other * words, shape))
    return rank == 0


def add_share(flat, theirs) -> None:
    """Add a share, (VECTOR, vectors) of any memory, to registers."""
    for vector in range(cute.size(flat, mode=[1])):
        moved = cute.make_rmem_tensor((VECTOR,), flat.element_type)
        cute.autovec_copy(theirs[None, vector], moved)
        for i in range(VECTOR):
            flat[i, vector] = flat[i, vector] + moved[i]


def share_of(first, share, shape):
    """This thread's vectors of a share."""
    return vectors_at(first + Int64(share) * (cute.size(shape) * WARPGROUP), shape)


def vectors_at(first: cute.Pointer, shape):
    """Vectors of 16 bytes of any memory; the pointer's type has forgotten that it is a multiple of them."""
    return cute.make_tensor(cute.make_ptr(first.dtype, first.toint(), first.memspace, assumed_align=16), shape)
