"""Offsets of segments, and how positions and segments are cut into tiles of the same size. Device code.

The positions of an array and the ends of its segments are merged: the end of a segment comes behind its last position.
A tile has ``size`` members of this merged list. So it takes the same time whatever the lengths of segments are, also
where many are empty, and which operands are combined follows from the offsets alone (``block.merge_path``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int64

from ...block.merge_path import merge_path
from ..gather import Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .plan import CUT_THREADS
from .spec import SegmentsSpec


@dataclass(frozen=True)
class Offsets:
    """``segments`` segments of ``count`` positions, counted in scan order. The array at ``start`` has where each begins
    in memory and where the last ends, or with ``ends`` where each ends."""

    start: Any
    segments: Any
    count: Any
    ends: bool
    reverse: bool

    def __getitem__(self, k: Any) -> Any:
        """Where segment ``k`` begins, which is where segment ``k - 1`` ends: a position from 0 to ``count``."""
        k = Int64(k)
        if self.reverse:
            k = self.segments - k
        found = offset(self.start, k, self.ends)
        found = cutlass.min(cutlass.max(found, Int64(0)), self.count)
        return self.count - found if self.reverse else found


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


def ends_before(offsets: Offsets, member):
    """How many of the first ``member`` members of the merged list are ends. The end of segment s comes behind the
    positions before it."""
    return merge_path(member, offsets.segments, offsets.count, lambda s, position: position < offsets[s + 1])


class Cuts(PlainKernel):
    """The kernel that finds where each tile of ``size`` members begins: a thread searches for each."""

    name, threads = "segment_cuts", CUT_THREADS

    def __init__(self, spec: SegmentsSpec, size: int) -> None:
        self.ends, self.reverse, self.stepped = spec.heads.ends, spec.reverse, spec.heads.stepped
        self.counted, self.size = spec.counted, size

    @cute.jit
    def main(self, offsets: cute.Pointer, cuts: cute.Pointer, n: cute.Pointer, segments, length, tiles, step):
        segments = positions(segments, n) if self.counted else segments
        tile = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if tile <= tiles:
            member = cutlass.min(tile * self.size, length + segments)
            start = Stepped(offsets, step) if self.stepped else offsets
            before = ends_before(Offsets(start, segments, length, self.ends, self.reverse), member)
            cute.make_tensor(cuts + tile, cute.make_layout((1,)))[0] = member - before
