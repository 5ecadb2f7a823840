"""What happens to a tile after its last multiplication: ``activation(alpha * scale_a * scale_b * A B + beta * C +
bias)``, converted, stored.

A consumer warpgroup's part of a tile is stored in sub-tiles, 64 rows and some columns of its accumulators at a time.
The finished elements of a sub-tile are written to a buffer of swizzled shared memory, which TMA then stores. Each
warpgroup has two buffers and a named barrier of its own and waits for nobody else. While TMA reads one buffer the other
is filled, and the last sub-tile of a tile is stored while the next tile is multiplied.

A deferred epilogue (``DeferredStore``) keeps the finished elements of a tile, which take as many registers
as their accumulators or half as many, and stores the sub-tiles later.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8
from cutlass.cute.nvgpu import CopyUniversalOp, OperandMajorMode, cpasync, warp
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from .activation import activation_of
from .convert import converted
from .policy import CONSUMERS, SUB_TILE_BUFFERS, WARPGROUP, MatmulPolicy
from .scheduler import Place, Tile
from .terms import TermsSpec


class Outlet(namedtuple("Outlet", "atom result buffers operands exchange registers group half thread")):
    """What a consumer warpgroup stores with: the TMA store and the (M, N, L) tensor of its coordinates, the buffers of
    the block, the operands; what its way of finishing a tile allocated; and which warpgroup, half of a
    tile and thread this is."""


class Progress(namedtuple("Progress", "stored tile")):
    """What a warpgroup carries from tile to tile: how many sub-tiles it has stored, and the last tile that it has
    multiplied."""


class Epilogue:
    """The device side for one configuration, output type and accumulator layout. A warpgroup's part of a tile is
    ``sub_tiles`` sub-tiles, counted row by row."""

    def __init__(self, config: MatmulPolicy, out, terms: TermsSpec) -> None:
        self.config, self.terms, self.activation = config, terms, activation_of(terms.activation)
        self.result = out
        self.out = Uint8 if out.width == 8 else out  # 8 bits are moved as bits: the DSL has no single float8
        self.columns = config.sub_tile_columns(out.width // 8)
        self.across = config.tile[1] // self.columns
        self.sub_tiles = config.rows // 64 * self.across
        self.words = 64 * self.columns // WARPGROUP * out.width // 32  # of a thread's part of a sub-tile

    def buffer_layout(self):
        """(64, columns, all buffers of the block), row-major and swizzled."""
        buffers = CONSUMERS * SUB_TILE_BUFFERS
        return hopper_helpers.make_smem_layout_epi(self.out, LayoutEnum.ROW_MAJOR, (64, self.columns), buffers)

    @cute.jit
    def store_tile(self, accumulators, tile: Tile, to: Outlet, stored: Int32):
        """Store this warpgroup's part of a tile. ``stored`` counts the warpgroup's sub-tiles so far; its new value is
        returned."""
        for index in cutlass.range_constexpr(self.sub_tiles):
            row, column = self.corner(index, tile, to)
            if row < to.result.shape[0] and column < to.result.shape[1]:  # else the sub-tile lies outside the result
                finished = self.finished(accumulators, index, (row, column), tile, to)
                stored = self.store(finished, (row, column), tile, to, stored)
        return stored

    @cute.jit
    def keep(self, accumulators, tile: Tile, to: Outlet):
        """Keep the finished elements of this warpgroup's part of a tile in ``to.registers``, (sub_tiles * words,) of 32
        bits."""
        for index in cutlass.range_constexpr(self.sub_tiles):
            row, column = self.corner(index, tile, to)
            if row < to.result.shape[0] and column < to.result.shape[1]:
                words = cute.recast_tensor(self.finished(accumulators, index, (row, column), tile, to), Int32)
                for i in cutlass.range_constexpr(self.words):
                    to.registers[index * self.words + i] = words[i]

    @cute.jit
    def store_kept(self, index: cutlass.Constexpr, tile: Tile, to: Outlet, stored: Int32):
        """Store one of the sub-tiles that ``keep`` kept."""
        row, column = self.corner(index, tile, to)
        if row < to.result.shape[0] and column < to.result.shape[1]:
            kept = cute.recast_ptr(to.registers.iterator + index * self.words, dtype=self.out)
            finished = cute.make_tensor(kept, cute.make_layout(self.registers(to).shape))
            stored = self.store(finished, (row, column), tile, to, stored)
        return stored

    def corner(self, index: int, tile: Tile, to: Outlet):
        """The (row, column) of the result where a sub-tile begins."""
        tile_m, tile_n = self.config.tile
        row = tile.m * tile_m + to.half * self.config.rows + index // self.across * 64
        return row, tile.n * tile_n + index % self.across * self.columns

    def finished(self, accumulators, index: int, corner, tile: Tile, to: Outlet):
        """The elements of a sub-tile, for the accumulators of this thread."""
        where = self.registers(to)
        count = cute.size(where)
        values = [accumulators[index * count + i] for i in range(count)]
        return converted(self.apply_terms(values, where, corner, tile, to), where.shape, self.result)

    @cute.jit
    def store(self, finished, corner, tile: Tile, to: Outlet, stored: Int32):
        """Store a sub-tile at ``corner`` by way of shared memory.

        The named barrier 1 + group has the warpgroup's 128 threads. It is passed once a sub-tile: after all have filled
        its buffer, and after TMA has read the buffer before. So it says both that this buffer is filled and that the
        other may be filled again.
        """
        thread, shape = to.thread, (64, self.columns)
        buffer = to.group * SUB_TILE_BUFFERS + stored % SUB_TILE_BUFFERS
        copy, copier = self.copier(thread)
        cute.copy(copy, copier.retile(finished), copier.partition_D(to.buffers[None, None, buffer]))
        if cutlass.const_expr(self.terms.by_tma):
            cute.arch.fence_proxy("async.shared", space="cta")  # TMA reads what these generic writes wrote
            if thread < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
            if thread < 32:
                if cutlass.const_expr(self.terms.c is not None):
                    # TMA may overwrite the C that all have read (by all threads, 2 to 11 % slower)
                    cute.arch.fence_proxy("async.global")
                places = cute.local_tile(to.result, shape, (None, None, tile.item))
                source, target = cpasync.tma_partition(
                    to.atom, 0, cute.make_layout(1), cute.group_modes(to.buffers, 0, 2), cute.group_modes(places, 0, 2)
                )
                cute.copy(to.atom, source[None, buffer], target[None, corner[0] // 64, corner[1] // self.columns])
                cute.arch.cp_async_bulk_commit_group()
        else:
            cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
            self.store_elements(to.buffers[None, None, buffer], corner, tile, to)
        return stored + 1

    @cute.jit
    def store_elements(self, buffer, corner, tile: Tile, to: Outlet):
        """Store a sub-tile element by element, neighbours by neighbouring threads, to a result of any strides."""
        operands, result = to.operands, to.result
        by_rows = operands.d_row == 1
        for i in cutlass.range(64 * self.columns // WARPGROUP, unroll=4):
            place = i * WARPGROUP + to.thread
            inner_row, inner_column = place // self.columns, place % self.columns
            if by_rows:
                inner_row, inner_column = place % 64, place // 64
            row, column = corner[0] + inner_row, corner[1] + inner_column
            if row < result.shape[0] and column < result.shape[1]:
                offset = (
                    Int64(tile.item) * operands.d_batch
                    + Int64(row) * operands.d_row
                    + Int64(column) * operands.d_column
                )
                cute.make_tensor(operands.d_pointer + offset, cute.make_layout((1,)))[0] = buffer[
                    inner_row, inner_column
                ]

    @cute.jit
    def drain(self, thread):
        """Before a block ends, TMA must have read its buffers."""
        if thread < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    def mma(self):
        """An MMA as wide as a sub-tile: a thread's registers are in the order of the kernel's own."""
        k_major = OperandMajorMode.K
        return hopper_helpers.make_trivial_tiled_mma(
            cutlass.Float16, cutlass.Float16, k_major, k_major, Float32, (1, 1, 1), (64, self.columns)
        )

    def registers(self, to: Outlet):
        """The (row, column) in a sub-tile of each of this thread's elements."""
        return self.mma().get_slice(to.thread).partition_C(cute.make_identity_tensor((64, self.columns)))

    def copier(self, thread):
        """The copy of a sub-tile's accumulators into a buffer (stmatrix for 16 bits, else pairs of elements), and this
        thread's part of it."""
        if self.out.width == 16:
            copy = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4, transpose=False), self.out)
        else:
            copy = cute.make_copy_atom(CopyUniversalOp(), self.out, num_bits_per_copy=2 * self.out.width)
        return copy, cute.make_tiled_copy_C(copy, self.mma()).get_slice(thread)

    def apply_terms(self, values, where, corner, tile: Tile, to: Outlet):
        """The elements for the accumulators of a sub-tile, in float32, or as they are where there is nothing to do.
        ``where`` are their places in the sub-tile. Terms outside the result are read at its edge, and what they give is
        not stored. The edge lies in the same sub-tile, so C may be the result itself."""
        terms, operands, (rows, columns) = self.terms, to.operands, to.result.shape[:2]
        if terms.plain and self.result.is_float == values[0].dtype.is_float:
            return values
        loaded: dict[tuple, Any] = {}  # what neighbours share: a thread has 2 columns by 2 rows by groups of 8 columns

        def term(name: str, shared, place):
            """The element of an operand, loaded once for all elements that share it."""
            if (name, shared) not in loaded:
                loaded[name, shared] = element(getattr(operands, name), place)
            return loaded[name, shared]

        for i in range(len(values)):
            row = cutlass.min(corner[0] + where[i][0], rows - 1)
            column = cutlass.min(corner[1] + where[i][1], columns - 1)
            value = values[i].to(Float32)
            by_row, by_column = i // 2 % 2, (i // 4, i % 2)
            if terms.scale_a:
                value = value * term("scale_a", by_row, row if terms.scale_a == "each" else 0)
            if terms.scale_b:
                value = value * term("scale_b", by_column, column if terms.scale_b == "each" else 0)
            if terms.scaled:
                value = value * operands.alpha
            if terms.c is not None:
                place = (
                    Int64(tile.item) * operands.c_batch
                    + Int64(row) * operands.c_row
                    + Int64(column) * operands.c_column
                )
                value = value + operands.beta * element(operands.c, place)
            if terms.bias:
                value = value + (term("bias", by_row, row) if terms.bias == "row" else term("bias", by_column, column))
            values[i] = value if self.activation is None else self.activation(value)
        return values


