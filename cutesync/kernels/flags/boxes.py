"""Flags and differences of arrays whose elements and results are runs along different axes, or along several.

A block copies a box of elements to shared memory: neighbouring threads load neighbouring elements. After one barrier
neighbouring threads have neighbouring results: they read items and their neighbours there, and store what they find. So
whole lines are read and written, in whatever order the axes of the two arrays lie. Along the flagged axis the box has
one position more before it, and one behind it, if these are looked at.

The extents of a box are powers of two, so a thread's coordinates are bits of its number, and those of its next elements
differ in the same bits for all threads. Shared memory has a gap behind each axis, so that neighbours along any axis lie
in different banks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cutlass
from cutlass import Int32, Int64, Uint32, cute
from cutlass.memory import SmemAllocator

from ...monoid import choose
from ..hardware import WORD_BYTES
from .strided import Arguments, StridedKernel
from .tiles import least

LOADS = 8  # of a thread at once
# Threads that fit on a multiprocessor at once, which limits their registers (H200, heads int8 (8, 64, 16384) along its
# second axis, transposed: 17.3 us, of 512 threads 12.0 us, of 768 10.5 us, of 1024 9.7 us).
RESIDENT = 1024


class BoxFlags(StridedKernel):
    """The kernel of a ``BoxPolicy``. Coordinates in a box are those of its axes."""

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy)
        self.box, self.along, self.order, self.each = policy.box, policy.along, policy.order, policy.each
        self.repeated, self.vector, self.piece = policy.repeated, policy.vector, policy.piece
        self.kind = marking.source.cutlass if policy.piece == 1 else Uint32  # of what a thread loads at once
        self.step = policy.threads * policy.piece
        self.before, self.behind = (int(looks) for looks in marking.looks)
        self.loaded_box = tuple(1 if repeats else size for size, repeats in zip(self.box, self.repeated))
        self.pitches: list[int] = []
        room = 1
        for k, size in enumerate(self.loaded_box):
            self.pitches.append(0 if self.repeated[k] else room)
            room = self.padded(room * (size + (self.before + self.behind if k == self.along else 0)))
        self.smem = room * marking.source.size + 16
        self.limit_registers(RESIDENT)

    def padded(self, count: int) -> int:
        """Return so many elements, or a few more, that are an odd number of words of shared memory."""
        size = self.marking.source.size
        return count | 1 if size >= WORD_BYTES else (-(-count * size // WORD_BYTES) | 1) * (WORD_BYTES // size)

    @cute.jit
    def body(self, a: Arguments):
        """Flag the box of a block."""
        thread = cute.arch.thread_idx()[0]
        kind = self.marking.source.cutlass
        held = SmemAllocator().allocate_array(kind, self.smem // self.marking.source.size, byte_alignment=16)
        digits = self.split(a, Int64(cute.arch.block_idx()[0]))
        corner = [digit * size for digit, size in zip(digits, (*self.box, *(1,) * len(digits)))]
        left = [Int32(least(a.extents[k] - corner[k], Int64(size))) for k, size in enumerate(self.box)]
        x = a.x + self.offset(corner, a.steps[0])
        inside = held + self.before * self.pitches[self.along]
        layer = tuple(1 if k == self.along else size for k, size in enumerate(self.loaded_box))  # beside the box
        self.load_box(a, (x, inside), left, thread, self.loaded_box)
        if self.before:  # of the first position itself if nothing lies before it
            back = choose(corner[self.along] > 0, -a.steps[0][self.along], Int64(0))
            self.load_box(a, (x + back, held), left, thread, layer)
        if self.behind:
            last = least(a.extents[self.along] - corner[self.along] - 1, Int64(self.box[self.along]))
            place = held + (left[self.along] + self.before) * self.pitches[self.along]
            self.load_box(a, (x + last * a.steps[0][self.along], place), left, thread, layer)
        cute.arch.sync_threads()
        targets = [out + self.offset(corner, steps) for out, steps in zip(a.outs, a.steps[1:])]
        self.flag_box(a, (targets, inside), (left, corner[self.along]), thread)

    def whole(self, left):
        """Whether all of a box lies in the array."""
        found = cutlass.Boolean(True)
        for there, size in zip(left, self.box):
            found = found & (there == size)
        return found

    @cute.jit
    def load_box(self, a: Arguments, ends, left, thread, box: cutlass.Constexpr):
        """Copy elements to shared memory; none beyond the ``left`` of each axis."""
        places = self.coordinates(thread, box, range(len(box)), self.piece)
        if self.whole(left):
            self.load_all(a, ends, None, (thread, places), box)
        else:
            self.load_all(a, ends, left, (thread, places), box)

    def load_all(self, a: Arguments, ends, left, mine, box) -> None:
        """Load a thread's elements, some at a time."""
        rounds = max(1, math.prod(box) // (self.threads * self.piece))
        for first in range(0, rounds, LOADS):
            self.load_some(a, ends, left, mine, (box, range(first, min(first + LOADS, rounds))))

    @cute.jit
    def load_some(self, a: Arguments, ends, left, mine, part: cutlass.Constexpr):
        """Some elements of a thread, or words of them, all loads before all stores."""
        (x, held), (thread, places), (box, rounds) = ends, mine, part
        found = cute.make_rmem_tensor((max(2, len(rounds)),), self.kind)
        for i in cutlass.range_constexpr(len(rounds)):
            there, offset, _ = self.element(a.steps[0], left, places, rounds[i] * self.step, box, range(len(box)))
            if there & (thread < math.prod(box) // self.piece):
                found[i] = cute.make_tensor(self.cell(x + offset), cute.make_layout((1,)))[0]
        for i in cutlass.range_constexpr(len(rounds)):
            there, _, slot = self.element(a.steps[0], left, places, rounds[i] * self.step, box, range(len(box)))
            if there & (thread < math.prod(box) // self.piece):
                self.put(self.cell(held + slot), 0, found[i])

    def cell(self, at):
        """The pointer to what a thread loads at once."""
        if self.piece == 1:
            return at
        return cute.make_ptr(Uint32, at.toint(), at.memspace, assumed_align=WORD_BYTES)

    @staticmethod
    def digits_of(number: int, box, order) -> dict[int, int]:
        """The coordinates of a number that is known, by axis; the first axis in ``order`` runs fastest."""
        found = {}
        for k in order:
            found[k], number = number % box[k], number // box[k]
        return found

    @staticmethod
    def coordinates(thread, box, order, each: int) -> dict[int, Any]:
        """The coordinates of a thread's first element, of ``each``."""
        found, unit = {}, each
        for k in order:
            size = box[k] // unit
            found[k] = (thread & (size - 1)) * unit
            thread, unit = thread >> (size.bit_length() - 1), 1
        return found

    def element(self, steps, left, places, number: int, box, order) -> tuple[Any, Any, Any]:
        """Of a thread's element ``number`` elements behind its first one: whether it lies in the array (without
        ``left``, all do), its offset there, and that in shared memory."""
        more = self.digits_of(number, box, order)
        there, offset, slot = cutlass.Boolean(True), Int64(0), Int32(0)
        for k, place in places.items():
            if box[k] > 1:
                there = there if left is None else there & (place + more[k] < left[k])
                offset = offset + (Int64(place) * steps[k] + Int64(more[k]) * steps[k])
            slot = slot + (place + more[k]) * self.pitches[k]
        return there, offset, slot

    @cute.jit
    def flag_box(self, a: Arguments, ends, within, thread):
        """Flag the elements of a box, whose first position on the flagged axis is ``corner``."""
        left, corner = within
        mine = thread, self.coordinates(thread, self.box, self.order, self.each)
        if self.whole(left):
            self.flag_all(a, ends, (None, corner), mine)
        else:
            self.flag_all(a, ends, (left, corner), mine)

    def flag_all(self, a: Arguments, ends, within, mine) -> None:
        step = self.threads * self.each
        for number in range(0, max(math.prod(self.box), step), step):
            self.flag_some(a, ends, within, mine, number)

    @cute.jit
    def flag_some(self, a: Arguments, ends, within, mine, number: cutlass.Constexpr):
        """Flag neighbouring elements of a thread."""
        (targets, held), (left, corner), (thread, places) = ends, within, mine
        first = self.order[0]
        there, _, slot = self.element(a.steps[0], left, places, number, self.box, self.order)
        more = self.digits_of(number, self.box, self.order)
        if there & (thread < math.prod(self.box) // self.each):
            rest = None if left is None else left[first] - (places[first] + more[first])
            place = Int64(corner) + (places[self.along] + more[self.along])
            items = self.items(held, slot, rest)
            for side, target, steps in zip(self.sides, targets, a.steps[1:]):
                found = [self.result(a, side, items, place, (i, rest)) for i in range(self.each)]
                _, offset, _ = self.element(steps, left, places, number, self.box, self.order)
                self.store_run(target + offset, steps[first], found, self.each if rest is None else rest, self.vector)

    def items(self, held, slot, rest) -> Callable[[int, int], Any]:
        """The function that returns a thread's element ``i``, or that so many positions from it. Each is read once.
        Of the ``rest`` that lie in the array the last stands for those behind it."""
        found: dict[int, Any] = {}

        def item(i: int, positions: int):
            pitch = self.pitches[self.order[0]]
            beside = positions * self.pitches[self.along]
            if rest is not None and i:
                return self.get(held, slot + (least(Int32(i), rest - 1) * pitch + beside))
            at = i * pitch + beside
            if at not in found:
                found[at] = self.get(held, slot + at)
            return found[at]

        return item

    def result(self, a: Arguments, side: int, items, place, part):
        """The result of a thread's element ``i``, of which ``rest`` lie in the array, on a side."""
        i, rest = part
        place = place + i if self.order[0] == self.along else place
        item, neighbour = items(i, 0), items(i, 1 if side else -1)
        edge = place + 1 >= a.n if side else place == 0
        pair = (item, neighbour) if side else (neighbour, item)
        outside = i >= rest if self.called and i and rest is not None else None
        return self.lowered(self.guarded(outside, side, pair, (edge, place + side, a.ends[side])))
