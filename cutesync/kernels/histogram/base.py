"""What all kernels of this family share: one argument list, one launch, and how a bin is found. Device code."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float64, Int32, Int64, Uint32, Uint64
from cutlass.memory import SmemAllocator

from ...sync.overlap import let_next_start
from ..coordinates import element, store
from ..gather import Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .policy import CountPolicy
from .spec import Counting

# A launch's arguments: ``length`` elements ``x`` and their ``weights``, ``bins`` bins, whose edges are ``low + i /
# scale`` if they are at equal distances. ``out`` and ``out_edges`` have the results. ``words`` are the sums of results
# that are made of them, ``digits`` and ``exponent`` the form of such sums (see ``weights``). ``n`` points to how many
# elements count, if that is in memory. A block updates ``width`` bins from ``first`` on, and is number ``block`` of the
# ``blocks`` that do.
Arguments = namedtuple(
    "Arguments", "x weights edges out out_edges words n length bins digits exponent low scale first width block blocks"
)


class HistogramKernel(PlainKernel):
    """A compiled kernel. A subclass defines ``body``, which gets the ``Arguments``."""

    name = "histogram"

    def __init__(self, counting: Counting, policy: Any) -> None:
        super().__init__(policy.threads, policy.smem, policy.blocks_per_sm)
        self.counting, self.policy = counting, policy
        self.gather: Any = None if counting.layout is None else Gather(counting.layout)

    def arguments(self, arrays: tuple, numbers: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        x, weights, edges, out, out_edges, words, n = arrays
        length, bins, digits, exponent, low, scale, out_step, edges_step, *rest = numbers
        if self.gather is not None:
            self.gather.bind(rest)
        results = Stepped(out, out_step), Stepped(out_edges, edges_step)
        fixed = x, weights, edges, *results, words, n, length, bins, digits, exponent, low, scale
        return Arguments(*fixed, *self.part(bins))

    def part(self, bins) -> tuple:
        """The bins of this block, and its number among the blocks that have these."""
        block, blocks, parts = cute.arch.block_idx()[0], cute.arch.grid_dim()[0], self.policy.parts
        if parts == 1:
            return Int32(0), bins, block, blocks
        width = (bins + parts - 1) // parts
        first = block % parts * width
        return first, cutlass.min(width, bins - first), block // parts, blocks // parts

    def bin_of(self, value, a: Arguments):
        """The number of an element's bin behind ``a.first`` (Int32), and whether it is a bin of this block."""
        if self.counting.form == "index":
            if self.counting.dtype.size < 8:
                place = Uint32(Int32(value)) - Uint32(a.first)  # numbers below 0 become large
                return Int32(place), Boolean(place < Uint32(a.width))
            number = Uint64(value) - Uint64(a.first)
            return Int32(number), Boolean(number < Uint64(a.width))
        wide = Float64(value)
        counts = (wide >= element(a.edges)) & (wide <= element(a.edges + a.bins))
        place = self.search(wide, counts, a.edges, a.bins, (a.low, a.scale)) - a.first
        return place, Boolean(counts & (Uint32(place) < Uint32(a.width)))

    @cute.jit
    def search(self, value, counts, edges, bins, line: tuple):
        """The last bin whose first edge is not above a value that counts; 0 for others. Where edges are at equal
        distances, it is next to a straight line."""
        found = Int32(0)
        if counts:
            if cutlass.const_expr(self.counting.form == "uniform"):
                found = cutlass.min(cutlass.max(Int32((value - line[0]) * line[1]), Int32(0)), bins - 1)
                while (found > 0) & (value < element(edges + found)):
                    found -= 1
                while (found < bins - 1) & (value >= element(edges + cutlass.min(found + 1, bins))):
                    found += 1
            else:
                stop = Int32(bins)
                while stop - found > 1:
                    middle = (found + stop) // 2
                    if value >= element(edges + middle):
                        found = middle
                    else:
                        stop = middle
        return found


class Privatized(HistogramKernel):
    """A kernel that updates words of bins: of its block in shared memory, which are added to the others in the end, or
    of all in global memory. A subclass defines ``word``, their type, and ``words``, how many a bin has; ``visit_all(a,
    memory)``, which updates them; ``whole(a)``, those in global memory; and ``flush(a, i, found)``, which adds word i
    of a block, if it is not 0, to the others. It may define ``direct(a)``, all of this without a block's own words."""

    policy: CountPolicy
    word: Any = Int32
    words = 1
    visit_all: Any
    whole: Any
    flush: Any

    @cute.jit
    def body(self, a: Arguments):
        thread = cute.arch.thread_idx()[0]
        if cutlass.const_expr(self.counting.counted):
            a = a._replace(length=positions(a.length, a.n))
        if cutlass.const_expr(self.policy.shared > 0):
            mine = SmemAllocator().allocate_array(self.word, self.words * self.policy.shared, byte_alignment=16)
            for i in cutlass.range(thread, self.words * a.width, self.threads, unroll=1):
                store(mine + i, self.word(0))
            cute.arch.sync_threads()
            self.visit_all(a, mine)
            cute.arch.sync_threads()
            let_next_start()
            for i in cutlass.range(thread, self.words * a.width, self.threads, unroll=1):
                found = self.word(element(mine + i))
                if found != 0:
                    self.flush(a, i, found)
        else:
            self.direct(a)

    def direct(self, a: Arguments) -> None:
        """Update all words where they are."""
        self.visit_all(a, self.whole(a))


class Elements(Privatized):
    """A kernel whose threads take elements one by one, neighbours in a warp, of any strides. A subclass defines
    ``visit(a, memory, (value, weight, exists))``, which all lanes of a warp call."""

    visit: Any

    @cute.jit
    def visit_all(self, a: Arguments, memory):
        """Visit this thread's elements."""
        number = Int64(a.block) * self.threads + cute.arch.thread_idx()[0]
        all_threads = Int64(a.blocks) * self.threads
        unroll = self.policy.unroll
        for step in cutlass.range((a.length + unroll * all_threads - 1) // (unroll * all_threads), unroll=1):
            loaded = []
            for u in cutlass.range_constexpr(unroll):
                loaded.append(self.load(a, (step * unroll + u) * all_threads + number))
            for item in loaded:
                self.visit(a, memory, item)

    def load(self, a: Arguments, index) -> tuple:
        """An element, its weight (0 without weights), and whether there is one."""
        exists, index = index < a.length, cutlass.min(index, a.length - 1)
        weights = self.counting.weights
        arrays = [(a.x, self.counting.dtype)] + ([] if weights is None else [(a.weights, weights)])
        offsets = {0: index, 1: index} if self.gather is None else self.gather.offsets(index)
        value, *rest = (dtype.cutlass(element(pointer + offsets[k])) for k, (pointer, dtype) in enumerate(arrays))
        return value, rest[0] if rest else Float64(0), exists


@cute.jit
def agree(found, counts):
    """``(same, lane)``: whether the lanes that count have one bin, and the first of them (-1: none). A warp calls."""
    ballot = Int32(cute.arch.vote_ballot_sync(counts))
    leader = 31 - Int32(cute.arch.clz(ballot & -ballot))
    same = Int32(cute.arch.shuffle_sync(found, leader & 31)) == found
    return Boolean(cute.arch.vote_all_sync(same | cutlass.not_(counts))), leader
