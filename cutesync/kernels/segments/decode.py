"""Elements that are repeated as often as an array of counts says. Device code.

A warp writes ``ROWS`` rows of 32 neighbouring results. It searches for the run of the first one, and then looks at the
ends of the next 32 runs for each row: a lane's run is found by shuffles. Only where more than 32 runs end in a row, as
where many are empty, its lanes search for themselves.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...warp import LANES
from ..coordinates import element, store
from ..gather import At, Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .repeat import Decoding

ROWS = 32
WARPS = 8
RESULTS = WARPS * ROWS * LANES  # of a block


# A launch's arguments: ``ends`` has where each of ``runs`` runs of ``values`` ends, unless each has ``times`` results;
# those from the end of all on, up to ``size``, are ``fill``. ``count`` gets where the last run ends.
Arguments = namedtuple("Arguments", "values ends out count fill runs size times")


class Decode(PlainKernel):
    """The kernel."""

    name = "decode"

    def __init__(self, decoding: Decoding) -> None:
        super().__init__(WARPS * LANES)
        self.decoding = decoding
        self.gather: Any = None if decoding.layout is None else Gather(decoding.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        values, ends, n, out, count = arrays
        fill, runs, size, times, step, *rest = numbers
        if self.gather is not None:
            self.gather.bind(rest)
            values = At(self.gather, 0, values)
        runs = positions(runs, n) if self.decoding.counted else runs
        return Arguments(values, ends, Stepped(out, step), count, fill, runs, size, times)

    @cute.jit
    def body(self, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * (ROWS * LANES)
        total = a.runs * a.times
        if cutlass.const_expr(not self.decoding.alike):
            if a.runs > 0:
                total = cutlass.max(Int64(element(a.ends + (a.runs - 1))), Int64(0))
        if first + lane == 0:
            store(a.count, total)
        stop = cutlass.min(total, a.size)
        run = Int64(0)
        if first < stop:
            run = self.begin(a, first, lane)
        for row in cutlass.range(ROWS, unroll=1):
            base = first + row * LANES
            value = a.fill
            if base < stop:
                run = self.find(a, base, run, lane)
                value = type(a.fill)(element(a.values + cutlass.min(run, a.runs - 1)))
                run = Int64(cute.arch.shuffle_sync(run, LANES - 1))
            if base + lane < a.size:
                store(a.out + (base + lane), choose(base + lane < stop, value, a.fill))

    def begin(self, a: Arguments, first, lane):
        """A run that does not lie behind that of position ``first``."""
        return Int64(0) if self.decoding.alike else search_by_warp(a.ends, first, a.runs, lane)

    def find(self, a: Arguments, base, run, lane):
        """The run of position ``base + lane``; that of ``base`` is ``run`` or a later one."""
        return (base + lane) // a.times if self.decoding.alike else find(a.ends, base, run, a.runs, lane)


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
