"""Scan of outer slices of which a vector, or a few side by side, has one or several: axes of extent 1, where every
element is alone after the first operand if there is one, and short axes with few columns. A thread scans its vectors in
registers."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...sync.overlap import let_next_start
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import load_pair, of_pair
from .base import Arguments, Scan, ScanKernel
from .columns import ThreadColumns
from .slice_policy import SINGLE_THREADS, SinglePolicy


class SingleScan(ThreadColumns):
    """The kernel: ``unroll`` times ``width`` elements a thread, a vector or a few; slices of ``length`` positions with
    ``inner`` columns divide them."""

    def __init__(self, scan: Scan, policy: SinglePolicy) -> None:
        self.width, self.unroll, self.aligned_out = policy.width, policy.unroll, policy.aligned_out
        self.length, self.inner, self.joined = policy.length, policy.inner, policy.joined
        self.slice = policy.length * policy.inner  # elements
        ScanKernel.__init__(self, scan, SINGLE_THREADS, 0, 1)

    @cute.jit
    def body(self, a: Arguments):
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        first = (Int64(block) * (SINGLE_THREADS * self.unroll) + thread) * self.width
        end = a.rows * self.slice
        firsts = [first + u * (SINGLE_THREADS * self.width) for u in range(self.unroll)]
        places = [self.vector_places(a, at) for at in firsts]
        layout = cute.make_layout((self.width, self.unroll), stride=(1, self.width))
        elements = tuple(cute.make_rmem_tensor(layout, dtype.cutlass) for dtype in self.scan.monoid.sources)
        if cutlass.const_expr(self.joined):
            words = 2 * self.width * self.scan.monoid.source.size // WORD_BYTES
            layout = cute.make_layout((words, self.unroll), stride=(1, words))
            elements = (cute.make_rmem_tensor(layout, Int32),)
        for u in cutlass.range_constexpr(self.unroll):
            if firsts[u] + self.width <= end:
                self.load_row(a.x + places[u][0], [e[(None, u)] for e in elements], a)
        for u in cutlass.range_constexpr(self.unroll):
            x, out = a.x + places[u][0], a.out + places[u][1]
            if firsts[u] + self.width <= end:
                loaded = [e[(None, u)] for e in elements]
                loaded = [self.of_pairs(loaded[0], x)] if self.joined else loaded
                self.store_row(out, self.results(self.lifted(loaded, 0, a), a))
            elif firsts[u] < end:
                self.scan_rest(a, x, out, Int32(end - firsts[u]))

    def vector_places(self, a: Arguments, at):
        """How far a vector, of whole slices, lies from ``a.x``, and how far from ``a.out``, in elements."""
        return (at, at) if self.scan.view is None else self.row_places(a, at // self.slice)

    @cute.jit
    def scan_rest(self, a: Arguments, x, out, count: Int32):
        """The last slices, fewer than a vector has."""
        for i in cutlass.range(0, count, self.slice, unroll=1):
            self.scan_slice(a, x + i, out + i)

    def scan_slice(self, a: Arguments, x, out) -> None:
        found = self.scanned(lambda place: self.state_at(x + place), self.slice, a)
        for place, state in enumerate(found):
            self.put_results(pointers_of(out + place), state)

    def state_at(self, at):
        values = [element(pointer)[0] for pointer in pointers_of(at)]
        return self.scan.monoid.lift(*values, Int64(0))

    def put_results(self, pointers, state) -> None:
        for pointer, result in zip(pointers, self.scan.monoid.results_of(state)):
            element(pointer)[0] = result

    def results(self, row, a: Arguments):
        """The states whose results are stored."""
        return self.scanned(lambda place: row[place], self.width, a)

    def scanned(self, state_at, count: int, a: Arguments) -> list:
        """The states whose results are stored, of ``count`` elements; ``state_at`` gives that of an element."""
        start, found = self.scan.carry_in(a, 0), [None] * count
        for column in range(count // self.length):
            before = start
            first = column // self.inner * self.slice + column % self.inner
            for position in range(self.length):
                place = first + self.scan.flip(position, self.length) * self.inner
                following = before.append(state_at(place), self.scan.combine)
                found[place] = before.state if self.scan.exclusive else following.state
                before = following
        return found

    def load_row(self, at, targets, a: Arguments) -> None:
        for pointer, dtype, target in zip(pointers_of(at), self.scan.monoid.sources, targets):
            if self.joined:
                end = (a.x + a.rows * self.slice).toint()
                for first in range(0, self.width, VECTOR_BYTES // dtype.size):
                    load_pair(pointer + first, self.pair(target, first), end)
            else:
                cute.autovec_copy(self.vector(pointer, dtype), target)

    def pair(self, words, first):
        """Of the words of pairs, those of the vectors that hold the elements from ``first`` on."""
        return cute.make_tensor(words.iterator + first * self.scan.monoid.source.size // 2, cute.make_layout((8,)))

    def of_pairs(self, words, at):
        """A thread's elements, which begin at an address, of pairs of vectors."""
        source = self.scan.monoid.source
        found = cute.make_rmem_tensor((self.width * source.size // WORD_BYTES,), Int32)
        for first in range(0, self.width, VECTOR_BYTES // source.size):
            for w, word in enumerate(of_pair(self.pair(words, first), at)):
                found[first * source.size // WORD_BYTES + w] = Int32(word)
        return cute.recast_tensor(found, source.cutlass)


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
