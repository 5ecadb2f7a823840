"""A queue that threads give to and take from at the same time, any number of each: a ring of slots with a turn each.

Place p of the sequence lies in slot p % capacity, and belongs to lap p // capacity. A slot's turn says whose it is:

    turn 2 * lap       empty, for the giver of that lap    giver: wait for the turn, store the item, st.release turn + 1
    turn 2 * lap + 1   full, for its taker                 taker: wait for the turn, load the item, st.release turn + 1

The release and the acquire of the turn order the item's plain store and load. Turns count laps, so one slot is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from .queue import cell
from .wait import BACK_OFF, repeat, until

TAIL, HEAD = 0, 1  # 64-bit words of the state


@dataclass(frozen=True)
class ConcurrentQueue:
    """A ring of ``capacity = 2**log`` slots: ``items``, a turn (Int32) a slot in ``turns``, and two Int64 in ``state``:
    the places given and taken so far. All zero is an empty queue. First in, first out, by place. Each lane calls for
    itself.

    The threads that others wait for must be running: give and take within one block, or in a grid that is resident at
    once.
    """

    items: cute.Pointer
    turns: cute.Pointer
    state: cute.Pointer
    log: object

    def give(self, value) -> None:
        """Add an item; waits while the queue is full."""
        place = Int64(cute.arch.atomic_add(self.state + TAIL, Int64(1), sem="relaxed", scope="gpu"))
        what = "a free slot of the queue, slot %d, lap %d"
        until(lambda: _put(self, place, value), what, *self._where(place), back_off=BACK_OFF)

    def take(self, dtype):
        """Remove the oldest item; waits while there is none."""
        place = Int64(cute.arch.atomic_add(self.state + HEAD, Int64(1), sem="relaxed", scope="gpu"))
        what, where = "an item of the queue, slot %d, lap %d", self._where(place)
        return repeat(lambda value: _get(self, place, value, dtype), dtype(0), what, where, BACK_OFF)

    def try_give(self, value):
        """Add an item unless the queue is full; whether it did (Boolean)."""
        return _try(self, TAIL, lambda place: _put(self, place, value))

    def try_take(self, dtype):
        """``(got, value)``: remove the oldest item if there is one."""
        return _try_take(self, dtype)

    def _slot(self, place):
        return Int32(place & ((Int64(1) << self.log) - 1))

    def _where(self, place):
        return self._slot(place), Int32(place >> self.log)

    def _turn(self, place):
        """How the slot's turn differs from an empty one of the place's lap: 0 empty, 1 full, other: not this lap's."""
        seen = Int32(cute.arch.load(self.turns + self._slot(place), Int32, sem="acquire", scope="gpu"))
        return seen - 2 * Int32(place >> self.log)

    def _next_turn(self, place, full: int) -> None:
        cute.arch.store(
            self.turns + self._slot(place), 2 * Int32(place >> self.log) + full + 1, sem="release", scope="gpu"
        )


@cute.jit
def _put(queue: cutlass.Constexpr, place: Int64, value):
    ready = queue._turn(place) == 0
    if ready:
        cell(queue.items, queue._slot(place))[0] = value
        queue._next_turn(place, 0)
    return ready


@cute.jit
def _get(queue: cutlass.Constexpr, place: Int64, value, dtype: cutlass.Constexpr):
    ready = queue._turn(place) == 1
    if ready:
        value = dtype(cell(queue.items, queue._slot(place))[0])
        queue._next_turn(place, 1)
    return ready, value


@cute.jit
def _claim(queue: cutlass.Constexpr, end: cutlass.Constexpr):
    """``(claimed, place)``: the next place of this end, if its slot's turn has come."""
    wanted = 1 if end == HEAD else 0
    place = Int64(cute.arch.load(queue.state + end, Int64, sem="relaxed", scope="gpu"))
    claimed = Boolean(False)
    open_ = Boolean(True)
    while open_:
        turn = queue._turn(place)
        if turn == wanted:
            seen = Int64(cute.arch.atomic_cas(queue.state + end, cmp=place, val=place + 1, sem="relaxed", scope="gpu"))
            claimed = seen == place
            open_ = seen != place
            if open_:
                place = seen
        else:
            now = Int64(cute.arch.load(queue.state + end, Int64, sem="relaxed", scope="gpu"))
            open_ = now != place  # somebody has been faster: look at the next place
            place = now
    return claimed, place


@cute.jit
def _try(queue: cutlass.Constexpr, end: cutlass.Constexpr, act: cutlass.Constexpr):
    claimed, place = _claim(queue, end)
    if claimed:
        act(place)
    return claimed


@cute.jit
def _try_take(queue: cutlass.Constexpr, dtype: cutlass.Constexpr):
    claimed, place = _claim(queue, HEAD)
    value = dtype(0)
    if claimed:
        _, value = _get(queue, place, value, dtype)
    return claimed, value
