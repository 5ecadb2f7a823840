"""Top-k of short rows: a warp finds the results of a row, which it holds in registers. Device code.

    limit      the greatest elements of the lanes are sorted: ``wanted`` elements reach the one at place ``wanted``
    chosen     the elements that reach the limit, if they are at most one a lane; otherwise a division of the keys'
               range, and of the indexes if too many keys are equal, finds a limit that few enough reach
    ranks      each lane has one of the chosen elements, and counts those that come before it

The warps of a block share nothing.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int16, Int32, Int64

from ...block.reduce import get, put, state_array
from ...monoid import choose, tree
from ...sync.overlap import let_next_start
from ...warp import LANES, broadcast, exchange, reduce_commutative, scan_states
from ..coordinates import element, store
from ..plain import PlainKernel
from .kernel import Arguments, TopKKernel
from .order import Order
from .policy import SHORT_WARPS, ShortPolicy
from .pool import Limit, within
from .spec import TopK


class ShortTopK(TopKKernel):
    """The kernel. Its parameters are those of ``TopKKernel``."""

    def __init__(self, operation: TopK, policy: ShortPolicy) -> None:
        PlainKernel.__init__(self, SHORT_WARPS * LANES, policy.smem, policy.blocks_per_sm)
        self.operation, self.policy = operation, policy
        self.index: Any = Int32
        self.order = Order(operation.dtype, operation.largest)
        self.width, self.each = policy.width, policy.width * policy.unroll

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, axes: tuple, scratch: cute.Pointer, counters: cute.Pointer):
        candidates = state_array((self.order.type, Int32), SHORT_WARPS * LANES)
        warp = cute.arch.warp_idx()
        number = cute.arch.block_idx()[0] * SHORT_WARPS + warp
        if number < numbers[-1]:
            a = self.row_of(arrays, numbers, axes, number, (scratch, counters))
            self.find(candidates, a, warp * LANES, cute.arch.lane_idx())
        let_next_start()

    @cute.jit
    def find(self, candidates: cutlass.Constexpr, a: Arguments, first, lane):
        """Store the results of a row. The warp has the candidates from ``first`` on."""
        held = cute.make_rmem_tensor((self.each,), self.order.held)
        exists = self.load(held, a, lane)
        chosen, before, count = self.choose(held, exists, a, lane)
        at = first + before
        while chosen != 0:
            index = self.place(lane, 31 - Int32(cute.arch.clz(chosen & -chosen)))
            put(candidates, at, (self.order.of(self.value(a, index)), index))
            chosen = chosen & (chosen - 1)
            at += 1
        cute.arch.sync_warp()
        self.give(candidates, a, first, count, lane)

    @cute.jit
    def give(self, candidates: cutlass.Constexpr, a: Arguments, first, count, lane):
        """Store a lane's result: its candidate at its rank; 0, and the index -1, where there are not enough."""
        to, place, value, types = lane, Int64(-1), self.order.dtype.cutlass(0), (self.order.type, Int32)
        if lane < count:
            key, index = get(candidates, first + lane, types)
            to, place, value = Int32(-1), Int64(index), self.value(a, index)  # it does not come after itself
            for other in cutlass.range(count, unroll=1):
                to += Int32(within(Limit(key, index), *get(candidates, first + other, types)))
        if to < a.wanted:
            _, value_step, index_step = a.steps
            store(a.indices + Int64(to) * index_step, place)
            if cutlass.const_expr(self.operation.values):
                store(a.values + Int64(to) * value_step, value)

    def place(self, lane, j):
        """The index of a lane's element ``j``."""
        shift = self.width.bit_length() - 1
        return (j >> shift) * (LANES * self.width) + lane * self.width + (j & (self.width - 1))

    def value(self, a: Arguments, index):
        """The element at an index."""
        return self.order.dtype.cutlass(element(a.x + Int64(index) * a.steps[0]))

    @cute.jit
    def load(self, held, a: Arguments, lane):
        """Put a lane's elements into registers; a bit for each that exists."""
        exists = Int32(0)
        for u in cutlass.range_constexpr(self.policy.unroll):
            first = u * (LANES * self.width) + lane * self.width
            number = cutlass.min(cutlass.max(a.length - first, Int32(0)), Int32(self.width))
            whole = Boolean(number == self.width)
            if cutlass.const_expr(self.width > 1):
                whole = whole & (a.x.toint() % (self.width * self.order.dtype.size) == 0)
                if whole:
                    self.load_vector(held, u, a.x + first)
            if cutlass.const_expr(self.width == 1) or cutlass.not_(whole):
                self.load_elements(held, u, a, first, number)
            exists = exists | (((Int32(1) << number) - 1) << (u * self.width))
        return exists

    def load_vector(self, held, u: int, start) -> None:
        """The elements of vector ``u``, from pointer ``start`` on."""
        dtype, size = self.order.dtype, self.width * self.order.dtype.size
        # Two words at least: the DSL gives all elements of a single one the same place. Elements of a byte would take
        # a register each.
        word: Any = dtype.cutlass if dtype.size == 8 else Int32 if size >= 8 else Int16
        words = size // (word.width // 8)
        source = cute.make_ptr(word, start.toint(), cute.AddressSpace.gmem, assumed_align=size)
        loaded = cute.make_rmem_tensor((words,), word)
        cute.autovec_copy(cute.make_tensor(source, cute.make_layout((words,))), loaded)
        row = cute.recast_tensor(loaded, dtype.cutlass)
        for i in range(self.width):
            held[u * self.width + i] = self.order.hold(dtype.cutlass(row[i]))

    @cute.jit
    def load_elements(self, held, u: cutlass.Constexpr, a: Arguments, first, number):
        """The ``number`` elements of vector ``u`` that exist, one by one."""
        for i in cutlass.range_constexpr(self.width):
            held[u * self.width + i] = self.order.missing()
            if i < number:
                held[u * self.width + i] = self.order.hold(self.value(a, first + i))

    @cute.jit
    def choose(self, held, exists, a: Arguments, lane):
        """``(chosen, before, count)``: a bit for each of a lane's candidates, and how many there are in the
        lanes before it, and in all: at most ``LANES``, and ``wanted`` or as many as exist at least."""
        greatest = self.order.key(tree([self.order.held(held[j]) for j in range(self.each)], self.order.first))
        key = broadcast((self.sorted(greatest, lane),), a.wanted - 1)[0]
        chosen, floor = Int32(0), self.order.floor(key)
        for j in cutlass.range_constexpr(self.each):
            chosen = chosen | (Int32(self.order.reaches(self.order.held(held[j]), floor)) << j)
        chosen = chosen & exists
        before, count = self.places(chosen, lane)
        if count > LANES:
            chosen = self.inside(held, exists, self.bisected(held, exists, a, greatest), lane)
            before, count = self.places(chosen, lane)
        return chosen, before, count

    def sorted(self, key, lane):
        """The keys of the lanes, the greatest in the first lane; a bitonic sort (Batcher 1968)."""
        for run in range(1, LANES.bit_length()):
            for log in range(run - 1, -1, -1):
                (other,) = exchange((key,), 1 << log)
                first = ((lane >> log) & 1) == ((lane >> run) & 1)
                key = choose(first, cutlass.max(key, other), cutlass.min(key, other))
        return key

    def places(self, chosen, lane) -> tuple:
        """How many bits are set in the lanes before this one, and in all lanes."""
        mine = Int32(cute.arch.popc(chosen))
        (through,) = scan_states((mine,), lambda a, b: (a[0] + b[0],), lane)
        return through - mine, broadcast((through,), LANES - 1)[0]

    @cute.jit
    def inside(self, held, exists, limit: Limit, lane):
        """A bit for each of a lane's elements that does not come after a limit."""
        found = Int32(0)
        for j in cutlass.range_constexpr(self.each):
            key = self.order.key(self.order.held(held[j]))
            found = found | (Int32(within(limit, key, self.place(lane, j))) << j)
        return found & exists

    def number(self, held, exists, key, index):
        """How many elements of the row do not come after ``key`` and ``index``."""
        found = self.inside(held, exists, Limit(key, index), cute.arch.lane_idx())
        return Int32(cute.arch.warp_redux_sync(Int32(cute.arch.popc(found)), "add"))

    @cute.jit
    def bisected(self, held, exists, a: Arguments, greatest):
        """A limit that ``wanted`` elements, or as many as exist, do not come after, and at most ``LANES``."""
        (high,) = reduce_commutative((greatest,), lambda a, b: (cutlass.max(a[0], b[0]),))
        wanted, low = cutlass.min(a.wanted, a.length), self.order.type(self.order.lowest)
        last = Int32(Int32.max)
        count = self.number(held, exists, low, last)
        while (count > LANES) & (low < high):
            middle = self.order.between(low, high)
            number = self.number(held, exists, middle, last)
            if number >= wanted:
                low, count = middle, number
            else:
                high = middle - 1
        index = last
        if count > LANES:
            first, index = Int32(0), a.length - 1
            while first < index:
                middle_index = (first + index) // 2
                if self.number(held, exists, low, middle_index) >= wanted:
                    index = middle_index
                else:
                    first = middle_index + 1
        return Limit(low, index)
