"""Reduction along few positions where results lie in another order than elements: a block has a tile of results.

Neighbouring threads read neighbours in the input. After a barrier, neighbouring threads store neighbours in the output,
from shared memory, so whole lines are read and written. The last kept axis is that of neighbours in the output; the
others, in the order of the input, are one axis of units across the tile. Shared memory has the results of a unit side
by side, and then a word of nothing, so that neighbouring units begin on different banks.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute
from cutlass.memory import SmemAllocator

from ...sync.overlap import let_next_start
from ..coordinates import Axes, element, moved, store
from ..hardware import WORD_BYTES
from .short import ShortReduce
from .strided_base import Arguments
from .strided_problem import THREADS


class TurnedReduce(ShortReduce):
    """The kernel: ``across`` units side by side, each of up to ``unroll`` positions, times ``down``."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, has_init, policy)
        self.across, self.down = policy.across, policy.down
        self.pace = THREADS // policy.across  # rows of neighbouring results of a thread
        (self.result,) = monoid.results
        self.pitch = self.down + max(1, WORD_BYTES // self.result.size)  # of results, from column to column
        self.smem = self.across * self.width * self.pitch * self.result.size + 16

    @cute.jit
    def body(self, a: cutlass.Constexpr):
        block, number, arrays = cute.arch.block_idx()[0], type(a.length), a.kept.arrays
        groups = a.kept.axes[:-1], a.kept.axes[-1:]
        units, rows = (Axes([n for axis in axes for n in axis], len(axes), arrays) for axes in groups)
        tiles = (units.size + (self.across - 1)) // self.across
        place = number(block) // tiles
        unit, row = (number(block) - place * tiles) * self.across, place * self.down
        tile = SmemAllocator().allocate_array(Int32, -(-self.smem // WORD_BYTES), byte_alignment=16)
        size = self.result.size
        tile = cute.make_ptr(self.result.cutlass, tile.toint(), cute.AddressSpace.smem, assumed_align=size)
        self.reduce_tile(a, units, rows, (unit, row), tile)
        cute.arch.sync_threads()
        self.store_tile(a, units, rows, (unit, row), tile)

    @cute.jit
    def reduce_tile(self, a: cutlass.Constexpr, units: cutlass.Constexpr, rows, corner: cutlass.Constexpr, tile):
        """Put the results of the tile at ``corner``, a unit and a row, into shared memory."""
        thread = cute.arch.thread_idx()[0]
        lane, group = thread % self.across, thread // self.across
        x = moved(a.x, units.offsets(cutlass.min(corner[0] + lane, units.size - 1)))
        for turn in cutlass.range(self.policy.turns, unroll=1):
            first = group + turn * (self.policy.results * self.pace)
            self.reduce_some(a, x, rows, corner[1], first, tile + lane * (self.width * self.pitch))
        let_next_start()

    def reduce_some(self, a: Arguments, x, rows: Axes, corner, first, column) -> None:
        """Put the results of a thread in rows of the tile from ``first`` on into a column of shared memory."""
        own = [first + r * self.pace for r in range(self.policy.results)]
        starts = [moved(x, rows.offsets(cutlass.min(corner + row, rows.size - 1))) for row in own]
        words = self.registers()
        self.load_all_of(a, starts, words)
        for r, row in enumerate(own):
            for c, state in enumerate(self.states_of(a, starts[r], words, r)):
                (result,) = self.monoid.results_of(self.total(a, state))
                store(column + (c * self.pitch + row), result)

    @cute.jit
    def store_tile(self, a: cutlass.Constexpr, units, rows, corner: cutlass.Constexpr, tile):
        """Store the results of the tile at ``corner`` from shared memory."""
        thread = cute.arch.thread_idx()[0]
        row = thread % self.down
        shift = self.width.bit_length() - 1
        for i in cutlass.range_constexpr(self.across * self.width * self.down // THREADS):
            column = thread // self.down + i * (THREADS // self.down)
            unit = corner[0] + (column >> shift)
            if (unit < units.size) & (corner[1] + row < rows.size):
                far = (column & (self.width - 1)) * (units.steps[-1] >> shift)
                offset = units.offsets(unit)[-1] + far + rows.offsets(corner[1] + row)[-1]
                result = element(tile + (column * self.pitch + row))
                self.store_copies(a, [offset], [Int64(0)], [(result,)], Int64(1))