def element(pointer, place):
    """One element as float32."""
    return cute.make_tensor(pointer + place, cute.make_layout((1,)))[0].to(Float32)


# --- what becomes of a tile, one class a way of finishing it ----------------------------------------------------------
#
# All have the same interface, those of split-K (see ``split``) too: ``exchange`` allocates the shared memory by which
# warpgroups exchange partial sums, ``registers`` those of a pending tile; ``complete`` takes a multiplied tile;
# ``store_beside`` stores sub-tile ``index`` of the pending tile, for each ``index`` below ``beside``; ``flush`` stores
# what is pending at the end.


class DirectStore:
    """A tile is stored when it is multiplied. In "pingpong" the other warpgroup has the tensor cores then."""

    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue, self.config = epilogue, epilogue.config
        self.beside = 0

    def exchange(self, allocator, split):
        return None

    def registers(self):
        return None

    def complete(self, accumulators, place: Place, progress: Progress, to: Outlet):
        return Progress(self.epilogue.store_tile(accumulators, place.tile, to, progress.stored), place.tile)

    def store_beside(self, index: int, progress: Progress, to: Outlet):
        return progress

    def flush(self, progress: Progress, to: Outlet):
        for index in range(self.beside):
            progress = self.store_beside(index, progress, to)


class DeferredStore(DirectStore):
    """A multiplied tile is kept in registers as finished elements. One of its sub-tiles is stored after each of the
    next tile's first k-tiles, so that a "cooperative" block's tensor cores work meanwhile
    (``MatmulPolicy.deferred``)."""

    def __init__(self, epilogue: Epilogue) -> None:
        super().__init__(epilogue)
        self.beside = epilogue.sub_tiles

    def registers(self):
        return cute.make_rmem_tensor((self.epilogue.sub_tiles * self.epilogue.words,), Int32)

    def complete(self, accumulators, place: Place, progress: Progress, to: Outlet):
        self.epilogue.keep(accumulators, place.tile, to)
        return Progress(progress.stored, place.tile)

    def store_beside(self, index: int, progress: Progress, to: Outlet):
        return Progress(self.epilogue.store_kept(index, progress.tile, to, progress.stored), progress.tile)
