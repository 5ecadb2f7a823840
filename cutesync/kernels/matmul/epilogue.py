"""What happens to a tile after its last multiplication: ``activation(alpha * scale_a * scale_b * A B + beta * C +
bias)``, converted, stored.

A consumer warpgroup's part of a tile is stored in sub-tiles, 64 rows and some columns of its accumulators at a time
(see ``store``).

An activation of two values takes the element of C as the second; C is then not added (``TermsSpec.gated``). A call may
have two results more: what was before the activation, in a type of its own, and the largest magnitude of what is after
it, before it is rounded. Each thread keeps the latter in a register. At the end of the kernel each warp finds that of
its lanes and counts it in by an atomic maximum. A maximum does not depend on the order, so it is the same in every run.
The magnitudes are compared as the bits of float32, which are in the same order; NaN is above all.

A deferred epilogue (``DeferredStore``) keeps the finished elements of a tile, which take as many registers
as their accumulators or half as many, and stores the sub-tiles later.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ...dtypes import DType
from ...monoid import bound
from .activation import activation_of
from .c_loads import CLoads
from .convert import converted, loaded
from .policy import WARPGROUP, MatmulPolicy
from .scheduler import Place, Tile
from .store import EitherStore, Outlet, SubTileStore
from .terms import TermsSpec

MAGNITUDE = 0x7FFFFFFF  # the bits of a float32 but its sign


class Progress(namedtuple("Progress", "stored tile")):
    """What a warpgroup carries from tile to tile: how many sub-tiles it has stored, and the last tile that it has
    multiplied."""


class Epilogue:
    """The device side for one configuration, output type and accumulator layout. A warpgroup's part of a tile is
    ``sub_tiles`` sub-tiles, counted row by row. ``stores`` has one for each result."""

    def __init__(self, config: MatmulPolicy, out, terms: TermsSpec) -> None:
        self.config, self.terms, self.activation = config, terms, activation_of(terms.activation)
        self.result = out
        pre = terms.pre.cutlass if terms.pre is not None else None
        self.bytes = max(kind.width for kind in (out, pre) if kind is not None) // 8
        self.columns = config.sub_tile_columns(self.bytes)
        in_place = terms.c is not None and not terms.several
        in_flight = 1 if config.deferred else 2 if config.accumulators * (1 + config.promoted) > 128 else 4
        more = {"by_tma": terms.by_tma, "in_place": in_place}
        self.stores: list[Any] = [
            EitherStore(out, self.columns, in_flight, **more)
            if terms.either
            else SubTileStore(0, out, self.columns, in_flight, by_columns=terms.by_columns, **more)
        ]
        if pre is not None:
            self.stores.append(SubTileStore(1, pre, self.columns, in_flight, by_tma=terms.pre_by_tma))
            for store, other in zip(self.stores, self.stores[::-1]):
                store.share_buffers(other)
        self.widest = max(self.stores, key=lambda store: store.out.width)
        self.across = config.columns // self.columns
        self.sub_tiles = config.rows // 64 * self.across
        self.c = CLoads(config, terms, self.sub_tiles, self.columns, self.corner, self.stores[0].registers)
        self.words = 64 * self.columns // WARPGROUP * out.width // 32  # of a thread's part of a sub-tile

    @cute.jit
    def store_tile(self, accumulators, tile: Tile, to: Outlet, stored: Int32):
        """Store this warpgroup's part of a tile. ``stored`` counts the warpgroup's sub-tiles so far; its new value is
        returned."""
        for index in cutlass.range_constexpr(self.sub_tiles):
            following = to.fetched
            if cutlass.const_expr(self.c.piecewise and index + 1 < self.sub_tiles):
                following = self.c.load(index + 1, 1, tile, to)
            stored = self.store_sub_tile(accumulators, index, tile, to, stored)
            to = to._replace(fetched=following)
        return stored

    @cute.jit
    def store_sub_tile(self, accumulators, index: cutlass.Constexpr, tile: Tile, to: Outlet, stored: Int32):
        """Store one sub-tile of it."""
        row, column = self.corner(index, tile, to)
        if row < to.shape[0] and column < to.shape[1]:  # else the sub-tile lies outside the result
            finished = self.finished(accumulators, index, (row, column), tile, to)
            for number in cutlass.range_constexpr(len(self.stores)):
                stored = self.stores[number].store(finished[number], (row, column), tile, to, stored)
        return stored

    @cute.jit
    def keep(self, accumulators, tile: Tile, to: Outlet):
        """Keep the finished elements of this warpgroup's part of a tile in ``to.registers``, (sub_tiles * words,) of 32
        bits."""
        for index in cutlass.range_constexpr(self.sub_tiles):
            row, column = self.corner(index, tile, to)
            if cutlass.const_expr(self.c.ahead):  # a branch would keep what was kept before in its registers
                self.keep_sub_tile(accumulators, index, (row, column), tile, to)
            else:
                if row < to.shape[0] and column < to.shape[1]:
                    self.keep_sub_tile(accumulators, index, (row, column), tile, to)

    def keep_sub_tile(self, accumulators, index: int, corner, tile: Tile, to: Outlet) -> None:
        words = cute.recast_tensor(self.finished(accumulators, index, corner, tile, to)[0], Int32)
        for i in range(self.words):
            to.registers[index * self.words + i] = words[i]

    @cute.jit
    def store_kept(self, index: cutlass.Constexpr, tile: Tile, to: Outlet, stored: Int32):
        """Store one of the sub-tiles that ``keep`` kept."""
        row, column = self.corner(index, tile, to)
        if row < to.shape[0] and column < to.shape[1]:
            store = self.stores[0]
            kept = cute.recast_ptr(to.registers.iterator + index * self.words, dtype=store.out)
            finished = cute.make_tensor(kept, cute.make_layout(store.registers(to.thread).shape))
            stored = store.store(finished, (row, column), tile, to, stored)
        return stored

    def corner(self, index: int, tile: Tile, to: Outlet):
        """The (row, column) of the result where a sub-tile begins."""
        config = self.config
        row, column = tile.m * config.tile[0], tile.n * config.tile[1]
        if config.across:
            column = column + to.half * config.columns
        else:
            row = row + to.half * config.rows
        return row + index // self.across * 64, column + index % self.across * self.columns

    def finished(self, accumulators, index: int, corner, tile: Tile, to: Outlet):
        """The elements of a sub-tile, for the accumulators of this thread, of each result."""
        where = self.stores[0].registers(to.thread)
        count = cute.size(where)
        values, fetched = [accumulators[index * count + i] for i in range(count)], None
        words = self.c.of(index, to)
        if words is not None and self.terms.c is not None:
            elements = cute.recast_tensor(words, self.terms.c.cutlass)
            fetched = [elements[i].to(Float32) for i in range(count)]
        found = self.apply_terms((values, fetched), where, corner, tile, to)
        return [converted(of, where.shape, store.result) for of, store in zip(found, self.stores)]

    @cute.jit
    def drain(self, to: Outlet):
        """Before a block ends, TMA must have read its buffers, and the largest magnitude of each warp is counted in."""
        if to.thread < 32:
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        if cutlass.const_expr(self.terms.amax):
            largest = cute.arch.warp_redux_sync(to.largest[0], "max")
            if to.thread % 32 == 0:
                cute.arch.atomic_max(to.operands.more.amax, largest, sem="relaxed", scope="gpu")

    def element_of_c(self, c: DType, at: tuple, tile: Tile, operands):
        """An element of C, of this type, as float32."""
        item, row, column = (Int64(i) for i in (tile.item, *at))
        place = item * operands.c_batch + row * operands.c_row + column * operands.c_column
        return loaded(operands.c, place, c) if self.terms.gated else element(operands.c, place)

    def magnitude(self):
        """The register for the largest magnitude that a thread has seen, or None."""
        if not self.terms.amax:
            return None
        largest = cute.make_rmem_tensor((1,), Int32)
        largest[0] = Int32(0)
        return largest

    def apply_terms(self, given: tuple, where, corner, tile: Tile, to: Outlet):
        """For the accumulators of a sub-tile, and its elements of C if they have been fetched: what is after the
        activation, and what is before it, in float32; or the accumulators as they are where there is nothing to do.
        ``where`` are their places in the sub-tile. Terms outside the result are read at its edge, and what they give
        is not stored. The edge lies in the same sub-tile, so C may be the result itself."""
        (values, fetched), terms, operands, (rows, columns) = given, self.terms, to.operands, to.shape[:2]
        if terms.plain and self.result.is_float == values[0].dtype.is_float:
            return values, values
        shared: dict[tuple, Any] = {}  # what neighbours share: a thread has 2 columns by 2 rows by groups of 8 columns
        before = list(values)

        def term(name: str, of, place):
            """The element of an operand, loaded once for all elements that share it."""
            if (name, of) not in shared:
                shared[name, of] = element(getattr(operands, name), place)
            return shared[name, of]

        args = bound(operands.args, terms.args)
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
            gate = []
            if terms.c is not None:
                c = self.element_of_c(terms.c, (row, column), tile, operands) if fetched is None else fetched[i]
                if terms.gated:
                    gate = [c]
                else:
                    value = value + operands.beta * c
            if terms.bias:
                value = value + self.bias_at(term, (by_row, row), (by_column, column), operands)
            before[i] = value
            values[i] = value if self.activation is None else self.activation(value, *gate, *args)
            if terms.amax:
                inside = (corner[0] + where[i][0] < rows) & (corner[1] + where[i][1] < columns)
                bits = values[i].bitcast(Int32) & MAGNITUDE
                to.largest[0] = cutlass.max(to.largest[0], cutlass.select_(inside, bits, Int32(0)))
        return values, before

    def bias_at(self, term, of_row: tuple, of_column: tuple, operands):
        """The bias of a row or of a column, as a parameter says, both given as what shares it and the place: both are
        loaded, one of them from the beginning, and one is chosen."""
        by_rows, none = operands.bias_by_rows > 0, Int32(0)
        places = cutlass.select_(by_rows, of_row[1], none), cutlass.select_(by_rows, none, of_column[1])
        if self.terms.stepped:
            places = tuple(Int64(place) * operands.step[0] for place in places)
        return cutlass.select_(by_rows, term("bias", of_row[0], places[0]), term("bias", of_column[0], places[1]))


def element(pointer, place):
    """One element as float32."""
    return cute.make_tensor(pointer + place, cute.make_layout((1,)))[0].to(Float32)


# --- what becomes of a tile, one class a way of finishing it ----------------------------------------------------------
#
# All have the same interface, those of split-K (see ``split``) too: ``exchange`` gives the shared memory by which
# warpgroups exchange partial sums, allocated or that of the stages, ``registers`` those of a pending tile; ``complete``
# takes a multiplied tile; ``store_beside`` stores sub-tile ``index`` of the pending tile, for each ``index`` below
# ``beside``; ``flush`` stores what is pending at the end.


class DirectStore:
    """A tile is stored when it is multiplied. In "pingpong" the other warpgroup has the tensor cores then."""

    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue, self.config = epilogue, epilogue.config
        self.beside = 0

    def exchange(self, allocator, split, stages):
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
