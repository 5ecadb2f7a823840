"""Split-K: several blocks each multiply one slice of K for the same tile, and their partial sums are added up in an
order that does not depend on timing.

Cluster split-K (``ClusterSplit``): the blocks are a cluster, up to 8 with those that share loads. The sub-tiles of the
tile are dealt out to them. Every block sends the partial sums of the other blocks' sub-tiles to their shared memory,
and adds up and stores its own, slice 0 first. So all of them add and store at a time, and each receives less than a
tile. Such a launch has one cluster for every tile.

Split-K turnstile (``Turnstile``), for more blocks: partial sums go through global memory, and the block that finishes
last adds up. Every consumer warpgroup writes its accumulators to the workspace and counts itself in. Nobody waits. The
warpgroup that finds all others counted reads all partial sums, slice 0 first, so that the sum is bitwise the same
whoever that is, and stores the tile. The counter wraps to zero by itself (atom.inc), as the next launch needs it. What
the partial sums hold between launches does not matter.

Every tile is cut into the same number of equal slices, which suits few tiles and a long K. Stream-K, which deals the
k-tiles of all tiles out in equal shares, was built and taken out again: on an H200 the best of its configurations took
1.16 to 1.18 times as long as the best of the others, in the geometric mean over some 60 products of one to two waves
(``perf/TRIED.md`` says how and why).
"""

from __future__ import annotations

import functools
import operator

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.barrier import Barriers
from .epilogue import DirectStore, Progress
from .policy import CONSUMERS, WARPGROUP
from .schedule import STORED
from .scheduler import Place, block_in_cluster
from .store import Outlet

VECTOR = 4  # accumulators that a thread moves at a time: 16 bytes


class ClusterSplit(DirectStore):
    """Sub-tile i belongs to the block of slice i % splits, which adds the partial sums of the other slices to its own.

    A block's shared memory has ``splits - 1`` partial sums of each of its sub-tiles, those of the other slices in
    order, each as (vector, thread, element), used once a launch. Where they are many, they lie in the stages of the
    ring.

    - ``received``, one barrier a half of the tile: 4 arrivals, one a warp of the half, of each of the other slices'
      blocks, when they have stored; release and acquire at cluster scope; first phase 0.
    - ``read``, where partial sums lie in the stages: one arrival of each warp of the tile in each slice's block, when
      the tensor cores have read its last stage; first phase 0. Nobody stores into a peer's stages before.

    Every block waits for all arrivals at its barriers, so none leaves while a peer may still store or arrive there.
    """

    def exchange(self, allocator, split, stages):
        """``(partials, received, read)``. Accumulators have 4 bytes in every type."""
        config, size = self.config, self.epilogue.bytes
        self.in_stages = config.exchange_in_stages(size)
        self.sub_tiles_of_block = config.sub_tiles_of_block(size)
        partials = cute.make_ptr(Int32, stages.toint(), cute.AddressSpace.smem, assumed_align=1024)
        if not self.in_stages:
            partials = allocator.allocate_array(Int32, config.exchange_bytes(size) // 4)
        received = Barriers.make(CONSUMERS, (config.splits - 1) * 4, scope="cluster", name="partials")
        if not self.in_stages:
            return partials, received, None
        return partials, received, Barriers.make(1, config.splits * 4 * config.warpgroups_per_tile, scope="cluster")

    @cute.jit
    def complete(self, accumulators, place: Place, progress: Progress, to: Outlet):
        (_, received, read), rank, splits = to.exchange, place.k_slice, self.config.splits
        peer = block_in_cluster() - rank * self.config.peers
        lane = cute.arch.lane_idx()
        if cutlass.const_expr(self.in_stages):
            cute.arch.sync_warp()
            if lane < splits:
                read[0].arrive_remote(lane * self.config.peers + peer)
            read[0].wait_parity(0)
        for index in cutlass.range_constexpr(self.epilogue.sub_tiles):
            if rank != index % splits:
                self.send(accumulators, index, rank, peer, to)
        cute.arch.sync_warp()
        if (lane < splits) & (lane != rank):
            received[to.half].arrive_remote(lane * self.config.peers + peer)
        received[to.half].wait_parity(0)
        stored = progress.stored
        for index in cutlass.range_constexpr(self.epilogue.sub_tiles):
            if rank == index % splits:
                flat, layout = self.vectors_of(accumulators, index)
                theirs = [vectors_at(self.partial(index, Int32(slot), flat, to), layout) for slot in range(splits - 1)]
                add(flat, theirs, index % splits)
                stored = self.epilogue.store_sub_tile(accumulators, index, place.tile, to, stored)
        return Progress(stored, place.tile)

    @cute.jit
    def send(self, accumulators, index: cutlass.Constexpr, rank, peer, to: Outlet):
        """Store the partial sums of a sub-tile in the shared memory of its block."""
        owner = index % self.config.splits
        flat, layout = self.vectors_of(accumulators, index)
        there = self.partial(index, rank - Int32(rank > owner), flat, to)
        cute.autovec_copy(flat, vectors_at(cute.arch.map_dsmem_ptr(there, owner * self.config.peers + peer), layout))

    def partial(self, index: int, slot, flat, to: Outlet):
        """Where this thread's partial sums of a sub-tile lie, which the block of a slice stored."""
        partials, splits = to.exchange[0], self.config.splits
        place = (to.half * (splits - 1) + slot) * self.sub_tiles_of_block + index // splits
        size = cute.size(flat) * WARPGROUP
        return cute.recast_ptr(partials, dtype=flat.element_type) + (place * size + to.thread * VECTOR)

    def vectors_of(self, accumulators, index: int):
        """The accumulators of a sub-tile (see ``vectors_of``)."""
        count = cute.size(accumulators) // self.epilogue.sub_tiles
        return vectors_of(cute.make_tensor(accumulators.iterator + index * count, cute.make_layout((count,))))


class Turnstile(DirectStore):
    """The warpgroup that comes last to its part of a tile adds all partial sums up.

    The workspace has ``splits`` partial sums for each part, each as (vector, thread, element), and one counter, zero
    before and after. A word of shared memory for each warpgroup tells its other threads what thread 0 counted. The
    named barrier 1 + group, 128 threads, is passed twice: when all have written their accumulators (the atomic's
    release then covers them all), and when that word is written.
    """

    def exchange(self, allocator, split, stages):
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
        STORED.sync(to.group)
        if to.thread == 0:
            counted[to.group] = cute.arch.inline_ptx(
                "atom.global.acq_rel.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
                write_only_types=[Int32],
                read_only_args=[split.counters + part, split.splits - 1],
            )
        STORED.sync(to.group)
        last = counted[to.group] == split.splits - 1
        if last:
            cute.autovec_copy(vectors_at(first, layout), flat)
            for other in cutlass.range(1, split.splits, 1, unroll=1):
                add(flat, [vectors_at(first + Int64(other) * size, layout)])
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


def add(flat, theirs: list, before: int = 0) -> None:
    """Add partial sums, each (VECTOR, vectors) of any memory, in order, to those in registers, which come behind the
    first ``before``."""
    for vector in range(cute.size(flat, mode=[1])):
        sums = []
        for partial in theirs:
            sums.append(cute.make_rmem_tensor((VECTOR,), flat.element_type))
            cute.autovec_copy(partial[None, vector], sums[-1])
        sums.insert(before, flat[None, vector])
        for i in range(VECTOR):
            flat[i, vector] = functools.reduce(operator.add, [part[i] for part in sums])
