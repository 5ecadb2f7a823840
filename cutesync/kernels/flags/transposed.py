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
from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint8, Uint32, cute
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ..coordinates import quotient
from ..hardware import WORD_BYTES
from ..words import funnel_shift
from . import words
from .strided import Arguments
from .tiles import RESIDENT, Left, TileFlags, least

ENDS = 2 * WORD_BYTES  # more than a column has bytes in words that have others, before and behind its own

# The number of a block's first column, the inner columns that an outer one has, and the numbers that divide by them.
Split = namedtuple("Split", "first inner factor shift")


class TransposedFlags(TileFlags):
    """The kernel: ``lanes`` register tiles side by side. Each digit counts tiles of a block."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.lanes, self.stores, self.split_columns = policy.lanes, policy.stores, policy.split
        self.size = marking.result.size
        self.across_block, self.down_block = self.lanes * self.columns, self.threads // self.lanes * self.rows
        self.groups = self.threads // self.lanes
        if self.stores == "anywhere":
            self.limit_registers(RESIDENT)
        self.unit = max(self.size, WORD_BYTES)  # bytes that are padded, and stored at once in words
        self.pitch = (-(-self.down_block * self.size // self.unit) | 1) * self.unit
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
        within = [at < extent for at, extent in zip(first, extents)]
        if self.all_of(within + ([group < self.groups] if self.threads % self.lanes else [])):
            self.keep_all(a, tiles, first, lane, group)
        cute.arch.sync_threads()
        across = Int32(least(extents[0] - corner[0], Int64(self.across_block)))
        down = Int32(least(extents[self.digit_of_rows] - corner[self.digit_of_rows], Int64(self.down_block)))
        left, first_column = Left(across, down), Uint32(0)
        if cutlass.const_expr(self.split_columns):
            first_column, corner[0] = Uint32(corner[0]), Int64(0)
        if corner[self.along] < a.n:
            for k in cutlass.range_constexpr(len(a.outs)):
                steps = a.steps[1 + k]
                split = Split(first_column, Uint32(a.extents[-1]), a.factors[-1], a.shifts[-1])
                target = a.outs[k] + self.offset(corner, steps)
                if cutlass.const_expr(self.stores == "run"):
                    bytes_of = left.columns * Int32(extents[self.digit_of_rows]) * self.size
                    start = tiles.toint() + k * self.tile_bytes
                    self.store_whole_run(start, target, bytes_of, thread)
                elif cutlass.const_expr(self.stores == "anywhere"):
                    self.store_columns(tiles, k, target, steps, split, thread, left)
                else:
                    self.store_block(tiles, k, target, steps, split, thread, left)

    @staticmethod
    def all_of(conditions):
        """Whether all conditions hold."""
        return functools.reduce(lambda a, b: a & b, conditions)

    def keep_all(self, a: Arguments, tiles, first, lane, group) -> None:
        """Put the results of a thread's tile into those of the block."""
        left, found = self.tile_results(a, first)
        for k, values in enumerate(found):
            if self.stores == "run":
                self.keep_run(tiles, k, values, Int32(a.extents[self.digit_of_rows]), Left(lane, group), left)
            else:
                self.keep(tiles, k, values, lane, group)

    @cute.jit
    def keep_run(self, tiles, k: cutlass.Constexpr, values: cutlass.Constexpr, height, at, left):
        """The same where columns follow each other without gaps; ``at``: the lane and the group of the thread."""
        first = (at.columns * self.columns) * height + at.rows * self.rows
        for j, row in enumerate(values):
            for i, value in enumerate(row):
                if left.rows > j:
                    start = tiles.toint() + (k * self.tile_bytes + (first + (i * height + j)) * self.size)
                    kind = self.marking.result.cutlass
                    target = cute.make_ptr(kind, start, cute.AddressSpace.smem, assumed_align=self.size)
                    cute.make_tensor(target, cute.make_layout((1,)))[0] = self.lowered(value)

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
        each = WORD_BYTES // self.size if self.stores == "words" else 1
        row_units = self.down_block // each
        for first in cutlass.range(0, self.across_block * row_units, self.threads, unroll=4):
            number = first + thread
            place = number // row_units
            row = (number - place * row_units) * each
            column = self.column_of(place, self.across_block * row_units)
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

    @cute.jit
    def store_columns(self, tiles, k: cutlass.Constexpr, target, steps, split, thread, left):
        """The same of columns that begin anywhere in memory: their words, then the bytes of those at the ends, of which
        other blocks have the rest."""
        bytes_of, units = left.rows * self.size, -(-self.down_block * self.size // WORD_BYTES)
        for each, store in ((units, self.store_word), (ENDS, self.store_byte)):
            whole = bytes_of if store == self.store_word else (bytes_of, bytes_of)
            for first in cutlass.range(0, self.across_block * each, self.threads, unroll=4):
                place = (first + thread) // each
                column = self.column_of(place, self.across_block * each)
                if column < left.columns:
                    at = target + self.offset_of(split, column, steps)
                    store(self.slot(tiles, k, place, 0), at, whole, first + thread - place * each)

    @cute.jit
    def store_whole_run(self, start, target, bytes_of, thread):
        """Store a block's run of ``bytes_of`` bytes. Of a word in shared memory, none is read that has others."""
        whole = bytes_of - Int32(target.toint() & (WORD_BYTES - 1))
        for unit in cutlass.range(thread, whole // WORD_BYTES + 1, self.threads, unroll=4):
            self.store_word(start, target, whole, unit)
        self.store_byte(start, target, (whole, bytes_of), thread)

    @cute.jit
    def store_word(self, start, target, whole, unit):
        """Store the ``unit``-th word on its boundary of a run, if it lies in the ``whole`` first bytes."""
        head = self.bytes_before(target)
        place = head + unit * WORD_BYTES
        if place + WORD_BYTES <= whole:
            value = self.shared(Uint32, start + (place & -WORD_BYTES))
            if cutlass.const_expr(self.size < WORD_BYTES):
                high = self.shared(Uint32, start + ((place + (WORD_BYTES - 1)) & -WORD_BYTES))
                value = funnel_shift(value, high, (place & (WORD_BYTES - 1)) * 8)
            at = cute.make_ptr(Uint32, target.toint() + place, cute.AddressSpace.gmem, assumed_align=WORD_BYTES)
            cute.make_tensor(at, cute.make_layout((1,)))[0] = value

    @cute.jit
    def store_byte(self, start, target, sizes, number):
        """Store a byte of a run that ``store_word`` leaves out, if there is one of this number. ``sizes``: the bytes
        whose words it stores, and those of the run."""
        if cutlass.const_expr(self.size < WORD_BYTES):
            whole, bytes_of = sizes
            head = self.bytes_before(target)
            behind = head + (cutlass.max(whole - head, Int32(0)) & -WORD_BYTES)
            before = number < WORD_BYTES
            place = choose(before, number, behind + (number - WORD_BYTES))
            if place < choose(before, cutlass.min(head, bytes_of), bytes_of):
                at = cute.make_ptr(Uint8, target.toint() + place, cute.AddressSpace.gmem, assumed_align=1)
                cute.make_tensor(at, cute.make_layout((1,)))[0] = self.shared(Uint8, start + place)

    @staticmethod
    def bytes_before(target):
        """How many bytes the first word on its boundary is behind an address."""
        behind: Any = Int32(target.toint() & (WORD_BYTES - 1))
        return -behind & (WORD_BYTES - 1)

    @staticmethod
    def shared(kind, address):
        """A value of a ``kind`` in shared memory."""
        at = cute.make_ptr(kind, address, cute.AddressSpace.smem, assumed_align=kind.width // 8)
        return cute.make_tensor(at, cute.make_layout((1,)))[0]

    def column_of(self, place, units: int):
        """The column of a place; of places behind the last, to which a loop over so many units goes, none there is."""
        column = place % self.lanes * self.columns + place // self.lanes
        if units % self.threads:
            column = choose(place < self.across_block, column, Int32(self.across_block))
        return column

    def offset_of(self, split, column, steps):
        """The offset of a column of the block in an output."""
        if not self.split_columns:
            return Int64(column) * steps[0]
        number = split.first + Uint32(column)
        outer = quotient(number, *split[1:])
        return Int64(outer) * steps[-1] + Int64(number - outer * split.inner) * steps[0]

    def store_unit(self, start, target, kind) -> None:
        """Store one value of a ``kind`` from an address in shared memory."""
        size = kind.width // 8
        source = cute.make_ptr(kind, start, cute.AddressSpace.smem, assumed_align=size)
        one = cute.make_layout((1,))
        at = cute.make_ptr(kind, target.toint(), cute.AddressSpace.gmem, assumed_align=size)
        cute.make_tensor(at, one)[0] = cute.make_tensor(source, one)[0]
