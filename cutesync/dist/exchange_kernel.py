"""The kernel that exchanges states between devices: each gets all of them and combines them in the order of ranks.

Every device launches it, once a call. Thread ``at`` of all blocks together owns element ``at``: it writes the state of
its own device into the memory of every device, then waits for those of the others in its own memory, and combines them
in rank order. So every device computes the same bits, in every run.

Who waits for whom: a word carries its tag with it (``sync.gather``), in one relaxed 64-bit store at system scope, so no
fence is needed. The tag is the epoch of the launch, which each device counts in its own memory; all devices count the
same calls. Blocks take their elements in the order in which they start, so the oldest unfinished elements are under way
on every device that has started, however few blocks are resident.

Slots are used in turn, by the parity of the epoch. A launch ends only after its first block has seen the header of
every other device, i.e. after all of them have started it and ended the one before. So a device that writes the slots
of one parity knows that nobody reads them any more for the call before the last.

A header carries a signature of the call. A device that finds another one, or waits for a minute (two seconds with
CUTESYNC_DEBUG=1), prints the ranks and the epoch, and stops the kernel: a launch failure.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Int64, cute
from cutlass.experimental import primitives

from ..kernels.arrays import pointers_of, together
from ..sync.gather import Entry, Notice, enter, join_state, split_state, words
from ..sync.overlap import await_launches, let_next_start
from ..sync.wait import LAST_WORDS, PATIENCE, bounded
from ..warp import Maybe
from .exchange import THREADS
from .memory import HEADERS, SLOTS

MINUTE = 60_000_000_000  # ns
LOOKS = 4096  # at a word, between two looks at the clock


class ExchangeKernel:
    """``take`` has a bit for each rank whose state a device combines, ``own`` is 1 if it has states itself. A launch of
    a ``single`` block needs no tickets, and raises the epoch at its end. ``start``: whether ``init`` comes "first" or
    "last" among the states, or None if there is none."""

    threads, smem = THREADS, 128

    def __init__(self, monoid, ranks: int, start: str | None, single: bool) -> None:
        self.monoid, self.ranks, self.start, self.single = monoid, ranks, start, single
        self.words = words(monoid.types)

    @cute.jit
    def __call__(
        self,
        x: tuple,
        out: tuple,
        init: tuple,
        peers: tuple,
        rank: Int32,
        count: Int32,
        capacity: Int32,
        take: Int32,
        own: Int32,
        signature: Int32,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_exchange", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, init, peers, rank, count, capacity, take, own, signature).launch(
            grid=(grid, 1, 1), block=(self.threads, 1, 1), smem=self.smem, stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        x: tuple,
        out: tuple,
        init: tuple,
        peers: tuple,
        rank: Int32,
        count: Int32,
        capacity: Int32,
        take: Int32,
        own: Int32,
        signature: Int32,
    ):
        await_launches()
        let_next_start()
        given = len(init) - self.monoid.arg_count
        self.monoid.bind(init[given:])
        thread = cute.arch.thread_idx()[0]
        mine = self.peer(peers, rank)
        counters = cute.make_ptr(Int64, mine, cute.AddressSpace.gmem, assumed_align=8)
        if cutlass.const_expr(self.single):
            word = cute.arch.load(counters, Int64, sem="relaxed", scope="gpu")
            ticket, tag = Int32(0), Entry(word, Int32(0)).tag
        else:
            ticket, tag = self.enter(counters, thread)
        first = HEADERS + (tag & 1) * (8 * self.ranks)
        header = (Int64(tag) << 32) | (Int64(signature) & 0xFFFFFFFF)
        if (ticket == 0) & (thread < self.ranks):
            store(self.peer(peers, thread) + first + 8 * rank, header)
        at = ticket * self.threads + thread
        if at < count:
            self.element(together(x), together(out), init[:given], peers, mine, (rank, tag, take, own, capacity), at)
        if (ticket == 0) & (thread < self.ranks):
            found = await_word(mine + first + 8 * thread, load(mine + first + 8 * thread), tag, rank, thread)
            if found != header:
                stop("rank %d: rank %d makes another call (epoch tag %d)", (rank, thread, tag))
        if cutlass.const_expr(self.single):
            cute.arch.sync_threads()  # all threads have read the counters
            if thread == 0:
                cute.arch.store(counters, word + (Int64(1) << 32), sem="relaxed", scope="gpu")

    def peer(self, peers, rank):
        """The address of the memory of a rank, which is known when the kernel runs."""
        found = peers[0]
        for r in range(1, self.ranks):
            found = Int64(cutlass.select_(rank == r, peers[r], found))
        return found

    @cute.jit
    def enter(self, counters: cute.Pointer, thread: Int32):
        """``(ticket, tag)``: how many blocks have started before this one, and the epoch's tag."""
        notice = Notice.make()
        if thread == 0:
            words = cute.make_ptr(Int32, counters.toint(), cute.AddressSpace.gmem, assumed_align=8)
            entry = enter(words)
            blocks = cute.arch.grid_dim()[0]
            entry.close(words, blocks, blocks)
            notice.post(Int32(entry.word & 0xFFFFFFFF), entry.tag)
        cute.arch.sync_threads()
        return Int32(notice.words[0]), Int32(notice.words[1])

    @cute.jit
    def element(self, x, out, init, peers, mine: Int64, call, at: Int32):
        rank, tag, take, own, capacity = call
        half = SLOTS + Int64(tag & 1) * (8 * self.ranks) * capacity
        stride = capacity // self.words
        if own != 0:
            elements = [cute.make_tensor(pointer + at, cute.make_layout((1,)))[0] for pointer in pointers_of(x)]
            state = self.monoid.lift(*elements, Int64(1))
            place = half + (Int64(rank * self.words) * stride + at) * 8
            for w, value in enumerate(split_state(state)):
                word = (Int64(tag) << 32) | (Int64(value) & 0xFFFFFFFF)
                for r in cutlass.range_constexpr(self.ranks):
                    store(peers[r] + place + Int64(w * 8) * stride, word)
        slots = [mine + half + (Int64(n) * stride + at) * 8 for n in range(self.ranks * self.words)]
        first = [load(slot) for slot in slots]
        total = Maybe.none(self.monoid.types)
        for r in cutlass.range_constexpr(self.ranks):
            if (take >> r) & 1 != 0:
                of_rank = range(r * self.words, (r + 1) * self.words)
                halves = [Int32(await_word(slots[n], first[n], tag, rank, r) & 0xFFFFFFFF) for n in of_rank]
                total = total.append(join_state(halves, self.monoid.types), self.monoid.combine)
        if take != 0:
            state = total.state
            if cutlass.const_expr(self.start == "first"):
                state = self.monoid.combine(init, state)
            if cutlass.const_expr(self.start == "last"):
                state = self.monoid.combine(state, init)
            self.save(x, out, at, state)
        elif cutlass.const_expr(self.start is not None):
            self.save(x, out, at, init)

    def save(self, x, out, at, state) -> None:
        for pointer, result in zip(pointers_of(out), self.monoid.results_of(state)):
            cute.make_tensor(pointer + at, cute.make_layout((1,)))[0] = result


