"""Fragments: the lanes of one warp that are at one place. The scheduler runs fragments; generated code is given one.

A divergent branch splits a fragment; two of one warp that reach the same place merge. A fragment runs, waits for other
lanes of its warp at a convergent instruction (``CONVERGE``), is blocked until it is woken, or has polled in vain and
sleeps until what it polled changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .emitter import STOP
from .lanes import count_nonzero as cnz

if TYPE_CHECKING:
    from .block import Warp

RUN, CONVERGE, BLOCKED, POLL = "runs", "waits for lanes of its warp", "is blocked", "polls"
FULL = (1 << 32) - 1


def bits_of(mask: np.ndarray) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer((bits & FULL).to_bytes(4, "little"), np.uint8), bitorder="little").view(bool)


@lru_cache(maxsize=1 << 14)
def _lanes(bits: int) -> tuple[np.ndarray, int, np.ndarray | None]:
    """The mask of lanes, how many they are, and their indices (None for all 32). Nothing writes these arrays."""
    mask = mask_of(bits)
    lanes = None if bits == FULL else np.flatnonzero(mask)
    for array in (mask, lanes):
        if array is not None:
            array.flags.writeable = False
    return mask, bits.bit_count(), lanes


class Fragment:
    """Lanes of one warp at one segment. ``lanes`` is None for all 32, else their indices."""

    def __init__(self, warp: Warp, pc: int, bits: int):
        self.warp, self.pc, self.state = warp, pc, RUN
        self.waits: str | None = None
        self.site = 0  # the instruction it is blocked at
        self.waits_on: Any = None
        self.poll: tuple | None = None  # what it has polled last: where, with what result, at which instruction
        self.polls: dict[int, tuple] = {}  # and at each instruction, since it has done anything else
        self.found_again: set[int] = set()  # the instructions that have found the same again, one after the other
        self.sleep_on: Any = None
        self.watched: tuple[int, int] | None = None  # the bytes of ``sleep_on`` that it polls; None for all
        self.lagging = False
        self.set_lanes(bits)

    def set_lanes(self, bits: int) -> None:
        self.bits = bits
        self.mask, self.count, self.lanes = _lanes(bits)
        program = self.warp.machine.program
        self.code, self.lengths = (program.full, program.lengths) if bits == FULL else (program.part, program.single)

    def fail(self, kind: str, title: str, site: int, lines=()) -> NoReturn:
        self.warp.machine.fail(kind, title, self.warp, np.flatnonzero(self.mask), site, lines)

    # --- called by generated code -------------------------------------------------------------------------------------

    @staticmethod
    def pick(mask: np.ndarray):
        """A lane vector as operations take it: None for all 32."""
        return None if cnz(mask) == 32 else mask.nonzero()[0]

    def split(self, taken: np.ndarray, target: int, otherwise: int) -> int:
        """Diverge: the taken lanes become a fragment of their own at ``target``; this one goes on at ``otherwise``."""
        bits = bits_of(taken)
        self.set_lanes(self.bits & ~bits)
        self.warp.add(Fragment(self.warp, target, bits))
        return otherwise

    def exit(self) -> int:
        self.warp.exit(self)
        return STOP

    def converged(self, members: int) -> bool:
        """True if every live lane of ``members`` is in this fragment; else it waits here until they are."""
        if members & self.warp.live & ~self.bits == 0:
            return True
        self.state = CONVERGE
        self.waits_on = members
        return False

    def polled(self, region, rows, size: int, values) -> None:
        """Record a strong load of units of ``size`` bytes. The same result again is polling: sleep then."""
        last = self.poll
        self.note_poll(region, (rows.tobytes(), values.tobytes()))
        if self.sleep_on is not None and self.poll == last:
            self.watched = (int(rows.min()) * size, int(rows.max()) * size + size)

    def note_poll(self, source, value) -> None:
        """Sleep if one load has found the same again, or each of several loads of ``source`` that take turns has."""
        seen = (source, value, self.pc)
        if self.poll is None:
            self.polls, self.found_again = {}, set()
        if self.polls.get(self.pc) != seen:
            self.found_again.clear()
        elif self.poll == seen or self.pc in self.found_again:
            self.sleep_on, self.watched = source, None
        elif all(self.polls[pc][0] is source for pc in self.found_again):
            self.found_again.add(self.pc)
        self.poll = self.polls[self.pc] = seen

    def block_on(self, why: str, thing, pc: int, site: int) -> int:
        """Stop running until woken; go on at ``pc`` then."""
        self.state, self.waits, self.waits_on, self.pc, self.site = BLOCKED, why, thing, pc, site
        if self.warp.machine.trace is not None:
            self.warp.machine.trace.blocked(self)
        return STOP

    def where(self):
        """The instruction this fragment is at."""
        program = self.warp.machine.program
        if self.state == BLOCKED and self.site:
            return program.sites[self.site - 1]
        pc = self.poll[2] if self.state == POLL and self.poll else self.pc
        start, _ = program.segments[min(pc, len(program.segments) - 1)]
        return program.function.code[start]
