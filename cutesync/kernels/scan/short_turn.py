"""Scan along short axes of arrays whose elements are neighbours along one axis of columns and whose results are
neighbours along another one, or along the scanned axis and another one: a block turns a tile in shared memory.

A tile has ``across`` columns along the first axis times ``inner`` along the second. Neighbouring threads load
neighbouring elements, and have all positions of some columns in registers. They put the results in shared memory as
they lie in the output, and store them side by side. Nothing else is exchanged.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...sync.overlap import let_next_start
from ..coordinates import Axes
from ..select.chunk import cells
from .base import Arguments, Scan, ScanKernel
from .short import ShortScan, vector
from .short_turn_policy import STEPS, THREADS, ShortTurnPolicy

LOADS = 16  # of a thread at once, about
SMEM_BYTES = 224 << 10  # of an SM


class ShortTurnScan(ShortScan):
    """The kernel. ``layout`` begins with the strides and extents that ``STEPS`` names. Threads without columns load
    others in their place."""

    def __init__(self, scan: Scan, policy: ShortTurnPolicy) -> None:
        self.turn, self.length, self.width = policy, policy.length, policy.width
        self.lanes = policy.across // policy.width  # threads along the axis of neighbouring elements
        self.groups = THREADS // self.lanes
        self.kind = scan.monoid.results[0]
        self.run = policy.inner * policy.length // policy.runs  # neighbouring results of a column of the first axis
        held = policy.across * policy.pitch
        blocks = max(1, min(policy.blocks_per_sm, SMEM_BYTES // (held + 1024)))
        ScanKernel.__init__(self, scan, THREADS, held, blocks)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        buffer = SmemAllocator().allocate_array(Uint8, self.turn.across * self.turn.pitch, byte_alignment=16)
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        x, out, first_inner, first = Axes(a.layout[len(STEPS) :], self.turn.rank, 4).offsets(block)
        _, _, out_next, inner, across, out_step, x_first = a.layout[: len(STEPS)]
        left, right = Int32(inner - first_inner), Int32(across - first)  # columns that exist, along either axis
        lane, group = thread % self.lanes * self.width, thread // self.lanes
        at = a.x + (x + Int64(cutlass.min(lane, right - self.width)) * x_first)
        unit = self.turn.unit  # neighbouring columns along the second axis, of which a thread has some units
        place, numbers = (at, lane, left), range(-(-self.turn.inner // (self.groups * unit)))
        count = max(1, LOADS // (self.length * unit))
        if cutlass.const_expr(self.turn.blocks_per_sm > 1):  # a loop, so that registers hold the elements of one batch
            count, step = -(-len(numbers) // -(-len(numbers) // count)), self.groups * unit
            for begin in cutlass.range(group * unit, self.turn.inner, count * step, unroll=1):
                self.turn_batch(a, buffer, place, [begin + k * step for k in range(count)])
        else:
            for begin in numbers[::count]:
                batch = [(group + number * self.groups) * unit for number in numbers[begin : begin + count]]
                self.turn_batch(a, buffer, place, batch)
        cute.arch.sync_threads()
        run = cutlass.min(left * (self.length // self.turn.runs), self.run)
        for number in range(self.turn.runs):
            source, target = buffer + number * self.run * self.kind.size, a.out + (out + number * out_step)
            self.store_tile(source, target, out_next, run, right, thread)

    def turn_batch(self, a: Arguments, buffer, place: tuple, batch: list) -> None:
        """Put the results of a thread's units from each number of ``batch`` on in shared memory."""
        at, lane, left = place
        unit, x_next = self.turn.unit, a.layout[1]
        every = [n + i for n in batch for i in range(unit)]
        loaded = [self.load_columns(a, at + Int64(cutlass.min(n, left - 1)) * x_next) for n in every]
        for k, n in enumerate(batch):
            self.put(buffer, lane, n, [self.scanned(a, each) for each in loaded[k * unit : (k + 1) * unit]])

    def load_columns(self, a: Arguments, at) -> dict[tuple[int, int], Any]:
        """A thread's elements of neighbouring columns, by position and column."""
        found: dict[tuple[int, int], Any] = {}
        for position in range(self.length):
            elements = cute.make_rmem_tensor((self.width,), self.scan.monoid.sources[0].cutlass)
            source = at + Int64(position) * a.layout[0]
            cute.autovec_copy(vector(source, self.width, self.scan.monoid.sources[0]), elements)
            found |= {(position, column): elements[column] for column in range(self.width)}
        return found

    @cute.jit
    def put(self, buffer, lane, number, results: cutlass.Constexpr):
        """Put the results of a unit of a thread's columns, from ``number`` along the second axis on, in shared
        memory."""
        if number < self.turn.inner:
            for column in cutlass.range_constexpr(self.width):
                found = [[each[position, column] for each in results] for position in range(self.length)]
                self.put_column(buffer + (lane + column) * self.turn.pitch, number, found)

    def put_column(self, start, number, results: list) -> None:
        """Put the results of each position of a unit."""
        if self.turn.outside:
            for position, found in enumerate(results):
                self.put_run(start + (position * self.turn.inner + number) * self.kind.size, found)
        else:
            of_columns = [result for column in zip(*results) for result in column]
            self.put_run(start + number * (self.length * self.kind.size), of_columns)

    def put_run(self, start, results: list) -> None:
        held = cute.make_rmem_tensor((len(results),), self.kind.cutlass)
        for i, result in enumerate(results):
            held[i] = result
        cute.autovec_copy(held, self.cells(start, len(results)))

    def cells(self, pointer, count: int):
        """``count`` results in shared memory, of which words are aligned if they hold them whole."""
        bytes_of = count * self.kind.size
        align = self.turn.word if bytes_of % self.turn.word == 0 else self.kind.size
        return cells(self.kind.cutlass, pointer.toint(), count, cute.AddressSpace.smem, align)

    @cute.jit
    def store_tile(self, buffer, out, out_next, run, right, thread):
        """Store the first ``run`` results of each column along the first axis, of which there are ``right``."""
        unit = self.turn.store
        units = self.run // unit
        for number in cutlass.range(thread, self.turn.across * units, THREADS, unroll=4):
            column = number // units
            place = (number - column * units) * unit
            if (column < right) & (place < run):
                held = cute.make_rmem_tensor((unit,), self.kind.cutlass)
                source = buffer + (column * self.turn.pitch + place * self.kind.size)
                cute.autovec_copy(self.cells(source, unit), held)
                cute.autovec_copy(held, vector(out + (Int64(column) * out_next + place), unit, self.kind))