def pointer(address: Any) -> cute.Pointer:
    return cute.make_ptr(Int64, address, cute.AddressSpace.gmem, assumed_align=8)


def store(address: Any, word: Any) -> None:
    cute.arch.store(pointer(address), word, sem="relaxed", scope="sys")


def load(address: Any) -> Any:
    return cute.arch.load(pointer(address), Int64, sem="relaxed", scope="sys")


@cute.jit
def await_word(address: Int64, word: Int64, tag: Int32, rank: Int32, other):
    """The word at an address once it has the tag; ``word`` is what a first look found."""
    looks, since = Int32(0), Int64(0)
    patience = cutlass.const_expr(PATIENCE if bounded() else MINUTE)
    every = cutlass.const_expr(1 if bounded() else LOOKS)
    while Int32(word >> 32) != tag:
        word = load(address)
        looks += 1
        if looks == every:
            looks = Int32(0)
            now = Int64(cute.arch.globaltimer())
            if since == 0:
                since = now
            if now - since > patience:
                numbers = (rank, Int32(other), tag, Int32(word >> 32))
                stop("rank %d waits for rank %d: epoch tag %d has not come, the last is %d", numbers)
    return word


@cute.jit
def stop(what: cutlass.Constexpr, numbers):
    """Report, let others report, and end the kernel."""
    cute.printf("cutesync: " + what, *numbers)
    for _ in cutlass.range(LAST_WORDS, unroll=1):
        primitives.nanosleep(1_000_000)
    cute.arch.inline_ptx("trap;")
