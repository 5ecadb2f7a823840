"""Elements of C, loaded before the accumulators that they are added to are there.

Their latency was a quarter of the time of a tile with K of 2048. So all of a tile are loaded before its last
``C_AHEAD`` k-tiles, or, where that would delay others or the registers do not suffice, those of a sub-tile while the
one before is stored. Where vectors of 8 can be loaded, four lanes have those of 16 rows and columns, and exchange them
when they are there; of a C whose columns are contiguous, a warp turns 8 rows of 8 columns (``movmatrix``).
"""

from __future__ import annotations

from collections.abc import Callable

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from .policy import MAX_ACCUMULATORS_OF_MORE, MAX_FETCHED_ACCUMULATORS, MatmulPolicy
from .scheduler import Tile
from .store import Outlet
from .terms import TermsSpec

C_AHEAD = 8  # k-tiles
QUAD = 4  # lanes that have the same rows of accumulators, two columns of 8 each


class CLoads:
    """The loads of one configuration, of whose tiles a warpgroup has ``sub_tiles`` of 64 rows and ``columns``.
    ``corner(index, tile, to)`` is where one begins, ``registers(thread)`` the places in it of a thread's accumulators.

    ``early``: elements are loaded before they are needed. ``ahead``: all of a tile, beside its multiplications; in
    "pingpong" they would delay those of the other warpgroup. ``piecewise``: a sub-tile at a time."""

    def __init__(
        self,
        config: MatmulPolicy,
        terms: TermsSpec,
        sub_tiles: int,
        columns: int,
        corner: Callable,
        registers: Callable,
    ) -> None:
        self.terms, self.sub_tiles, self.corner, self.registers = terms, sub_tiles, corner, registers
        self.words = columns // 4  # of a thread for a sub-tile
        fits = config.accumulators <= MAX_ACCUMULATORS_OF_MORE and not (config.promoted or config.own)
        self.early = terms.together > 0 and config.splits == 1 and fits
        cooperative = config.schedule == "cooperative"
        self.ahead = self.early and cooperative and config.accumulators <= MAX_FETCHED_ACCUMULATORS
        self.piecewise = self.early and not self.ahead

    def load_ahead(self, tile: Tile, to: Outlet):
        """Load the elements for a tile, if that is done ahead; else None."""
        return self.load(0, self.sub_tiles, tile, to) if self.ahead else None

    def begin(self, words, tile: Tile, to: Outlet) -> Outlet:
        """With the elements that ``load_ahead`` has loaded, or those of the first sub-tile."""
        if not self.early:
            return to
        return to._replace(fetched=self.load(0, 1, tile, to) if words is None else words)

    @cute.jit
    def load(self, first: cutlass.Constexpr, count: cutlass.Constexpr, tile: Tile, to: Outlet):
        """Load elements for so many sub-tiles, two to a word; 0 outside the result. A thread has two rows, 8
        apart, and in each of them two of every 8 columns; what it loads, others may need (see ``of``)."""
        words = cute.make_rmem_tensor((count * self.words,), Int32)
        load = self.load_by_columns if self.terms.c_by_columns else self.load_by_rows
        for index in cutlass.range_constexpr(count):
            load(words, index * self.words, self.corner(first + index, tile, to), tile, to)
        return words

    def address(self, row, column, tile: Tile, operands):
        """The address of an element of C."""
        place = Int64(tile.item) * operands.c_batch + Int64(row) * operands.c_row + Int64(column) * operands.c_column
        return (operands.c + place).toint()

    @cute.jit
    def load_by_rows(self, words, begin: cutlass.Constexpr, corner, tile: Tile, to: Outlet):
        """A thread loads what it needs, or 8 columns of one of its rows."""
        vectors = self.terms.together == 8
        row_of, column_of = self.registers(to.thread)[0]
        for half in cutlass.range_constexpr(1 if vectors else 2):
            row, column = corner[0] + row_of + 8 * half, corner[1] + column_of
            if cutlass.const_expr(vectors):
                lane = column_of // 2
                row, column = corner[0] + row_of + 8 * (lane % 2), corner[1] + 8 * (lane // 2)
            address, left = self.address(row, column, tile, to.operands), Int32(0)
            if row < to.shape[0]:
                left = to.shape[1] - column  # columns from this one on
            for at in cutlass.range_constexpr(half, self.words, QUAD if vectors else 2):
                place = 4 * (at - half)
                found = words_within(QUAD if vectors else 1, address + 2 * place, place, left)
                for i in cutlass.range_constexpr(len(found)):
                    words[begin + at + i] = found[i]

    @cute.jit
    def load_by_columns(self, words, begin: cutlass.Constexpr, corner, tile: Tile, to: Outlet):
        """A thread loads two rows of every eighth column, where others have two columns of a row."""
        row_of, column_of = self.registers(to.thread)[0]
        row, column = corner[0] + row_of // 8 * 8 + column_of, corner[1] + row_of % 8
        address, step = self.address(row, column, tile, to.operands), Int64(to.operands.c_column) * 16
        for half in cutlass.range_constexpr(2):
            left = Int32(0)
            if row + 8 * half < to.shape[0]:
                left = to.shape[1] - column
            for at in cutlass.range_constexpr(half, self.words, 2):
                group = (at - half) // 2
                words[begin + at] = words_within(1, address + step * group + 16 * half, 8 * group, left)[0]

    def of(self, index: int, to: Outlet):
        """The elements of a sub-tile that have been loaded, as words for this thread's accumulators; None if it
        has to load them."""
        if to.fetched is None:
            return None
        at = index * self.words if self.ahead else 0
        words = cute.make_tensor(to.fetched.iterator + at, cute.make_layout((self.words,)))
        for first in range(0, self.words, QUAD):
            if self.terms.c_by_columns:
                for i in range(first, first + QUAD):
                    words[i] = transposed(words[i])
            elif self.terms.together == 8:
                exchange(words, first, to.thread)
        return words


def words_within(count: int, address, place: int, left) -> tuple:
    """One word, or four, of an address; 0 unless ``place`` is less than ``left``."""
    found = [f"{{$w{i}}}" for i in range(count)]
    kind, to = (".v4", f"{{{', '.join(found)}}}") if count > 1 else ("", found[0])
    words = cute.arch.inline_ptx(
        f"{{ .reg .pred inside; setp.lt.s32 inside, {place}, {{$r1}}; "
        f"{' '.join(f'mov.b32 {word}, 0;' for word in found)} @inside ld.global{kind}.b32 {to}, [{{$r0}}]; }}",
        write_only_types=[Int32] * count,
        read_only_args=[address, left],
    )
    return words if count > 1 else (words,)


def transposed(word):
    """A word of 8 rows of 8 elements of 16 bits, two in each lane, becomes one of its transpose."""
    return cute.arch.inline_ptx(
        "movmatrix.sync.aligned.m8n8.trans.b16 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[word]
    )


def exchange(words, first: int, thread) -> None:
    """Four words of each of four lanes: what lane i has as word j becomes word i of lane j. Two steps."""
    for step in (1, 2):  # lanes, and words, that are so far apart
        upper = (thread & step) != 0
        for low in (first + i for i in range(QUAD) if i & step == 0):
            given = cutlass.select_(upper, words[low], words[low + step])
            taken = Int32(cute.arch.shuffle_sync_bfly(given, offset=step))
            words[low], words[low + step] = (
                cutlass.select_(upper, taken, words[low]),
                cutlass.select_(upper, words[low + step], taken),
            )
