"""Flags and differences of arrays whose results lie in another order than their elements.

A block has a tile of results in shared memory. Its threads have small tiles in registers, as in ``tiles``; neighbouring
threads read neighbouring elements. After one barrier, neighbouring threads store neighbouring results, in words of four
bytes where the results' addresses allow it. So whole lines are read and written.

Shared memory has the results of a column, which are neighbours in the output, side by side, and then a word of nothing,
so that neighbouring columns begin on different banks.

Where columns are ``split``, their number along the input is that of an outer and of an inner column of the outputs.
"""

from __future__ import annotations

import functools
from collections import namedtuple

import cutlass
from cutlass import Int32, Int64, Uint32, cute
from cutlass.memory import SmemAllocator

from . import words
from .strided import Arguments
from .tiles import Left, TileFlags, least

WORD_BYTES = 4

# The number of a block's first column, and the inner columns that an outer one has.
Split = namedtuple("Split", "first inner")

FRACTION = 22  # bits of a reciprocal: exact for up to 256 rows of up to 127 inner columns, as 256 * 127**2 < 2**22


class TransposedFlags(TileFlags):
    """The kernel: ``lanes`` register tiles side by side. Each digit counts tiles of a block."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.lanes, self.in_words, self.split_columns = policy.lanes, policy.in_words, policy.split
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
        left, first_column = Left(across, down), Uint32(0)
        if cutlass.const_expr(self.split_columns):
            first_column, corner[0] = Uint32(corner[0]), Int64(0)
        if corner[self.along] < a.n:
            for k in cutlass.range_constexpr(len(a.outs)):
                steps, split = a.steps[1 + k], Split(first_column, Uint32(a.extents[-1]))
                target = a.outs[k] + self.offset(corner, steps)
                if cutlass.const_expr(self.split_columns == "beside"):
                    self.store_beside(tiles, k, target, steps[-1], split, thread, left)
                else:
                    self.store_block(tiles, k, target, steps, split, thread, left)

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
    def store_block(self, tiles, k: cutlass.Constexpr, target, steps, split, thread, left):
        """Store the results of a block, those that are ``left``."""
        each = WORD_BYTES // self.size if self.in_words else 1
        row_units = self.down_block // each
        for first in cutlass.range(0, self.across_block * row_units, self.threads, unroll=4):
            number = first + thread
            place = number // row_units
            row = (number - place * row_units) * each
            column = place % self.lanes * self.columns + place // self.lanes
            start = self.slot(tiles, k, place, row)
            at = target + (self.offset_of(split, column, steps) + Int64(row) * steps[self.digit_of_rows])
            if column < left.columns:
                if cutlass.const_expr(each > 1):
                    if row + each <= left.rows:
                        self.store_unit(start, at, Uint32)
                    else:
                        for j in cutlass.range_constexpr(each):
                            if row + j < left.rows:
                                self.store_unit(start + j * self.size, at + j, self.marking.result.cutlass)
                else:
                    if row < left.rows:
                        self.store_unit(start, at, self.marking.result.cutlass)

    def offset_of(self, split, column, steps):
        """The offset of a column of the block in an output."""
        if not self.split_columns:
            return Int64(column) * steps[0]
        number = split.first + Uint32(column)
        outer = number // split.inner
        return Int64(outer) * steps[-1] + Int64(number - outer * split.inner) * steps[0]

    @cute.jit
    def store_beside(self, tiles, k: cutlass.Constexpr, target, step, split, thread, left):
        """The same of columns whose inner ones are followed by those of the next row: each outer column is a run."""
        outer, reciprocal = split.first // split.inner, ((Uint32(1) << FRACTION) + split.inner - 1) // split.inner
        skipped = Int32(
            split.first - outer * split.inner
        )  # inner columns of the first outer one that the block before has
        each = Int32(split.inner)
        runs = (skipped + left.columns + each - 1) // each
        for run in cutlass.range(runs):
            start = target + Int64(outer + Uint32(run)) * step
            for place in cutlass.range(thread, left.rows * each, self.threads, unroll=4):
                row = Int32((Uint32(place) * reciprocal) >> FRACTION)
                column = run * each + place - row * each - skipped
                if (column >= 0) & (column < left.columns):
                    slot = self.slot(tiles, k, column % self.columns * self.lanes + column // self.columns, row)
                    self.store_unit(slot, start + place, self.marking.result.cutlass)

    def store_unit(self, start, target, kind) -> None:
        """Store one value of a ``kind`` from an address in shared memory."""
        size = kind.width // 8
        source = cute.make_ptr(kind, start, cute.AddressSpace.smem, assumed_align=size)
        one = cute.make_layout((1,))
        at = cute.make_ptr(kind, target.toint(), cute.AddressSpace.gmem, assumed_align=size)
        cute.make_tensor(at, one)[0] = cute.make_tensor(source, one)[0]
