"""Scan of arrays whose outer slices fit shared memory: axes in the middle with few columns behind them, and rows of any
length.

A block copies some whole slices, which are one run of memory, in vectors of 16 bytes; scans them where they lie; and
stores them as it copied them. A thread scans a column of a slice, or one of several pieces of it: as many as there are
threads for all columns of a tile. The pieces' aggregates are exchanged through shared memory. Blocks exchange nothing.

Slices that are multiples of 32 bytes lie 16 bytes further apart in shared memory than in global memory, and results
that have memory of their own a word or an element: threads at the same place of neighbouring slices access different
banks. For the same reason a piece has an odd number of positions.

Tiles of inputs that do not begin on a boundary of 16 bytes lie as far behind one in shared memory: their vectors are
copied whole, too, one that holds the end of a slice and the beginning of the next to both of their places. Vectors of
results that do not are joined from the words of shared memory that hold them.

In strided arrays the slices of a group are one run of memory, and a tile has slices of one group.

Inputs may have gaps between their slices, or in them between positions and between columns, which are copied with them;
slices, positions and columns may run backwards.

Results take the places of the elements of an input of their size; others have memory of their own. So do those of
inputs that run backwards or have gaps.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...block.reduce import get, put, state_array, state_bytes
from ...monoid import choose
from ...sync.overlap import let_next_start
from ...warp import LANES, Maybe, append, prepend, scan_states, shift_up, zeros
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES, WORD_BYTES
from ..words import four_words, store_run, words_from
from .base import Arguments, Scan, ScanKernel
from .columns import ThreadColumns, element
from .slice_policy import SLICE_THREADS, SlicePolicy, is_padded

UNROLL = 8  # positions of a thread that are in registers at once
UNPADDED = 1 << 30  # vectors of a slice: more than a tile has

# A thread's piece of a column: the column's slice in the tile, which slice that is in the memory of the inputs, the
# column's place in it, and the positions from ``begin`` to ``end``. ``exists``: no other thread has the same.
Piece = namedtuple("Piece", "slice held inside begin end exists")


class SliceScan(ThreadColumns):
    """The kernel. ``a.tiles`` slices are a tile. With ``aligned`` every tile of the inputs begins on a boundary of 16
    bytes, with ``aligned_out`` every one of the outputs."""

    def __init__(self, scan: Scan, policy: SlicePolicy) -> None:
        self.width, self.segments = 1, policy.segments
        self.aligned, self.aligned_out, self.mirrored = policy.aligned, policy.aligned_out, policy.mirrored
        self.apart, self.between = policy.apart, policy.between
        self.lanes = min(policy.segments, LANES)  # that exchange the states of a column's pieces
        sources, results = scan.monoid.sources, scan.monoid.results
        self.sizes = [dtype.size for dtype in sources]
        self.home = []  # the buffer of each result
        for k, dtype in enumerate(results):
            own = policy.mirrored or policy.apart
            if k < len(sources) and not own and sources[k].size == dtype.size:
                self.home.append(k)
            else:
                self.home.append(len(self.sizes))
                self.sizes.append(dtype.size)
        self.buffer_bytes = [policy.capacity * size + VECTOR_BYTES for size in self.sizes]
        states = state_bytes(scan.monoid.types, SLICE_THREADS) if policy.segments > 1 else 0
        ScanKernel.__init__(self, scan, SLICE_THREADS, sum(self.buffer_bytes) + states, policy.blocks_per_sm)

    @cute.jit
    def body(self, a: Arguments):
        allocator = SmemAllocator()
        buffers = [allocator.allocate_array(Uint8, size, byte_alignment=16) for size in self.buffer_bytes]
        states = state_array(self.scan.monoid.types, SLICE_THREADS) if self.segments > 1 else None
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        first, count, start, target = self.tile(a, block)
        elements = count * self.slice_of(a)
        loaded = elements
        if cutlass.const_expr(self.apart):
            loaded = (count - 1) * self.step_in(a) + self.span_in(a)
        for k, (source, dtype) in enumerate(zip(pointers_of(a.x), self.scan.monoid.sources)):
            if cutlass.const_expr(self.aligned):
                self.copy_in(buffers[k], source + start, dtype, loaded, a, thread)
            else:
                lead = Int32((source + start).toint() & (VECTOR_BYTES - 1))
                self.copy_in_behind(buffers[k], source + start, lead, dtype, loaded, a, thread)
                buffers[k] += lead
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        let_next_start()
        columns = count * Int32(a.inner)
        if cutlass.const_expr(self.segments == 1):
            for column in cutlass.range(thread, columns, SLICE_THREADS, unroll=1):
                piece = self.piece(a, column, Int32(0), columns, count)
                self.scan_piece(buffers, a, piece, self.carry_in(a, first + piece.slice, piece.inside))
            cute.arch.sync_threads()
        else:
            piece = self.piece(a, thread % columns, thread // columns, columns, count)
            before = self.exchange(states, self.reduce_piece(buffers, a, piece), a, thread, columns)
            carry = self.carry_in(a, first + piece.slice, piece.inside)
            self.scan_piece(buffers, a, piece, self.then(carry, before))
            cute.arch.sync_threads()
        for k, out in enumerate(pointers_of(a.out)):
            if cutlass.const_expr(self.aligned_out or self.scan.counted):
                self.copy_out(buffers[self.home[k]], out + target, k, elements, a, thread)
            else:
                self.copy_out_behind(buffers[self.home[k]], out + target, k, elements, a, thread)

    def tile(self, a: Arguments, block):
        """The first slice of a block's tile, how many slices it has, and where these begin in the inputs and the
        outputs."""
        if self.scan.view is None:
            first = Int64(block) * a.tiles
            count = Int32(cutlass.min(a.rows - first, Int64(a.tiles)))
            start = first * self.slice_of(a)
            return first, count, start, start
        each = (Int32(a.group) + (a.tiles - 1)) // a.tiles  # tiles of a group
        group = block // each
        inside = (block - group * each) * a.tiles
        first = Int64(group) * a.group + inside
        count = cutlass.min(Int32(a.group) - inside, a.tiles)
        start, target = self.row_places(a, first)
        if self.mirrored and not self.scan.mirrored:
            start += (a.length - 1) * a.x_step
        if self.apart:
            start += cutlass.min(a.x_next, Int64(0)) * (count - 1) + min(self.between, 0) * (a.inner - 1)
        return first, count, start, target

    def slice_of(self, a: Arguments):
        """The elements of a slice."""
        return Int32(a.whole * a.inner)

    def step_in(self, a: Arguments):
        """The elements of the inputs from the beginning of a slice to that of its neighbour."""
        return Int32(cutlass.max(a.x_next, -a.x_next)) if self.apart else self.slice_of(a)

    def row_in(self, a: Arguments):
        """The elements of the inputs from a position to the next, forwards in memory."""
        return Int32(cutlass.max(a.x_step, -a.x_step)) if self.apart else Int32(a.inner)

    def span_in(self, a: Arguments):
        """The elements of the inputs from the beginning of a slice to its end."""
        return (Int32(a.length) - 1) * self.row_in(a) + (Int32(a.inner) - 1) * abs(self.between) + 1

    # Copies: bytes of a tile lie in shared memory as in global memory, but for the bytes between slices.

    def pitch(self, elements, a: Arguments, size: int, more: int = VECTOR_BYTES):
        """``(bytes, pad)`` of a slice of so many elements of ``size`` bytes."""
        bytes_of = elements * size
        padded = is_padded(bytes_of, Int32(a.inner) * size)
        return bytes_of, choose(padded, Int32(more), Int32(0))

    def pad_of(self, k: int) -> int:
        """The bytes between padded slices of output ``k``."""
        own = self.home[k] >= len(self.scan.monoid.sources)
        return max(WORD_BYTES, self.scan.monoid.results[k].size) if own else VECTOR_BYTES

    @cute.jit
    def copy_in(self, buffer, source, dtype: cutlass.Constexpr, elements, a: Arguments, thread):
        bytes_of, pad = self.pitch(self.step_in(a), a, dtype.size)
        vectors = elements * dtype.size // VECTOR_BYTES
        each = choose(pad > 0, bytes_of // VECTOR_BYTES, Int32(UNPADDED))
        for v in cutlass.range(thread, vectors, SLICE_THREADS, unroll=1):
            self.copy_vector(buffer + (v * VECTOR_BYTES + v // each * pad), source, v * VECTOR_BYTES)
        whole = vectors * (VECTOR_BYTES // dtype.size)
        for i in cutlass.range(whole + thread, elements, SLICE_THREADS, unroll=4):
            if self.counts(i, a):
                self.copy_element(self.at(buffer, i, dtype, a, self.step_in(a)), source + i, dtype)

    @cute.jit
    def copy_in_behind(self, buffer, source, lead, dtype: cutlass.Constexpr, elements, a: Arguments, thread):
        """Copy a tile that begins ``lead`` bytes behind a boundary. If there are bytes between slices, each slice is
        copied by itself."""
        bytes_of, pad = self.pitch(self.step_in(a), a, dtype.size)
        total = elements * dtype.size
        span = choose(pad > 0, bytes_of, total)
        each = (lead + span + (VECTOR_BYTES - 1)) // VECTOR_BYTES
        for v in cutlass.range(thread, (total + span - 1) // span * each, SLICE_THREADS, unroll=1):
            number = v // each
            inside = (v - number * each) * VECTOR_BYTES
            first = number * span + inside - lead
            target = buffer + (number * (span + pad) + inside)
            if (first >= 0) & (first + VECTOR_BYTES <= total):
                self.copy_vector(target, source, first)
        # The vectors at the ends of a tile that it does not fill: its elements, and zeros in the rest of their words
        most = VECTOR_BYTES // dtype.size
        end = lead + total
        last = end // VECTOR_BYTES * VECTOR_BYTES - lead
        is_first = thread < most
        byte = choose(is_first, -lead, last) + thread % most * dtype.size
        place = lead + byte + cutlass.min(cutlass.max(byte, 0), total - 1) // span * pad
        if (thread < 2 * most) & choose(is_first, lead > 0, last >= 0):
            target = self.pointer(buffer, place, dtype)
            if (byte >= 0) & (byte < total) & self.counts(byte // dtype.size, a):
                self.copy_element(target, source + byte // dtype.size, dtype)
            elif lead + byte < (end + 3) // 4 * 4:
                put_element(target, dtype.cutlass(0))

    def copy_vector(self, target, source, first) -> None:
        """Copy a vector whose first byte is ``first`` bytes behind ``source``."""
        at = cute.make_ptr(Uint8, source.toint() + Int64(first), source.memspace, assumed_align=VECTOR_BYTES)
        primitives.cp_async_shared_global(self.vector_at(target), at, VECTOR_BYTES, "cg")

    def copy_element(self, target, source, dtype) -> None:
        if dtype.size >= 4:
            primitives.cp_async_shared_global(target, source, dtype.size, "ca")
        else:
            put_element(target, element(source)[0])

    @cute.jit
    def copy_out(self, buffer, out, k: cutlass.Constexpr, elements, a: Arguments, thread):
        """Store a tile's results of output ``k``."""
        dtype, pad = self.scan.monoid.results[k], self.pad_of(k)
        behind = not self.aligned and pad == VECTOR_BYTES  # those in the buffer do not begin on a boundary
        words = pad if pad < VECTOR_BYTES else dtype.size if behind else VECTOR_BYTES
        bytes_of, pad = self.pitch(self.slice_of(a), a, dtype.size, pad)
        whole = Int32(0)
        if cutlass.const_expr(self.aligned_out and not self.scan.counted):
            vectors = elements * dtype.size // VECTOR_BYTES
            each = choose(pad > 0, bytes_of // VECTOR_BYTES, Int32(UNPADDED))
            for v in cutlass.range(thread, vectors, SLICE_THREADS, unroll=4):
                held = cute.make_rmem_tensor((4,), Int32)
                source = buffer + (v * VECTOR_BYTES + v // each * pad)
                if cutlass.const_expr(words < VECTOR_BYTES):
                    for i, word in enumerate(words_from(source, words)):
                        held[i] = word
                else:
                    cute.autovec_copy(four_words(source.toint(), source.memspace), held)
                cute.autovec_copy(held, four_words(out.toint() + Int64(v * VECTOR_BYTES), out.memspace))
            whole = vectors * (VECTOR_BYTES // dtype.size)
        for i in cutlass.range(whole + thread, elements, SLICE_THREADS, unroll=4):
            source = self.at(buffer, i, dtype, a, self.slice_of(a), self.pad_of(k))
            self.move_element(out + i, source, self.counts(i, a))

    def copy_out_behind(self, buffer, out, k: int, elements, a: Arguments, thread) -> None:
        """Store a tile's results of output ``k`` that begin anywhere."""
        dtype = self.scan.monoid.results[k]
        _, pad = self.pitch(self.slice_of(a), a, dtype.size, self.pad_of(k))
        at = lambda i: self.at(buffer, i, dtype, a, self.slice_of(a), self.pad_of(k))  # noqa: E731
        store_run(at, out, dtype.size, elements, pad == 0, thread, SLICE_THREADS)

    def counts(self, i, a: Arguments):
        """Whether the position of element ``i`` of a tile counts."""
        return i % self.slice_of(a) < Int32(a.length * a.inner) if self.scan.counted else Boolean(True)

    @cute.jit
    def move_element(self, target, source, counts):
        if counts:
            put_element(target, element(source)[0])

    def vector_at(self, pointer):
        return cute.make_ptr(Uint8, pointer.toint(), pointer.memspace, assumed_align=VECTOR_BYTES)

    def at(self, buffer, i, dtype, a: Arguments, step, more: int = VECTOR_BYTES):
        """Where element ``i`` of a tile lies in a buffer, of which ``step`` elements belong to a slice."""
        bytes_of, pad = self.pitch(step, a, dtype.size, more)
        place = i * dtype.size + i * dtype.size // bytes_of * pad
        return self.pointer(buffer, place, dtype)

    def pointer(self, buffer, place, dtype):
        return cute.make_ptr(dtype.cutlass, (buffer + place).toint(), cute.AddressSpace.smem, assumed_align=dtype.size)

    # Scanning

    def piece(self, a: Arguments, column, segment, columns, count) -> Piece:
        """A thread's piece of a column, of a tile of ``count`` slices. Threads without one get that of another."""
        inner, length = Int32(a.inner), Int32(a.length)
        exists = column < columns
        column = cutlass.min(column, columns - 1)
        number = column // inner
        held = number
        if self.apart:
            held = choose(a.x_next < 0, count - 1 - number, number)
        if self.segments == 1:
            return Piece(number, held, column - number * inner, Int32(0), length, Boolean(True))
        height = self.height(a)
        begin = cutlass.min(segment * height, length - 1)
        exists = exists & (segment * height < length)
        end = cutlass.min(begin + height, length)
        return Piece(number, held, column - number * inner, begin, end, exists)

    def height(self, a: Arguments):
        """The positions of a piece, an odd number."""
        segments = cutlass.min(SLICE_THREADS // (a.tiles * Int32(a.inner)), Int32(self.segments))
        return (Int32(a.length) + (segments - 1)) // segments | 1

    def source(self, buffers, k: int, a: Arguments, piece: Piece, position, dtype):
        """Where the thread's element at a position lies in the buffer of input ``k``."""
        if self.scan.reverse != self.mirrored:
            position = Int32(a.length) - 1 - position
        column = Int32(a.inner) - 1 - piece.inside if self.between < 0 else piece.inside
        pitch = self.pitch(self.step_in(a), a, dtype.size)
        inside = position * self.row_in(a) + column * abs(self.between)
        return self.place(buffers[k], piece.held, pitch, inside, dtype)

    def target(self, buffers, k: int, a: Arguments, piece: Piece, position, dtype):
        """Where its result lies in the buffer of output ``k``."""
        position = self.scan.flip(position, Int32(a.length))
        pitch = self.pitch(self.slice_of(a), a, dtype.size, self.pad_of(k))
        return self.place(buffers[self.home[k]], piece.slice, pitch, position * Int32(a.inner) + piece.inside, dtype)

    def place(self, buffer, number, pitch, inside, dtype):
        """Where element ``inside`` of slice ``number`` lies in a buffer."""
        bytes_of, pad = pitch
        return self.pointer(buffer, number * (bytes_of + pad) + inside * dtype.size, dtype)

    def states_at(self, buffers, a: Arguments, piece: Piece, first, count: int) -> list:
        """The states of ``count`` positions."""
        rows = []
        for u in range(count):
            row = []
            for k, dtype in enumerate(self.scan.monoid.sources):
                row.append(cute.make_rmem_tensor((1,), dtype.cutlass))
                row[-1][0] = element(self.source(buffers, k, a, piece, first + u, dtype))[0]
            rows.append(row)
        return [self.lifted(row, Int64(first + u), a) for u, row in enumerate(rows)]

    @cute.jit
    def reduce_piece(self, buffers: cutlass.Constexpr, a: Arguments, piece: Piece):
        (state,) = self.states_at(buffers, a, piece, piece.begin, 1)
        at = piece.begin + 1
        while at + UNROLL <= piece.end:
            for row in self.states_at(buffers, a, piece, at, UNROLL):
                state = self.combine(state, row)
            at += UNROLL
        while at < piece.end:
            for row in self.states_at(buffers, a, piece, at, 1):
                state = self.combine(state, row)
            at += 1
        return state

    @cute.jit
    def exchange(self, states: cutlass.Constexpr, own, a: Arguments, thread, columns):
        """What comes before a thread's piece in its column. Two block barriers."""
        put(states, thread, own[0])
        cute.arch.sync_threads()
        count = (Int32(a.length) - 1) // self.height(a) + 1  # pieces of a column
        for base in cutlass.range(0, columns * self.lanes, SLICE_THREADS, unroll=1):
            column, lane = (base + thread) // self.lanes, thread % self.lanes
            self.scan_column(states, column, choose(column < columns, count, Int32(0)), columns, lane)
        cute.arch.sync_threads()
        state = get(states, cutlass.max(thread - columns, 0), self.scan.monoid.types)
        return Maybe((state,), thread >= columns)

    @cute.jit
    def scan_column(self, states: cutlass.Constexpr, column, count, columns, lane):
        """Scan the states of the ``count`` pieces of a column where they lie, by neighbouring lanes with a run each."""
        types, combine, each = self.scan.monoid.types, self.scan.combine, self.segments // self.lanes
        first = lane * each
        run = [zeros(types)]
        for e in cutlass.range_constexpr(each):
            state = zeros(types)
            if first + e < count:
                state = get(states, (first + e) * columns + column, types)
            run.append(append(first + e < count, run[-1], state, combine) if e else state)
        total = scan_states(run[-1], combine, lane, self.lanes, first < count)
        before = shift_up(total)
        for e in cutlass.range_constexpr(each):
            if first + e < count:
                result = total if e == each - 1 else prepend(lane > 0, before, run[e + 1], combine)
                put(states, (first + e) * columns + column, result)

    @cute.jit
    def scan_piece(self, buffers: cutlass.Constexpr, a: Arguments, piece: Piece, before: Maybe):
        """Replace a thread's elements by its results; ``before`` comes before them."""
        if piece.exists:
            (row,) = self.states_at(buffers, a, piece, piece.begin, 1)
            state = self.then(before, Maybe.of(row)).state
            self.put_results(buffers, a, piece, piece.begin, before.state if self.scan.exclusive else state)
            at = piece.begin + 1
            while at + UNROLL <= piece.end:
                for u, row in enumerate(self.states_at(buffers, a, piece, at, UNROLL)):
                    following = self.combine(state, row)
                    self.put_results(buffers, a, piece, at + u, state if self.scan.exclusive else following)
                    state = following
                at += UNROLL
            while at < piece.end:
                for row in self.states_at(buffers, a, piece, at, 1):
                    following = self.combine(state, row)
                    self.put_results(buffers, a, piece, at, state if self.scan.exclusive else following)
                    state = following
                at += 1

    def put_results(self, buffers, a: Arguments, piece: Piece, position, states) -> None:
        results = self.scan.monoid.results_of(states[0])
        for k, (result, dtype) in enumerate(zip(results, self.scan.monoid.results)):
            put_element(self.target(buffers, k, a, piece, position, dtype), result)


def put_element(pointer, value) -> None:
    element(pointer)[0] = value
