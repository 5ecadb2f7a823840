"""The multiplications of a tile: WGMMA out of the ring's stages, each stage handed back when the tensor cores have read
it.

A stage is released one step late, when ``wgmma.wait_group 1`` has said that the tensor cores have read it; so one
k-tile of multiplications is always queued while the next stage is waited for. The promoted mainloop waits for every
k-tile instead, as it must add its products up itself.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.nvgpu import warpgroup

from ...sync.pipelines import await_filled
from .c_loads import C_AHEAD
from .epilogue import DirectStore, Progress
from .parts import EXPONENT, await_parts
from .policy import K_TILE_BYTES, MatmulPolicy
from .scheduler import Tile
from .store import Outlet


class Inputs(namedtuple("Inputs", "a b ring slices small_a small_b ready", defaults=(None, None, None))):
    """The stages of A and B, in shared memory or as WGMMA reads them (see ``Mainloop.fragments``), their ring, and how
    many slices K has; with ``MatmulPolicy.parts`` also the stages of their small parts, and the barriers that announce
    them."""


class Mainloop:
    """All products of a tile are added up in one set of accumulators. ``finish`` may store sub-tiles of the tile before
    beside the first k-tiles."""

    def __init__(
        self, config: MatmulPolicy, mma: Callable[[], cute.TiledMma], types: tuple, finish: DirectStore
    ) -> None:
        """``mma()`` is one warpgroup's multiplications of a stage; ``types`` are those of A and of the sums."""
        self.config, self.mma, self.finish = config, mma, finish
        self.k, self.accumulator = K_TILE_BYTES * 8 // types[0].width, types[1]
        self.c = finish.epilogue.c

    @cute.jit
    def run(self, inputs: Inputs, stage, k_tiles, progress: Progress, to: Outlet, tile: Tile):
        """Start all multiplications of a tile. Returns the accumulators, which ``wait`` must be called for, the stage
        after the last, the last stage, the progress of the stores, and what has been loaded of C."""
        inputs, accumulators = self.fragments(inputs, to)
        last = stage.clone()
        self.multiply(accumulators, inputs, stage, False)
        stage.advance()
        started = Int32(1)
        for index in cutlass.range_constexpr(self.finish.beside):
            progress = self.finish.store_beside(index, progress, to)
            if started < k_tiles:
                self.multiply_next(accumulators, inputs, stage, last)
                stage.advance()
                last.advance()
                started += 1
        if cutlass.const_expr(self.c.ahead):
            before = cutlass.max(started, k_tiles - C_AHEAD)
            for _ in cutlass.range(started, before, 1, unroll=1):
                self.multiply_next(accumulators, inputs, stage, last)
                stage.advance()
                last.advance()
            started = before
        fetched = self.c.load_ahead(tile, to)
        for _ in cutlass.range(started, k_tiles, 1, unroll=1):
            self.multiply_next(accumulators, inputs, stage, last)
            stage.advance()
            last.advance()
        return accumulators, stage, last, progress, fetched

    def wait(self, ring, last) -> None:
        """Wait for the multiplications of a tile, and hand its last stage back."""
        warpgroup.wait_group(0)
        self.release(ring, last)

    def fragments(self, inputs: Inputs, to: Outlet):
        """The stages as WGMMA reads them, and accumulators for this warpgroup's rows of a tile."""
        rows, columns, across = self.config.rows, self.config.columns, self.config.across
        mma = self.mma()
        part = mma.get_slice(to.thread)

        def of_a(stages):
            tile = cute.local_tile(stages, (rows, self.k), (0 if across else to.half, 0, None))
            return mma.make_fragment_A(part.partition_A(tile))

        def of_b(stages):
            tile = cute.local_tile(stages, (columns, self.k), (to.half if across else 0, 0, None))
            return mma.make_fragment_B(part.partition_B(tile))

        shape = part.partition_C(cute.make_identity_tensor((rows, columns))).shape
        found = inputs._replace(a=of_a(inputs.a), b=of_b(inputs.b))
        if self.config.parts:
            found = found._replace(small_a=of_a(inputs.small_a), small_b=of_b(inputs.small_b))
        return found, cute.make_rmem_tensor(shape, self.accumulator)

    @cute.jit
    def multiply_next(self, accumulators, inputs: Inputs, stage, last):
        """Start the multiplications of a stage, and hand back the stage before."""
        self.multiply(accumulators, inputs, stage, True)
        warpgroup.wait_group(1)  # all but the newest: the stage before has been read
        self.release(inputs.ring, last)

    def multiply(self, accumulators, inputs: Inputs, stage, add: bool) -> None:
        """Wait for a stage and start its multiplications, 64 x N x 32 bytes of K an instruction. Without ``add`` the
        first of them overwrites the accumulators."""
        mma = self.mma()
        await_filled(inputs.ring, stage)
        warpgroup.fence()
        for block in range(K_TILE_BYTES // 32):
            mma.set(warpgroup.Field.ACCUMULATE, add or block > 0)
            a, b = (operand[None, None, block, stage.index] for operand in inputs[:2])
            cute.gemm(mma, accumulators, a, b, accumulators)
        warpgroup.commit_group()

    @cute.jit
    def release(self, ring, stage):
        """One arrival of each warp on the empty barrier, in every block that fills this stage."""
        cute.arch.sync_warp()
        ring.consumer_release(stage)


class PromotedMainloop(Mainloop):
    """The products of every k-tile are added to a second set of accumulators in full float32
    (``MatmulPolicy.promoted``)."""

    @cute.jit
    def run(self, inputs: Inputs, stage, k_tiles, progress: Progress, to: Outlet, tile: Tile):
        inputs, accumulators = self.fragments(inputs, to)
        last = stage.clone()
        products = cute.make_rmem_tensor(accumulators.shape, self.accumulator)
        accumulators.fill(0.0)
        started = Int32(0)
        for index in cutlass.range_constexpr(self.finish.beside):
            if started < k_tiles:
                self.multiply(products, inputs, stage, False)
            progress = self.finish.store_beside(index, progress, to)
            if started < k_tiles:
                self.promote(accumulators, products, inputs.ring, stage)
                stage.advance()
                started += 1
        for _ in cutlass.range(started, k_tiles, 1, unroll=1):
            self.multiply(products, inputs, stage, False)
            self.promote(accumulators, products, inputs.ring, stage)
            stage.advance()
        return accumulators, stage, last, progress, None

    def wait(self, ring, last) -> None:
        """``promote`` has waited for every k-tile."""

    @cute.jit
    def promote(self, accumulators, products, ring, stage):
        """Add the products of a stage up, and hand it back."""
        warpgroup.wait_group(0)
        self.release(ring, stage)
        for i in cutlass.range_constexpr(cute.size(products)):
            accumulators[i] = accumulators[i] + products[i]


class SlicedMainloop(Mainloop):
    """K in slices, one behind the other (``MatmulPolicy.slices``). The sums of those behind the first go to a second
    set of accumulators, and are added as ``split`` adds those of other blocks."""

    @cute.jit
    def run(self, inputs: Inputs, stage, k_tiles, progress: Progress, to: Outlet, tile: Tile):
        inputs, accumulators = self.fragments(inputs, to)
        last, of_slice = stage.clone(), k_tiles // inputs.slices
        products = cute.make_rmem_tensor(accumulators.shape, self.accumulator)
        stage, last = self.multiply_slice(accumulators, inputs, stage, last, of_slice)
        for _ in cutlass.range(1, inputs.slices, 1, unroll=1):
            stage, last = self.multiply_slice(products, inputs, stage, last, of_slice)
            for i in cutlass.range_constexpr(cute.size(products)):
                accumulators[i] = accumulators[i] + products[i]
        return accumulators, stage, last, progress, self.c.load_ahead(tile, to)

    @cute.jit
    def multiply_slice(self, accumulators, inputs: Inputs, stage, last, k_tiles):
        """Multiply all k-tiles of a slice, and hand their stages back. Returns the stage behind them twice."""
        self.multiply(accumulators, inputs, stage, False)
        stage.advance()
        for _ in cutlass.range(1, k_tiles, 1, unroll=1):
            self.multiply_next(accumulators, inputs, stage, last)
            stage.advance()
            last.advance()
        warpgroup.wait_group(0)
        self.release(inputs.ring, last)
        last.advance()
        return stage, last

    def wait(self, ring, last) -> None:
        """``run`` has waited for every k-tile."""


class PartsMainloop(Mainloop):
    """Every stage has big and small parts (see ``parts``). The products of its big parts are added to the accumulators
    in full float32, as ``PromotedMainloop`` does, while the tensor cores add the small products to a third set, over
    all of K: these are 2**-11 of the sum, so their rounding does not matter."""

    @cute.jit
    def run(self, inputs: Inputs, stage, k_tiles, progress: Progress, to: Outlet, tile: Tile):
        inputs, accumulators = self.fragments(inputs, to)
        last = stage.clone()
        products, small = (cute.make_rmem_tensor(accumulators.shape, self.accumulator) for _ in range(2))
        accumulators.fill(0.0)
        small.fill(0.0)
        for _ in cutlass.range(0, k_tiles, 1, unroll=1):
            await_parts(inputs.ready, stage)
            warpgroup.fence()
            self.multiply_parts(products, ((inputs.a, inputs.b),), stage, False)
            self.multiply_parts(small, ((inputs.small_a, inputs.b), (inputs.a, inputs.small_b)), stage, True)
            warpgroup.wait_group(1)
            for i in cutlass.range_constexpr(cute.size(products)):
                accumulators[i] = accumulators[i] + products[i]
            warpgroup.wait_group(0)
            self.release(inputs.ring, stage)
            stage.advance()
        for i in cutlass.range_constexpr(cute.size(small)):
            finite = (small[i].bitcast(Int32) & EXPONENT) != EXPONENT
            accumulators[i] = accumulators[i] + Float32(cutlass.select_(finite, small[i], Float32(0.0)))
        return accumulators, stage, last, progress, self.c.load_ahead(tile, to)

    def wait(self, ring, last) -> None:
        """``run`` has waited for every k-tile."""

    def multiply_parts(self, accumulators, pairs: tuple, stage, add: bool) -> None:
        """Start the multiplications of pairs of parts of a stage that is ready."""
        mma = self.mma()
        for pair in pairs:
            for block in range(K_TILE_BYTES // 32):
                mma.set(warpgroup.Field.ACCUMULATE, add or block > 0)
                a, b = (operand[None, None, block, stage.index] for operand in pair)
                cute.gemm(mma, accumulators, a, b, accumulators)
        warpgroup.commit_group()
