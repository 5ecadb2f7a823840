"""Top-k of short rows: lanes of a warp find the results of a row, which they hold in registers. Device code.

    limit      the elements are in groups, twice as many as are wanted or more; the greatest ones of half of the groups
               reach the limit
    candidates the elements that reach it, if there is room for all; otherwise a division of the keys' range finds a
               greater limit, or all but the first ones of equal keys are left out
    sort       a network sorts the candidates as words
    ranks      where keys that differ have the same bits, each lane counts the candidates that come before its own

The warps of a block share nothing, nor do groups of lanes that have a row each, but for branches: they take those that
any of them needs.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int16, Int32, Int64, Uint8
from cutlass.memory import SmemAllocator

from ...block.reduce import state_array
from ...monoid import choose, tree
from ...sync.overlap import let_next_start
from ...warp import LANES, scan_states
from ..coordinates import element, store
from ..hardware import VECTOR_BYTES
from ..plain import PlainKernel
from ..select.chunk import cells
from .kernel import Arguments, TopKKernel
from .network import middle
from .order import Order
from .policy import ShortPolicy
from .pool import Limit, within
from .spec import TopK
from .words import Candidates, Words

# A row's part of shared memory: addresses of keys, or of the words that are sorted, and of indexes.
Room = namedtuple("Room", "keys places")


class ShortTopK(TopKKernel):
    """The kernel. Its parameters are those of ``TopKKernel``."""

    def __init__(self, operation: TopK, policy: ShortPolicy) -> None:
        PlainKernel.__init__(self, policy.warps * LANES, policy.smem, policy.blocks_per_sm)
        self.operation, self.policy = operation, policy
        self.index: Any = Int32
        self.order = Order(operation.dtype, operation.largest)
        self.width, self.each = policy.width, policy.width * policy.unroll
        self.lanes, self.slots = policy.lanes, policy.slots
        self.capacity, self.elements = self.lanes * self.slots, self.lanes * self.each
        self.words = Words(self.order, self.lanes, self.slots, self.elements)

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, axes: tuple, scratch: cute.Pointer, counters: cute.Pointer):
        count, size = self.threads * self.slots, self.policy.key_bytes
        keys = SmemAllocator().allocate_array(Uint8, count * size, byte_alignment=VECTOR_BYTES)
        (places,) = state_array((Int16,), count)
        thread, lane, rows = cute.arch.thread_idx()[0], cute.arch.lane_idx(), numbers[-1]
        number = (cute.arch.block_idx()[0] * self.threads + thread) // self.lanes
        if number - lane // self.lanes < rows:
            a = self.row_of(arrays, numbers, axes, cutlass.min(number, rows - 1), (scratch, counters))
            a = a._replace(wanted=choose(number < rows, a.wanted, Int32(0)))
            first = (thread & -self.lanes) * self.slots
            self.find(Room(keys.toint() + first * size, places.iterator.toint() + first * 2), a, lane)
        let_next_start()

    @cute.jit
    def find(self, room: Room, a: Arguments, lane):
        """Store the results of a row."""
        held = cute.make_rmem_tensor((self.each,), self.order.held)
        exists = self.load(held, a, lane & (self.lanes - 1))
        if cutlass.const_expr(self.slots == self.each):
            found = self.all_elements(held, a, lane)
        else:
            found = self.chosen(held, exists, room, a, lane)
        words, exact = self.words.sorted(found, lane, lambda index: self.order.of(self.value(a, index)))
        if exact:
            self.give(room, words, a, lane)
        else:
            self.give_by_ranks(room, words, a, lane)

    # Elements

    def place(self, lane, j):
        """The index of a lane's element ``j``."""
        shift = self.width.bit_length() - 1
        first = (lane & (self.lanes - 1)) * self.width
        return (j >> shift) * (self.lanes * self.width) + first + (j & (self.width - 1))

    def value(self, a: Arguments, index):
        """The element at an index."""
        step = 1 if self.width > 1 else a.steps[0]
        return self.order.dtype.cutlass(element(a.x + Int64(index) * step))

    def key(self, held, j):
        """The key of a lane's element ``j``."""
        return self.order.key(self.order.held(held[j]))

    @cute.jit
    def load(self, held, a: Arguments, lane):
        """Put a lane's elements into registers; a bit for each that exists."""
        exists, vectors = Int32(-1), Boolean(a.x.toint() % (self.width * self.order.dtype.size) == 0)
        if cute.arch.vote_all_sync(vectors & (a.length == self.elements)):
            self.load_whole(held, a, lane, self.elements)
        elif cute.arch.vote_all_sync(vectors & (a.length % self.width == 0) & (a.length > 0)):
            self.load_whole(held, a, lane, a.length)
            exists = self.existing(held, a, lane)
        else:
            exists = self.load_pieces(held, a, lane, vectors)
        return exists

    def load_whole(self, held, a: Arguments, lane, length) -> None:
        """Load whole vectors of a row of ``length``, all at once: behind the row's end, the last one."""
        for u in range(self.policy.unroll):
            first = (u * self.lanes + lane) * self.width
            first = first if isinstance(length, int) else cutlass.min(first, length - self.width)
            if self.width > 1:
                self.load_vector(held, u, a.x + first)
            else:
                held[u] = self.order.hold(self.value(a, first))

    def existing(self, held, a: Arguments, lane):
        """A bit for each element of whole vectors that exists; registers of others hold none then."""
        exists = Int32(0)
        for u in range(self.policy.unroll):
            there = (u * self.lanes + lane) * self.width < a.length
            exists = exists | choose(there, Int32((1 << self.width) - 1), Int32(0)) << (u * self.width)
            for i in range(u * self.width, (u + 1) * self.width):
                held[i] = choose(there, self.order.held(held[i]), self.order.missing())
        return exists

    @cute.jit
    def load_pieces(self, held, a: Arguments, lane, vectors):
        """As ``load``, of a row that may end anywhere. ``vectors``: they are at multiples of their size."""
        exists = Int32(0)
        for u in cutlass.range_constexpr(self.policy.unroll):
            first = (u * self.lanes + lane) * self.width
            number = cutlass.min(cutlass.max(a.length - first, Int32(0)), Int32(self.width))
            whole = vectors & (number == self.width)
            if cutlass.const_expr(self.width > 1):
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

    # Candidates

    def all_elements(self, held, a: Arguments, lane) -> Candidates:
        """All elements of a row."""
        keys, places = [self.key(held, j) for j in range(self.each)], [self.place(lane, j) for j in range(self.each)]
        places = [choose(place < a.length, place, Int32(-1)) for place in places]
        return self.words.candidates(keys, places)

    @cute.jit
    def chosen(self, held, exists, room: Room, a: Arguments, lane):
        """Elements of a row that ``wanted`` ones are among, or all that exist."""
        groups = [[self.order.held(held[j]) for j in range(g, self.each, self.slots)] for g in range(self.slots)]
        top, low = middle([self.order.key(tree(group, self.order.first)) for group in groups], lane, self.lanes)
        chosen = self.reaching(held, exists, self.order.floor(low))
        before, count = self.counted(chosen, lane)
        if cute.arch.vote_any_sync(count > self.capacity):
            chosen, low = self.divided(held, exists, a, (low, top, count), lane)
            before, count = self.counted(chosen, lane)
        at = room.places + before * 2
        while chosen != 0:
            cells(Int16, at, 1)[0] = Int16(self.place(lane, 31 - Int32(cute.arch.clz(chosen & -chosen))))
            chosen = chosen & (chosen - 1)
            at += 2
        cute.arch.sync_warp()
        keys, places = [], []
        for c in cutlass.range_constexpr(self.slots):
            slot, place = c * self.lanes + (lane & (self.lanes - 1)), Int32(-1)
            if slot < count:
                place = Int32(Int16(cells(Int16, room.places + slot * 2, 1)[0]))
            places.append(place)
        for c in cutlass.range_constexpr(self.slots):
            key = self.order.type(self.order.lowest)
            if places[c] >= 0:
                key = self.order.of(self.value(a, places[c]))
            places[c] = choose(key >= low, places[c], Int32(-1))  # NaN, which reaches any limit
            keys.append(key)
        return Candidates(keys, places, low, top)

    def counted(self, chosen, lane) -> tuple:
        """How many bits are set in the lanes of the row before this one, and in all of them."""
        mine = Int32(cute.arch.popc(chosen))
        (through,) = scan_states((mine,), lambda a, b: (a[0] + b[0],), lane, self.lanes)
        return through - mine, Int32(cute.arch.shuffle_sync(through, lane | (self.lanes - 1)))

    def those(self, held, exists, holds):
        """A bit for each of a lane's elements of whose key ``holds``."""
        found = Int32(0)
        for j in range(self.each):
            found = found | (Int32(holds(self.key(held, j))) << j)
        return found & exists

    def reaching(self, held, exists, floor):
        """A bit for each of a lane's elements that reaches the ``floor`` of a key."""
        found = Int32(0)
        for j in range(self.each):
            found = found | (Int32(self.order.reaches(self.order.held(held[j]), floor)) << j)
        return found & exists

    def number(self, held, exists, holds):
        """Of how many keys of a row ``holds``."""
        return self.words.over_lanes(Int32(cute.arch.popc(self.those(held, exists, holds))), lambda a, b: a + b)

    @cute.jit
    def divided(self, held, exists, a: Arguments, known: tuple, lane):
        """``(chosen, low)``: as many elements as there is room for at most, and a key that they reach. ``known`` are a
        key that enough reach, the greatest one, and how many reach the first."""
        low, top, count = known
        more = self.number(held, exists, lambda key: key > low) >= a.wanted
        high = choose((count > self.capacity) & more, top, low)
        while cute.arch.vote_any_sync(low < high):
            between = self.order.between(low, high)
            number = self.number(held, exists, lambda key, least=between: key >= least)
            enough = number >= a.wanted
            high = choose(enough, choose(number > self.capacity, high, between), between - 1)
            low = choose(enough, between, low)
        above = self.those(held, exists, lambda key: key > low)
        equal = self.those(held, exists, lambda key: key == low)
        left, there = a.wanted - self.counted(above, lane)[1], self.counted(equal, lane)[1]
        left = choose(a.wanted - left + there > self.capacity, left, there)
        return above | self.first_ones(equal, left, lane), low

    @cute.jit
    def first_ones(self, equal, left, lane):
        """The first ``left`` of the bits that are set, in the order of the elements."""
        chosen = Int32(0)
        for u in cutlass.range(self.policy.unroll, unroll=1):
            bits = (equal >> (u * self.width)) & ((1 << self.width) - 1)
            before, count = self.counted(bits, lane)
            rest, mine = bits, left - before
            while (rest != 0) & (mine > 0):
                rest = rest & (rest - 1)
                mine -= 1
            chosen = chosen | ((bits ^ rest) << (u * self.width))
            left -= count
        return chosen

    # Results

    @cute.jit
    def give(self, room: Room, words: cutlass.Constexpr, a: Arguments, lane):
        """Store the results of sorted words; 0, and the index -1, where there are not enough."""
        self.words.stage(words, room.keys, lane)
        lane = lane & (self.lanes - 1)
        for c in cutlass.range_constexpr(self.slots):
            to = c * self.lanes + lane
            if to < a.wanted:
                place, value = Int32(-1), self.order.dtype.cutlass(0)
                word = self.words.at(room.keys, to)
                if word != 0:
                    place = self.words.index(word)
                    value = self.value(a, place)
                self.store_result(a, to, place, value)

    @cute.jit
    def give_by_ranks(self, room: Room, words: cutlass.Constexpr, a: Arguments, lane):
        """Store the candidate of each word as the result that it is."""
        size, lane = self.policy.key_bytes, lane & (self.lanes - 1)
        keys, places = [], []
        for c in cutlass.range_constexpr(self.slots):
            key, place = self.order.type(self.order.lowest), Int32(-1)
            if words[c] != 0:
                place = self.words.index(words[c])
                key = self.order.of(self.value(a, place))
            keys.append(key)
            places.append(place)
        for c in cutlass.range_constexpr(self.slots):
            slot = c * self.lanes + lane
            cells(self.order.type, room.keys + slot * size, 1)[0] = keys[c]
            cells(Int16, room.places + slot * 2, 1)[0] = Int16(places[c])
        cute.arch.sync_warp()
        ranks = [Int32(-1) for _ in range(self.slots)]  # no candidate comes after itself
        for slot in cutlass.range(self.capacity, unroll=1):
            key = self.order.type(cells(self.order.type, room.keys + slot * size, 1)[0])
            place = Int32(Int16(cells(Int16, room.places + slot * 2, 1)[0]))
            for c in cutlass.range_constexpr(self.slots):
                first = within(Limit(keys[c], places[c]), key, place) & (place >= 0)
                ranks[c] += Int32(first)
        for c in cutlass.range_constexpr(self.slots):
            if (places[c] >= 0) & (ranks[c] < a.wanted):
                self.store_result(a, ranks[c], places[c], self.value(a, places[c]))
            if (c * self.lanes + lane >= a.length) & (c * self.lanes + lane < a.wanted):
                self.store_result(a, c * self.lanes + lane, Int32(-1), self.order.dtype.cutlass(0))

    def store_result(self, a: Arguments, to, place, value) -> None:
        """Store a result."""
        _, value_step, index_step = a.steps
        store(a.indices + Int64(to) * index_step, Int64(place))
        if self.operation.values:
            store(a.values + Int64(to) * value_step, value)
