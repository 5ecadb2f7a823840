"""A warp scans a run of consecutive elements held in registers: the inner loop of every scan along the last axis.

A *vector* is what one lane handles at a time: as many elements as make 16 bytes of the wider of input and output. A
*chunk* is what a warp holds: ``rows`` rows of 32 vectors. First the warp reduces it: each lane its vectors, a shuffle
scan each row, the row totals in order. It keeps the elements, still packed in words, and the prefix of each vector.
When the chunk's carry-in is known, the elements are gone through again and stored. The operator is applied twice to an
element, and about 5 / items times in shuffles.

Positions are in scan order; ``Scan.flip`` turns them into places in memory.
"""

from __future__ import annotations

import math
from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...dtypes import DType
from ...monoid import choose, tree
from ...warp import LANES, Maybe, append, broadcast, prepend, reduce_rows, reduce_states, scan_states, shift_up, zeros
from ..arrays import index_of, pointers_of
from ..hardware import VECTOR_BYTES
from ..words import earlier, load_pair, of_pair
from . import bools
from .base import Scan
from .bytewise import bytewise
from .problem import ANYWHERE

# Positions of a row, of which only [begin, end) exist. Their lowest address lies ``offset`` elements from the row's in
# the inputs, and ``target`` in the outputs.
Span = namedtuple("Span", "offset begin end target")

# A chunk in registers: packed ``elements``, a tensor (words, rows) of each input, and ``prefixes``, a tensor of
# ``rows`` values of each member of a state. With indexes, the last of ``elements`` has the index of each vector's
# lowest address.
Chunk = namedtuple("Chunk", "elements prefixes")


