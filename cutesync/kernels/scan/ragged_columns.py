"""Scan along an axis that is not the last, of elements of one or two bytes whose rows begin anywhere in a word.

The tiles, the look-back and the progress are those of ``column_tiles``; a thread has the columns of one word. What
differs is how words come and go:

    load     a thread copies the aligned word that holds its first column of a row, and the last lane also the word
             behind it; a barrier later a thread joins its columns from two neighbouring words
    store    a lane joins the end of the lane before it and the beginning of its own columns to an aligned word

Where rows run backwards in the input, its words are those of the threads in the opposite order.

Where rows of results begin on words, threads store their own columns instead. Where they do not, the first lane of a
tile has the columns of the last lane of the tile beside it once more, and stores nothing; a lane behind a row's end
stores what its word holds of the row. Elements that share their word with another row are stored one by one.

Operators with word arithmetic (``packed``) combine the columns of a word at once.

Words hold elements of other tiles: the results must not lie in the memory of the elements.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.experimental import primitives

from ...block.reduce import state_bytes
from ...monoid import choose
from ...warp import LANES, Maybe
from ..coordinates import store
from ..words import funnel_shift, funnel_shift_left
from .base import Arguments, Scan, ScanKernel
from .column_copies import WORD_BYTES, Member
from .column_tiles import ColumnTileScan
from .groups import TileGroups
from .packed_monoid import packed_monoid
from .ragged_column_policy import RaggedColumnPolicy

# As ``column_tiles.Part``. ``place`` is where an existing element of the thread's first word lies, with ``rest``
# elements to the row's end, and ``beyond`` elements before one of the next word. ``skew`` is where the first row begins
# in its word, in bytes, and ``skew_step`` what each row adds to it; ``valid`` are the columns that exist from the
# thread's first one on.
Part = namedtuple(
    "Part",
    "tile outer column inside left row count position place step rest beyond skew skew_step valid target target_step",
)


class RaggedColumnScan(ColumnTileScan):
    """The kernel. ``lanes`` is a power of two of up to 32, and threads fill whole warps. With ``aligned_out`` rows of
    results begin on words."""

    copies_for_others = True

    def __init__(self, scan: Scan, policy: RaggedColumnPolicy) -> None:
        self.element, self.size = scan.monoid.source, scan.monoid.source.size
        self.packed, first_values = packed_monoid(scan), len(scan.monoid.types)
        self.columns, self.width = policy.width, policy.width if self.packed is None else 1
        scan = scan if self.packed is None else replace(scan, monoid=self.packed)
        self.lanes, self.groups, self.height = policy.lanes, policy.groups, policy.height
        self.group, self.alone, self.stages = policy.group, policy.alone, policy.stages
        self.prefetch, self.fixed, self.unit = policy.prefetch, policy.fixed, policy.unit
        self.halo = 0 if policy.aligned_out else 1  # lanes with columns of the tile beside it
        self.tile = policy.groups * policy.height  # rows
        self.unroll = self.unit
        self.pitch = policy.groups * (policy.lanes + 1)  # words from row to row
        self.stage = policy.height * self.pitch
        self.beside = policy.beside  # warps with a tile each
        threads = policy.lanes * policy.groups * self.beside
        self.states, self.positions = threads * self.width, 0 if policy.alone else self.tile
        smem = self.beside * self.stages * self.stage * WORD_BYTES + 32
        smem += (1 if policy.alone else 2) * state_bytes(scan.monoid.types, self.states)
        ScanKernel.__init__(self, scan, threads, smem, policy.blocks_per_sm)
        self.waits = not self.prefetch or scan.reads_at_once
        self.first_values = first_values

    def stage_buffers(self, allocator) -> tuple:
        return (allocator.allocate_array(Int32, self.beside * self.stages * self.stage, byte_alignment=16),)

    def member(self, a: Arguments, thread) -> Member:
        me = super().member(a, thread)
        return me if self.beside == 1 else me._replace(group=Int32(0))

    def across(self, a: Arguments):
        each, more = (self.lanes - self.halo) * self.columns, self.halo * (self.columns - 1)
        return Int32((a.inner + more + (each - 1)) // each)

    def slots(self, a: Arguments, part: Any, tag) -> TileGroups:
        """The slots of a tile's outer slice, whose columns are a multiple of a word's."""
        padded = a._replace(inner=(a.inner + (self.columns - 1)) // self.columns * self.width)
        return TileGroups.make(padded, part.outer, tag, self.scan.monoid.types, self.group)

    def part(self, number, a: Arguments, me: Member) -> Any:
        chains, across, inner = self.chains(a), self.across(a), Int32(a.inner)
        exists = Boolean(True)
        if self.beside > 1:
            number = number * self.beside + me.thread // LANES
            exists, number = number < chains, cutlass.min(number, chains - 1)
        tile = number // chains
        chain = number - tile * chains
        outer = chain // across
        word = (chain - outer * across) * (self.lanes - self.halo) + (me.lane - self.halo)
        column = word * self.columns
        inside = (column >= 0) & (column < inner)
        height = self.groups * me.rows
        first, row = Int64(tile) * height, me.group * me.rows
        count = Int32(cutlass.min(a.length - first, Int64(height)))
        stores = (column >= 0) & (column < inner + self.halo * (self.columns - 1)) & (me.lane >= self.halo)
        left = choose(stores & exists, count - row, Int32(0))
        row = cutlass.min(row, count - 1)
        at = self.scan.flip(first + row, a.length)
        begin, target = self.row_places(a, Int64(outer))
        existing, beyond = (self.existing(self.first_in(k, inner), inner) for k in (column, column + self.following))
        begin += at * a.x_step
        step, target_step = (-a.x_step, -a.out_step) if self.scan.reverse else (a.x_step, a.out_step)
        if self.scan.backward:
            begin -= inner - 1  # the row's lowest address
        edge = begin + inner if self.scan.backward else begin  # a whole number of words from each thread's columns
        skew, skew_step = self.in_word((a.x + edge).toint()), self.in_word(step * self.size)
        return Part(
            tile,
            outer,
            word * self.width,
            inside,
            left,
            row,
            count,
            first + row,
            begin + existing,
            step,
            inner - existing,
            beyond - existing,
            skew,
            skew_step,
            inner - column,
            target + at * a.out_step + column,
            target_step,
        )

    @property
    def following(self) -> int:
        """How many columns behind a thread's those lie whose word follows its own in memory."""
        return -self.columns if self.scan.backward else self.columns

    def first_in(self, column, inner):
        """Where in the memory of a row the columns of a thread begin, of which ``column`` is the first."""
        return inner - self.columns - column if self.scan.backward else column

    def existing(self, place, inner):
        """The nearest place that a row has."""
        return cutlass.min(cutlass.max(place, 0), inner - 1)

    def in_word(self, address):
        """An address, or a number of bytes, modulo a word."""
        return Int32(Int64(address) & (WORD_BYTES - 1))

    def columns_from(self, column, a: Arguments) -> list:
        return [cutlass.min(cutlass.max(column + c, 0), Int32(a.inner) - 1) for c in range(self.width)]

    def start(self, a: Arguments, part: Any) -> Maybe:
        if self.packed is None or self.scan.start is None:
            return self.carry_in(a, part.outer, part.column)
        return Maybe((self.packed.of_number(a.init[0]),), Boolean(True))

    def a_word(self):
        """A register. The stride is stated: a mode of one element would get stride 0, which recasting spreads."""
        return cute.make_rmem_tensor(cute.make_layout((1,), stride=(1,)), Int32)

    # Loading

    def word_in(self, shared, stage, u, me: Member):
        """Where the word of a thread's row ``u`` lies in shared memory."""
        if self.beside > 1:
            stage = me.thread // LANES
        return shared.stages[0] + (stage * self.stage + u * self.pitch + me.group * (self.lanes + 1) + self.rank(me))

    def rank(self, me: Member):
        """Which word of a group's row in memory is a thread's first."""
        return self.lanes - 1 - me.lane if self.scan.backward else me.lane

    def word_of(self, pointer):
        """The aligned word that holds what a pointer points to."""
        return cute.make_ptr(Int32, pointer.toint() & -WORD_BYTES, pointer.memspace, assumed_align=WORD_BYTES)

    def copy_word(self, target, source, rest) -> None:
        """Copy the word that holds an element, up to the row's end, ``rest`` elements behind the element's place."""
        count = cutlass.min(self.in_word(source.toint()) + rest * self.size, Int32(WORD_BYTES))
        primitives.cp_async_shared_global(target, self.word_of(source), WORD_BYTES, "ca", cp_size=count)

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        """Start the copies of a thread's words into a stage. The memory may end with the words of a row's end, if the
        row is the first or the last one."""
        existing = self.present(me, part)
        at_end = cutlass.min(part.rest, part.rest - part.beyond) * self.size < WORD_BYTES
        at_end = at_end & ((part.position == 0) | (part.position + existing == a.length))
        if cute.arch.vote_any_sync(at_end | (existing < me.rows)):
            self.load_any(shared, a, me, part, stage)
        else:
            self.load_whole(shared, a, me, part, stage)
        cute.arch.cp_async_commit_group()

    @cute.jit
    def load_whole(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        """The same for a warp whose rows all exist. Each lane has the words behind the last lane's in some rows."""
        target, source, step = self.word_in(shared, stage, 0, me), a.x + part.place, part.step
        for first in cutlass.range(0, me.rows, self.unit, unroll=1):
            for u in cutlass.range_constexpr(self.unit):
                primitives.cp_async_shared_global(
                    target + (first + u) * self.pitch, self.word_of(source), WORD_BYTES, "ca"
                )
                source += step
        row_begin, others = part.place + (part.rest - Int32(a.inner)), self.lanes - self.rank(me)
        columns, inner = part.column // self.width * self.columns + others * self.following, Int32(a.inner)
        behind = self.existing(self.first_in(columns, inner), inner)
        for first in cutlass.range_constexpr(0, self.height, self.lanes):
            row = me.lane + first
            if row < me.rows:
                word = self.word_of(a.x + (row_begin + behind + Int64(row) * step))
                primitives.cp_async_shared_global(target + (row * self.pitch + others), word, WORD_BYTES, "ca")

    @cute.jit
    def load_any(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        """Start the copies of the words of a thread's rows that exist, without what lies behind the rows."""
        at, existing = part.place, self.present(me, part)
        for first in cutlass.range(0, self.most_of_warp(me, part), self.unit, unroll=1):
            for u in cutlass.range_constexpr(self.unit):
                target, source = self.word_in(shared, stage, first + u, me), a.x + at
                self.copy_word(target, source, part.rest)
                if self.rank(me) == self.lanes - 1:
                    self.copy_word(target + 1, source + part.beyond, part.rest - part.beyond)
                at += choose(first + u + 1 < existing, part.step, Int64(0))

    def most_of_warp(self, me: Member, part: Any):
        """How many rows of a warp are looked at: those of its first row group, which has the most."""
        if self.beside > 1:
            return self.looked_at(me, part)
        return self.looked_at(me._replace(group=me.thread // LANES * LANES // self.lanes), part)

    def states_of(self, shared, a: Arguments, me: Member, part: Any, stage, first) -> list:
        rows = []
        bits, step = (part.skew + first * part.skew_step) * 8, part.skew_step * 8  # shifts count them modulo a word
        for u in range(self.unroll):
            words = cute.make_tensor(self.word_in(shared, stage, first + u, me), cute.make_layout((2,)))
            row = self.a_word()
            row[0] = funnel_shift(words[0], words[1], bits + u * step)
            rows.append([row if self.packed is not None else cute.recast_tensor(row, self.element.cutlass)])
        return [self.lifted(row, part.position + first + u, a) for u, row in enumerate(rows)]

    @cute.jit
    def reduce_tile(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # a thread reads what others copied
        prefix, total = Maybe(self.nothing(), Boolean(False)), self.nothing()
        if cutlass.const_expr(self.groups > 1 or not self.alone):
            prefix, total = self.reduce_rows(shared, a, me, part, stage)
        return prefix, total

    # Storing

    @cute.jit
    def publish(self, groups: cutlass.Constexpr, me: Member, part: Any, total):
        ColumnTileScan.publish(self, groups, me, self.owned(me, part), total)

    @cute.jit
    def publish_end(self, groups: cutlass.Constexpr, me: Member, part: Any, end: Maybe):
        ColumnTileScan.publish_end(self, groups, me, self.owned(me, part), end)

    def owned(self, me: Member, part: Any):
        """The part of a thread whose columns another tile does not have."""
        return part._replace(inside=part.inside & (me.lane >= self.halo))

    @cute.jit
    def scan_rows(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage, before: Maybe):
        """Store the scan of a thread's rows. Words that hold the ends of rows are in few warps."""
        at_end = part.valid < self.columns
        if cutlass.const_expr(self.halo > 0):
            at_end = at_end | (part.column == 0)
        if cute.arch.vote_any_sync(at_end & (part.left > 0)):
            self.scan_words(shared, a, me, part, stage, before, self.store_part)
        else:
            self.scan_words(shared, a, me, part, stage, before, self.store_whole)

    @cute.jit
    def scan_words(
        self,
        shared: cutlass.Constexpr,
        a: Arguments,
        me: Member,
        part: Any,
        stage,
        before: Maybe,
        keep: cutlass.Constexpr,
    ):
        states, at = before.state, a.out + part.target
        for first in cutlass.range(0, self.most_of_warp(me, part), self.unroll, unroll=1):
            rows = self.states_of(shared, a, me, part, stage, first)
            for u, row in enumerate(rows):
                following = (
                    self.append((first + u > 0) | before.valid, states, row) if u == 0 else self.combine(states, row)
                )
                results = self.word_of_results(states if self.scan.exclusive else following)
                keep(first + u < part.left, at, self.aligned_word(at, results), part)
                states = following
                at += part.target_step

    def aligned_word(self, at, results):
        """The aligned word with the first of a thread's results of a row, which holds the last ones of the lane before
        it, too. All lanes of a warp call."""
        word = results[0]
        if self.halo == 0:
            return word
        return funnel_shift_left(Int32(cute.arch.shuffle_sync_up(word, 1)), word, Int32(at.toint()) * 8)

    @cute.jit
    def store_whole(self, exists, at, word, part: Any):
        """Store a word that holds results of one row alone."""
        if exists:
            store(self.word_of(at), word)

    @cute.jit
    def store_part(self, exists, at, word, part: Any):
        """Store the results of a row that a word holds."""
        first, end = Int32(0), part.valid
        if cutlass.const_expr(self.halo > 0):
            before = self.in_word(at.toint()) // self.size  # of the word's elements, those before the thread's columns
            first, end = choose(part.column == 0, before, Int32(0)), end + before
        if exists:
            target = self.word_of(at)
            if (first == 0) & (end >= self.columns):
                store(target, word)
            else:
                one = self.a_word()
                one[0] = word
                elements = cute.recast_tensor(one, self.element.cutlass)
                for c in cutlass.range_constexpr(self.columns):
                    if (c >= first) & (c < end):
                        store(cute.recast_ptr(target, dtype=self.element.cutlass) + c, elements[c])

    def word_of_results(self, states):
        """The results of a thread's columns."""
        word = self.a_word()
        results = word if self.packed is not None else cute.recast_tensor(word, self.element.cutlass)
        for c, state in enumerate(states):
            results[c] = results.element_type(self.scan.monoid.results_of(state)[0])
        return word
