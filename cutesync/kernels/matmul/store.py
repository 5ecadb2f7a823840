"""How sub-tiles of a result get from registers to global memory: 64 rows and some columns at a time.

The finished elements of a sub-tile are written to a buffer of shared memory, which TMA then stores. Each consumer
warpgroup has two buffers, or one for long rows, and a named barrier of its own and waits for nobody else. While TMA
reads one buffer the other is filled, and the last sub-tile of a tile is stored while the next tile is multiplied. Rows
of 32 and 48 bytes take longer than whole rows of a tile, which are not swizzled. Where TMA cannot store
a result, the threads do: lines of contiguous elements, which may begin anywhere, in aligned vectors and a few elements
at both ends, other results element by element.

A call with two results (``TermsSpec.pre``) has a ``SubTileStore`` for each. Their sub-tiles take turns in the same two
buffers, which are as wide as the wider elements need.
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.nvgpu import CopyUniversalOp, OperandMajorMode, cpasync, warp
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from ..words import shifted
from .pack_rows import VECTOR, WORDS, memory
from .policy import CONSUMERS, WARPGROUP, sub_tile_buffers
from .schedule import STORED
from .scheduler import Tile


class Target(namedtuple("Target", "atom coordinates buffers")):
    """Where a result goes: the TMA store and the (M, N, L) tensor of its coordinates (None if TMA does not store it),
    and the buffers of the block as its elements."""


class Outlet(
    namedtuple(
        "Outlet",
        "targets shape operands exchange registers largest group half thread by_columns fetched",
        defaults=(None,),
    )
):
    """What a consumer warpgroup stores with: a ``Target`` for each result, the extents (M, N, L), the operands; what
    its way of finishing a tile allocated; a register for the largest magnitude (``TermsSpec.amax``); which warpgroup,
    half of a tile and thread this is; whether results are stored by columns (see ``EitherStore``); and the elements of
    C for the tile, if they have been loaded."""


class Line(namedtuple("Line", "source swizzle width address head whole rest")):
    """A line of a sub-tile, of ``width`` bytes in shared memory: its address there and how its vectors are swizzled;
    its address in memory; the bytes before the first aligned vector, of the whole vectors, and of what is beside
    them."""

    @staticmethod
    def make(number, width: int, buffer, address: Int64, length) -> Line:
        """Of line ``number`` of a buffer, of which ``length`` bytes are stored."""
        head = cutlass.min(Int32(-address) & (VECTOR - 1), length)
        whole = (length - head) & -VECTOR
        swizzle = number * width >> 3 & (width - VECTOR) if width & (width - 1) == 0 else 0
        return Line(buffer + number * width, swizzle, width, address, head, whole, length - whole)

    def behind(self, at):
        """Byte ``at`` of those beside the whole vectors, counted in the line."""
        return at + cutlass.select_(at < self.head, Int32(0), self.whole)

    def place(self, at):
        """The address of that byte in memory."""
        return self.address + self.behind(at)

    def element(self, at, size: int):
        """That of an element in shared memory, or of another of the line if there is none."""
        return self.source + (cutlass.min(self.behind(at), self.width - size) ^ self.swizzle)


class SubTileStore:
    """The stores of result ``number`` in elements ``out``, in sub-tiles of ``columns``. ``in_place``: the result may be
    C. ``by_columns``: its columns are contiguous, of 16-bit elements, which stmatrix transposes into the buffers.
    ``by_tma``: TMA stores it. Else a thread has a vector of ``in_flight`` lines in registers."""

    def __init__(
        self,
        number: int,
        out,
        columns: int,
        in_flight: int,
        *,
        by_tma: bool,
        in_place: bool = False,
        by_columns: bool = False,
    ) -> None:
        self.number, self.result, self.columns = number, out, columns
        self.out = Uint8 if out.width == 8 else out  # 8 bits are moved as bits: the DSL has no single float8
        self.by_tma, self.in_place, self.by_columns = by_tma, in_place, by_columns
        self.spread, self.beside_tma, self.in_flight = 1, False, in_flight
        self.buffers = sub_tile_buffers(columns, out.width // 8)
        self.plain = columns * out.width // 8 not in (16, 32, 64, 128)  # no swizzle is as wide as a row

    def share_buffers(self, other: SubTileStore) -> None:
        """The sub-tiles of both take turns in the buffers."""
        self.spread = max(1, other.out.width // self.out.width)
        self.beside_tma = other.by_tma

    def buffer_layout(self):
        """(64, columns, all buffers of the block), contiguous as the result is, and swizzled. Of elements that are
        narrower than the buffers' only one buffer in ``spread`` is used."""
        buffers = CONSUMERS * self.buffers * self.spread
        if self.plain:
            return self.plain_layout(self.columns, buffers)
        major = LayoutEnum.COL_MAJOR if self.by_columns else LayoutEnum.ROW_MAJOR
        return hopper_helpers.make_smem_layout_epi(self.out, major, (64, self.columns), buffers)

    def plain_layout(self, *columns: int):
        """Of 64 rows, side by side and not swizzled, or of swizzled columns of 128 bytes; (columns, buffers)."""
        steps, bits = ((1, 64), 3) if self.by_columns else ((self.columns, 1), 0)
        lines = cute.make_layout((64, *columns), stride=(*steps, 64 * self.columns)[: 1 + len(columns)])
        return cute.make_composed_layout(cute.make_swizzle(bits, 4, 3), 0, lines)

    def tma(self, tensor):
        """The TMA store of a sub-tile to a result, and the tensor of its coordinates."""
        if self.plain:
            buffer = self.plain_layout(self.columns)
        else:
            buffer = cute.slice_(self.buffer_layout(), (None, None, 0))
        return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), tensor, buffer, (64, self.columns))

    def view(self, buffers):
        """The block's buffers, allocated for another type, as elements of this one."""
        layout = self.buffer_layout()
        return cute.make_tensor(cute.recast_ptr(buffers.iterator, layout.inner, dtype=self.out), layout.outer)

    @cute.jit
    def store(self, finished, corner, tile: Tile, to: Outlet, stored: Int32):
        """Store a sub-tile at ``corner`` by way of shared memory. ``stored`` counts the warpgroup's sub-tiles so far;
        its new value is returned.

        ``STORED`` has the warpgroup's 128 threads. It is passed once a sub-tile: after all have filled
        its buffer, and after TMA has read the buffer before. So it says both that this buffer is filled and that the
        other may be filled again. A single buffer takes another pass before it is filled.
        """
        thread, shape, target = to.thread, (64, self.columns), to.targets[self.number]
        buffer = to.group * self.buffers + stored % self.buffers
        if cutlass.const_expr(self.spread > 1):
            buffer = buffer * self.spread
        if cutlass.const_expr(self.buffers == 1):
            if thread < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            STORED.sync(to.group)
        copy, copier = self.copier(thread)
        cute.copy(copy, copier.retile(finished), copier.partition_D(target.buffers[None, None, buffer]))
        if cutlass.const_expr(self.by_tma):
            cute.arch.fence_proxy("async.shared", space="cta")  # TMA reads what these generic writes wrote
            if thread < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            STORED.sync(to.group)
            if thread < 32:
                if cutlass.const_expr(self.in_place):
                    # TMA may overwrite the C that all have read (by all threads, 2 to 11 % slower)
                    cute.arch.fence_proxy("async.global")
                places = cute.local_tile(target.coordinates, shape, (None, None, tile.item))
                source, there = cpasync.tma_partition(
                    target.atom,
                    0,
                    cute.make_layout(1),
                    cute.group_modes(target.buffers, 0, 2),
                    cute.group_modes(places, 0, 2),
                )
                cute.copy(target.atom, source[None, buffer], there[None, corner[0] // 64, corner[1] // self.columns])
                cute.arch.cp_async_bulk_commit_group()
        else:
            if cutlass.const_expr(self.beside_tma):  # the barrier then says the same of the other's buffer as above
                if thread < 32:
                    cute.arch.cp_async_bulk_wait_group(0, read=True)
            STORED.sync(to.group)
            self.store_by_threads(target.buffers[None, None, buffer], corner, tile, to)
        return stored + 1

    @cute.jit
    def store_by_threads(self, buffer, corner, tile: Tile, to: Outlet):
        """Store a sub-tile without TMA."""
        _, row_step, column_step, _ = self.place(to.operands)
        if cutlass.const_expr(self.by_columns):
            self.store_lines(buffer, corner, tile, column_step, to)
        else:
            if column_step == 1:
                self.store_lines(buffer, corner, tile, row_step, to)
            else:
                self.store_elements(buffer, corner, tile, to)

    @cute.jit
    def store_lines(self, buffer, corner, tile: Tile, step: Int64, to: Outlet):
        """Store the lines of a sub-tile, rows, or columns with ``by_columns``, which begin ``step`` elements apart.

        A line has some vectors of the buffer, mostly up to 8, and as many lanes. An aligned vector of the result is in
        two of the buffer, which are shifted into place. What is before the first and after the last is stored by
        elements.
        """
        pointer, _, _, batch_step = self.place(to.operands)
        way, extent, size = int(self.by_columns), (64, self.columns), self.out.width // 8
        vectors = extent[1 - way] * size // VECTOR
        left = cutlass.min(to.shape[way] - corner[way], extent[way])
        length = cutlass.min(to.shape[1 - way] - corner[1 - way], extent[1 - way]) * size
        first = Int64(tile.item) * batch_step + Int64(corner[way]) * step + corner[1 - way]
        start, source = pointer.toint() + first * size, buffer.iterator.toint()
        together, lane = WARPGROUP // vectors, to.thread % vectors  # lines
        count = -(-extent[way] // together)
        for begin in cutlass.range_constexpr(0, count, self.in_flight):
            lines = []
            for i in cutlass.range_constexpr(begin, min(begin + self.in_flight, count)):
                number = i * together + to.thread // vectors
                busy = (number < left) & (to.thread < together * vectors)
                stored = Int32(cutlass.select_(busy, length, Int32(0)))
                number = cutlass.min(number, extent[way] - 1)  # of the shortest lines there are fewer than threads
                lines.append(Line.make(number, vectors * VECTOR, source, start + Int64(number) * (step * size), stored))
            self.store_vectors(lines, lane * VECTOR)
            self.store_ends(lines, lane * size, vectors * size)

    @cute.jit
    def store_vectors(self, lines: list, begin: Int32):
        """Store the aligned vector of each line that begins ``begin`` bytes after the first. All loads are in flight
        before the first is used."""
        words = cute.make_rmem_tensor((2 * WORDS, len(lines)), Uint32)
        for i, line in enumerate(lines):
            for j, at in enumerate((begin, cutlass.min(begin + VECTOR, line.width - VECTOR))):
                part = cute.make_tensor(words.iterator + (2 * i + j) * WORDS, cute.make_layout((WORDS,)))
                cute.autovec_copy(shared(Uint32, line.source + (at ^ line.swizzle), WORDS), part)
        for i in cutlass.range_constexpr(len(lines)):
            moved = cute.make_rmem_tensor((WORDS,), Uint32)
            for j, word in enumerate(shifted([words[j, i] for j in range(2 * WORDS)], lines[i].head)):
                moved[j] = word
            if begin < lines[i].whole:
                cute.autovec_copy(moved, memory(Uint32, lines[i].address + (lines[i].head + begin), WORDS, VECTOR))

    @cute.jit
    def store_ends(self, lines: list, begin: Int32, step: cutlass.Constexpr):
        """Store the elements before the first aligned vector of each line and after the last, of which this lane has
        those at ``begin``, ``begin + step``, ... bytes: all or most of them at a time."""
        size, usual = self.out.width // 8, min(2, -(-VECTOR // step)) * step
        for at in cutlass.range_constexpr(0, usual, step):
            elements = [shared(self.out, line.element(begin + at, size), 1)[0] for line in lines]
            for i in cutlass.range_constexpr(len(lines)):
                if begin + at < lines[i].rest:
                    self.store_element(lines[i].place(begin + at), elements[i])
        for i in cutlass.range_constexpr(len(lines)):
            for at in cutlass.range(begin + usual, lines[i].rest, step, unroll=1):
                self.store_element(lines[i].place(at), shared(self.out, lines[i].element(at, size), 1)[0])

    def store_element(self, address, element) -> None:
        memory(self.out, address, 1, self.out.width // 8)[0] = element

    @cute.jit
    def store_elements(self, buffer, corner, tile: Tile, to: Outlet):
        """Store a sub-tile element by element, neighbours by neighbouring threads, to a result of any strides."""
        rows, columns = to.shape[:2]
        pointer, row_step, column_step, batch_step = self.place(to.operands)
        by_rows = row_step == 1
        for i in cutlass.range(64 * self.columns // WARPGROUP, unroll=4):
            place = i * WARPGROUP + to.thread
            inner_row, inner_column = place // self.columns, place % self.columns
            if by_rows:
                inner_row, inner_column = place % 64, place // 64
            row, column = corner[0] + inner_row, corner[1] + inner_column
            if row < rows and column < columns:
                offset = Int64(tile.item) * batch_step + Int64(row) * row_step + Int64(column) * column_step
                cute.make_tensor(pointer + offset, cute.make_layout((1,)))[0] = buffer[inner_row, inner_column]

    def place(self, operands):
        """The pointer to the result, and its strides."""
        if self.number == 0:
            return operands.d_pointer, operands.d_row, operands.d_column, operands.d_batch
        more = operands.more
        return more.pre_pointer, more.pre_row, more.pre_column, more.pre_batch

    def mma(self):
        """An MMA as wide as a sub-tile: a thread's registers are in the order of the kernel's own."""
        k_major = OperandMajorMode.K
        return hopper_helpers.make_trivial_tiled_mma(
            cutlass.Float16, cutlass.Float16, k_major, k_major, Float32, (1, 1, 1), (64, self.columns)
        )

    def registers(self, thread):
        """The (row, column) in a sub-tile of each of this thread's elements."""
        return self.mma().get_slice(thread).partition_C(cute.make_identity_tensor((64, self.columns)))

    def copier(self, thread):
        """The copy of a sub-tile's accumulators into a buffer (stmatrix for 16 bits, else pairs of elements), and this
        thread's part of it."""
        if self.out.width == 16:
            matrices = 2 if self.columns % 16 else 4
            operation = warp.StMatrix8x8x16bOp(num_matrices=matrices, transpose=self.by_columns)
            copy = cute.make_copy_atom(operation, self.out)
        else:
            copy = cute.make_copy_atom(CopyUniversalOp(), self.out, num_bits_per_copy=2 * self.out.width)
        return copy, cute.make_tiled_copy_C(copy, self.mma()).get_slice(thread)


class EitherStore(SubTileStore):
    """Stores rows, or columns where the parameter ``by_columns`` says so (``TermsSpec.either``). Both are seen in the
    same buffers; ``to.targets`` are those of the rows and of the columns."""

    def __init__(self, out, columns: int, in_flight: int, *, by_tma: bool, in_place: bool) -> None:
        more = {"by_tma": by_tma, "in_place": in_place}
        super().__init__(0, out, columns, in_flight, **more)
        self.of_columns = SubTileStore(0, out, columns, in_flight, by_columns=True, **more)

    @cute.jit
    def store(self, finished, corner, tile: Tile, to: Outlet, stored: Int32):
        to_columns = to._replace(targets=to.targets[1:])
        if to.by_columns == 0:
            SubTileStore.store(self, finished, corner, tile, to, stored)
        else:
            self.of_columns.store(finished, corner, tile, to_columns, stored)
        return stored + 1


def shared(kind, address, count: int):
    """``count`` elements of shared memory, which lie at an address that is a multiple of their bytes."""
    pointer = cute.make_ptr(kind, address, cute.AddressSpace.smem, assumed_align=count * kind.width // 8)
    return cute.make_tensor(pointer, cute.make_layout((count,)))
