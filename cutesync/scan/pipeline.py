"""Scan of long rows: resident blocks, each a pipeline of warps with one job, so that copies, folding and waiting overlap.

    load warp       takes tile numbers from an atomic, copies tiles into a ring of ``stages`` in shared memory (bulk copies)
    squads          turn by turn, one tile each: shared memory -> registers, fold, publish the fold; wait for the prefix; scan, store
    look-ahead warp folds the published tiles of everybody, in order, and hands each of this block's tiles its prefix

    full[stage]     1 arrival (load warp) and the tile's bytes        empty[stage]   a lane of each squad warp, and the look-ahead warp
    ready[squad]    1 arrival (look-ahead warp): the prefix is there  taken[squad]   a lane of each squad warp: it has been read
    named barrier 1 + squad: the squad's warps, once a tile

Only folds are published, never prefixes: no tile waits for another tile's prefix, and there is no chain of round trips. Every block
folds all tiles itself, 32 at a time by a shuffle tree and then in order, so the result depends on lengths alone, not on the number of
blocks. Progress: tile numbers come from an atomic; of the tiles not yet published the smallest waits for none but its copy.

The method is the decoupled look-ahead of CUB's warp-specialised scan, with the prefix wait moved behind the fold and the tile held in
registers between the two. Bytes: every element is read once and written once.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ..block.reduce import get, state_array, state_bytes
from ..block.warps import after, around, leave
from ..sync.gather import enter, publish, settle, tag_of
from ..sync.lookback import GROUP, fold_group, place_of, read_group, slots_of
from ..warp import LANES
from .base import Scan, ScanKernel
from .tile import WarpScan

DONE = -1  # the tile number that says that there are no more


class PipelineScan(ScanKernel):
    """The kernel: ``squads`` squads of ``warps`` warps, tiles of ``warps`` chunks of ``rows`` rows, a ring of ``stages`` tiles."""

    def __init__(self, scan: Scan, squads: int, warps: int, rows: int, stages: int, aligned_out: bool) -> None:
        self.squads, self.warps, self.stages = squads, warps, stages
        self.tile = WarpScan(scan, rows, warps, aligned_out)
        self.tile_bytes = self.tile.tile * scan.monoid.source.size
        types = (*scan.monoid.types, Int32)
        smem = stages * self.tile_bytes + state_bytes(types, squads * warps * 2) + state_bytes(types, squads) + 16 * (stages + squads) + 8 * stages + 256
        super().__init__(scan, (squads * warps + 2) * LANES, smem, 1)

    @cute.jit
    def body(self, x, out, init, init_at, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(thread // LANES)
        lane = thread % LANES
        types = (*self.scan.monoid.types, Int32)
        allocator = SmemAllocator()
        ring = allocator.allocate_array(self.scan.monoid.source.cutlass, self.stages * self.tile.tile, byte_alignment=128)
        full, empty, ready, taken = (allocator.allocate_array(Int64, n) for n in (self.stages, self.stages, self.squads, self.squads))
        numbers = cute.make_tensor(allocator.allocate_array(Int32, self.stages), cute.make_layout((self.stages,)))
        tags = cute.make_tensor(allocator.allocate_array(Int32, self.stages), cute.make_layout((self.stages,)))
        totals = state_array(types, self.squads * self.warps * 2)
        prefixes = state_array(types, self.squads)
        if thread == 0:
            for s in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(full + s, 1)
                cute.arch.mbarrier_init(empty + s, self.warps + 1)
            for s in cutlass.range_constexpr(self.squads):
                cute.arch.mbarrier_init(ready + s, 1)
                cute.arch.mbarrier_init(taken + s, self.warps)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        everything = Int32(rows) * tiles
        if warp == self.squads * self.warps:
            self.load(x, length, everything, tiles, counters, ring, full, empty, numbers, tags, lane)
        elif warp == self.squads * self.warps + 1:
            self.look_ahead(init, init_at, slots, everything, tiles, full, empty, ready, taken, numbers, tags, prefixes, lane)
        else:
            self.scan_tiles(x, out, length, slots, everything, tiles, ring, full, empty, ready, taken, numbers, tags, totals, prefixes, warp, lane)

    @cute.jit
    def load(self, x, length, everything, tiles, counters, ring, full, empty, numbers, tags, lane):
        """The load warp. After the last tile every squad gets its ``DONE``."""
        if lane == 0:
            entered = enter(counters)
            blocks, _, _ = cute.arch.grid_dim()
            done = Int32(0)
            stage = Int32(0)
            phase = Int32(1)  # of an empty ring: the first round of waits passes
            while done < self.squads:
                number = entered[1]
                tag = tag_of(entered)
                if number < everything:
                    entered = enter(counters)  # asked for early: the answer takes as long as a copy
                cute.arch.mbarrier_wait(empty + stage, phase)
                offset, begin, end = self.tile.span(x + Int64(number // tiles) * length, length, Int64(number % tiles) * self.tile.tile, self.tile.tile)
                if number >= everything:
                    number = Int32(DONE)
                    done += 1
                numbers[stage] = number
                tags[stage] = tag
                if (number != DONE) & (begin == 0) & (end == self.tile.tile):
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, self.tile_bytes)
                    source = x + Int64(number // tiles) * length + offset
                    primitives.cp_async_bulk_shared_cluster_global(ring + stage * self.tile.tile, source, full + stage, self.tile_bytes)
                else:
                    cute.arch.mbarrier_arrive(full + stage)
                stage, phase = self.next(stage, phase, 1)
            settle(counters, entered, Int32(0), everything + blocks)

    @cute.jit
    def next(self, stage, phase, step: cutlass.Constexpr):
        stage += step
        if stage >= self.stages:
            stage -= self.stages
            phase ^= 1
        return stage, phase

    @cute.jit
    def look_ahead(self, init, init_at, slots, everything, tiles, full, empty, ready, taken, numbers, tags, prefixes, lane):
        """The look-ahead warp: the state of all whole groups of tiles so far is carried along, that of the rest is made for each tile."""
        types = self.scan.monoid.types
        known = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in types)
        have, state = known, start
        row = Int32(0)
        group = Int32(0)
        stage = Int32(0)
        phase = Int32(0)
        squad = Int32(0)
        turn = Int32(1)
        done = Int32(0)
        while done < self.squads:
            cute.arch.mbarrier_wait(full + stage, phase)
            number = numbers[stage]
            tag = tags[stage]
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(empty + stage)
            if number == DONE:
                done += 1
            else:
                if number // tiles != row:
                    row = number // tiles
                    group = Int32(0)
                    have, state = known, start
                tile = number % tiles
                stride = Int64(everything // tiles) * slots_of(tiles)
                base = Int64(row) * slots_of(tiles)
                reads = read_group(slots, base + group * GROUP, stride, types, lane)
                while group < tile // GROUP:
                    following = read_group(slots, base + (group + 1) * GROUP, stride, types, lane)
                    fold = fold_group(slots, base + group * GROUP, stride, reads, Int32(GROUP), tag, types, self.scan.combine, lane)
                    have, state = after(have, state, Boolean(True), fold, self.scan.combine)
                    reads = following
                    group += 1
                before, prefix = have, state
                if tile % GROUP > 0:
                    fold = fold_group(slots, base + group * GROUP, stride, reads, tile % GROUP, tag, types, self.scan.combine, lane)
                    before, prefix = after(have, state, Boolean(True), fold, self.scan.combine)
                if lane == 0:
                    cute.arch.mbarrier_wait(taken + squad, turn)
                    leave(prefixes, squad, before, prefix)
                    cute.arch.mbarrier_arrive(ready + squad)
            stage, phase = self.next(stage, phase, 1)
            squad += 1
            if squad == self.squads:
                squad = Int32(0)
                turn ^= 1

    @cute.jit
    def scan_tiles(self, x, out, length, slots, everything, tiles, ring, full, empty, ready, taken, numbers, tags, totals, prefixes, warp, lane):
        """A squad: tile after tile of its turn."""
        types = self.scan.monoid.types
        squad = warp // self.warps
        warp = warp % self.warps
        stage = squad % self.stages
        phase = (squad // self.stages) & 1
        turn = Int32(0)
        cute.arch.mbarrier_wait(full + stage, phase)
        number = numbers[stage]
        while number != DONE:
            elements, vectors = self.tile.registers()
            start = x + Int64(number // tiles) * length
            position = Int64(number % tiles) * self.tile.tile + warp * self.tile.chunk
            offset, begin, end = self.tile.span(start, length, position, self.tile.chunk)
            tag = tags[stage]
            have = Boolean(True)
            state = tuple(t(0) for t in types)
            whole = self.is_whole(start, length, number % tiles)
            if whole:
                self.tile.load(ring + stage * self.tile.tile + self.scan.flip(warp, self.warps) * self.tile.chunk, lane, elements)
                state = self.tile.fold_full(elements, vectors, lane)
            else:
                have, state = self.tile.ragged_fold(start + offset, begin, end, lane)
            cute.arch.sync_warp()
            mine = squad * 2 + turn
            if lane == 0:
                cute.arch.mbarrier_arrive(empty + stage)
                leave(totals, mine * self.warps + warp, have, state)
            cute.arch.barrier(barrier_id=squad + 1, number_of_threads=self.warps * LANES)
            have, state, _, total = around(totals, mine * self.warps, self.warps, warp, lane, types, self.scan.combine)
            if (warp == 0) & (lane == 0):
                place = Int64(number // tiles) * slots_of(tiles) + place_of(number % tiles)
                publish(slots, place, Int64(everything // tiles) * slots_of(tiles), total, tag)
            cute.arch.mbarrier_wait(ready + squad, turn)
            *before, known = get(prefixes, squad, (*types, Int32))
            cute.arch.sync_warp()
            if lane == 0:
                cute.arch.mbarrier_arrive(taken + squad)
            have, state = after(known != 0, tuple(before), have, state, self.scan.combine)
            target = out + Int64(number // tiles) * length + offset
            if whole:
                self.tile.emit_full(elements, vectors, have, state, target, lane)
            else:
                self.tile.ragged_emit(start + offset, target, begin, end, have, state, lane)
            turn ^= 1
            stage, phase = self.next(stage, phase, self.squads)
            cute.arch.mbarrier_wait(full + stage, phase)
            number = numbers[stage]

    @cute.jit
    def is_whole(self, start, length, tile):
        _, begin, end = self.tile.span(start, length, Int64(tile) * self.tile.tile, self.tile.tile)
        return (begin == 0) & (end == self.tile.tile)
