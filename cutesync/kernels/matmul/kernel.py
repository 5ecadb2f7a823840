"""The warp-specialised matmul: D = A B^T for A (M, K), B (N, K) and D (M, N), each times a batch L; persistent.

A block has three warpgroups of 128 threads. The last is the *producer*: one warp of it brings k-tiles of A and B by TMA into a ring of
stages. The first two are *consumers*: they multiply a stage with WGMMA out of shared memory, hand it back, and store their tile (see
``epilogue``). setmaxnreg moves registers from the producer, which needs few, to the consumers, which hold the accumulators.

The ring is the DSL's PipelineTmaAsync: two mbarriers a stage.

- full: 1 arrival, of the producer (arrive.expect_tx), and the bytes of the stage, also those that a cluster's other block multicasts.
  Consumers wait for it, first phase 0.
- empty: an arrival of every consumer warp that reads the stage (8, or the 4 of one warpgroup in "pingpong"), in every block that a
  multicast of this producer fills. The producer waits for it, first phase 1, so the first round passes.

A stage is released one step late, when ``wgmma.wait_group 1`` has said that the tensor cores have read it; so one k-tile of
multiplications is always queued while the next stage is waited for.

While a tile is stored the tensor cores should work on the next. In "pingpong" the other warpgroup has them then. A "cooperative" block that has
several tiles holds the finished one in registers, and stores a slab of it after each of the next tile's first k-tiles (``MatmulPolicy.deferred``).
With split-K each block has a share of a tile's K, and one stores their sum (see ``split``).

Launches overlap (see ``sync.overlap``): a block may start, and prepare its barriers, as soon as the launch before it leaves an SM; it waits for
the whole of that launch before it touches global memory (griddepcontrol.wait).
"""

from __future__ import annotations

import enum

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int16, Int32, Int64, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from ...sync.barrier import Barriers as ShareBarriers
from ...sync.pipelines import acquire, await_filled, drain
from ...sync.wait import bounded, in_role
from .epilogue import Epilogue, Operands, Outlet, Terms
from .mma import tiled_mma
from .policy import CONSUMER_REGISTERS, CONSUMERS, K_TILE_BYTES, PRODUCER_REGISTERS, THREADS, WARPGROUP, MatmulPolicy
from .scheduler import TileOrder
from .split import gather_shares, meet

REPORT_REGISTERS = 8  # that each consumer gives up in a debug build: printf in a producer of 24 registers has no room


class Barriers(enum.IntEnum):
    """Named barriers. 0 is the block's; 1 and 2 are those of the epilogue, 128 threads each."""

    TURN = 3  # and 4: warpgroup 0's and 1's turn at the tensor cores ("pingpong"), 128 arrive and 128 wait


