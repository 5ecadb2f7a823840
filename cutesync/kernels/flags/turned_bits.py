"""Flags as bits of arrays whose words lie in another order than their elements.

A block has tiles of 32 columns, or several times as many, side by side, at some places along the axis ``beside``, on
which neighbouring words lie. Its threads read neighbouring elements and put their words into shared memory. After one
barrier, neighbouring threads store neighbouring words.
"""

from __future__ import annotations

import cutlass
from cutlass import Int64, Uint32, cute
from cutlass.memory import SmemAllocator

from ...warp import LANES
from .strided import Arguments
from .tiles import TileFlags, least


class TurnedBitFlags(TileFlags):
    """The kernel: threads have ``each`` tiles. Each digit counts tiles of a block."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.beside, self.each = policy.beside, policy.each
        self.across_block, self.besides = LANES * self.columns, self.threads // LANES * self.each
        self.pitch = self.besides + 1  # neighbouring columns begin on different banks
        self.smem = marking.outputs * self.across_block * self.pitch * 4 + 16
        self.sizes_of_block = list(self.sizes)
        self.sizes_of_block[0], self.sizes_of_block[self.beside] = self.across_block, self.besides

    @cute.jit
    def body(self, a: Arguments):
        """Flag the tiles of a block."""
        thread = cute.arch.thread_idx()[0]
        held = SmemAllocator().allocate_array(Uint32, self.smem // 4, byte_alignment=16)
        digits = self.split(a, Int64(cute.arch.block_idx()[0]))
        corner = [digit * size for digit, size in zip(digits, self.sizes_of_block)]
        column, group = thread % LANES * self.columns, thread // LANES * self.each
        if corner[0] + column < a.extents[0]:
            self.keep(a, held, corner, (column, group))
        cute.arch.sync_threads()
        place = self.moved(corner, digits[self.along])  # of the first word
        for k in cutlass.range_constexpr(len(a.outs)):
            target = a.outs[k] + self.offset(place, a.steps[1 + k])
            for first in cutlass.range(0, self.across_block * self.besides, self.threads, unroll=4):
                self.store_held(a, held, k, target, (corner, first + thread))

    def keep(self, a: Arguments, held, corner, own) -> None:
        """Put the words of a thread into shared memory; those at the last place in place of what is not there."""
        column, group = own
        last, found = a.extents[self.beside] - 1, []
        for i in range(self.each):
            first = list(corner)
            first[0] = first[0] + column
            first[self.beside] = least(first[self.beside] + (group + i), last)
            if self.full:
                first[self.along] = Int64(0)
            left, results = self.tile_results(a, first)
            found.append([[word & self.mask(left.rows) for word in self.column_bits(each)] for each in results])
        for i, outputs in enumerate(found):
            for k, values in enumerate(outputs):
                for j, word in enumerate(values):
                    self.put(held, self.slot(k, column + j, group + i), word)

    def slot(self, k: int, column, place):
        return k * (self.across_block * self.pitch) + column * self.pitch + place

    @cute.jit
    def store_held(self, a: Arguments, held, k: cutlass.Constexpr, target, at):
        """Store a word of the block, if there is one of this number."""
        corner, number = at
        column, place = number // self.besides, number % self.besides
        there = (corner[0] + column < a.extents[0]) & (corner[self.beside] + place < a.extents[self.beside])
        if there:
            steps = a.steps[1 + k]
            word = cute.make_tensor(held + self.slot(k, column, place), cute.make_layout((1,)))[0]
            self.put(target, Int64(column) * steps[0] + Int64(place) * steps[self.beside], Uint32(word))
