"""Flags and differences of arrays whose results lie in another order than their elements.

A block has a tile of results in shared memory. Its threads have small tiles in registers, as in ``tiles``; neighbouring
threads read neighbouring elements. After one barrier, neighbouring threads store neighbouring results, in words of four
bytes where the results' addresses allow it. So whole lines are read and written.

Shared memory has the results of a column, which are neighbours in the output, side by side, and then a word of nothing,
so that neighbouring columns begin on different banks.
"""

from __future__ import annotations

import functools

import cutlass
from cutlass import Int32, Int64, Uint32, cute
from cutlass.memory import SmemAllocator

from . import words
from .strided import Arguments
from .tiles import TileFlags, least

WORD_BYTES = 4


class TransposedFlags(TileFlags):
    """The kernel: ``lanes`` register tiles side by side. Each digit counts tiles of a block."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.lanes, self.in_words = policy.lanes, policy.in_words
        self.size = marking.result.size
        self.across_block, self.down_block = self.lanes * self.columns, self.threads // self.lanes * self.rows
        self.unit = max(self.size, WORD_BYTES)  # bytes that are padded, and stored at once in words
        self.pitch = self.down_block * self.size + self.unit
        self.tile_bytes = self.across_block * self.pitch
        self.smem = marking.outputs * self.tile_bytes + 16
        self.sizes_of_block = [1] * policy.digits
        self.sizes_of_block[0], self.sizes_of_block[policy.row] = self.across_block, self.down_block

    @cute.jit
    def body(self, a: Arguments):
        """Flag the tile of a block."""
        thread = cute.arch.thread_idx()[0]
        size = self.marking.outputs * self.tile_bytes
        tiles = SmemAllocator().allocate_array(Int32, -(-size // 4), byte_alignment=16)
        digits = self.split(a, Int64(cute.arch.block_idx()[0]))
        corner = [digit * size for digit, size in zip(digits, self.sizes_of_block)]
        lane, group = thread % self.lanes, thread // self.lanes
        extents = [a.n if k == self.along else extent for k, extent in enumerate(a.extents)]
        own = {0: lane * self.columns, self.digit_of_rows: group * self.rows}
        first = [at + own.get(k, 0) for k, at in enumerate(corner)]
        if self.all_of([at < extent for at, extent in zip(first, extents)]):
            self.keep_all(a, tiles, first, lane, group)
        cute.arch.sync_threads()
        across = Int32(least(extents[0] - corner[0], Int64(self.across_block)))
        down = Int32(least(extents[self.digit_of_rows] - corner[self.digit_of_rows], Int64(self.down_block)))
        if corner[self.along] < a.n:
            for k in cutlass.range_constexpr(len(a.outs)):
                target = a.outs[k] + self.offset(corner, a.steps[1 + k])
                self.store_block(tiles, k, target, a.steps[1 + k], thread, across, down)

    @staticmethod
    def all_of(conditions):
        """Whether all conditions hold."""
        return functools.reduce(lambda a, b: a & b, conditions)

    def keep_all(self, a: Arguments, tiles, first, lane, group) -> None:
        """Put the results of a thread's tile into those of the block."""
        for k, values in enumerate(self.tile_results(a, first)[1]):
            self.keep(tiles, k, values, lane, group)

    def keep(self, tiles, k: int, values, lane, group) -> None:
        """Put the results of output ``k`` there."""
        if self.by_words:
            columns = words.transposed(values)
        else:
            rows = [[self.lowered(value) for value in row] for row in values]
            columns = [[row[i] for row in rows] for i in range(self.columns)]
        for i, column in enumerate(columns):
            start = self.slot(tiles, k, lane + i * self.lanes, group * self.rows)
            kind = Uint32 if self.by_words else self.marking.result.cutlass
            align = min(self.unit, self.rows * self.size)
            at = cute.make_ptr(kind, start, cute.AddressSpace.smem, assumed_align=align)
            shape = cute.make_layout((len(column),))
            registers = cute.make_rmem_tensor(shape, kind)
            for j, value in enumerate(column):
                registers[j] = value
            cute.autovec_copy(registers, cute.make_tensor(at, shape))

    def slot(self, tiles, k: int, place, row):
        """The address of a result in shared memory. Places of columns: first those that are the first of a thread."""
        return (tiles.toint() + (k * self.tile_bytes)) + (place * self.pitch + row * self.size)

    @cute.jit
    def store_block(self, tiles, k: cutlass.Constexpr, target, steps, thread, across, down):
        """Store the results of a block, ``across`` columns of ``down`` results."""
        each = WORD_BYTES // self.size if self.in_words else 1
        row_units = self.down_block // each
        for first in cutlass.range(0, self.across_block * row_units, self.threads, unroll=4):
            number = first + thread
            place = number // row_units
            row = (number - place * row_units) * each
            column = place % self.lanes * self.columns + place // self.lanes
            start = self.slot(tiles, k, place, row)
            at = target + (Int64(column) * steps[0] + Int64(row) * steps[self.digit_of_rows])
            if column < across:
                if cutlass.const_expr(each > 1):
                    if row + each <= down:
                        self.store_unit(start, at, Uint32)
                    else:
                        for j in cutlass.range_constexpr(each):
                            if row + j < down:
                                self.store_unit(start + j * self.size, at + j, self.marking.result.cutlass)
                else:
                    if row < down:
                        self.store_unit(start, at, self.marking.result.cutlass)

    def store_unit(self, start, target, kind) -> None:
        """Store one value of a ``kind`` from an address in shared memory."""
        size = kind.width // 8
        source = cute.make_ptr(kind, start, cute.AddressSpace.smem, assumed_align=size)
        one = cute.make_layout((1,))
        at = cute.make_ptr(kind, target.toint(), cute.AddressSpace.gmem, assumed_align=size)
        cute.make_tensor(at, one)[0] = cute.make_tensor(source, one)[0]
