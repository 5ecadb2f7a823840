"""The warp-specialised matmul: D = A B^T for A (M, K), B (N, K) and D (M, N), each times a batch L; persistent.

A block has three warpgroups of 128 threads. The last is the *producer*: one warp of it brings k-tiles of A and B by TMA
into a ring of stages. The first two are *consumers*: they multiply a stage with WGMMA out of shared memory
(``mainloop``), hand it back, and store their tile (``epilogue``, ``store``, ``split``); ``schedule`` says how the two
share tiles. setmaxnreg moves registers from the producer, which needs few, to the consumers, which hold the
accumulators. Operands that TMA refuses may be loaded by all four warps of the producer's warpgroup (``own``).

The ring is the DSL's PipelineTmaAsync: two mbarriers a stage.

- full: 1 arrival, of the producer (arrive.expect_tx), and the bytes of the stage, also those that a cluster's other
  block multicasts. Consumers wait for it, first phase 0.
- empty: an arrival of every consumer warp that reads the stage (8, or the 4 of one warpgroup in "pingpong"), in every
  block that a multicast of this producer fills. The producer waits for it, first phase 1, so the first round passes.

Launches overlap (see ``sync.overlap``): a block may start, and prepare its barriers, as soon as the launch before it
leaves an SM; it waits for the whole of that launch before it touches global memory (griddepcontrol.wait). Launches
whose blocks would lie unevenly if others came early let nobody start (see ``overlap``).
"""

from __future__ import annotations

from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, pipeline
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers

from ...sync.barrier import Barriers
from ...sync.pipelines import acquire, drain
from ...sync.wait import bounded, in_role
from .dense import own_load
from .epilogue import DeferredStore, DirectStore, Epilogue, Progress
from .loads import TmaLoad, ask_ahead, partition, start
from .mainloop import Inputs, Mainloop, PartsMainloop, PromotedMainloop, SlicedMainloop
from .mma import tiled_mma
from .own import OWN_IN_FLIGHT, OwnProducer
from .parameters import Operands, Order, Source, Split
from .parts import WARPS, split_stage
from .policy import (
    CONSUMER_REGISTERS,
    CONSUMERS,
    K_TILE_BYTES,
    OWN_REGISTERS,
    PARTS_REGISTERS,
    PRODUCER_REGISTERS,
    THREADS,
    WARPGROUP,
    MatmulPolicy,
)
from .schedule import Cooperative, PingPong
from .scheduler import Work
from .split import ClusterSplit, Turnstile
from .store import Outlet, Target
from .terms import TermsSpec

REPORT_REGISTERS = 8  # that each consumer gives up in a debug build: printf in a producer of 24 registers has no room


