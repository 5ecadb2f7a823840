"""What happens to a tile after its last multiplication: ``activation(alpha * scale_a * scale_b * A B + beta * C + bias)``, converted, stored.

A consumer warpgroup takes 64 rows and some columns of its accumulators at a time, leaves the finished elements in a slab of swizzled
shared memory, and has TMA store the slab. Each warpgroup has two slabs and a named barrier of its own and waits for nobody else: while
TMA reads one slab the other is filled, and the last one of a tile is stored while the next tile is multiplied.

Where the registers allow it a cooperative block does more of this beside the next tile's multiplications (``MatmulPolicy.deferred``): it keeps the
finished elements, which take as many registers as their accumulators or half as many, and stores a slab after each of the next tile's first k-tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8
from cutlass.cute.nvgpu import CopyUniversalOp, OperandMajorMode, cpasync, warp
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from .convert import converted
from .policy import CONSUMERS, SLABS, WARPGROUP, MatmulPolicy


class Operands(NamedTuple):
    """The kernel arguments of the epilogue. Strides are Int64, in elements; what a variant lacks is not read.

    ``d`` is where the result goes when TMA cannot store it; ``bias`` has an element a row or a column of the result,
    the scales one in all, or one a row (A) and a column (B)."""

    alpha: Any
    beta: Any
    c: Any
    c_row: Any
    c_column: Any
    c_batch: Any
    bias: Any
    d: Any
    d_row: Any
    d_column: Any
    d_batch: Any
    scale_a: Any
    scale_b: Any


@dataclass(frozen=True)
class Terms:
    """Which terms the epilogue has: ``bias`` is "", "row" (an element for each row) or "column"; ``activation`` maps a traced float32
    to a float32; ``by_tma`` says whether TMA can store the result: base, strides and the ends of rows lie on 16-byte boundaries, as TMA writes
    16 bytes at a time; the scales are "", "one" or "each"."""

    scaled: bool = False
    with_c: bool = False
    bias: str = ""
    activation: Callable | None = None
    by_tma: bool = True
    scale_a: str = ""
    scale_b: str = ""


class Outlet(NamedTuple):
    """Where a consumer warpgroup stores: the TMA store and the (M, N, L) tensor of its coordinates, the slabs of the block, the operands; and
    which warpgroup and thread of it this is."""

    atom: Any
    result: Any
    slabs: Any
    operands: Any
    group: Any
    thread: Any


class Epilogue:
    """The device side for one configuration, output type and accumulator layout. A warpgroup's part of a tile is ``parts`` slabs, counted
    row by row. A tile is (m, n, item)."""

    def __init__(self, config: MatmulPolicy, out, terms: Terms) -> None:
        self.config, self.terms = config, terms
        self.result, self.out = (
            out,
            Uint8 if out.width == 8 else out,
        )  # 8 bits are moved as bits: the DSL has no single float8
        self.columns = config.slab_columns(out.width // 8)
        self.across = config.tile[1] // self.columns
        self.parts = config.rows // 64 * self.across
        self.words = 64 * self.columns // WARPGROUP * out.width // 32  # of a thread's part of a slab

    def slab_layout(self):
        """(64, columns, all slabs of the block), row-major and swizzled."""
        return hopper_helpers.make_smem_layout_epi(
            self.out, LayoutEnum.ROW_MAJOR, (64, self.columns), CONSUMERS * SLABS
        )

    @cute.jit
    def store_tile(self, accumulators, tile, to: Outlet, stored: Int32):
        """Store this warpgroup's part of a tile. ``stored`` counts the warpgroup's slabs so far; its new value is returned."""
        for part in cutlass.range_constexpr(self.parts):
            row, column = self.corner(part, tile, to)
            if row < to.result.shape[0] and column < to.result.shape[1]:  # else the slab lies outside the result
                stored = self.store_slab(
                    self.finished(accumulators, part, row, column, tile, to), row, column, tile, to, stored
                )
        return stored

    @cute.jit
    def hold(self, accumulators, held, tile, to: Outlet):
        """Keep the finished elements of this warpgroup's part of a tile in ``held``, (parts * words,) of 32 bits."""
        for part in cutlass.range_constexpr(self.parts):
            row, column = self.corner(part, tile, to)
            if row < to.result.shape[0] and column < to.result.shape[1]:
                words = cute.recast_tensor(self.finished(accumulators, part, row, column, tile, to), Int32)
                for i in cutlass.range_constexpr(self.words):
                    held[part * self.words + i] = words[i]

    @cute.jit
    def store_held(self, held, part: cutlass.Constexpr, tile, to: Outlet, stored: Int32):
        """Store one of the slabs of the tile that was held."""
        row, column = self.corner(part, tile, to)
        if row < to.result.shape[0] and column < to.result.shape[1]:
            finished = cute.make_tensor(
                cute.recast_ptr(held.iterator + part * self.words, dtype=self.out),
                cute.make_layout(self.registers(to).shape),
            )
            stored = self.store_slab(finished, row, column, tile, to, stored)
        return stored

    def corner(self, part: int, tile, to: Outlet):
        """The (row, column) of the result where a slab begins."""
        half = to.group if self.config.schedule == "cooperative" else 0
        return tile[0] * self.config.tile[0] + half * self.config.rows + part // self.across * 64, tile[
            1
        ] * self.config.tile[1] + part % self.across * self.columns

    def finished(self, accumulators, part: int, row, column, tile, to: Outlet):
        """The elements of a slab, for the accumulators of this thread."""
        where = self.registers(to)
        count = cute.size(where)
        values = self.finish(
            [accumulators[part * count + i] for i in range(count)], where, row, column, tile[2], to.operands, to.result
        )
        return converted(values, where.shape, self.result)

    @cute.jit
    def store_slab(self, finished, row, column, tile, to: Outlet, stored: Int32):
        """Store the slab at (row, column) by way of shared memory.

        The named barrier 1 + group has the warpgroup's 128 threads. It is passed once a slab, after everybody has filled it and after the slab before
        has been read: so it says both that this slab is whole and that the other may be filled again.
        """
        thread, shape = to.thread, (64, self.columns)
        slab = to.group * SLABS + stored % SLABS
        copy, copier = self.copier(thread)
        cute.copy(copy, copier.retile(finished), copier.partition_D(to.slabs[None, None, slab]))
        if cutlass.const_expr(self.terms.by_tma):
            cute.arch.fence_proxy("async.shared", space="cta")  # TMA reads what these generic writes left
            if thread < 32:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
            cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
            if thread < 32:
                if cutlass.const_expr(self.terms.with_c):
                    cute.arch.fence_proxy(
                        "async.global"
                    )  # TMA may overwrite the C that all have read (by all, 2 to 11 % slower)
                places = cute.local_tile(to.result, shape, (None, None, tile[2]))
                source, target = cpasync.tma_partition(
                    to.atom, 0, cute.make_layout(1), cute.group_modes(to.slabs, 0, 2), cute.group_modes(places, 0, 2)
                )
                cute.copy(to.atom, source[None, slab], target[None, row // 64, column // self.columns])
                cute.arch.cp_async_bulk_commit_group()
        else:
            cute.arch.barrier(barrier_id=1 + to.group, number_of_threads=WARPGROUP)
            self.store_plainly(to.slabs[None, None, slab], row, column, tile, to)
        return stored + 1

    @cute.jit
    def store_plainly(self, slab, row_block, column_block, tile, to: Outlet):
        """Store a slab element by element, neighbours by neighbouring threads, to a result of any strides."""
        operands, result = to.operands, to.result
        by_rows = operands.d_row == 1
        for i in cutlass.range(64 * self.columns // WARPGROUP, unroll=4):
            place = i * WARPGROUP + to.thread
            inner_row, inner_column = place // self.columns, place % self.columns
            if by_rows:
                inner_row, inner_column = place % 64, place // 64
            row, column = row_block + inner_row, column_block + inner_column
            if row < result.shape[0] and column < result.shape[1]:
                offset = (
                    Int64(tile[2]) * operands.d_batch + Int64(row) * operands.d_row + Int64(column) * operands.d_column
                )
                cute.make_tensor(operands.d + offset, cute.make_layout((1,)))[0] = slab[inner_row, inner_column]

    @cute.jit
    def drain(self, thread):
        """Before a block ends, TMA must have read its slabs."""
        if thread < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    def mma(self):
        """An MMA as wide as a slab: a thread's registers are in the order of the kernel's own."""
        return hopper_helpers.make_trivial_tiled_mma(
            cutlass.Float16,
            cutlass.Float16,
            OperandMajorMode.K,
            OperandMajorMode.K,
            Float32,
            (1, 1, 1),
            (64, self.columns),
        )

    def registers(self, to: Outlet):
        """The (row, column) in a slab of each of this thread's elements."""
        return self.mma().get_slice(to.thread).partition_C(cute.make_identity_tensor((64, self.columns)))

    def copier(self, thread):
        """The copy of a slab's accumulators into it (stmatrix for 16 bits, else pairs of elements), and this thread's part of that."""
        if self.out.width == 16:
            copy = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4, transpose=False), self.out)
        else:
            copy = cute.make_copy_atom(CopyUniversalOp(), self.out, num_bits_per_copy=2 * self.out.width)
        return copy, cute.make_tiled_copy_C(copy, self.mma()).get_slice(thread)

    def finish(self, values, where, first_row, first_column, item, operands, result):
        """The elements for the accumulators of a slab, in float32, or as they are where there is nothing to do. ``where`` are their places in the slab, which begins at (first_row,
        first_column). Terms outside the result are read at its edge, which
        lies in the same slab, so C may be the result itself: what they give is not stored."""
        rows, columns = result.shape[0], result.shape[1]
        if self.terms == Terms(by_tma=self.terms.by_tma) and self.result.is_float == values[0].dtype.is_float:
            return values
        loaded = {}  # what neighbours share: a thread's registers are 2 columns by 2 rows by groups of 8 columns
        for i in range(len(values)):
            row = cutlass.min(first_row + where[i][0], rows - 1)
            column = cutlass.min(first_column + where[i][1], columns - 1)
            value = values[i].to(Float32)
            by_row, by_column = i // 2 % 2, (i // 4, i % 2)
            if self.terms.scale_a:
                value = value * kept(
                    loaded, ("scale_a", by_row), operands.scale_a, row if self.terms.scale_a == "each" else 0
                )
            if self.terms.scale_b:
                value = value * kept(
                    loaded, ("scale_b", by_column), operands.scale_b, column if self.terms.scale_b == "each" else 0
                )
            if self.terms.scaled:
                value = value * operands.alpha
            if cutlass.const_expr(self.terms.with_c):
                place = Int64(item) * operands.c_batch + Int64(row) * operands.c_row + Int64(column) * operands.c_column
                value = value + operands.beta * element(operands.c, place)
            if self.terms.bias == "row":
                value = value + kept(loaded, ("bias", by_row), operands.bias, row)
            elif self.terms.bias:
                value = value + kept(loaded, ("bias", by_column), operands.bias, column)
            values[i] = value if self.terms.activation is None else self.terms.activation(value)
        return values


def kept(loaded: dict, key, pointer, place):
    """The element, loaded the first time its key is asked for."""
    if key not in loaded:
        loaded[key] = element(pointer, place)
    return loaded[key]


def element(pointer, place):
    """One element as float32."""
    return cute.make_tensor(pointer + place, cute.make_layout((1,)))[0].to(Float32)
