"""Flags and differences between neighbours of a whole array, in one pass.

A row is cut into chunks of ``32 * unroll`` vectors, one chunk a warp: every element is read once, in vectors that lie next to each other
across the lanes; the element before (behind) a vector comes from the next lane by shuffle, that before (behind) the chunk from an
extra load of a line that a neighbouring warp reads too. Flags leave in vectors as well. No shared memory, no barrier. The last chunk of
a row, unless whole, is read and written element by element.

Places count from the start of the row, or of the period (a tile, or a row of an array that is seen as one long row). The flag at the
start (end) of a row or period is forced, or compares with the predecessor (successor).
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int16, Int32, Int64, Uint8, Uint32

from ..block.adjacent_difference import combine_where
from ..block.discontinuity import flag_unless
from ..block.edges import shuffled
from ..monoid import choose, tree
from ..neighbours import Difference, Flag
from ..sync.overlap import await_launches, let_next_start
from ..warp import LANES


class FlagKernel:
    """A compiled kernel. ``marking`` says what is computed (``plan.Marking``), the rest is ``Config.kernel``."""

    def __init__(self, marking, several_rows: bool, periodic: bool, vector: int, unroll: int, warps: int) -> None:
        self.marking, self.several_rows, self.periodic = marking, several_rows, periodic
        self.vector, self.unroll, self.threads = vector, unroll, warps * LANES
        self.rule = Flag(marking.op, marking.source) if marking.is_flag else Difference(marking.op, marking.source)
        self.elements = LANES * unroll * vector
        self.word, self.words = self.words_of(vector, marking.source)
        self.group = LANES // vector  # lanes whose bits make a word

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, other: cute.Pointer, predecessor, successor, rows: Int64, length: Int64,
                 period: Int64, chunks: Int64, grid: Int32, stream):  # fmt: skip
        self.kernel.set_name_prefix(f"cutesync_{self.marking.name}", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, other, predecessor, successor, rows, length, period, chunks).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), smem=0, min_blocks_per_mp=1, preferred_smem_carveout=-1, stream=stream,
        )  # fmt: skip

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer, other: cute.Pointer, predecessor, successor, rows: Int64, length: Int64,
               period: Int64, chunks: Int64):  # fmt: skip
        await_launches()
        let_next_start()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        lane = thread % LANES
        warps = self.threads // LANES
        ends = (self.rule.lift(predecessor), self.rule.lift(successor))
        work = Int64(block) * warps + thread // LANES
        while work < rows * chunks:
            row = Int64(0)
            if cutlass.const_expr(self.several_rows):
                row = work // chunks
            begin = (work - row * chunks) * self.elements
            source = x + row * length
            outs = [pointer + row * self.stride(length) for pointer in (out, other)]
            start = Int32(begin % period) if self.periodic else Int32(0)
            if begin + self.elements <= length:
                self.whole(source, outs[0], outs[1], ends, begin, length, Int32(period), start, lane)
            else:
                self.ragged(source, outs[0], outs[1], ends, begin, length, Int32(period), start, lane)
            work += Int64(blocks) * warps

    def stride(self, length):
        """Results a row has in memory."""
        return (length + 31) // 32 if self.marking.bits else length

    def whole(self, x, out, other, ends, begin, length, period, start, lane):
        """A chunk that lies in the row. All loads come first."""
        before, behind = self.around(x, begin, length)
        rows = self.load(x + begin, lane)
        previous = self.previous(rows, before, lane) if self.marking.looks_back else [None] * self.unroll
        following = self.following(rows, behind, lane) if self.marking.looks_ahead else [None] * self.unroll
        bits = []
        for u in range(self.unroll):
            offset = (lane + u * LANES) * self.vector
            first = (begin == 0) & (lane == 0) if u == 0 else None
            last = (begin + self.elements == length) & (lane == LANES - 1) if u == self.unroll - 1 else None
            rest = (start + offset) % period if self.periodic else None
            found = self.results([previous[u], *rows[u], following[u]], ends, begin + offset, rest, period, first, last)
            if self.marking.bits:
                bits.append([self.gathered(values, lane) for values in found])
            else:
                for target, values in zip((out, other), found):
                    self.store(target + (begin + offset), values)
        if self.marking.bits:
            for number, target in enumerate((out, other)[: len(bits[0])]):
                self.store_bits(target + begin // 32, [words[number] for words in bits], lane)

    @staticmethod
    def words_of(vector: int, source):
        """The type and the number of the words that a vector is loaded as: a register tensor of bytes would take a register each."""
        width = vector * source.size
        if source.size >= 4:
            return source.cutlass, vector
        return (Uint8, 1) if width == 1 else (Int16, 1) if width == 2 else (Int32, width // 4)

    def load(self, start, lane):
        """The elements of the lane's vectors in a chunk, a list a vector."""
        count = max(2, self.words * self.unroll)  # CuTe gives an extent of one the stride 0, which recasting repeats
        chunk = cute.make_rmem_tensor((count,), self.word)
        at = cute.make_ptr(self.word, start.toint(), cute.AddressSpace.gmem, assumed_align=self.vector * self.marking.source.size)
        shape = (self.words, self.unroll)
        source = cute.make_tensor(at + lane * self.words, cute.make_layout(shape, stride=(1, LANES * self.words)))
        cute.autovec_copy(source, cute.make_tensor(chunk.iterator, cute.make_layout(shape)))
        elements = chunk if self.marking.source.size >= 4 else cute.recast_tensor(chunk, self.marking.source.cutlass)
        return [[self.rule.lift(elements[u * self.vector + i]) for i in range(self.vector)] for u in range(self.unroll)]

    @cute.jit
    def around(self, x, begin, length):
        """The elements before and behind the chunk; where there are none, any value."""
        before = self.rule.register(0)
        behind = self.rule.register(0)
        if cutlass.const_expr(self.marking.looks_back):
            if begin > 0:
                before = self.get(x, begin - 1)
        if cutlass.const_expr(self.marking.looks_ahead):
            if begin + self.elements < length:
                behind = self.get(x, begin + self.elements)
        return before, behind

    def get(self, x, place):
        return self.rule.lift(cute.make_tensor(x + place, cute.make_layout((1,)))[0])

    @staticmethod
    def put(target, place, value):
        cute.make_tensor(target + place, cute.make_layout((1,)))[0] = value

    def previous(self, rows, before, lane):
        """The element before each vector: the last one of the lane below; in lane 0 that of lane 31 one vector earlier."""
        turned = [shuffled(row[-1], cute.arch.shuffle_sync, (lane + LANES - 1) % LANES) for row in rows]
        return [choose(lane == 0, before if u == 0 else turned[u - 1], value) for u, value in enumerate(turned)]

    def following(self, rows, behind, lane):
        """The element behind each vector: the first one of the lane above; in lane 31 that of lane 0 one vector later."""
        turned = [shuffled(row[0], cute.arch.shuffle_sync, (lane + 1) % LANES) for row in rows]
        return [choose(lane == LANES - 1, behind if u == len(rows) - 1 else turned[u + 1], value) for u, value in enumerate(turned)]

    def results(self, items, ends, place, rest, period, first, last):
        """The results of the vector ``items[1:-1]``, a list an output. ``place`` is that of its first element in the row, ``rest`` in
        the period; ``first`` (``last``): whether its first (last) element is that of the row, None if it cannot be."""
        count = len(items) - 2
        rests = [rest]
        for _ in range(count if self.periodic else 0):
            rests.append(choose(rests[-1] + 1 == period, Int32(0), rests[-1] + 1))
        found = []
        if self.marking.looks_back:
            starts = [self.is_start(first if i == 0 else None, rests[i] if self.periodic else None) for i in range(count)]
            found.append([self.backward(items[i], items[i + 1], ends[0], starts[i], self.index(place, rests, i)) for i in range(count)])
        if self.marking.looks_ahead:
            stops = [self.is_start(last if i == count - 1 else None, rests[i + 1] if self.periodic else None) for i in range(count)]
            found.append([self.forward(items[i + 1], items[i + 2], ends[1], stops[i], self.index(place, rests, i) + 1) for i in range(count)])
        return found

    @staticmethod
    def is_start(edge, rest):
        """Whether the row or a period starts (behind a tail: ends) here; None if it cannot."""
        if rest is None:
            return edge
        return rest == 0 if edge is None else (rest == 0) | edge

    def index(self, place, rests, i: int):
        return Int64(rests[i]) if self.periodic else place + i

    def backward(self, previous, item, predecessor, start, index):
        """The result of an item and the one before it."""
        if not self.marking.is_flag:
            return self.difference(item, previous, start)
        if start is None:
            return self.rule.compare(previous, item, index)
        if self.marking.predecessor:
            return self.rule.compare(choose(start, predecessor, previous), item, index)
        return flag_unless(start, self.rule.compare, previous, item, index)

    def forward(self, item, following, successor, stop, index):
        """The result of an item and the one behind it."""
        if not self.marking.is_flag:
            return self.difference(item, following, stop)
        if stop is None:
            return self.rule.compare(item, following, index)
        if self.marking.successor:
            return self.rule.compare(item, choose(stop, successor, following), index)
        return flag_unless(stop, self.rule.compare, item, following, index)

    def difference(self, item, neighbour, lone):
        return self.rule.combine(item, neighbour) if lone is None else combine_where(cutlass.not_(lone), self.rule.combine, item, neighbour)

    def lowered(self, value):
        return self.marking.result.cutlass(value) if self.marking.is_flag else self.rule.lower(value)

    def store(self, target, values):
        """The results of a vector, in one piece."""
        kind = self.marking.result
        results = cute.make_rmem_tensor((self.vector,), kind.cutlass)
        for i, value in enumerate(values):
            results[i] = self.lowered(value)
        at = cute.make_ptr(kind.cutlass, target.toint(), cute.AddressSpace.gmem, assumed_align=self.vector * kind.size)
        cute.autovec_copy(results, cute.make_tensor(at, cute.make_layout((self.vector,))))

    def gathered(self, flags, lane):
        """The word of 32 flags that the lanes of a group hold between them, in all of them."""
        if self.group == LANES:
            return cute.arch.vote_ballot_sync(flags[0] != 0)
        return self.joined(tree([(flag << i,) for i, flag in enumerate(flags)], lambda a, b: (a[0] | b[0],))[0], lane)

    def joined(self, part, lane):
        """The word whose bits the lanes of a group hold, ``vector`` each, in all of them."""
        word = part << ((lane % self.group) * self.vector)
        for log in range((self.group - 1).bit_length()):
            word = word | cute.arch.shuffle_sync_bfly(word, offset=1 << log)
        return word

    @cute.jit
    def store_bits(self, target, words, lane):
        """The words of a chunk. A vector of a warp makes ``vector`` of them; each lane of a group stores that of another vector."""
        member = lane % self.group
        for first in cutlass.range_constexpr(0, self.unroll, self.group):
            mine = words[first]
            for u in cutlass.range_constexpr(1, min(self.group, self.unroll - first)):
                mine = choose(member == u, words[first + u], mine)
            if first + member < self.unroll:
                self.put(target, (first + member) * self.vector + lane // self.group, Uint32(mine))

    @cute.jit
    def ragged(self, x, out, other, ends, begin, length, period, start, lane):
        """The last chunk of a row, where the row ends within it: the same vectors, element by element."""
        for u in cutlass.range(self.unroll, unroll=1):
            offset = (lane + u * LANES) * self.vector
            place = begin + offset
            items = cute.make_rmem_tensor((self.vector + 2,), self.rule.register)
            for i in cutlass.range_constexpr(self.vector + 2):
                items[i] = self.rule.register(0)
                if (place + (i - 1) >= 0) & (place + (i - 1) < length):
                    items[i] = self.get(x, place + (i - 1))
            rest = (start + offset) % period if self.periodic else Int32(0)
            word, other_word = Int32(0), Int32(0)
            for i in cutlass.range_constexpr(self.vector):
                flag, other_flag = Int32(0), Int32(0)
                if place + i < length:
                    three = [self.rule.register(items[i + k]) for k in range(3)]
                    found = self.results(three, ends, place + i, rest, period, place + i == 0, place + i + 1 == length)
                    if cutlass.const_expr(self.marking.bits):
                        flag, other_flag = found[0][0], found[-1][0]
                    else:
                        for target, values in zip((out, other), found):
                            self.put(target, place + i, self.lowered(values[0]))
                word = word | (flag << i)
                other_word = other_word | (other_flag << i)
                rest = choose(rest + 1 == period, Int32(0), rest + 1)
            if cutlass.const_expr(self.marking.bits):
                self.store_ragged_bits(out, word, place, length, lane)
                if cutlass.const_expr(self.marking.outputs == 2):
                    self.store_ragged_bits(other, other_word, place, length, lane)

    @cute.jit
    def store_ragged_bits(self, target, word, place, length, lane):
        """The words of the flags that the lanes of a group hold; those beyond the row are 0."""
        word = self.joined(word, lane)
        if (lane % self.group == 0) & (place < length):
            self.put(target, place // 32, Uint32(word))
