"""What all kernels of this family share: one argument list, one launch, and how a bin is found. Device code."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float64, Int32, Int64, Uint32, Uint64
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ...sync.overlap import let_next_start
from ..coordinates import element, store
from ..gather import Gather, Stepped
from ..plain import PlainKernel
from ..tiled import positions
from .policy import CountPolicy
from .spec import Counting

MEETING = 16  # lanes with elements of one bin that are added before they reach memory; 4 take 1.00 to 1.13 of the time
PIECE_BITS = 26  # of a number that is added over the lanes of a warp: 32 such sums fit into 32 bits

# A launch's arguments: ``length`` elements ``x`` and their ``weights``, ``bins`` bins, whose edges are less than
# ``slack`` bins from ``low + i / scale`` if they are at equal distances. ``out`` and ``out_edges`` have the results.
# ``words`` are the sums of results that are made of them, ``digits`` and ``exponent`` the form of such sums (see
# ``weights``). ``n`` points to how many elements count, if that is in memory. A block updates ``width`` bins from
# ``first`` on, and is number ``block`` of the ``blocks`` that do.
Arguments = namedtuple(
    "Arguments",
    "x weights edges out out_edges words n length bins digits exponent low scale slack first width block blocks",
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
        length, bins, digits, exponent, low, scale, slack, out_step, edges_step, *rest = numbers
        if self.gather is not None:
            self.gather.bind(rest)
        results = Stepped(out, out_step), Stepped(out_edges, edges_step)
        fixed = x, weights, edges, *results, words, n, length, bins, digits, exponent, low, scale, slack
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
        place = self.search(wide, counts, a.edges, a.bins, (a.low, a.scale, a.slack)) - a.first
        return place, Boolean(counts & (Uint32(place) < Uint32(a.width)))

    @cute.jit
    def search(self, value, counts, edges, bins, line: tuple):
        """The last bin whose first edge is not above a value that counts; 0 for others. Where edges are at equal
        distances, it is next to a straight line; edges are read only where that is not enough."""
        found = Int32(0)
        if counts:
            if cutlass.const_expr(self.counting.form == "uniform"):
                place = (value - line[0]) * line[1]
                found = cutlass.min(cutlass.max(Int32(place), Int32(0)), bins - 1)
                rest = place - Float64(found)
                if cutlass.not_((rest > line[2]) & (rest < 1 - line[2])):  # so if it is NaN
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
    """A kernel that updates words of bins: of its block in shared memory, which join the others in the end, or of all
    in global memory. A subclass defines ``visit_all(a, memory)``, which updates them; ``flush(a, i, found)``, which
    adds word i of a block, if it is not 0, to the others; and ``direct(a)``, all of this without a block's own words.
    It may define ``size(a)``, the number of these."""

    policy: CountPolicy
    visit_all: Any
    flush: Any
    direct: Any

    @cute.jit
    def body(self, a: Arguments):
        thread = cute.arch.thread_idx()[0]
        if cutlass.const_expr(self.counting.counted):
            a = a._replace(length=positions(a.length, a.n))
        if cutlass.const_expr(self.policy.shared > 0):
            mine = SmemAllocator().allocate_array(Int32, self.policy.shared, byte_alignment=16)
            for i in cutlass.range(thread, self.size(a), self.threads, unroll=1):
                store(mine + i, Int32(0))
            cute.arch.sync_threads()
            self.visit_all(a, mine)
            cute.arch.sync_threads()
            let_next_start()
            for i in cutlass.range(thread, self.size(a), self.threads, unroll=1):
                found = Int32(element(mine + i))
                if found != 0:
                    self.flush(a, i, found)
        else:
            self.direct(a)

    def size(self, a: Arguments) -> Any:
        """The number of a block's words."""
        return a.width


