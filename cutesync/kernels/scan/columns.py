"""Scan along an axis that is not the last: neighbouring threads scan neighbouring columns, row by row.

A block of ``lanes * groups`` threads covers ``lanes * width`` columns; each of its row groups takes a contiguous run of the block's
rows. Where there are too few columns to fill a GPU, several groups, and with ``split`` several blocks, share the rows: each folds its
run first, learns the state before it (through shared memory; through ``sync.gather`` from the blocks before), and scans the run in
a second reading, which mostly comes from the L2. Tickets order the blocks, so waiting makes progress. Otherwise each element is read once.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...block.reduce import get, put, state_array, state_bytes
from ...block.split import share
from ...block.warps import after
from ...sync.gather import collect, publish
from .base import Scan, ScanKernel


class ColumnScan(ScanKernel):
    """The kernel: ``width`` columns a thread, loaded as one vector; ``unroll`` rows in flight."""

    def __init__(
        self, scan: Scan, width: int, lanes: int, groups: int, unroll: int, split: bool, aligned_out: bool
    ) -> None:
        self.width, self.lanes, self.groups, self.unroll, self.split = width, lanes, groups, unroll, split
        self.aligned_out = aligned_out
        self.types = scan.monoid.types
        threads = -(-lanes * groups // 32) * 32
        smem = state_bytes((*self.types, Int32), threads * width) + 32 if groups > 1 or split else 0
        super().__init__(scan, threads, smem, 1)

    @cute.jit
    def body(self, x, out, init_at, init, slots, counters, rows, length, inner, tiles):
        thread, _, _ = cute.arch.thread_idx()
        number, _, _ = cute.arch.block_idx()
        splits = Int32(cute.arch.grid_dim()[0] // (Int32(rows) * tiles))
        tag = Int32(0)
        if cutlass.const_expr(self.split):
            number, tag = self.take_number(counters, thread)
        segment = number % splits
        slab = Int64(number // splits // tiles)
        group = thread // self.lanes
        column = (Int64(number // splits % tiles) * self.lanes + thread % self.lanes) * self.width
        inside = (column < inner) & (group < self.groups)
        begin, end = share(length, Int64(segment), Int64(splits))
        first, stop = share(end - begin, Int64(cutlass.min(group, self.groups - 1)), Int64(self.groups))
        first, stop = begin + first, begin + stop
        if cutlass.not_(inside):
            stop = first
        place = slab * length * inner + column
        have = Boolean(self.scan.start is not None)
        start = self.scan.first(init, init_at) if self.scan.start is not None else tuple(t(0) for t in self.types)
        states = tuple(start for _ in range(self.width))
        if cutlass.const_expr(self.groups > 1 or self.split):
            storage = state_array((*self.types, Int32), self.threads * self.width)
            mine, own = self.fold_run(x + place, first, stop, length, inner)
            some, before, all_, total = self.around(mine, own, storage, thread, group)
            if cutlass.const_expr(self.split):
                at = (slab * splits + segment) * inner + column
                stride = rows * splits * inner
                if inside & (group == self.groups - 1):
                    for c in cutlass.range_constexpr(self.width):
                        publish(slots, at + c, stride, total[c], tag)
                have, states = self.look_back(
                    slots,
                    slab * splits * inner + column,
                    segment,
                    inner,
                    stride,
                    tag,
                    inside,
                    have,
                    states,
                    storage,
                    thread,
                    group,
                )
            have, states = self.after(have, states, some, before)
        self.scan_run(x + place, out + place, first, stop, length, inner, have, states)

    @cute.jit
    def look_back(self, slots, at, segment, inner, stride, tag, inside, have, states, storage, thread, group):
        """``(any, states)`` before the block's rows: each row group folds a run of the segments before, then the groups are folded."""
        first, stop = share(segment, cutlass.min(group, self.groups - 1), Int32(self.groups))
        count = stop - first
        if cutlass.not_(inside):
            count = Int32(0)
        cute.arch.sync_threads()
        found, folds = collect(
            slots, at + Int64(first) * inner, count, inner, stride, tag, self.types, self.scan.combine, self.width
        )
        _, _, any_, total = self.around(found, folds, storage, thread, group)
        return self.after(have, states, any_, total)

    @cute.jit
    def around(self, have, states, storage, thread, group):
        """``(any, states)`` of the groups before this one, and of all. One block barrier; the storage needs another before reuse."""
        for c in cutlass.range_constexpr(self.width):
            put(storage, c * self.threads + thread, (*states[c], Int32(have)))
        cute.arch.sync_threads()
        lane = thread - group * self.lanes
        some, before = Boolean(False), self.nothing()
        total_some, total = Boolean(False), self.nothing()
        for g in range(self.groups):
            other = lane + g * self.lanes
            following = tuple(get(storage, c * self.threads + other, self.types) for c in range(self.width))
            valid = storage[-1][other] != 0
            if g == group:
                some, before = total_some, total
            total_some, total = self.after(total_some, total, valid, following)
        return some, before, total_some, total

    @cute.jit
    def after(self, have, states, also, following):
        """``(any, states)`` of ``states`` followed by ``following``, column by column."""
        joined = tuple(after(have, a, also, b, self.scan.combine) for a, b in zip(states, following))
        return have | also, tuple(state for _, state in joined)

    def nothing(self):
        return tuple(tuple(t(0) for t in self.types) for _ in range(self.width))

    @cute.jit
    def fold_run(self, x, first, stop, length, inner):
        """``(any, states)`` of rows ``first`` to ``stop``, in scan order."""
        have, states = Boolean(False), self.nothing()
        elements = self.registers()
        while first < stop:
            left = Int32(cutlass.min(stop - first, Int64(self.unroll)))
            self.load(x, elements, first, left, length, inner)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    have, states = self.after(have, states, Boolean(True), self.lifted(elements, u))
            first += self.unroll
        return have, states

    @cute.jit
    def scan_run(self, x, out, first, stop, length, inner, have, states):
        """Store the scan of rows ``first`` to ``stop``; ``states`` (if ``have``) come before them."""
        elements = self.registers()
        while first < stop:
            left = Int32(cutlass.min(stop - first, Int64(self.unroll)))
            self.load(x, elements, first, left, length, inner)
            for u in cutlass.range_constexpr(self.unroll):
                if u < left:
                    _, following = self.after(have, states, Boolean(True), self.lifted(elements, u))
                    self.store(
                        out + self.scan.flip(first + u, length) * inner, states if self.scan.exclusive else following
                    )
                    states = following
                    have = Boolean(True)
            first += self.unroll

    def registers(self):
        return cute.make_rmem_tensor(
            cute.make_layout((self.width, self.unroll), stride=(1, self.width)), self.scan.monoid.source.cutlass
        )

    @cute.jit
    def load(self, x, elements, first, left, length, inner):
        for u in cutlass.range_constexpr(self.unroll):
            if u < left:
                at = x + self.scan.flip(first + u, length) * inner
                cute.autovec_copy(self.vector(at, self.scan.monoid.source, True), elements[(None, u)])

    def lifted(self, elements, u: int):
        return tuple(self.scan.monoid.lift(elements[c, u], 0) for c in range(self.width))

    def store(self, out, states) -> None:
        results = cute.make_rmem_tensor((self.width,), self.scan.monoid.result.cutlass)
        for c in range(self.width):
            results[c] = self.scan.monoid.lower(states[c])
        cute.autovec_copy(results, self.vector(out, self.scan.monoid.result, self.aligned_out))

    def vector(self, at, element, aligned: bool):
        align = element.size * (self.width if aligned else 1)
        pointer = cute.make_ptr(element.cutlass, at.toint(), cute.AddressSpace.gmem, assumed_align=align)
        return cute.make_tensor(pointer, cute.make_layout((self.width,)))