class Matmul:
    """The kernel for a configuration, types of A and B (equally wide), majors and epilogue. ``majors`` says of A and B
    whether K is contiguous, ``loads`` how they are loaded (see ``plan.Operand``). Integers are added up in int32, the
    rest in float32."""

    def __init__(
        self,
        config: MatmulPolicy,
        elements: tuple,
        out,
        majors: tuple[bool, bool],
        terms: TermsSpec,
        loads: tuple[str, str] = ("tma", "tma"),
    ) -> None:
        self.config, self.parts = config, bool(config.parts)
        self.element_a, self.element_b = elements
        self.a_major, self.b_major = (LayoutEnum.ROW_MAJOR if k_major else LayoutEnum.COL_MAJOR for k_major in majors)
        modes = self.a_major.sm90_mma_major_mode(), self.b_major.sm90_mma_major_mode()
        types = self.element_a, Float32 if self.element_a.is_float else Int32
        mma = partial(tiled_mma, self.element_a, self.element_b, *modes, types[1], config.columns)
        self.k = K_TILE_BYTES * 8 // self.element_a.width
        self.epilogue = Epilogue(config, out, terms)
        self.schedule = (Cooperative if config.schedule == "cooperative" else PingPong)()
        split = ClusterSplit if config.cluster_split else Turnstile
        self.finish = (split if config.splits > 1 else DeferredStore if config.deferred else DirectStore)(self.epilogue)
        mainloop = PartsMainloop if self.parts else PromotedMainloop if config.promoted else Mainloop
        mainloop = SlicedMainloop if config.slices > 1 else mainloop
        self.mainloop = mainloop(config, mma, types, self.finish)
        registers = OWN_IN_FLIGHT // max(1, 2 - loads.count("tma"))
        own = (
            own_load(*each, registers) if each[0] != "tma" else None
            for each in zip(loads, elements, config.tile, majors)
        )
        self.producer = OwnProducer(config, tuple(own))
        self.threads, self.smem = THREADS, config.smem(self.epilogue.bytes)

    @cute.jit
    def __call__(
        self,
        a: cute.Pointer,
        b: cute.Pointer,
        d: cute.Pointer,
        extents,
        strides,
        order: Order,
        split: Split,
        operands: Operands,
        grid: Int32,
        stream,
    ):
        """``extents`` are (M, N, K, L), ``strides`` those of A, B and D that are not 1, in elements: (row or column,
        batch) of each; of operands that the producer's threads load, all of ``Source`` but the pointer. Only its launch
        facts are used at run time; ``plan`` encodes the tensor maps that this function describes."""
        m, n, k, items = extents
        of_a, of_b, (d_step, d_batch) = strides
        steps_d = (1, d_step, d_batch) if self.epilogue.terms.by_columns else (d_step, 1, d_batch)
        in_d = cute.make_tensor(d, cute.make_layout((m, n, items), stride=steps_d))
        tile, stages = (*self.config.tile, self.k), self.config.stages
        layout_a = hopper_helpers.make_smem_layout_a(self.a_major, tile, self.element_a, stages)
        layout_b = self.layout_b()
        in_a = self.operand(0, a, (m, k, items), of_a, layout_a)
        in_b = self.operand(1, b, (n, k, items), of_b, layout_b)
        atom_d, d_at = self.epilogue.stores[0].tma(in_d)
        second = self.second_store(d, (d_step, d_batch), operands.more, (m, n, items))
        self.kernel.set_name_prefix("cutesync_matmul", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(in_a, in_b, atom_d, d_at, layout_a, layout_b, order, split, operands, second).launch(
            grid=(grid, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(self.config.cluster_size, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=1,  # without it the compiler drops setmaxnreg
            stream=stream,
        )

    def layout_b(self):
        """The stages of B, swizzled so that each warpgroup's columns are whole boxes."""
        major, element = self.b_major, self.element_b
        kind = hopper_helpers.get_smem_layout_atom(
            major, element, self.k if major.is_k_major_b() else self.config.columns
        )
        atom = hopper_helpers.make_smem_layout_atom(kind, element)
        order = (0, 1, 2) if major.is_k_major_b() else (1, 0, 2)
        return cute.tile_to_shape(atom, (self.config.tile[1], self.k, self.config.stages), order)

    def operand(self, number: int, pointer, extents, steps, layout) -> tuple:
        """How the producer finds operand ``number``: a ``Source``, or the TMA load of a stage's tile, of which each of
        ``peers`` blocks brings a part to all of them, and the tensor of its coordinates."""
        if self.producer.own[number]:
            return Source(pointer, *steps)
        major, rows, peers = (
            (self.a_major, self.b_major)[number],
            self.config.tile[number],
            self.config.cluster[1 - number],
        )
        step, batch = steps
        stride = (step, 1, batch) if major == LayoutEnum.ROW_MAJOR else (1, step, batch)
        tensor = cute.make_tensor(pointer, cute.make_layout(extents, stride=stride))
        operation = cpasync.CopyBulkTensorTileG2SMulticastOp() if peers > 1 else cpasync.CopyBulkTensorTileG2SOp()
        parts = self.config.parts_of_b if number else peers
        atom, coordinates = cpasync.make_tiled_tma_atom(operation, tensor, layout, (rows, self.k), num_multicast=parts)
        return atom, coordinates

    def second_store(self, d, steps, more, shape) -> tuple:
        """The TMA store of the columns of the result, or of what was before the activation, and the tensor of its
        coordinates; () if there is none."""
        if self.epilogue.terms.maps_columns:
            atom, coordinates = self.epilogue.stores[0].of_columns.tma(
                cute.make_tensor(d, cute.make_layout(shape, stride=(1, *steps)))
            )
            return atom, coordinates
        if self.epilogue.terms.pre is None or not self.epilogue.terms.pre_by_tma:
            return ()
        store, (m, n, items) = self.epilogue.stores[1], shape
        pointer = cute.make_ptr(store.out, more.pre_pointer.toint(), cute.AddressSpace.gmem, assumed_align=16)
        layout = cute.make_layout((m, n, items), stride=(more.pre_row, 1, more.pre_batch))
        atom, coordinates = store.tma(cute.make_tensor(pointer, layout))
        return atom, coordinates

    def targets(self, d: Target, second: tuple) -> tuple:
        """Where each result goes, or the rows and the columns of one. ``d`` is the first, with the buffers as
        allocated, for the wider elements; ``second`` the TMA store of the other and the tensor of its coordinates."""
        stores = self.epilogue.stores
        if len(stores) == 1 and not self.epilogue.terms.either:
            return (d,)
        atom, coordinates = second or (None, None)
        if self.epilogue.terms.either:
            return d, Target(atom, coordinates, stores[0].of_columns.view(d.buffers))
        views = [d.buffers if store is self.epilogue.widest else store.view(d.buffers) for store in stores]
        return d._replace(buffers=views[0]), Target(atom, coordinates, views[1])

    @cute.kernel
    def kernel(
        self,
        a: tuple,
        b: tuple,
        atom_d: cute.CopyAtom,
        d: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
        order: Order,
        split: Split,
        operands: Operands,
        second: tuple,
    ):
        thread = cute.arch.thread_idx()[0]
        group = cute.arch.make_warp_uniform(thread // WARPGROUP)
        if order.early > 0:
            cute.arch.griddepcontrol_launch_dependents()
        if thread == THREADS - WARPGROUP:
            for number in self.producer.by_tma:
                cpasync.prefetch_descriptor((a, b)[number][0])
        allocator = SmemAllocator()
        of_stages = ((self.element_a, layout_a), (self.element_b, layout_b))
        *stages, buffers = (
            allocator.allocate_tensor(element, layout.outer, byte_alignment=1024, swizzle=layout.inner)
            for element, layout in (
                *(of_stages * (1 + self.parts)),
                (self.epilogue.widest.out, self.epilogue.widest.buffer_layout()),
            )
        )
        stages_a, stages_b, *small = stages
        barriers = allocator.allocate_array(Int64, 2 * self.config.stages)
        exchange = self.finish.exchange(allocator, split, stages_a.iterator)  # the barriers before are 16 bytes a stage
        if cutlass.const_expr(self.parts):
            small.append(Barriers.make(self.config.stages, WARPS, name="ready"))
        ring, landed = self.make_ring(barriers, allocator)
        if cutlass.const_expr(self.config.cluster_split and self.config.peers == 1):
            # the barriers of the exchange are initialised, seen by the whole cluster
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()
        work = Work(self.config, lambda: self.producer.extent_k(a), d, self.k, order, split)
        spare = max(REPORT_REGISTERS * bounded(), PARTS_REGISTERS * self.parts, OWN_REGISTERS * self.config.own)
        if group == CONSUMERS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS + 2 * spare)
            if cutlass.const_expr(self.config.own):
                in_role("producer", self.producer.produce, (a, b), (stages_a, stages_b), ring, work, landed)
            elif thread // 32 == CONSUMERS * 4:
                (tile_m, tile_n), peers_n, parts_b = self.config.tile, self.config.cluster[1], self.config.parts_of_b
                of_row, of_column = work.multicasts()
                load_a = TmaLoad(a[0], a[1], stages_a, tile_m, self.k, order.a_priority, peers_n, of_row)
                load_b = TmaLoad(b[0], b[1], stages_b, tile_n, self.k, order.b_priority, parts_b, of_column)
                in_role("producer", self.produce, load_a, load_b, ring, work)
            elif cutlass.const_expr(self.parts):
                in_role("splitter", self.split_stages, Inputs(stages_a, stages_b, ring, split.splits, *small), work)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS - spare)
            half, index = self.schedule.half(group), thread % WARPGROUP
            registers, largest = self.finish.registers(), self.epilogue.magnitude()
            targets = self.targets(Target(atom_d, d, buffers), second)
            to = Outlet(targets, d.shape, operands, exchange, registers, largest, group, half, index, order.by_columns)
            in_role("consumer", self.consume, Inputs(stages_a, stages_b, ring, split.splits, *small), to, work)

    def make_ring(self, barriers, allocator: SmemAllocator) -> tuple:
        """The full and empty barriers of all stages, and those of dense loads, initialised and visible to the whole
        cluster."""
        landed = self.producer.make_landed(allocator)
        peers_m, peers_n = self.config.cluster
        readers = self.schedule.readers * (peers_m + peers_n - 1)
        slices = self.config.splits if self.config.cluster_split and self.config.peers > 1 else 1
        ring = pipeline.PipelineTmaAsync.create(
            num_stages=self.config.stages,
            barrier_storage=barriers,
            tx_count=self.producer.tx_bytes,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.producer.arrivals),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, readers),
            cta_layout_vmnk=cute.make_layout((1, peers_m, peers_n, slices)),
        )
        return ring, landed

    # --- producer --------------------------------------------------------------------------------------------------

    @cute.jit
    def produce(self, a: TmaLoad, b: TmaLoad, ring, work: Work):
        """One warp: for each k-tile of each tile wait until a stage is empty, and have TMA fill it. What the first load
        needs is known before the launches before this one are waited for, and the L2 has been asked for some k-tiles.
        """
        rank, peers_m, order = work.rank(), self.config.cluster[0], work.order
        of_row, of_column = rank // peers_m, rank % peers_m
        to_a, from_a = partition(a, of_row)
        to_b, from_b = partition(b, 0 if self.config.in_turns else of_column)
        unit, step, units = work.walk()
        k_tiles = work.k_tiles()
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.config.stages)
        place = work.place(unit, rank)
        if unit < units:
            first, tile = place.k_slice * k_tiles, place.tile
            ask_ahead(a, from_a, (tile.m, tile.item * order.a_batched), first, cutlass.min(order.a_ahead, k_tiles))
            ask_ahead(b, from_b, (tile.n, tile.item * order.b_batched), first, cutlass.min(order.b_ahead, k_tiles))
        cute.arch.griddepcontrol_wait()
        while unit < units:
            for k in cutlass.range(place.k_slice * k_tiles, (place.k_slice + 1) * k_tiles, 1, unroll=1):
                acquire(ring, stage)
                full = ring.producer_get_barrier(stage)
                tile = place.tile
                from_tile_a = from_a[None, tile.m, k, tile.item * order.a_batched]
                from_tile_b = from_b[None, tile.n, k, tile.item * order.b_batched]
                start(a, from_tile_a, to_a[None, stage.index], full)
                if cutlass.const_expr(self.config.in_turns):
                    if stage.index % peers_m == of_column:
                        start(b, from_tile_b, to_b[None, stage.index], full)
                else:
                    start(b, from_tile_b, to_b[None, stage.index], full)
                stage.advance()
            unit += step
            place = work.place(unit, rank)
        drain(ring, stage)  # nobody leaves while a peer may still multicast to it or arrive on its barriers

    @cute.jit
    def split_stages(self, inputs: Inputs, work: Work):
        """Three warps: split every stage into its parts, in turn (see ``parts``)."""
        thread = cute.arch.thread_idx()[0] - (THREADS - 32 * WARPS)
        pairs = (inputs.a, inputs.small_a), (inputs.b, inputs.small_b)
        of_tile = [extent * K_TILE_BYTES // 4 for extent in self.config.tile]
        operands = tuple((*(x.iterator for x in pair), count) for pair, count in zip(pairs, of_tile))
        unit, step, units = work.walk()
        k_tiles = work.k_tiles()
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.config.stages)
        while unit < units:
            for _ in cutlass.range(0, k_tiles, 1, unroll=1):
                split_stage(operands, inputs.ring, inputs.ready, stage, thread)
                stage.advance()
            unit += step

    # --- consumers -------------------------------------------------------------------------------------------------

    @cute.jit
    def consume(self, inputs: Inputs, to: Outlet, work: Work):
        """One warpgroup: multiply and finish the tiles of this block, all of them ("cooperative") or every second one
        ("pingpong")."""
        rank = work.rank()
        k_tiles = work.k_tiles()
        unit, step, units = work.walk()
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.config.stages)
        progress, turn = Progress(Int32(0), work.outside()), Int32(to.group)
        unit, stage = self.schedule.first(unit, step, stage, k_tiles, to.group)
        cute.arch.griddepcontrol_wait()
        while unit < units:
            self.schedule.begin(turn, to.group)
            place = work.place(unit, rank)
            accumulators, stage, last, progress, c = self.mainloop.run(inputs, stage, k_tiles, progress, to, place.tile)
            self.schedule.end(unit + step < units, to.group)
            of_tile = self.epilogue.c.begin(c, place.tile, to)
            self.mainloop.wait(inputs.ring, last)
            progress = self.finish.complete(accumulators, place, progress, of_tile)
            unit, stage, turn = self.schedule.next(unit, step, stage, k_tiles, turn)
        self.finish.flush(progress, to)
        self.epilogue.drain(to)
