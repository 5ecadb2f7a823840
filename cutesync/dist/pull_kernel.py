"""Kernels that read what other devices have: copies of blocks of their arrays, and combinations of them.

Every device launches one, once a call, and reads the arrays of all others in place, through peer memory. Who waits for
whom: the block that starts first writes a header into the memory of every device (``link``), with release at system
scope, as its array is there since the launches before have ended. Every block waits for the headers of all devices
before it reads. A device may write to its array again after the launch: so a launch ends only after all have read. The
block that ends last tells all devices, with release at system scope, and waits for the same word of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
from cutlass import Int32, Int64, Uint8, Uint16, cute

from ..kernels.plain import PlainKernel
from ..kernels.reduce.base import store_vector
from ..sync.gather import Notice, enter
from .link import Link, chosen
from .memory import ENDED, Call
from .pull import THREADS, UNROLL


class Block(NamedTuple):
    """A block of an array, and where it goes: ``run`` units follow each other, in ``rows`` (three numbers); where the
    first unit lies in the source and in the target, and how far apart rows are there. All count units."""

    source: Any
    target: Any
    run: Any
    rows: tuple
    source_steps: tuple
    target_steps: tuple

    @classmethod
    def of(cls, numbers) -> Block:
        source, target, run = numbers[:3]
        return cls(source, target, run, numbers[3:6], numbers[6:9], numbers[9:12])

    @property
    def total(self):
        return self.run * self.rows[0] * self.rows[1] * self.rows[2]

    def places(self, at):
        """Where unit ``at`` lies in the source and in the target."""
        line, column = at // self.run, at % self.run
        line, last = line // self.rows[2], line % self.rows[2]
        row = (line // self.rows[1], line % self.rows[1], last)
        source, target = Int64(self.source + column), Int64(self.target + column)
        for index, step, to in zip(row, self.source_steps, self.target_steps):
            source += Int64(index) * step
            target += Int64(index) * to
        return source, target


class PullKernel(PlainKernel):
    """A launch: ``x`` are the arrays of all devices, ``blocks`` has the numbers of a ``Block`` for each. A subclass
    defines ``body``. Units are counted in 64 bits if ``wide``."""

    name, threads, smem = "pull", THREADS, 64

    def __init__(self, ranks: int, wide: bool) -> None:
        self.ranks, self.count = ranks, Int64 if wide else Int32

    @cute.jit
    def main(self, x: tuple, out: cute.Pointer, blocks: tuple, peers: tuple, call: tuple):
        thread, call = cute.arch.thread_idx()[0], Call(*call)
        mine = chosen(peers, call.rank)
        notice = Notice.make()
        if thread == 0:
            counters = cute.make_ptr(Int32, mine, cute.AddressSpace.gmem, assumed_align=8)
            entry = enter(counters)
            entry.close(counters, cute.arch.grid_dim()[0], cute.arch.grid_dim()[0])
            notice.post(Int32(entry.word & 0xFFFFFFFF), entry.tag)
        cute.arch.sync_threads()
        ticket, tag = Int32(notice.words[0]), Int32(notice.words[1])
        link = Link(peers, mine, tag, call)
        if (ticket == 0) & (thread < self.ranks):
            link.publish(chosen(peers, thread), link.headers)
        if thread < self.ranks:
            link.acquire(link.headers, thread)
        cute.arch.sync_threads()
        here = self.count(cute.arch.block_idx()[0]) * self.threads + thread
        step = self.count(cute.arch.grid_dim()[0]) * self.threads
        each = len(blocks) // self.ranks
        found = [Block.of([self.count(n) for n in blocks[r * each : (r + 1) * each]]) for r in range(self.ranks)]
        self.body(x, out, found, here, step)
        self.end(link, thread)

    @cute.jit
    def end(self, link: cutlass.Constexpr, thread: Int32):
        """All blocks have read; then all devices."""
        cute.arch.sync_threads()
        last = Notice.make()
        if thread == 0:
            ended = cute.make_ptr(Int32, link.mine + ENDED, cute.AddressSpace.gmem, assumed_align=4)
            before = cute.arch.atomic_add(ended, Int32(1), sem="acq_rel", scope="gpu")
            is_last = before == cute.arch.grid_dim()[0] - 1
            if is_last:
                cute.arch.store(ended, Int32(0), sem="relaxed", scope="gpu")
            last.post(Int32(is_last), Int32(0))
        cute.arch.sync_threads()
        if last.collector & (thread < self.ranks):
            link.publish(chosen(link.peers, thread), link.farewells)
            link.acquire(link.farewells, thread)


class CopyKernel(PullKernel):
    """Copies a block of each array to the target. A unit has ``unit`` bytes: 1, 2, 4, 8 or 16."""

    def __init__(self, ranks: int, wide: bool, unit: int) -> None:
        super().__init__(ranks, wide)
        self.unit, self.word = unit, {1: Uint8, 2: Uint16}.get(unit, Int32)
        self.words = max(unit // 4, 1)

    @cute.jit
    def body(self, x, out, blocks: cutlass.Constexpr, here, step):
        for source, block in zip(x, blocks):
            self.copy(source, out, block, here, step)

    @cute.jit
    def copy(self, source, out, block: cutlass.Constexpr, here, step):
        # the stride is stated: a mode of one element would get stride 0
        layout = cute.make_layout((self.words, UNROLL), stride=(1, self.words))
        registers, total = cute.make_rmem_tensor(layout, self.word), block.total
        at = here
        while at < total:
            for u in cutlass.range_constexpr(UNROLL):
                if at + u * step < total:
                    place, _ = block.places(at + u * step)
                    cute.autovec_copy(self.memory(source, place), registers[(None, u)])
            for u in cutlass.range_constexpr(UNROLL):
                if at + u * step < total:
                    _, place = block.places(at + u * step)
                    cute.autovec_copy(registers[(None, u)], self.memory(out, place))
            at += UNROLL * step

    def memory(self, pointer, place):
        """The unit at a place behind a pointer."""
        at = cute.make_ptr(
            self.word, pointer.toint() + place * self.unit, cute.AddressSpace.gmem, assumed_align=self.unit
        )
        return cute.make_tensor(at, cute.make_layout((self.words,)))


class CombineKernel(PullKernel):
    """Combines the elements at the same place of all arrays, in the order of ranks. A unit has ``unit`` elements; the
    blocks differ in nothing but the array."""

    def __init__(self, ranks: int, wide: bool, unit: int, monoid: Any) -> None:
        super().__init__(ranks, wide)
        self.unit, self.monoid = unit, monoid

    @cute.jit
    def body(self, x, out, blocks: cutlass.Constexpr, here, step):
        (block, *_), total = blocks, blocks[0].total
        source, result, at = self.monoid.source, self.monoid.results[0], here
        layout = cute.make_layout((self.unit, self.ranks), stride=(1, self.unit))
        registers = cute.make_rmem_tensor(layout, source.cutlass)
        while at < total:
            place, target = block.places(at)
            for r in cutlass.range_constexpr(self.ranks):
                start = (x[r] + place * self.unit).toint()
                align = self.unit * source.size
                first = cute.make_ptr(source.cutlass, start, cute.AddressSpace.gmem, assumed_align=align)
                cute.autovec_copy(cute.make_tensor(first, cute.make_layout((self.unit,))), registers[(None, r)])
            values = [self.combined([registers[(u, r)] for r in range(self.ranks)]) for u in range(self.unit)]
            store_vector(out + target * self.unit, result, values, self.unit * result.size)
            at += step

    def combined(self, elements):
        """The result of the elements of all ranks."""
        state = self.monoid.lift(elements[0], Int64(0))
        for element in elements[1:]:
            state = self.monoid.combine(state, self.monoid.lift(element, Int64(0)))
        return self.monoid.results_of(state)[0]
