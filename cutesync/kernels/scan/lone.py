"""Scan of axes of one element: each result is that of its element, after the first operand if there is one. A thread
has vectors of results, and reads their elements where they lie. An exclusive scan reads none."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import let_next_start
from ..coordinates import Axes, element, store
from ..hardware import WORD_BYTES
from ..select.chunk import cells
from ..words import words_from
from .base import Arguments, Scan, ScanKernel
from .lone_policy import THREADS, LonePolicy


class LoneScan(ScanKernel):
    """The kernel. ``layout`` describes the axes of columns."""

    def __init__(self, scan: Scan, policy: LonePolicy) -> None:
        self.policy, self.width, self.unroll = policy, policy.width, policy.unroll
        super().__init__(scan, THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        source, result = self.scan.monoid.sources[0], self.scan.monoid.results[0]
        first = cute.arch.block_idx()[0] * (THREADS * self.unroll) + cute.arch.thread_idx()[0]
        lead = Int32(a.out.toint() // result.size % self.width)
        axes = Axes(a.layout, self.policy.rank, 2)
        count = axes.size
        elements = cute.make_rmem_tensor(cute.make_layout((self.width, self.unroll)), source.cutlass)
        for u in cutlass.range_constexpr(self.unroll):
            begin = (first + u * THREADS) * self.width - lead
            if cutlass.const_expr(not self.scan.exclusive):
                if (begin >= 0) & (begin + self.width <= count):
                    self.load(a.x, axes, begin, elements[(None, u)])
                elif begin < count:
                    self.load_each(a.x, axes, begin, elements[(None, u)], count)
        for u in cutlass.range_constexpr(self.unroll):
            begin = (first + u * THREADS) * self.width - lead
            found = cute.make_rmem_tensor((self.width,), result.cutlass)
            for i in cutlass.range_constexpr(self.width):
                found[i] = self.result(a, elements[(i, u)])
            if (begin >= 0) & (begin + self.width <= count):
                address = (a.out + begin).toint()
                align = self.width * result.size
                cute.autovec_copy(found, cells(result.cutlass, address, self.width, a.out.memspace, align))
            else:
                for i in cutlass.range_constexpr(self.width):
                    if (begin + i >= 0) & (begin + i < count):
                        store(a.out + (begin + i), found[i])

    def result(self, a: Arguments, value):
        """The result of an element, which an exclusive scan does not look at."""
        before = self.scan.carry_in(a, Int64(0))
        if not self.scan.exclusive:
            before = before.append(self.scan.monoid.lift(value, Int64(0)), self.scan.combine)
        return self.scan.monoid.results_of(before.state)[0]

    @cute.jit
    def load(self, x, axes: Axes, begin: Int32, target: cute.Tensor):
        """Load the elements of a vector of results."""
        if cutlass.const_expr(self.policy.unit > 0):
            at, last = axes.offsets(begin)[0], axes.offsets(begin + (self.width - 1))[0]
            inside = last - at == self.width - 1
            if cutlass.const_expr(self.policy.unit < WORD_BYTES):  # words hold what lies beside the vector
                beside = WORD_BYTES // self.scan.monoid.sources[0].size
                inside = inside & (begin >= beside) & (begin + (self.width + beside) <= axes.size)
            if inside:
                self.load_run(x + at, target)
            else:
                self.load_each(x, axes, begin, target)
        else:
            self.load_each(x, axes, begin, target)

    def load_each(self, x, axes: Axes, begin, target, count: Any = None) -> None:
        """Load elements one by one; those of ``count``, if given, that are nearest to results that do not exist."""
        for i in range(self.width):
            place = begin + i
            if count is not None:
                place = cutlass.min(cutlass.max(place, Int32(0)), count - 1)
            target[i] = element(x + axes.offsets(place)[0])

    def load_run(self, at, target) -> None:
        """Load neighbours in memory."""
        source, unit = self.scan.monoid.sources[0], self.policy.unit
        if unit >= WORD_BYTES:
            cute.autovec_copy(cells(source.cutlass, at.toint(), self.width, at.memspace, unit), target)
            return
        words = cute.recast_tensor(target, Int32)
        for i, word in enumerate(words_from(at, source.size)):
            words[i] = word
