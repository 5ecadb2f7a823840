"""Split-K: several blocks each multiply one slice of K for the same tile, and one of them adds their partial sums up,
in the slices' order.

Cluster split-K (``ClusterSplit``): up to 8 blocks, if their partial sums fit, are a cluster. All but the first store
their accumulators in the shared memory of the first block and leave. Such a launch has one cluster for every tile.

Split-K turnstile (``Turnstile``), for more blocks or larger tiles: partial sums go through global memory, and the block
that finishes last adds up. Every consumer warpgroup writes its accumulators to the workspace and counts itself in.
Nobody waits. The warpgroup that finds all others counted reads all partial sums, slice 0 first, so that the sum is
bitwise the same whoever that is, and stores the tile. The counter wraps to zero by itself (atom.inc), as the next
launch needs it. What the partial sums hold between launches does not matter.

Every tile is cut into the same number of equal slices, which suits few tiles and a long K. Stream-K, which cuts only
the tiles of the last wave, is left out: on an H200 an exchange through global memory takes some 2.5 us, and the choice
of tile sizes fills the last wave well enough that cutting it gains less (512 x 8192 x 8192 is 128 tiles of 128 x 256
for 132 multiprocessors).
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.barrier import Barriers
from .epilogue import DirectStore, Progress
from .policy import CONSUMERS, WARPGROUP
from .scheduler import Place
from .store import Outlet

VECTOR = 4  # accumulators that a thread moves at a time: 16 bytes


class ClusterSplit(DirectStore):
    """The first block of the cluster adds the partial sums of the others to its own.

    Its shared memory has ``splits - 1`` partial sums of each warpgroup's part of a tile, each as (vector, thread,
    element), used once a launch. Barrier ``half`` of the first block expects the 128 threads of each other block, which
    arrive when they have stored: release and acquire at cluster scope. The first block is there as long as it waits,
    and nobody reads from the others.
    """

    def exchange(self, allocator, split):
        """``(partials, barriers)``. Accumulators have 4 bytes in every type."""
        partials = allocator.allocate_array(Int32, self.config.exchange_bytes() // 4)
        count = (self.config.splits - 1) * WARPGROUP
        return partials, Barriers.make(CONSUMERS, count, scope="cluster", name="partials")

    @cute.jit
    def complete(self, accumulators, place: Place, progress: Progress, to: Outlet):
        (partials, arrived), rank, splits = to.exchange, place.k_slice, self.config.splits
        flat, layout = vectors_of(accumulators)
        size = cute.size(layout) * WARPGROUP
        first = cute.recast_ptr(partials, dtype=flat.element_type) + (
            to.half * (splits - 1) * size + to.thread * VECTOR
        )
        if rank > 0:
            cute.autovec_copy(flat, vectors_at(cute.arch.map_dsmem_ptr(first + (rank - 1) * size, 0), layout))
            arrived[to.half].arrive_remote(0)
        else:
            arrived[to.half].wait_parity(0)
            for other in cutlass.range_constexpr(splits - 1):
                add(flat, vectors_at(first + other * size, layout))
        stored = progress.stored
        if rank == 0:
            stored = self.epilogue.store_tile(accumulators, place.tile, to, stored)
        return Progress(stored, place.tile)


class Turnstile(DirectStore):
    """The warpgroup that comes last to its part of a tile adds all partial sums up.

    The workspace has ``splits`` partial sums for each part, each as (vector, thread, element), and one counter, zero
    before and after. A word of shared memory for each warpgroup tells its other threads what thread 0 counted. The
    named barrier 1 + group, 128 threads, is passed twice: when all have written their accumulators (the atomic's
    release then covers them all), and when that word is written.
    """

    def exchange(self, allocator, split):
        """``(counted, split)``."""
        return allocator.allocate_tensor(Int32, cute.make_layout(CONSUMERS), byte_alignment=4), split

    @cute.jit
    def complete(self, accumulators, place: Place, progress: Progress, to: Outlet):
        counted, split = to.exchange
        part = place.number * self.config.warpgroups_per_tile + to.half
        flat, layout = vectors_of(accumulators)
        size = cute.size(layout) * WARPGROUP
        first = split.scratch + (Int64(part) * split.splits * size + to.thread * VECTOR)
        cute.autovec_copy(flat, vectors_at(first + Int64(place.k_slice) * size, layout))
        cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
        if to.thread == 0:
            counted[to.group] = cute.arch.inline_ptx(
                "atom.global.acq_rel.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
                write_only_types=[Int32],
                read_only_args=[split.counters + part, split.splits - 1],
            )
        cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
        last = counted[to.group] == split.splits - 1
        if last:
            cute.autovec_copy(vectors_at(first, layout), flat)
            for other in cutlass.range(1, split.splits, 1, unroll=1):
                add(flat, vectors_at(first + Int64(other) * size, layout))
        stored = progress.stored
        if last:
            stored = self.epilogue.store_tile(accumulators, place.tile, to, stored)
        return Progress(stored, place.tile)


def vectors_of(accumulators):
    """The accumulators as (VECTOR, vectors), and the layout of a thread's partial sums in memory."""
    vectors = cute.size(accumulators) // VECTOR
    flat = cute.make_tensor(accumulators.iterator, cute.make_layout((VECTOR, vectors)))
    return flat, cute.make_layout((VECTOR, vectors), stride=(1, VECTOR * WARPGROUP))


def vectors_at(first: cute.Pointer, layout):
    """Vectors of 16 bytes of any memory; the pointer's type has forgotten that it is a multiple of them."""
    return cute.make_tensor(cute.make_ptr(first.dtype, first.toint(), first.memspace, assumed_align=16), layout)


def add(flat, theirs) -> None:
    """Add partial sums, (VECTOR, vectors) of any memory, to registers."""
    for vector in range(cute.size(flat, mode=[1])):
        moved = cute.make_rmem_tensor((VECTOR,), flat.element_type)
        cute.autovec_copy(theirs[None, vector], moved)
        for i in range(VECTOR):
            flat[i, vector] = flat[i, vector] + moved[i]
