"""Offsets of segments, and the launch that marks where segments begin. Device code.

A scan needs no search for the segment of a position, only a bit for each position at which one begins. Which thread
sets a bit does not matter, so no thread waits for another, and segments without elements cost the same as others. Of
the words of bits that 32 neighbouring offsets set, only the first and the last one may have bits of other offsets:
these take atomics, the others are stored.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...monoid import choose
from ...sync.atomic import atomic_fold
from ...sync.overlap import let_next_start
from ...warp import LANES, broadcast, scan_states
from ..coordinates import store
from ..gather import Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .plan import MARKED
from .spec import Heads

ROWS = 8  # offsets that a lane reads
WARPS = MARKED // (ROWS * LANES)  # of a block

Arguments = namedtuple("Arguments", "offsets bits segments length")


@cute.jit
def offset(start, k, ends: cutlass.Constexpr):
    """Offset ``k``, as it is in memory."""
    found = Int64(0)
    if cutlass.const_expr(ends):
        if k > 0:
            found = Int64(cute.make_tensor(start + (k - 1), cute.make_layout((1,)))[0])
    else:
        found = Int64(cute.make_tensor(start + k, cute.make_layout((1,)))[0])
    return found


class MarkHeads(PlainKernel):
    """The kernel that sets the bits of ``length`` positions, in scan order, at which ``segments`` segments begin. A
    warp sets the bits of a word together; all are 0 before."""

    name = "mark_heads"

    def __init__(self, heads: Heads, reverse: bool, counted: bool) -> None:
        super().__init__(WARPS * LANES)
        self.heads, self.reverse, self.counted = heads, reverse, counted

    def arguments(self, offsets, bits, n, segments, length, step) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        segments = positions(segments, n) if self.counted else segments
        return Arguments(Stepped(offsets, step) if self.heads.stepped else offsets, bits, segments, length)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()  # which keeps the scan's tiles coming to the L2
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * (ROWS * LANES) + lane
        places = [self.begin(a, first + row * LANES) for row in range(ROWS)]
        for place in places:
            self.mark(a, place, lane)

    @cute.jit
    def begin(self, a: Arguments, k):
        """Where segment ``k`` begins in scan order; -1 if it does nowhere."""
        found = Int64(-1)
        if k <= a.segments:
            found = offset(a.offsets, k, self.heads.ends)
        if cutlass.const_expr(self.reverse):
            found = a.length - found
        exists = (k <= a.segments) & (found >= 0) & (found < a.length)
        return choose(exists, found, Int64(-1))

    @cute.jit
    def mark(self, a: Arguments, place, lane):
        """Set the bits of the offsets of a warp, which do not decrease over lanes, or do not increase."""
        word, bits = Uint32(place >> 5), choose(place >= 0, Int32(1) << Int32(place & 31), Int32(0))
        before = Uint32(cute.arch.shuffle_sync_up(word, 1))
        if cute.arch.vote_any_sync((lane > 0) & (before == word)):  # two offsets have bits of one word
            merge = lambda p, q: (q[0], q[1] | choose(p[0] == q[0], p[1], Int32(0)))  # noqa: E731
            _, bits = scan_states((word, bits), merge, lane)
        following = Uint32(cute.arch.shuffle_sync_down(word, 1))
        (first,), (last,) = broadcast((word,), 0), broadcast((word,), LANES - 1)
        if (place >= 0) & ((lane == LANES - 1) | (following != word)):
            if (word == first) | (word == last):
                atomic_fold("or", a.bits + Int64(word), bits)
            else:
                store(a.bits + Int64(word), bits)
