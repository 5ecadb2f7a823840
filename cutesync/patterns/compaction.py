"""Keeping some elements in order: flags, a scan of the counts, and a scatter, in three launches.

    launch 1   every block    flags of its tile --> how many
    launch 2   one block      counts --> places: each block's first place is the sum of the counts before it
    launch 3   every block    flags --> ranks within the tile --> out[first place + rank]

The flags take a byte a candidate, written once and read once, which the atomic lists of channel.py do not need. In
return the order of the elements is kept, and the result is the same in every run.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, Int64, Uint8, cute

from cutesync.patterns.channel_kernels import Give
from cutesync.patterns.kernel import WARP, PatternKernel, part, shared
from cutesync.sync.queue import ballots_of, store_marked


class Flag(Give):
    """Launch 1: ``out`` gets the flag of every candidate, ``state`` the count of every block.

    Candidates are those of ``Give``, one at a time, so that the items of a warp are in index order.
    """

    family = "compaction"

    @cute.jit
    def body(self, x, out, state, n, m):
        sums = shared(Int32, self.threads // WARP)
        _, valid = self.candidates(x, n)
        first, count = self.reach(n)
        flags = part(out, first, self.items * WARP)
        for j, flag in enumerate(valid):
            store_flag(flags, self.place(j), count, flag)
        _, total = ballots_of(valid)
        _, total = sums_of(sums, total, self.threads // WARP)
        if cute.arch.thread_idx()[0] == 0:
            part(state, Int64(cute.arch.block_idx()[0]), 1)[0] = Int64(total)


@cute.jit
def store_flag(flags, at: Int32, count: Int32, flag: Boolean):
    if at < count:
        flags[at] = Uint8(flag)


@cute.jit
def sums_of(sums, total: Int32, warps: cutlass.Constexpr):
    """Each warp has a number ``total``: its sum over the warps before this one, and over all warps."""
    warp = cute.arch.thread_idx()[0] // WARP
    if cute.arch.lane_idx() == 0:
        sums[warp] = total
    cute.arch.sync_threads()
    before, together = Int32(0), Int32(0)
    for w in cutlass.range_constexpr(warps):
        if w < warp:
            before += Int32(sums[w])
        together += Int32(sums[w])
    return before, together


class ScanCounts(PatternKernel):
    """Launch 2, one block: of ``n`` counts in ``x``, ``out`` gets the sums before each, and ``out[n]`` the total."""

    name, threads, smem = "compaction_places", 1024, 512

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        sums = shared(Int64, WARP)
        start, before = Int64(0), Int64(0)
        while start < n:
            count = Int64(0)
            if start + thread < n:
                count = Int64(part(x, start + thread, 1)[0])
            upto = scan_warp(count)
            if thread % WARP == WARP - 1:
                sums[thread // WARP] = upto
            cute.arch.sync_threads()
            place, total = before + upto - count, Int64(0)
            for w in cutlass.range_constexpr(WARP):
                if w < thread // WARP:
                    place += Int64(sums[w])
                total += Int64(sums[w])
            if start + thread < n:
                part(out, start + thread, 1)[0] = place
            before += total
            start += self.threads
            cute.arch.sync_threads()  # the sums have been read
        if thread == 0:
            part(out, n, 1)[0] = before


@cute.jit
def scan_warp(value: Int64):
    """The sum of this lane's value and those of all lanes before it; 64 bits travel in two halves."""
    lane = cute.arch.lane_idx()
    for step in cutlass.range_constexpr(5):
        low = Int32(cute.arch.shuffle_sync_up(Int32(value & 0xFFFFFFFF), 1 << step, mask_and_clamp=0))
        high = Int32(cute.arch.shuffle_sync_up(Int32(value >> 32), 1 << step, mask_and_clamp=0))
        if lane >= (1 << step):
            value += (Int64(high) << 32) | (Int64(low) & 0xFFFFFFFF)
    return value


class Scatter(Give):
    """Launch 3: the candidates whose flags are set go to ``out``.

    The flags are bytes from address ``m`` on; ``state`` holds each block's first place.
    """

    family = "compaction"

    @cute.jit
    def body(self, x, out, state, n, m):
        sums = shared(Int32, self.threads // WARP)
        first, count = self.reach(n)
        flags = part(cute.make_ptr(Uint8, m, cute.AddressSpace.gmem, assumed_align=1), first, self.items * WARP)
        kept = [flag_at(flags, self.place(j), count) for j in range(self.items)]
        ballots, total = ballots_of(kept)
        before, _ = sums_of(sums, total, self.threads // WARP)
        place = Int64(part(state, Int64(cute.arch.block_idx()[0]), 1)[0]) + before
        store_marked(out, n, place, self.values(x, first, count), ballots)


@cute.jit
def flag_at(flags, at: Int32, count: Int32):
    found = Boolean(False)
    if at < count:
        found = Uint8(flags[at]) != 0
    return found