class Matmul:
    """The kernel for a configuration, types of A and B (equally wide), majors and epilogue. ``majors`` says of A and B whether K is
    contiguous. Integers are added up in int32, the rest in float32."""

    def __init__(self, config: MatmulPolicy, elements: tuple, out, majors: tuple[bool, bool], terms: Terms) -> None:
        self.config, self.terms = config, terms
        self.element_a, self.element_b = elements
        self.accumulator = Float32 if self.element_a.is_float else Int32
        self.a_major, self.b_major = (LayoutEnum.ROW_MAJOR if k_major else LayoutEnum.COL_MAJOR for k_major in majors)
        self.k = K_TILE_BYTES * 8 // self.element_a.width
        self.epilogue = Epilogue(config, out, terms)
        self.order = TileOrder(config.cluster)
        self.out = self.epilogue.out
        self.threads, self.smem = THREADS, config.smem(out.width // 8)

    @cute.jit
    def __call__(
        self,
        a: cute.Pointer,
        b: cute.Pointer,
        d: cute.Pointer,
        extents,
        strides,
        order,
        split,
        operands: Operands,
        grid: Int32,
        stream,
    ):
        """``extents`` are (M, N, K, L), ``strides`` those of A, B and D that are not 1, in elements: (row or column, batch) of each. Only
        its launch facts are used at run time; ``plan`` encodes the tensor maps that this function describes."""
        m, n, k, items = extents
        (a_step, a_batch), (b_step, b_batch), (d_step, d_batch) = strides
        a_k, b_k = self.a_major == LayoutEnum.ROW_MAJOR, self.b_major == LayoutEnum.ROW_MAJOR
        in_a = cute.make_tensor(
            a, cute.make_layout((m, k, items), stride=(a_step, 1, a_batch) if a_k else (1, a_step, a_batch))
        )
        in_b = cute.make_tensor(
            b, cute.make_layout((n, k, items), stride=(b_step, 1, b_batch) if b_k else (1, b_step, b_batch))
        )
        in_d = cute.make_tensor(d, cute.make_layout((m, n, items), stride=(d_step, 1, d_batch)))
        (tile_m, tile_n), (peers_m, peers_n) = self.config.tile, self.config.cluster
        layout_a = hopper_helpers.make_smem_layout_a(
            self.a_major, (tile_m, tile_n, self.k), self.element_a, self.config.stages
        )
        layout_b = hopper_helpers.make_smem_layout_b(
            self.b_major, (tile_m, tile_n, self.k), self.element_b, self.config.stages
        )
        layout_d = self.epilogue.slab_layout()
        atom_a, a_at = self.load_atom(in_a, layout_a, (tile_m, self.k), peers_n)
        atom_b, b_at = self.load_atom(in_b, layout_b, (tile_n, self.k), peers_m)
        atom_d, d_at = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), in_d, cute.slice_(layout_d, (None, None, 0)), (64, self.epilogue.columns)
        )
        self.kernel.set_name_prefix("cutesync_matmul", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(
            atom_a, a_at, atom_b, b_at, atom_d, d_at, layout_a, layout_b, layout_d, order, split, operands
        ).launch(
            grid=(grid, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(self.config.cluster_size, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=1,
            stream=stream,
        )  # without min_blocks_per_mp the compiler drops setmaxnreg

    def load_atom(self, tensor, layout, tile, peers: int):
        """The TMA load of a stage's tile, of which each of ``peers`` blocks brings its share to all of them."""
        operation = cpasync.CopyBulkTensorTileG2SMulticastOp() if peers > 1 else cpasync.CopyBulkTensorTileG2SOp()
        return cpasync.make_tiled_tma_atom(operation, tensor, layout, tile, num_multicast=peers)

    @cute.kernel
    def kernel(
        self,
        atom_a: cute.CopyAtom,
        a: cute.Tensor,
        atom_b: cute.CopyAtom,
        b: cute.Tensor,
        atom_d: cute.CopyAtom,
        d: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        layout_d: cute.ComposedLayout,
        order,
        split,
        operands: Operands,
    ):
        thread = cute.arch.thread_idx()[0]
        group = cute.arch.make_warp_uniform(thread // WARPGROUP)
        cute.arch.griddepcontrol_launch_dependents()
        if thread == THREADS - WARPGROUP:
            cpasync.prefetch_descriptor(atom_a)
            cpasync.prefetch_descriptor(atom_b)
        allocator = SmemAllocator()
        stages_a = allocator.allocate_tensor(
            self.element_a, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner
        )
        stages_b = allocator.allocate_tensor(
            self.element_b, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner
        )
        slabs = allocator.allocate_tensor(self.out, layout_d.outer, byte_alignment=1024, swizzle=layout_d.inner)
        barriers = allocator.allocate_array(Int64, 2 * self.config.stages)
        exchange = self.make_exchange(allocator)
        ring = self.make_ring(barriers)
        if cutlass.const_expr(self.config.meets):
            cute.arch.cluster_arrive_relaxed()  # the barriers that make_exchange initialised, seen by the whole cluster
            cute.arch.cluster_wait()
        spare = REPORT_REGISTERS if bounded() else 0
        if group == CONSUMERS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS + 2 * spare)
            if thread // 32 == CONSUMERS * 4:
                in_role("producer", self.produce, atom_a, a, atom_b, b, d, stages_a, stages_b, ring, order, split)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS - spare)
            in_role(
                "consumer",
                self.consume,
                atom_d,
                a,
                d,
                stages_a,
                stages_b,
                slabs,
                ring,
                order,
                split,
                exchange,
                operands,
                group,
                thread % WARPGROUP,
            )

    def make_ring(self, barriers):
        """The full and empty barriers of all stages, initialised and visible to the whole cluster."""
        peers_m, peers_n = self.config.cluster
        readers = 4 * CONSUMERS if self.config.schedule == "cooperative" else 4
        return pipeline.PipelineTmaAsync.create(
            num_stages=self.config.stages,
            barrier_storage=barriers,
            tx_count=self.config.stage_bytes(),
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 1),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, readers * (peers_m + peers_n - 1)),
            cta_layout_vmnk=cute.make_layout((1, peers_m, peers_n, 1)),
        )

    def make_exchange(self, allocator):
        """What the shares of split-K meet by: ``(shares, their barriers)`` in a cluster, else the words of the notice."""
        if self.config.meets:
            shares = allocator.allocate_array(self.accumulator, self.config.share_bytes() // 4)
            return shares, ShareBarriers.make(
                CONSUMERS, (self.config.splits - 1) * WARPGROUP, scope="cluster", name="shares"
            )
        return (
            allocator.allocate_tensor(Int32, cute.make_layout(CONSUMERS), byte_alignment=4)
            if self.config.splits > 1
            else None
        )

    # --- the tiles of this block ---------------------------------------------------------------------------------------------------

    @cute.jit
    def walk(self, d, split):
        """The first unit of this block's cluster, the step to its next, and the number of all units. (A cluster of shares has one.)"""
        units = self.order.units(*self.tiles(d), d.shape[2]) * (
            split[0] if self.config.splits > 1 and not self.config.meets else 1
        )
        return (
            cute.arch.block_idx()[0] // self.config.cluster_size,
            cute.arch.grid_dim()[0] // self.config.cluster_size,
            units,
        )

    def rank(self):
        """Which of the peers this block is."""
        return Int32(0) if self.config.meets else cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    def tiles(self, d):
        """Tiles along M and along N."""
        tile_m, tile_n = self.config.tile
        return (d.shape[0] + tile_m - 1) // tile_m, (d.shape[1] + tile_n - 1) // tile_n

    def k_tiles(self, a, split):
        """K-tiles of a unit. Those of the last share of split-K may lie outside K: TMA reads zeros there."""
        return split[1] if self.config.splits > 1 else (a.shape[1] + self.k - 1) // self.k

    def tile_and_share(self, unit, split):
        """Which cluster tile a unit belongs to, and which share of its K it is."""
        if self.config.meets:
            return unit, cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        return (unit // split[0], unit % split[0]) if self.config.splits > 1 else (unit, Int32(0))

    # --- producer ------------------------------------------------------------------------------------------------------------------

    @cute.jit
    def produce(self, atom_a, a, atom_b, b, d, stages_a, stages_b, ring, order, split):
        """One warp: for each k-tile of each tile wait until a stage is empty, and have TMA fill it. What the first load needs is known before
        the launches before this one are waited for."""
        along_n, group, batch_a, batch_b = order
        (tile_m, tile_n), (peers_m, peers_n) = self.config.tile, self.config.cluster
        rank = self.rank()
        to_a, from_a = self.partition(atom_a, a, stages_a, tile_m, rank // peers_m, peers_n)
        to_b, from_b = self.partition(atom_b, b, stages_b, tile_n, rank % peers_m, peers_m)
        unit, step, units = self.walk(d, split)
        k_tiles = self.k_tiles(a, split)
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.config.stages)
        tile, share = self.tile_and_share(unit, split)
        m, n, item = self.order.tile(tile, *self.tiles(d), along_n, group, rank)
        cute.arch.griddepcontrol_wait()
        while unit < units:
            for k in cutlass.range(share * k_tiles, (share + 1) * k_tiles, unroll=1):
                acquire(ring, stage)
                full = ring.producer_get_barrier(stage)
                self.load(atom_a, from_a[None, m, k, item * batch_a], to_a[None, stage.index], full, peers_n)
                self.load(atom_b, from_b[None, n, k, item * batch_b], to_b[None, stage.index], full, peers_m)
                stage.advance()
            unit += step
            tile, share = self.tile_and_share(unit, split)
            m, n, item = self.order.tile(tile, *self.tiles(d), along_n, group, rank)
        drain(ring, stage)  # nobody leaves while a peer may still multicast to it or arrive on its barriers

    def partition(self, atom, tensor, stages, rows: int, share, peers: int):
        """``(shared, global)`` for the copies of one operand: (copy, stage) and (copy, tile of rows, k-tile, batch). A block brings
        ``share`` of ``peers``."""
        tiles = cute.local_tile(tensor, (rows, self.k), (None, None, None))
        return cpasync.tma_partition(
            atom, share, cute.make_layout(peers), cute.group_modes(stages, 0, 2), cute.group_modes(tiles, 0, 2)
        )

    def load(self, atom, source, target, full, peers: int) -> None:
        """Start the load; its bytes arrive at ``full``, in every block of the cluster that needs them."""
        if peers > 1:
            cute.copy(atom, source, target, tma_bar_ptr=full, mcast_mask=Int16((1 << peers) - 1))
        else:
            cute.copy(atom, source, target, tma_bar_ptr=full)

    # --- consumers -----------------------------------------------------------------------------------------------------------------

    @cute.jit
    def consume(self, atom_d, a, d, stages_a, stages_b, slabs, ring, order, split, exchange, operands, group, thread):
        """One warpgroup: multiply and store the tiles of this block, all of them ("cooperative") or every second one ("pingpong")."""
        along_n, width, _, _ = order
        rank = self.rank()
        k_tiles = self.k_tiles(a, split)
        unit, step, units = self.walk(d, split)
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.config.stages)
        alternating = cutlass.const_expr(self.config.schedule == "pingpong")
        to = Outlet(atom_d, d, slabs, operands, group, thread)
        stored, turn = (
            Int32(0),
            Int32(group),
        )  # slabs stored by this warpgroup; tiles of this block before the one at hand
        held = cute.make_rmem_tensor((self.epilogue.parts * self.epilogue.words if self.config.deferred else 1,), Int32)
        tile = (
            self.tiles(d)[0] + self.config.peers,
            Int32(0),
            Int32(0),
        )  # the tile held: at first one outside the result, of which nothing is stored
        if alternating:
            if group == 1:
                stage.advance(k_tiles)
            unit += group * step
        cute.arch.griddepcontrol_wait()
        while unit < units:
            if alternating:
                if turn > 0:
                    cute.arch.barrier(barrier_id=Barriers.TURN + group, number_of_threads=2 * WARPGROUP)
            accumulators, stage, last, stored = self.multiply(
                stages_a, stages_b, ring, stage, k_tiles, held, tile, to, stored
            )
            if alternating:
                if unit + step < units:
                    cute.arch.barrier_arrive(barrier_id=Barriers.TURN + 1 - group, number_of_threads=2 * WARPGROUP)
            cluster_tile, share = self.tile_and_share(unit, split)
            tile = self.order.tile(cluster_tile, *self.tiles(d), along_n, width, rank)
            if cutlass.const_expr(not self.config.promoted):
                warpgroup.wait_group(0)
                self.release(ring, last)
            if cutlass.const_expr(self.config.splits > 1):
                mine = 0 if alternating else group
                if cutlass.const_expr(self.config.meets):
                    whole = meet(accumulators, *exchange, self.config.splits, share, mine, thread)
                else:
                    place = (cluster_tile * self.config.peers + rank) * self.config.holders + mine
                    whole = gather_shares(
                        accumulators, split[2], split[3], exchange, place, share, split[0], group, thread
                    )
                if whole:
                    stored = self.epilogue.store_tile(accumulators, tile, to, stored)
            elif cutlass.const_expr(self.config.deferred):
                self.epilogue.hold(accumulators, held, tile, to)
            else:
                stored = self.epilogue.store_tile(accumulators, tile, to, stored)
            if alternating:
                stage.advance(k_tiles)  # those are the other warpgroup's
                unit += step
                turn += 1
            unit += step
        if cutlass.const_expr(self.config.deferred):
            for part in cutlass.range_constexpr(self.epilogue.parts):
                stored = self.epilogue.store_held(held, part, tile, to, stored)
        self.epilogue.drain(thread)

    @cute.jit
    def multiply(self, stages_a, stages_b, ring, stage, k_tiles, held, tile, to: Outlet, stored):
        """Start all multiplications of a tile, and store the tile before, if it is held, beside the first of them. Returns the accumulators, still
        being added to, the stage after the last, the last stage, which is to be released when ``wait_group(0)`` has passed, and the slabs stored."""
        rows, columns = self.config.rows, self.config.tile[1]
        mma = self.mma()
        part = mma.get_slice(to.thread)
        mine = to.group if self.config.schedule == "cooperative" else 0
        of_a = mma.make_fragment_A(part.partition_A(cute.local_tile(stages_a, (rows, self.k), (mine, 0, None))))
        of_b = mma.make_fragment_B(part.partition_B(stages_b))
        accumulators = cute.make_rmem_tensor(
            part.partition_C(cute.make_identity_tensor((rows, columns))).shape, self.accumulator
        )
        last = stage.clone()
        if cutlass.const_expr(self.config.promoted):
            products = cute.make_rmem_tensor(accumulators.shape, self.accumulator)
            accumulators.fill(0.0)
            started = Int32(0)
            for slab in cutlass.range_constexpr(self.epilogue.parts if self.config.deferred else 0):
                if started < k_tiles:
                    self.multiply_stage(products, of_a, of_b, ring, stage, False)
                stored = self.epilogue.store_held(held, slab, tile, to, stored)
                if started < k_tiles:
                    self.promote(accumulators, products, ring, stage)
                    stage.advance()
                    started += 1
            for _ in cutlass.range(started, k_tiles, unroll=1):
                self.multiply_stage(products, of_a, of_b, ring, stage, False)
                self.promote(accumulators, products, ring, stage)
                stage.advance()
        else:
            self.multiply_stage(accumulators, of_a, of_b, ring, stage, False)
            stage.advance()
            started = Int32(1)
            for slab in cutlass.range_constexpr(self.epilogue.parts if self.config.deferred else 0):
                stored = self.epilogue.store_held(held, slab, tile, to, stored)
                if started < k_tiles:
                    self.multiply_next(accumulators, of_a, of_b, ring, stage, last)
                    stage.advance()
                    last.advance()
                    started += 1
            for _ in cutlass.range(started, k_tiles, unroll=1):
                self.multiply_next(accumulators, of_a, of_b, ring, stage, last)
                stage.advance()
                last.advance()
        return accumulators, stage, last, stored

    @cute.jit
    def promote(self, accumulators, products, ring, stage):
        """Add the products of a stage up, and hand it back."""
        warpgroup.wait_group(0)
        self.release(ring, stage)
        for i in cutlass.range_constexpr(cute.size(products)):
            accumulators[i] = accumulators[i] + products[i]

    def mma(self) -> cute.TiledMma:
        """One warpgroup's multiplications of a stage."""
        majors = self.a_major.sm90_mma_major_mode(), self.b_major.sm90_mma_major_mode()
        return tiled_mma(self.element_a, self.element_b, *majors, self.accumulator, self.config.tile[1])

    @cute.jit
    def multiply_next(self, accumulators, of_a, of_b, ring, stage, last):
        """Start the multiplications of a stage, and hand back the stage before."""
        self.multiply_stage(accumulators, of_a, of_b, ring, stage, True)
        warpgroup.wait_group(1)  # all but the newest: the stage before has been read
        self.release(ring, last)

    def multiply_stage(self, accumulators, of_a, of_b, ring, stage, add: bool) -> None:
        """Wait for a stage and start its multiplications, 64 x N x 32 bytes of K an instruction. Without ``add`` the first of them
        overwrites the accumulators."""
        mma = self.mma()
        await_filled(ring, stage)
        warpgroup.fence()
        for block in range(K_TILE_BYTES // 32):
            mma.set(warpgroup.Field.ACCUMULATE, add or block > 0)
            cute.gemm(
                mma,
                accumulators,
                of_a[None, None, block, stage.index],
                of_b[None, None, block, stage.index],
                accumulators,
            )
        warpgroup.commit_group()

    @cute.jit
    def release(self, ring, stage):
        """One arrival of each warp on the empty barrier, in every block that fills this stage."""
        cute.arch.sync_warp()
        ring.consumer_release(stage)
