"""What all scan kernels share: one argument list, one launch, and what is computed.

The array is seen as (rows, length, inner): ``length`` elements are scanned for each of rows * inner. Arguments: ``x``, ``out``;
``init_at`` (the address of one in device memory) or ``init`` (a register value), read as ``start`` says; the workspace's ``slots``
and ``counters`` (see ``sync.gather``); the three extents; how many tiles cover a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ...monoid import nonzero
from ...sync.gather import enter, settle
from ...sync.overlap import await_launches


@dataclass(frozen=True)
class Scan:
    """What a scan computes. ``start`` says where a first operand comes from: None, "value" or "memory".

    Scan order is index order, or its reverse with ``reverse``; the operator always gets the lower index first. Positions, lanes and
    tiles below are counted in scan order. A position holds ``width`` neighbouring elements, of columns that are scanned side by side.
    """

    monoid: Any
    exclusive: bool
    reverse: bool
    start: str | None
    width: int = 1

    @property
    def types(self) -> tuple:
        """The registers of a state: those of each column in turn."""
        return self.monoid.types * self.width

    def combine(self, a, b):
        """Combine ``a``, which comes earlier in scan order, with ``b``."""
        first, second = (b, a) if self.reverse else (a, b)
        each = len(self.monoid.types)
        return tuple(
            value
            for c in range(0, len(a), each)
            for value in self.monoid.combine(first[c : c + each], second[c : c + each])
        )

    def lift(self, elements, place):
        """The state of the position whose first element is ``elements[place]``."""
        return tuple(value for c in range(self.width) for value in self.monoid.lift(elements[place + c], 0))

    def lower(self, state, elements, place) -> None:
        """Store a state's results from ``elements[place]`` on."""
        each = len(self.monoid.types)
        for c in range(self.width):
            elements[place + c] = self.monoid.lower(state[c * each : (c + 1) * each])

    def flip(self, position, count):
        """The place in memory order of ``position`` (in scan order) among ``count``."""
        return count - 1 - position if self.reverse else position

    def first(self, init, init_at):
        """The state before the first element; meaningless without ``start``."""
        if self.start == "memory":
            value = self.monoid.result.cutlass(cute.make_tensor(init_at, cute.make_layout((1,)))[0])
            init = self.monoid.types[0](nonzero(value) if self.monoid.result.kind == "b" else value)
        return (init,) * self.width


class ScanKernel:
    """A compiled scan. A subclass defines ``body``, which gets the arguments in the order above."""

    def __init__(self, scan: Scan, threads: int, smem: int, blocks_per_sm: int) -> None:
        self.scan, self.threads, self.smem, self.blocks_per_sm = scan, threads, smem, blocks_per_sm

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        out: cute.Pointer,
        init_at: cute.Pointer,
        init,
        slots: cute.Pointer,
        counters: cute.Pointer,
        rows: Int64,
        length: Int64,
        inner: Int64,
        tiles: Int32,
        grid: Int32,
        stream,
    ):
        self.kernel.set_name_prefix("cutesync_scan", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, init_at, init, slots, counters, rows, length, inner, tiles).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=self.blocks_per_sm,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        x: cute.Pointer,
        out: cute.Pointer,
        init_at: cute.Pointer,
        init,
        slots: cute.Pointer,
        counters: cute.Pointer,
        rows: Int64,
        length: Int64,
        inner: Int64,
        tiles: Int32,
    ):
        await_launches()
        self.body(x, out, init_at, init, slots, counters, rows, length, inner, tiles)

    @cute.jit
    def take_number(self, counters: cute.Pointer, thread: Int32):
        """``(number, tag)``: blocks are numbered as they start, so all before this one have started; the tag is the launch's. One block barrier."""
        notice = cute.make_tensor(SmemAllocator().allocate_array(Int32, 2), cute.make_layout((2,)))
        if thread == 0:
            entered = enter(counters)
            notice[0] = entered[1]
            notice[1] = settle(counters, entered, Int32(0), cute.arch.grid_dim()[0])[1]
        cute.arch.sync_threads()
        return notice[0], notice[1]
