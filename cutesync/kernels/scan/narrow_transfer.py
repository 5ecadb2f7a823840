"""The warp of ``narrow`` that copies tiles from global memory to shared memory, and results back."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.experimental import primitives

from ...monoid import choose
from ...sync.gather import enter
from ...sync.overlap import let_next_start
from ...sync.tiles import DONE
from ..hardware import VECTOR_BYTES
from ..tiled import ask_for_elements
from .base import Arguments, ScanKernel


class NarrowTransfer(ScanKernel):
    """Tiles of ``tile`` rows of ``inner`` columns of elements of ``size`` bytes, in ``stages`` of ``stage`` elements.
    ``aligned`` as in ``NarrowScan``."""

    inner: int
    tile: int
    size: int
    stages: int
    stage: int
    aligned: bool
    asks = True

    @cute.jit
    def ask(self, a: Arguments):
        """Ask for the tile with this block's rank: some block gets its number."""
        rank, _, _ = cute.arch.block_idx()
        place, _, _, elements = self.extent(rank, a)
        ask_for_elements(a.x + place, self.size, 0, elements, self.threads)

    def place(self, number, a: Arguments):
        """``(place, target, count)``: where a tile begins in the input and in the output, and how many rows it has.
        Tiles are cut in memory order."""
        tile = Int64(self.scan.flip(number % a.tiles, a.tiles))
        count = Int32(cutlass.min(a.length - tile * self.tile, Int64(self.tile)))
        place, target = (
            begin + tile * self.tile * self.inner for begin in self.row_places(a, Int64(number // a.tiles))
        )
        return place, target, count

    @cute.jit
    def transfer(self, shared: cutlass.Constexpr, a: Arguments):
        if cute.arch.lane_idx() == 0:
            self.transfer_alone(shared, a)

    @cute.jit
    def transfer_alone(self, shared: cutlass.Constexpr, a: Arguments):
        """One thread. Each visit to a stage stores the tile it held and loads another; one ``DONE`` ends the tiles."""
        tiles, ring = shared.tiles, shared.tiles.ring
        everything = Int32(a.rows) * a.tiles
        at = ring.start_producer()
        entry = enter(a.counters)
        tiles.word[0] = entry.tag
        idle = Int32(0)  # visits since there are no more tiles
        while idle < self.stages:
            number = entry.arrived
            held = shared.buffer + at.stage * self.stage
            before = tiles.numbers[at.stage]
            if before != DONE:
                if cutlass.const_expr(self.aligned):
                    self.store(held, a, before)
            if number < everything:
                tiles.announce(at, number)
                ring.load_alone(at, [self.around(held, a, number)])
            else:
                if idle == 0:
                    tiles.announce(at, Int32(DONE))
                    ring.full[at.stage].arrive()
                    let_next_start()
                idle += 1
            at = ring.next(at)
            if idle < self.stages:
                ring.acquire_alone(at)
            if number < everything:
                entry = enter(a.counters)  # the answer comes while the results of the stage are stored
        blocks, _, _ = cute.arch.grid_dim()
        entry.close(a.counters, Int32(0), everything + blocks)

    def extent(self, number, a: Arguments):
        """``(place, target, whole, elements)``: where a tile's elements begin in the input and in the output, how many
        whole 16 bytes hold, and how many there are."""
        place, target, count = self.place(number, a)
        elements = count * self.inner
        return place, target, elements // (16 // self.size) * (16 // self.size), elements

    def around(self, held, a: Arguments, number) -> tuple:
        """``(target, source, bytes)`` of the vectors that hold a tile. Those that reach beyond the array are copied
        here, with zeros in place of what lies there."""
        place, _, _, elements = self.extent(number, a)
        begin, end = (each.toint() for each in self.bounds(a, number))
        low = (a.x + place).toint() & -VECTOR_BYTES
        high = ((a.x + (place + elements)).toint() + (VECTOR_BYTES - 1)) & -VECTOR_BYTES
        self.copy_if(low < begin, held, low, begin, end)
        skipped = choose(low < begin, Int32(VECTOR_BYTES), Int32(0))
        size = Int32(high - low)
        last = size - VECTOR_BYTES
        self.copy_if(high > end, held + last // self.size, high - VECTOR_BYTES, begin, end)
        size -= skipped + choose(high > end, Int32(VECTOR_BYTES), Int32(0))
        source = self.pointer(low + Int64(skipped), a.x.memspace, VECTOR_BYTES)
        target = (held + skipped // self.size).toint()
        return self.pointer(target, cute.AddressSpace.smem, VECTOR_BYTES), source, cutlass.max(size, 0)

    def bounds(self, a: Arguments, number) -> tuple:
        """Between which addresses memory may be read for a tile."""
        if self.scan.view is None:
            return a.x, a.x + a.rows * a.whole * self.inner
        first = a.x + self.row_places(a, Int64(number // a.tiles))[0]  # between its slices lies what others may write
        return first, first + a.whole * self.inner

    @cute.jit
    def copy_if(self, exists, target, address, begin, end):
        """Copy the elements of the vector at an address that lie from ``begin`` to ``end``."""
        if exists:
            kind = self.scan.monoid.source.cutlass
            for i in cutlass.range_constexpr(VECTOR_BYTES // self.size):
                at = address + i * self.size
                source = cutlass.min(cutlass.max(at, begin), end - self.size)
                value = kind(element(self.pointer(source, cute.AddressSpace.gmem, self.size))[0])
                element(target + i)[0] = choose(source == at, value, kind(0))

    def pointer(self, address, space, align: int):
        return cute.make_ptr(self.scan.monoid.source.cutlass, address, space, assumed_align=align)

    @cute.jit
    def store(self, held, a: Arguments, number):
        _, target, whole, elements = self.extent(number, a)
        results = cute.make_ptr(self.scan.monoid.result.cutlass, held.toint(), cute.AddressSpace.smem, assumed_align=16)
        if whole > 0:
            primitives.cp_async_bulk_global_shared_cta(a.out + target, results, whole * self.size)
            cute.arch.cp_async_bulk_commit_group()
        if whole < elements:
            self.copy(a.out + target, results, whole, elements, self.scan.monoid.result.cutlass)
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy into it
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def copy(self, target, source, begin, end, kind: cutlass.Constexpr):
        """The elements at the end of an outer slice that are fewer than 16 bytes."""
        for i in cutlass.range(begin, end, 1, unroll=1):
            element(target + i)[0] = kind(element(source + i)[0])


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
