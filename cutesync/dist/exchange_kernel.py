"""The kernel that exchanges states between devices: each gets all of them and combines them in the order of ranks.

Every device launches it, once a call. Thread ``at`` of all blocks together owns element ``at``: it sends the state of
its own device, then combines those of all devices (``link``). Blocks take their elements in the order in which they
start, so the oldest unfinished elements are under way on every device that has started, however few blocks are
resident.
"""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute

from ..kernels.arrays import pointers_of, together
from ..kernels.plain import PlainKernel
from ..sync.gather import Entry, Notice, enter
from ..sync.overlap import let_next_start
from .exchange import THREADS
from .link import Late, Link, chosen
from .memory import Call


class ExchangeKernel(PlainKernel):
    """``take`` has a bit for each rank whose state a device combines, ``own`` is 1 if it has states itself. A launch of
    a ``single`` block needs no tickets, and raises the epoch at its end. ``start``: whether ``init`` comes "first" or
    "last" among the states, or None if there is none."""

    name, threads, smem = "exchange", THREADS, 128

    def __init__(self, monoid, ranks: int, start: str | None, single: bool) -> None:
        self.monoid, self.ranks, self.start, self.single = monoid, ranks, start, single

    @cute.jit
    def main(self, x: tuple, out: tuple, init: tuple, peers: tuple, call: tuple):
        """``call`` has the members of ``Call``, ``init`` ends with the run-time arguments of callables."""
        let_next_start()
        call = Call(*call)
        given = len(init) - self.monoid.arg_count
        self.monoid.bind(init[given:])
        thread = cute.arch.thread_idx()[0]
        mine = chosen(peers, call.rank)
        counters = cute.make_ptr(Int64, mine, cute.AddressSpace.gmem, assumed_align=8)
        if cutlass.const_expr(self.single):
            word = cute.arch.load(counters, Int64, sem="relaxed", scope="gpu")
            ticket, tag = Int32(0), Entry(word, Int32(0)).tag
        else:
            ticket, tag = self.enter(counters, thread)
        link = Link(peers, mine, tag, call)
        if (ticket == 0) & (thread < self.ranks):
            link.greet(chosen(peers, thread))
        at = ticket * self.threads + thread
        if at < call.count:
            self.element(together(x), together(out), init[:given], link, at)
        if (ticket == 0) & (thread < self.ranks):
            link.meet([thread], Late.none())
        if cutlass.const_expr(self.single):
            cute.arch.sync_threads()  # all threads have read the counters
            if thread == 0:
                cute.arch.store(counters, word + (Int64(1) << 32), sem="relaxed", scope="gpu")

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
    def element(self, x, out, init, link: cutlass.Constexpr, at: Int32):
        if link.call.own != 0:
            elements = [cute.make_tensor(pointer + at, cute.make_layout((1,)))[0] for pointer in pointers_of(x)]
            link.send(self.monoid.types, self.monoid.lift(*elements, Int64(1)), at)
        state, late = link.combined(self.monoid, at)
        link.stop_if(late)
        if link.call.take != 0:
            if cutlass.const_expr(self.start is not None):
                state = self.started(init, state)
            self.save(x, out, at, state)
        elif cutlass.const_expr(self.start is not None):
            self.save(x, out, at, self.alone(init))

    def started(self, init, state):
        """The state together with ``init``."""
        return self.monoid.combine(*((init, state) if self.start == "first" else (state, init)))

    def alone(self, init):
        """The state of ``init`` where no rank has one."""
        return init

    def save(self, x, out, at, state) -> None:
        for pointer, result in zip(pointers_of(out), self.monoid.results_of(state)):
            cute.make_tensor(pointer + at, cute.make_layout((1,)))[0] = result