class WarpScan:
    """Chunks of ``rows`` rows; ``warps`` warps share a tile. All 32 lanes call every method.

    ``items`` positions a vector (default: what makes a multiple of 16 bytes of the widest type), aligned in the inputs
    unless ``aligned`` is false: then they are loaded element by element. ``shift`` is that of ``Problem``: results are
    stored as vectors, are joined to the vectors that lie on the output's boundaries, or are stored element by element.
    Tiles begin on multiples of ``boundary`` bytes in the input of the smallest elements.
    """

    def __init__(
        self,
        scan: Scan,
        rows: int,
        warps: int,
        shift: int | None,
        items: int | None = None,
        boundary: int = VECTOR_BYTES,
        aligned: bool = True,
    ) -> None:
        self.scan, self.rows, self.warps, self.shift, self.boundary = scan, rows, warps, shift, boundary
        self.monoid, self.aligned = scan.monoid, aligned
        self.gap, self.unit = 1, scan.width  # elements of the inputs from position to position
        self.skewed = False  # vectors of 16 bytes of the only input begin anywhere, and are joined from pairs
        widest = max(dtype.size for dtype in (*scan.monoid.sources, *scan.monoid.results))
        self.items = items or VECTOR_BYTES // math.gcd(VECTOR_BYTES, scan.width * widest)
        self.vectors = rows * LANES
        self.chunk = self.vectors * self.items  # positions
        self.tile = warps * self.chunk
        self.elements = self.items * scan.width  # of a vector
        if scan.width > 1:
            self.boundary = math.gcd(VECTOR_BYTES, min(self.elements * dtype.size for dtype in scan.monoid.sources))
        self.from_end = scan.reverse != scan.mirrored  # the inputs are scanned from their last address on
        whole = scan.width == 1 and self.packed(scan.monoid.sources[0])
        self.bytes = bytewise(scan.monoid) if whole else None
        self.lead = min(range(len(scan.monoid.sources)), key=lambda k: scan.monoid.sources[k].size)

    def apart(self, gap: int) -> WarpScan:
        """This, for an input whose positions lie ``gap`` elements apart (that of ``Problem``)."""
        self.gap, self.unit = gap, self.scan.width * gap
        return self

    @cute.jit
    def span(self, start, length: Int64, position: Int64, extent: cutlass.Constexpr):
        """The ``Span`` of the ``extent`` positions from ``position`` of the row of ``length`` elements at ``start``.

        Position 0 lies on a boundary (of the row's end, where scan order is not that of memory) before the first
        element or at it; ``position`` is a multiple of ``extent``."""
        slack = self.slack(start, length)
        up, down = position - slack, length + slack - position - extent
        offset = down if self.from_end else up
        target = down if self.scan.reverse else up
        begin = cutlass.min(cutlass.max(slack - position, Int64(0)), Int64(extent))
        end = cutlass.min(cutlass.max(slack + length - position, Int64(0)), Int64(extent))
        return Span(offset * self.unit, Int32(begin), Int32(end), target * self.scan.width)

    def is_full(self, span: Span):
        """Whether all positions of a chunk exist."""
        return (span.begin == 0) & (span.end == self.chunk)

    def slack(self, start, length):
        """How many positions position 0 lies before a row's first one. Rows of two or four columns begin a multiple of
        a position behind a boundary."""
        if not self.aligned or self.gap > 1:
            return Int64(0)
        size, width = self.monoid.sources[self.lead].size, self.scan.width
        most = self.boundary // size
        first = pointers_of(start)[self.lead]
        edge = (first + length * width).toint() if self.from_end else first.toint()
        skew = Int64(edge & (self.boundary - 1)) // size
        skew = (most - skew) % most if self.from_end else skew
        # Of three columns, the number of positions that reach so far behind some boundary: 3 * 43 = 129
        return skew * 43 % most if width == 3 else skew // width

    def place(self, u, lane):
        """Where in the chunk a lane's vector of row ``u`` lies in the outputs, in elements."""
        return self.scan.flip(lane + u * LANES, self.vectors) * self.elements

    def place_in(self, u, lane):
        """Where it lies in the inputs."""
        return self.scan.flip_in(lane + u * LANES, self.vectors) * self.items * self.unit

    # Loading

    def bytes_of(self, dtype: DType) -> int:
        """The bytes of a vector."""
        return self.elements * dtype.size

    def packed(self, dtype: DType) -> bool:
        """Whether vectors of an input are held as 32-bit words."""
        return self.aligned and self.bytes_of(dtype) % 4 == 0

    def registers(self):
        """Registers for a chunk."""
        elements = []
        for dtype in self.monoid.sources:
            packed = self.packed(dtype)
            word = Int32 if packed else dtype.cutlass
            each = self.bytes_of(dtype) // 4 if packed else self.elements
            # the stride is stated: a mode of one element would get stride 0, which recasting spreads
            layout = cute.make_layout((each, self.rows), stride=(1, each))
            elements.append(cute.make_rmem_tensor(layout, word))
        if self.monoid.takes_index:
            elements.append(cute.make_rmem_tensor(cute.make_layout((1, self.rows), stride=(1, 1)), Int64))
        prefixes = tuple(cute.make_rmem_tensor((self.rows,), t) for t in self.scan.types)
        return Chunk(tuple(elements), prefixes)

    # Vectors that begin anywhere

    def loading(self, chunk: Chunk) -> tuple:
        """What vectors are loaded into: ``elements``, unless they are joined from pairs."""
        if not self.skewed:
            return chunk.elements
        return (cute.make_rmem_tensor(cute.make_layout((8, self.rows), stride=(1, 8)), Int32),)

    def loaded(self, pairs, chunk: Chunk, starts: list) -> None:
        """Join the vectors of a chunk, which lie at ``starts``, from their pairs, if they are such."""
        for u, start in enumerate(starts if self.skewed else ()):
            for w, word in enumerate(of_pair(pairs[0][(None, u)], pointers_of(start)[0])):
                chunk.elements[0][w, u] = Int32(word)

    def load(self, start, lane, elements) -> None:
        """Fill ``elements`` from the chunk that starts at ``start`` (a pointer or ``Arrays``, in any address space)."""
        for u in range(self.rows):
            self.load_vector(start + self.place_in(u, lane), elements, u, True)

    @cute.jit
    def load_vector(self, start, elements, u: cutlass.Constexpr, exists, end=None):
        if exists:
            if cutlass.const_expr(self.skewed):
                load_pair(pointers_of(start)[0], elements[0][(None, u)], end)
            else:
                self.copy_vector(start, elements, u)

    def copy_vector(self, start, elements, u: int) -> None:
        for dtype, pointer, target in zip(self.monoid.sources, pointers_of(start), elements):
            if self.gap > 1:
                self.gather(pointer, target[(None, u)], dtype)
                continue
            word = Int32 if self.packed(dtype) else dtype.cutlass
            align = math.gcd(self.bytes_of(dtype), VECTOR_BYTES) if self.aligned else dtype.size
            source = cute.make_ptr(word, pointer.toint(), pointer.memspace, assumed_align=align)
            cute.autovec_copy(
                cute.make_tensor(source, cute.make_layout((cute.size(target, mode=[0]),))), target[(None, u)]
            )
        if self.monoid.takes_index:
            elements[-1][0, u] = index_of(start)

    def gather(self, pointer, target, dtype: DType) -> None:
        """Load the elements of a vector one by one: they lie ``gap`` apart."""
        target = cute.recast_tensor(target, dtype.cutlass) if self.packed(dtype) else target
        source = cute.make_tensor(pointer, cute.make_layout((self.elements,), stride=(self.gap,)))
        loaded = [source[i] for i in range(self.elements)]
        for i, value in enumerate(loaded):
            target[i] = value

    def lifted(self, elements, u: int):
        """The states of the elements of a lane's vector of row ``u``, in scan order."""
        values = []
        for dtype, words in zip(self.monoid.sources, elements):
            row = words[(None, u)]
            values.append(cute.recast_tensor(row, dtype.cutlass) if self.packed(dtype) else row)
        first = elements[-1][0, u] if self.monoid.takes_index else 0
        return [
            self.scan.lift(values, self.scan.flip_in(i, self.items) * self.scan.width, first) for i in range(self.items)
        ]

    # Reducing

    def reduce(self, chunk: Chunk, lane):
        """The aggregate of a loaded chunk, in every lane. Fills the prefixes; that of the chunk's first vector has no
        meaning."""
        return self.join_rows([self.scan_row(chunk.elements, u, lane, True) for u in range(self.rows)], chunk, lane)

    @cute.jit
    def scan_row(self, elements, u: cutlass.Constexpr, lane, exists, width: cutlass.Constexpr = LANES):
        """The inclusive scan of row ``u``'s vectors over groups of ``width`` lanes."""
        state = zeros(self.scan.types)
        if exists:
            state = self.reduce_vector(elements, u)
        return scan_states(state, self.scan.combine, lane, width, exists)

    def join_rows(self, inclusive, chunk: Chunk, lane, count=None):
        """From the rows' scans to the chunk's prefixes and aggregate. Only the first ``count`` vectors exist."""
        total = None
        for u in range(self.rows):
            before = shift_up(inclusive[u])
            last = broadcast(
                inclusive[u], LANES - 1 if count is None else cutlass.max(cutlass.min(count - u * LANES, LANES) - 1, 0)
            )
            if u > 0:
                here, some = (True, True) if count is None else (lane + u * LANES < count, u * LANES < count)
                before = append((lane > 0) & here, total, before, self.scan.combine)
                last = append(some, total, last, self.scan.combine)
            total = last
            for member, value in zip(chunk.prefixes, before):
                member[u] = value
        return total

    def reduce_only(self, elements, lane):
        """As ``reduce`` without the prefixes, at less cost. The operands are grouped differently."""
        vectors = [self.reduce_vector(elements, u) for u in range(self.rows)]
        if self.monoid.commutative:
            return reduce_states(tree(vectors, self.scan.combine), self.scan.combine, lane)
        return reduce_rows(vectors, self.scan.combine, lane)

    def reduce_vector(self, elements, u: int):
        if self.bytes is not None and self.bytes.reduces:
            return (self.bytes.reduce(self.words(elements, u)),)
        plain = len(elements) == 1 and self.packed(self.monoid.sources[0]) and self.scan.width == 1
        exact = self.monoid.commutative and self.monoid.sources[0].kind != "f"
        if plain and (exact or not (self.scan.reverse or self.scan.mirrored)):
            return self.monoid.fold(elements[0][(None, u)], 0)
        return tree(self.lifted(elements, u), self.scan.combine)

    # Emitting

    def emit(self, chunk: Chunk, carry: Maybe, out, lane) -> None:
        """Store the scanned chunk at ``out``; ``carry`` is the state of everything before the chunk."""
        order = range(self.rows - 1, -1, -1) if self.scan.reverse else range(self.rows)  # memory order
        previous, skew = None, self.skew(out)
        for u in order:
            results = self.results(chunk.elements, u, carry, self.prefix(chunk, u, lane))
            if self.shift:
                previous = self._store_joined(results, previous, out + self.place(u, lane), skew, lane)
            else:
                self.store(results, out + self.place(u, lane))
        if self.shift:
            self._store_last(results, out + self.place(order[-1], lane), skew, lane)

    def prefix(self, chunk: Chunk, u: int, lane) -> Maybe:
        """What comes before a lane's vector of row ``u`` in the chunk; nothing before the very first."""
        state = tuple(t(member[u]) for t, member in zip(self.scan.types, chunk.prefixes))
        return Maybe(state, cutlass.not_(lane == 0) if u == 0 else True)

    @cute.jit
    def emit_vector(self, elements, u: cutlass.Constexpr, carry: Maybe, prefix: Maybe, out, exists):
        """Store one scanned vector at ``out``; see ``results``."""
        if exists:
            self.store(self.results(elements, u, carry, prefix), out)

    def results(self, elements, u: int, carry: Maybe, prefix: Maybe):
        """A scanned vector in registers, in memory order: ``carry`` before the chunk, ``prefix`` before the vector."""
        before = _join(carry, prefix, self.scan.combine)
        state = before.state
        if self.bytes is not None:
            return (self.results_of_words(elements, u, before),)
        results = tuple(cute.make_rmem_tensor((self.elements,), dtype.cutlass) for dtype in self.monoid.results)
        for i, value in enumerate(self.lifted(elements, u)):
            following = (
                prepend(before.valid, state, value, self.scan.combine) if i == 0 else self.scan.combine(state, value)
            )
            place = self.scan.flip(i, self.items) * self.scan.width
            self.scan.lower(state if self.scan.exclusive else following, results, place)
            state = following
        return results

    def words(self, elements, u: int) -> list:
        """A lane's words of row ``u``, in memory order."""
        row = elements[0][(None, u)]
        return [row[w] for w in range(cute.size(row))]

    def results_of_words(self, elements, u: int, before: Maybe):
        assert self.bytes is not None
        words = self.bytes.scan(self.words(elements, u), before, self.scan.exclusive, self.from_end)
        results = cute.make_rmem_tensor((self.elements,), self.monoid.results[0].cutlass)
        packed = cute.recast_tensor(results, Int32)
        for w, word in enumerate(bools.backwards(words) if self.scan.mirrored else words):
            packed[w] = word
        return results

    def store(self, results, out) -> None:
        for dtype, result, pointer in zip(self.monoid.results, results, pointers_of(out)):
            align = math.gcd(self.bytes_of(dtype), VECTOR_BYTES) if self.shift == 0 else dtype.size
            target = cute.make_ptr(dtype.cutlass, pointer.toint(), cute.AddressSpace.gmem, assumed_align=align)
            cute.autovec_copy(result, cute.make_tensor(target, cute.make_layout((self.elements,))))

    def skew(self, out):
        """How many bytes past a boundary the vectors of the only output begin; 0 if all are aligned."""
        if not self.shift:
            return 0
        dtype = self.monoid.result
        if self.shift != ANYWHERE:
            return Int32(self.shift * dtype.size)
        return Int32(out.toint() & (self.bytes_of(dtype) - 1))

    def items_before(self, skew):
        """The elements of a vector that lie before the output's boundary."""
        return self.items - skew // self.monoid.result.size

    @cute.jit
    def _store_joined(self, results, previous, out, skew, lane):
        """Store the aligned vector that ends inside this lane's vector. Rows come in memory order; ``previous`` are a
        lane's words of the row before, None for the first. Returns this row's."""
        own, joined = self.join(results, previous, skew, lane)
        if cutlass.const_expr(previous is None):
            if (lane == (LANES - 1 if self.scan.reverse else 0)) & (skew != 0):
                self.store_elements(results, out, Int32(0), self.items_before(skew))
            else:
                self.store_aligned(joined, out, skew)
        else:
            self.store_aligned(joined, out, skew)
        return own

    def join(self, results, previous, skew, lane):
        """``(own, joined)``: a lane's words, and the aligned vector that ends inside its vector: the end of the vector
        before it in memory and the beginning of its own."""
        words = cute.recast_tensor(results[0], Int32)
        own = tuple(words[w] for w in range(cute.size(words)))
        # the last lane in memory, and the way to the one before
        last, step = (0, 1) if self.scan.reverse else (LANES - 1, LANES - 1)
        sent = own
        if previous is not None:
            sent = tuple(choose(lane == last, a, b) for a, b in zip(previous, own))
        before = [Int32(cute.arch.shuffle_sync(word, (lane + step) % LANES)) for word in sent]
        joined = cute.make_rmem_tensor((self.items,), self.monoid.result.cutlass)
        packed = cute.recast_tensor(joined, Int32)
        for w, word in enumerate(earlier([*before, *own], skew, self.monoid.result.size)):
            packed[w] = word
        return own, joined

    @cute.jit
    def _store_last(self, results, out, skew, lane):
        """Store what ``_store_joined`` left of the chunk's last vector in memory."""
        if lane == (0 if self.scan.reverse else LANES - 1):
            self.store_elements(results, out, self.items_before(skew), Int32(self.items))

    @cute.jit
    def store_elements(self, results, out, begin: Int32, end: Int32):
        for i in cutlass.range_constexpr(self.items):
            if (i >= begin) & (i < end):
                cute.make_tensor(out + i, cute.make_layout((1,)))[0] = results[0][i]

    def store_aligned(self, joined, out, skew) -> None:
        """Store the aligned vector that begins ``skew`` bytes before ``out``."""
        dtype = self.monoid.result
        target = cute.make_ptr(
            dtype.cutlass, out.toint() - Int64(skew), cute.AddressSpace.gmem, assumed_align=self.bytes_of(dtype)
        )
        cute.autovec_copy(joined, cute.make_tensor(target, cute.make_layout((self.items,))))


def _join(carry: Maybe, prefix: Maybe, combine) -> Maybe:
    """``carry.then(prefix)``; cheaper where ``prefix`` is known to be valid at compile time."""
    if prefix.valid is True:
        return Maybe(prepend(carry.valid, carry.state, prefix.state, combine), True)
    return _join_first(carry, prefix, combine)


@cute.jit
def _join_first(carry: Maybe, prefix: Maybe, combine: cutlass.Constexpr):
    state, valid = prefix
    if carry.valid:
        if prefix.valid:
            state = combine(carry.state, state)
        else:
            state = carry.state
        valid = Boolean(True)
    return Maybe(state, valid)
