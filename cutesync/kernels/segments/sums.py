"""How many results groups of runs have together: what ``searched`` searches. Device code.

A warp adds up the lengths of ``EACH`` groups of ``GROUP`` runs. A scan of the sums then says where each group ends.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import choose
from ...warp import LANES, column_of_lane, reduce_columns
from ..coordinates import element, store
from ..gather import At, Gather
from ..hardware import VECTOR_BYTES
from ..plain import PlainKernel
from ..select.chunk import cells
from ..tiled import positions
from .decode_policy import GROUP, GROUPS
from .decode_spec import Lengths

WARPS = 8
EACH = GROUPS // WARPS

# A launch's arguments: ``lengths`` of ``runs`` runs, and the ``sums`` of ``groups`` groups of them.
Arguments = namedtuple("Arguments", "lengths sums runs groups")


class Sums(PlainKernel):
    """The kernel."""

    name = "run_sums"

    def __init__(self, lengths: Lengths) -> None:
        super().__init__(WARPS * LANES)
        self.lengths = lengths
        self.gather: Any = None if lengths.layout is None else Gather(lengths.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        lengths, n, sums = arrays
        runs, groups, *rest = numbers
        if self.gather is not None:
            self.gather.bind(rest)
            lengths = At(self.gather, 0, lengths)
        return Arguments(lengths, sums, positions(runs, n) if self.lengths.counted else runs, groups)

    @cute.jit
    def body(self, a: Arguments):
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        first = (Int64(cute.arch.block_idx()[0]) * WARPS + warp) * EACH
        sums = self.sums(a, first, lane)
        (total,) = reduce_columns([(each,) for each in sums], lambda p, q: (p[0] + q[0],), lane)
        group = first + column_of_lane(lane, EACH)
        if (lane < EACH) & (group < a.groups):
            store(a.sums + group, total)

    @cute.jit
    def sums(self, a: Arguments, first, lane):
        """A lane's shares of the sums of the groups from ``first`` on; of whole groups, in vectors."""
        found = tuple(Int64(0) for _ in range(EACH))
        if cutlass.const_expr(self.gather is None):
            if begins_on_vectors(a.lengths) & ((first + EACH) * GROUP <= a.runs):
                own = GROUP // LANES
                starts = [a.lengths + ((first + k) * GROUP + lane * own) for k in range(EACH)]
                vectors = [neighbours(start, own) for start in starts]
                found = tuple(sum(map(Int64, vector), Int64(0)) for vector in vectors)
            else:
                found = tuple(self.sum(a, first + k, lane) for k in range(EACH))
        else:
            found = tuple(self.sum(a, first + k, lane) for k in range(EACH))
        return found

    def sum(self, a: Arguments, group, lane) -> Any:
        """A lane's share of the sum of a group."""
        places = [group * GROUP + (row + lane) for row in range(0, GROUP, LANES)]
        return sum(length_at(a.lengths, place, a.runs) for place in places)


def begins_on_vectors(array) -> Any:
    return Int32(array.toint() & (VECTOR_BYTES - 1)) == 0


def neighbours(array: cute.Pointer, count: int) -> list:
    """Elements that lie side by side in global memory, and begin on a vector, or within one at a multiple of their
    size."""
    kind = array.dtype
    found = cute.make_rmem_tensor((count,), kind)
    align = min(VECTOR_BYTES, count * kind.width // 8)
    cute.autovec_copy(cells(kind, array.toint(), count, cute.AddressSpace.gmem, align), found)
    return [kind(found[k]) for k in range(count)]


def length_at(lengths, place, runs) -> Int64:
    """The length of a run; 0 behind the ``runs`` ones that there are, at least one."""
    found = Int64(element(lengths + cutlass.min(place, cutlass.max(runs - 1, Int64(0)))))
    return choose(place < runs, found, Int64(0))
