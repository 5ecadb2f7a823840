"""Elements that are repeated as often as an array of counts says. Device code.

A warp writes ``ROWS`` rows of 32 neighbouring results. It searches for the run of the first one, and then looks at the
ends of the next 32 runs for each row: a lane's run is found by shuffles. Only where more than 32 runs end in a row, as
where many are empty, its lanes search for themselves.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...sync.overlap import await_launches
from ...warp import LANES
from ..coordinates import element

ROWS = 32
WARPS = 8
RESULTS = WARPS * ROWS * LANES  # of a block


class Decode:
    """The kernel. ``ends`` has where each of ``runs`` runs ends; results from their end on, up to ``size``, are
    ``fill``."""

    threads, smem = WARPS * LANES, 0

    @cute.jit
    def __call__(
        self,
        values: cute.Pointer,
        ends: cute.Pointer,
        out: cute.Pointer,
        count: cute.Pointer,
        runs: Int64,
        size: Int64,
        fill: cutlass.Numeric,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_decode", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(values, ends, out, count, runs, size, fill).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        values: cute.Pointer,
        ends: cute.Pointer,
        out: cute.Pointer,
        count: cute.Pointer,
        runs: Int64,
        size: Int64,
        fill: cutlass.Numeric,
    ):
        await_launches()
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * (ROWS * LANES)
        total = Int64(0)
        if runs > 0:
            total = cutlass.max(Int64(element(ends + (runs - 1))), Int64(0))
        if first + lane == 0:
            cute.make_tensor(count, cute.make_layout((1,)))[0] = total
        stop = cutlass.min(total, size)
        run = Int64(0)
        if first < stop:
            run = search_by_warp(ends, first, runs, lane)
        for row in cutlass.range(ROWS, unroll=1):
            base = first + row * LANES
            value = fill
            if base < stop:
                run = find(ends, base, run, runs, lane)
                value = type(fill)(element(values + cutlass.min(run, runs - 1)))
                run = Int64(cute.arch.shuffle_sync(run, LANES - 1))
            if base + lane < size:
                cute.make_tensor(out + (base + lane), cute.make_layout((1,)))[0] = choose(
                    base + lane < stop, value, fill
                )


@cute.jit
def find(ends: cute.Pointer, base, run, runs, lane):
    """The run of position ``base + lane``; that of ``base`` is ``run`` or a later one."""
    end = Int32(cutlass.min(Int64(element(ends + cutlass.min(run + lane, runs - 1))) - base, Int64(2 * LANES)))
    found = run
    if Int32(cute.arch.shuffle_sync(end, LANES - 1)) >= LANES:
        before = Int32(0)  # of the 32 ends, those at the position or before it
        for log in cutlass.range_constexpr(LANES.bit_length() - 1):
            step = LANES >> (log + 1)
            other = Int32(cute.arch.shuffle_sync(end, before + (step - 1)))
            before = choose(other <= lane, before + step, before)
        found = run + before
    else:
        found = search(ends, base + lane, run, runs)
    return found


@cute.jit
def search(ends: cute.Pointer, position, low, high):
    """How many ends, of which the first ``low`` are, lie at ``position`` or before it."""
    while low < high:
        middle = (low + high) // 2
        if Int64(element(ends + middle)) <= position:
            low = middle + 1
        else:
            high = middle
    return low


@cute.jit
def search_by_warp(ends: cute.Pointer, position, runs, lane):
    """As ``search``, by the lanes together: each step looks at 32 ends."""
    low, high = Int64(0), Int64(runs)
    while low < high:
        step = (high - low + LANES - 1) // LANES
        probe = cutlass.min(low + lane * step + (step - 1), high - 1)
        before = cute.arch.popc(cute.arch.vote_ballot_sync(Int64(element(ends + probe)) <= position))
        after = Int64(cute.arch.shuffle_sync(probe, cutlass.min(before, LANES - 1)))
        low = cutlass.min(low + before * step, high)
        if before < LANES:
            high = after
        else:
            low = high
    return low
