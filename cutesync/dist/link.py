"""How kernels of several devices exchange states, and combine them in the order of ranks. Device code.

A thread writes the state of its own device into the memory of every device, then waits for those of the others in its
own memory, and combines them in rank order. So every device computes the same bits, in every run.

Who waits for whom: a word carries its tag with it (``sync.gather``), in one relaxed 64-bit store at system scope, so no
fence is needed. The tag is the epoch of the launch, which each device counts in its own memory; all devices count the
same calls.

Slots are used in turn, by the parity of the epoch. A launch ends only after one of its threads has seen the header of
every other device, i.e. after all of them have started it and ended the one before. So a device that writes the slots
of one parity knows that nobody reads them any more for the call before the last.

A header carries a signature of the call. A device that finds another one, or waits for a minute (two seconds with
CUTESYNC_DEBUG=1), prints the ranks and the epoch, and stops the kernel: a launch failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
from cutlass import Int32, Int64, cute
from cutlass.experimental import primitives

from ..sync.gather import join_state, split_state, words
from ..sync.wait import LAST_WORDS, PATIENCE, bounded
from ..warp import Maybe
from .memory import FAREWELLS, HEADERS, SLOTS, Call

MINUTE = 60_000_000_000  # ns
LOOKS = 4096  # at a word, between two looks at the clock
EARLY_WORDS = 64  # up to so many are looked at before the first is awaited


@dataclass(frozen=True)
class Link:
    """The memory of all devices during a launch: ``peers`` are its addresses, ``mine`` is that of this device."""

    peers: tuple
    mine: Any
    tag: Any
    call: Call

    @property
    def ranks(self) -> int:
        return len(self.peers)

    @property
    def header(self):
        return (Int64(self.tag) << 32) | (Int64(self.call.signature) & 0xFFFFFFFF)

    @property
    def headers(self):
        """Where the headers of this launch begin in the memory of each device."""
        return HEADERS + (self.tag & 1) * (8 * self.ranks)

    @property
    def farewells(self):
        """Where the words begin that ranks write when they have read the memory of this device."""
        return FAREWELLS + (self.tag & 1) * (8 * self.ranks)

    def greet(self, peer) -> None:
        """Write the header into the memory of a device."""
        store(peer + self.headers + 8 * self.call.rank, self.header)

    def publish(self, peer, words) -> None:
        """Write this rank's word among ``words`` of a device, after all that this thread knows of."""
        cute.arch.store(pointer(peer + words + 8 * self.call.rank), self.header, sem="release", scope="sys")

    def acquire(self, words, other) -> None:
        """Wait for the word of rank ``other`` among ``words`` of this device, and for all that it wrote before."""
        at = self.mine + words + 8 * other
        _, late = await_word(at, load(at), self.tag, Late.none(), other)
        word: Any = cute.arch.load(pointer(at), Int64, sem="acquire", scope="sys")
        _judge(self, late, self.wrong(word, late, other, Int32(-1)))

    def meet(self, others, late: Late) -> None:
        """Wait for the headers of the ranks ``others``, and stop if one does not come or is of another call."""
        wrong = Int32(-1)
        for other in others:
            at = self.mine + self.headers + 8 * other
            word, late = await_word(at, load(at), self.tag, late, other)
            wrong = self.wrong(word, late, other, wrong)
        _judge(self, late, wrong)

    def wrong(self, word, late: Late, other, before):
        """``other`` if its word is not the header of this call, else ``before``."""
        return Int32(cutlass.select_((late.rank < 0) & (word != self.header), Int32(other), before))

    def place(self, types, rank, at):
        """Where word 0 of state ``at`` of a rank lies in the memory of each device, and how far apart words are."""
        half = SLOTS + Int64(self.tag & 1) * (8 * self.ranks) * self.call.capacity
        stride = self.call.capacity // words(types)
        return half + (Int64(rank * words(types)) * stride + at) * 8, Int64(stride) * 8

    def coming(self, types, at) -> list:
        """The addresses of all words of the states ``at`` of all ranks, on this device, and what lies there at a first
        look, or None: of many words, first looks would take too many registers."""
        places = [self.place(types, rank, at) for rank in range(self.ranks)]
        slots = [self.mine + place + w * step for place, step in places for w in range(words(types))]
        return [(slot, load(slot) if len(slots) <= EARLY_WORDS else None) for slot in slots]

    def send(self, types, state, at) -> None:
        """Write state ``at`` of this device, registers of ``types``, into the memory of all."""
        place, step = self.place(types, self.call.rank, at)
        for w, value in enumerate(split_state(state)):
            word = (Int64(self.tag) << 32) | (Int64(value) & 0xFFFFFFFF)
            for peer in self.peers:
                store(peer + place + w * step, word)

    def combined(self, monoid, at) -> tuple[tuple, Late]:
        """Wait for the states ``at`` of the ranks in ``take``, and combine them; without any, the state is no
        state. Nor is it if one is late."""
        *state, rank, seen = _combined(self, monoid, at)
        return tuple(state), Late(rank, seen)

    def stop_if(self, late: Late) -> None:
        _judge(self, late, Int32(-1))