class Elements(Privatized):
    """A kernel whose threads take elements one by one, neighbours in a warp, of any strides: a block takes tiles of
    ``unroll`` elements a thread. A subclass defines ``visit(a, memory, (value, weight, exists))``, which all lanes of a
    warp call."""

    visit: Any

    @cute.jit
    def visit_all(self, a: Arguments, memory):
        """Visit this block's tiles."""
        for tile in cutlass.range(a.block, self.tiles(a), a.blocks, unroll=1):
            for item in self.load_tile(a, tile):
                self.visit(a, memory, item)

    def tiles(self, a: Arguments):
        """How many tiles there are."""
        size = self.threads * self.policy.unroll
        return Int32((a.length + (size - 1)) // size)

    def load_tile(self, a: Arguments, tile) -> list:
        """This thread's elements of a tile, their weights (0 without weights), and whether there are such."""
        unroll, thread = self.policy.unroll, cute.arch.thread_idx()[0]
        weights = self.counting.weights
        types = [self.counting.dtype.cutlass] + ([] if weights is None else [weights.cutlass])
        held = [cute.make_rmem_tensor((unroll,), one) for one in types]
        left = self.fill(a, tile, thread, held)
        found = []
        for u in range(unroll):
            weight = Float64(0) if weights is None else types[1](held[1][u])
            found.append((types[0](held[0][u]), weight, thread + u * self.threads < left))
        return found

    @cute.jit
    def fill(self, a: Arguments, tile, thread, held):
        """Load this thread's elements of a tile, of which there are as many as is returned."""
        size = self.threads * self.policy.unroll
        first = Int64(tile) * size
        left = Int32(cutlass.min(a.length - first, Int64(size)))
        if left == size:
            self.load(a, first + thread, self.threads, None, held)
        else:
            self.load(a, first, self.threads, (thread, left - 1), held)
        return left

    def load(self, a: Arguments, first, step: int, clamp: Any, held) -> None:
        """Load elements ``step`` apart from a place on; with ``clamp``, a thread and the last place behind ``first``,
        that one again instead of those behind it."""
        for u in range(self.policy.unroll):
            behind = u * step if clamp is None else cutlass.min(clamp[0] + u * step, clamp[1])
            offsets: Any = None if self.gather is None else self.gather.offsets(first + behind)
            for k, pointer in enumerate((a.x, a.weights)[: len(held)]):
                held[k][u] = element(pointer + first + behind if offsets is None else pointer + offsets[k])


@cute.jit
def meet(found, counts, numbers: tuple, pieces: cutlass.Constexpr):
    """Add numbers (Int64) of lanes that have the bin of the first lane that counts, if these are many: ``(counts,
    numbers)`` of all lanes then. A warp calls."""
    ballot = Int32(cute.arch.vote_ballot_sync(counts))
    leader = 31 - Int32(cute.arch.clz(ballot & -ballot))
    same = Boolean(counts & (Int32(cute.arch.shuffle_sync(found, leader & 31)) == found))
    if Int32(cute.arch.popc(cute.arch.vote_ballot_sync(same))) >= MEETING:
        lane = Int32(cute.arch.lane_idx())
        numbers = tuple(add_all(choose(same, one, Int64(0)), one, lane == leader, pieces) for one in numbers)
        counts = Boolean(counts & (cutlass.not_(same) | (lane == leader)))
    return counts, numbers


@cute.jit
def add_all(mine, kept, here, pieces: cutlass.Constexpr):
    """The sum over the lanes of a warp of ``mine`` (Int64, of at most ``pieces`` times ``PIECE_BITS`` bits and a sign)
    where ``here``, ``kept`` elsewhere."""
    if cute.arch.vote_any_sync(mine != 0):
        total = Int64(0)
        for i in cutlass.range_constexpr(pieces):
            piece = Int32(mine >> (PIECE_BITS * i))
            if cutlass.const_expr(i < pieces - 1):
                piece = piece & ((1 << PIECE_BITS) - 1)
            summed = Int32(cute.arch.warp_redux_sync(piece, "add"))
            wide = Int64(summed) if cutlass.const_expr(i == pieces - 1) else Int64(summed) & 0xFFFFFFFF
            total += wide << (PIECE_BITS * i)
        kept = choose(here, total, kept)
    return kept
