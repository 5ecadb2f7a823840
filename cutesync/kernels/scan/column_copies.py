"""How the elements of tiles of columns come to shared memory: each thread copies rows of its own columns, or a warp
copies vectors for its threads. Elements of a row that do not fill a word of 32 bits are loaded and stored.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.experimental import primitives

from ...monoid import choose
from ...warp import LANES
from ..arrays import pointers_of
from ..hardware import VECTOR_BYTES
from .base import Arguments
from .columns import ThreadColumns

WORD_BYTES = 4  # the least that cp.async copies
LOADS, MAX_LOADS = 16, 32  # rows of a thread that are loaded at once if they are not copied, or if groups are fixed

# Shared memory: the ``stages`` with the elements of each input; the states of all threads, ``partials`` of the rows of
# a tile and ``found`` by the look-back; and ``words``: the launch's tag, and the block's tiles in turn.
Shared = namedtuple("Shared", "stages partials found words")
TAG, NUMBERS = 0, 1

# A thread of a block: its rank, its row group, its lane in it, and the rows of a group.
Member = namedtuple("Member", "thread group lane rows")

# A thread's part of a tile: the tile's number in its outer slice; the first of the thread's columns, and whether they
# exist; how many of its rows exist. ``row`` is the first that it loads, of the ``count`` of the tile; ``position`` is
# that row's along the axis, in scan order. ``place`` is where its first element lies, and ``step`` from row to row;
# ``target`` and ``target_step`` are the same in the outputs.
Part = namedtuple("Part", "tile outer column inside left row count position place step target target_step")

# The vectors of a group that a lane copies: the first one's column, its place in a row of shared memory, and the rows.
Copies = namedtuple("Copies", "column group place first step")


class ColumnCopies(ThreadColumns):
    """What a kernel of tiles of columns has for its copies; it has ``lanes`` threads side by side, with ``width``
    columns each, and ``loads`` rows of a thread at once. ``stage`` elements of an input are a stage, ``row`` a row of
    all threads in it.

    Where rows begin ``skew`` elements behind boundaries of vectors, these hold the row of a group and what lies beside
    it: one more vector for each group."""

    lanes: int
    loads: int
    stage: int
    row: int
    skew = 0
    height: int
    fixed: bool
    vectors: bool

    def looked_at(self, me: Member, part: Any):
        """How many of a thread's rows are looked at: those that exist, or of fixed groups all."""
        return self.height if self.fixed else self.present(me, part)

    def present(self, me: Member, part: Any):
        """How many of a thread's rows exist."""
        return cutlass.min(cutlass.max(part.count - me.group * me.rows, 0), me.rows)

    # A thread's rows in a stage: number u of all threads, then number u + 1

    def held(self, shared, k: int, stage, u, me: Member):
        """Where a thread's row ``u`` of input ``k`` lies in shared memory."""
        thread = me.thread
        if self.scan.backward and self.vectors:
            thread += self.lanes - 1 - 2 * me.lane
        place = thread * self.width
        if self.skew:
            place += me.group * (VECTOR_BYTES // self.scan.monoid.sources[0].size) + self.skew
        return shared.stages[k] + (stage * self.stage + u * self.row + place)

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage):
        """Start the copies of a thread's rows into a stage, or a warp's."""
        if cutlass.const_expr(self.vectors):
            self.load_vectors(shared, a, me, part, stage)
        else:
            self.load_rows(shared, a, me, part, stage)
        cute.arch.cp_async_commit_group()

    @cute.jit
    def load_vectors(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage):
        """A lane has a vector of the elements that the warp has of each row, or of some rows. Of columns that do not
        exist, others are copied. Where columns run backwards, so do those of a tile in shared memory."""
        (dtype,) = self.scan.monoid.sources
        items, row = VECTOR_BYTES // dtype.size, self.lanes * self.width  # elements of a vector, and of a tile's row
        across, lane = LANES * self.width // items, me.thread % LANES
        first, place = lane // across, (me.thread - lane) * self.width + lane % across * items
        group, inside = place // row, place % row
        begin = part.column - me.lane * self.width  # the tile's first column
        if cutlass.const_expr(self.scan.backward):
            column = -cutlass.min(begin + (row - 1 - inside), Int32(a.inner) - 1)
            self.copy_vectors(shared, a, me, part, stage, Copies(column, group, place, first, LANES // across))
        elif cutlass.const_expr(self.skew == 0):
            column = cutlass.min(begin + inside, Int32(a.inner) - items)
            self.copy_vectors(shared, a, me, part, stage, Copies(column, group, place, first, LANES // across))
        else:
            place += group * items
            self.copy_vectors(shared, a, me, part, stage, Copies(begin + inside, group, place, first, LANES // across))
            place = me.group * (row + items) + row
            self.copy_vectors(shared, a, me, part, stage, Copies(begin + row, me.group, place, me.lane, self.lanes))

    @cute.jit
    def copy_vectors(
        self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage, of: cutlass.Constexpr
    ):
        """Copy a lane's vectors of a group. Of one that begins before the end of a row or behind it, what belongs to
        the row."""
        column, size = of.column, None
        if cutlass.const_expr(self.skew > 0):
            column, size = self.of_row(of.column, a)
        position = cutlass.min(of.group * me.rows, part.count - 1)
        own = self.column_in(cutlass.min(part.column, Int32(a.inner) - self.width))
        at = a.x + (part.place + (column - own))
        at += Int64(position - part.row) * part.step
        target = shared.stages[0] + (stage * self.stage + of.place)
        for u in cutlass.range(of.first, me.rows, of.step, unroll=4):
            source = at + Int64(cutlass.min(u, part.count - 1 - position)) * part.step
            held = target + u * self.row
            primitives.cp_async_shared_global(
                self.of_bytes(held), self.of_bytes(source), VECTOR_BYTES, "cg", cp_size=size
            )

    def of_row(self, column, a: Arguments):
        """Where the vector with a column begins, in columns, and how many bytes of it belong to the row; if the column
        does not exist, of the vector with the last one."""
        end = Int32(a.inner)
        rest = self.skew * self.scan.monoid.sources[0].size
        return cutlass.min(column, end) - self.skew, choose(column < end, Int32(VECTOR_BYTES), Int32(rest))

    def of_bytes(self, pointer):
        """A pointer to a vector."""
        return cute.make_ptr(Uint8, pointer.toint(), pointer.memspace, assumed_align=VECTOR_BYTES)

    @cute.jit
    def load_rows(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Part, stage):
        at, existing = part.place, self.looked_at(me, part)
        whole = 0 if self.fixed else existing // self.loads * self.loads
        if cutlass.const_expr(not self.fixed):
            for first in cutlass.range(0, whole, self.loads, unroll=1):
                self.load_some(shared, a.x + at, me, stage, first, [part.step] * (self.loads - 1))
                at += self.loads * part.step
        for first in cutlass.range(whole, existing, self.loads, unroll=1):
            left = part.count - part.row - first
            steps = [choose(u < left, part.step, Int64(0)) for u in range(1, self.loads + 1)]
            self.load_some(shared, a.x + at, me, stage, first, steps[:-1])
            for step in steps:
                at += step

    def load_some(self, shared, at, me: Member, stage, first, steps: list) -> None:
        """Load some rows of a thread, which lie ``steps`` apart, from number ``first`` on."""
        loaded = self.load_row(shared, at, stage, first, me)
        for u, step in enumerate(steps, 1):
            at += step
            loaded += self.load_row(shared, at, stage, first + u, me)
        for row, target in loaded:
            cute.autovec_copy(row, target)

    def load_row(self, shared, at, stage, u, me: Member) -> list:
        """Copy row ``u`` of a thread, or load what cannot be copied: ``(elements, target)`` of each such input."""
        loaded = []
        for k, (source, dtype) in enumerate(zip(pointers_of(at), self.scan.monoid.sources)):
            target, size = self.held(shared, k, stage, u, me), self.width * dtype.size
            if size % WORD_BYTES == 0:
                primitives.cp_async_shared_global(target, source, size, "ca")
            else:
                row = cute.make_rmem_tensor((self.width,), dtype.cutlass)
                cute.autovec_copy(self.vector(source, dtype), row)
                loaded.append((row, self.vector(target, dtype)))
        return loaded