class Late(NamedTuple):
    """The first rank whose word has not come in time, or -1, and the tag that was there instead."""

    rank: Any
    seen: Any

    @classmethod
    def none(cls) -> Late:
        return cls(Int32(-1), Int32(0))


@cute.jit
def _combined(link: cutlass.Constexpr, monoid: cutlass.Constexpr, at):
    coming = link.coming(monoid.types, at)
    total, late = Maybe.none(monoid.types), Late.none()
    for r in cutlass.range_constexpr(link.ranks):
        if (link.call.take >> r) & 1 != 0:
            state, late = received(link, monoid.types, coming, r, late)
            total = total.append(state, monoid.combine)
    return *total.state, *late


def received(link: Link, types, coming: list, rank: int, late) -> tuple[tuple, Late]:
    """Wait for the state of a rank, one of those in ``coming``; and what is late."""
    each, halves = words(types), []
    for slot, first in coming[rank * each : (rank + 1) * each]:
        word, late = await_word(slot, load(slot) if first is None else first, link.tag, late, rank)
        halves.append(Int32(word & 0xFFFFFFFF))
    return join_state(halves, types), late


@cute.jit
def _judge(link: cutlass.Constexpr, late, wrong: Int32):
    """Stop the kernel if a word was late, or a header wrong. There is one place for each report, as each takes a
    hundred instructions."""
    if late.rank >= 0:
        numbers = (link.call.rank, late.rank, link.tag, late.seen)
        cute.printf("cutesync: rank %d waits for rank %d: epoch tag %d has not come, the last is %d", *numbers)
    if wrong >= 0:
        cute.printf("cutesync: rank %d: rank %d makes another call (epoch tag %d)", link.call.rank, wrong, link.tag)
    if (late.rank >= 0) | (wrong >= 0):
        for _ in cutlass.range(LAST_WORDS, unroll=1):  # let others report
            primitives.nanosleep(1_000_000)
        cute.arch.inline_ptx("trap;")


def chosen(peers, rank):
    """The address of the memory of a rank, which is known when the kernel runs."""
    found = peers[0]
    for r in range(1, len(peers)):
        found = Int64(cutlass.select_(rank == r, peers[r], found))
    return found


def pointer(address: Any) -> cute.Pointer:
    return cute.make_ptr(Int64, address, cute.AddressSpace.gmem, assumed_align=8)


def store(address: Any, word: Any) -> None:
    cute.arch.store(pointer(address), word, sem="relaxed", scope="sys")


def load(address: Any) -> Any:
    return cute.arch.load(pointer(address), Int64, sem="relaxed", scope="sys")


@cute.jit
def await_word(address: Int64, word: Int64, tag: Int32, late, other):
    """The word at an address once it has the tag, and what is late; ``word`` is what a first look found. If something
    was late before, or this word is, the word means nothing."""
    looks, since = Int32(0), Int64(0)
    patience = cutlass.const_expr(PATIENCE if bounded() else MINUTE)
    every = cutlass.const_expr(1 if bounded() else LOOKS)
    while (Int32(word >> 32) != tag) & (late.rank < 0):
        word = load(address)
        looks += 1
        if looks == every:
            looks = Int32(0)
            now = Int64(cute.arch.globaltimer())
            if since == 0:
                since = now
            if now - since > patience:
                late = Late(Int32(other), Int32(word >> 32))
    return word, late
