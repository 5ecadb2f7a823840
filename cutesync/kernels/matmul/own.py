"""A producer that loads operands which TMA refuses, by its own threads: no copy of them is made before.

All four warps of the producer's warpgroup load. The stages are those that TMA would write: lines of up to 128 bytes, in
vectors of 16 bytes, swizzled. There are these forms:

- "words": lines of K whose elements lie side by side, and that begin at multiples of 4 bytes, or of 8. cp.async copies
  so many bytes a lane, and pads them with zeros. Several stages are in flight; the oldest is waited for (see
  ``publish``).
- "vectors": elements of K, or of 16 bits the rows, are contiguous; lines begin anywhere. A vector of the stage lies in
  two aligned vectors of memory, which are shifted into place, first by words, then by bits. Aligned vectors that lie
  outside the operand's memory in part are read by elements. A thread brings them through its registers.
- "dense": short lines of K that lie side by side and begin anywhere; see ``dense``.
- "elements": any strides, through registers as well. The lanes of a warp read different rows, element by element.

What lies outside the operand is zero, as TMA writes it, and is not read. If TMA takes the other operand, the first warp
starts its loads. The ring's barriers are those of ``kernel``, with other counts:

- full: 1 arrival and bytes for TMA, if it loads an operand, and 1 arrival of each of the 4 warps when all its lanes
  have written. The proxy fence before it lets the tensor cores read what these lanes wrote.
- empty: as ever; all four warps wait for it. The tensor cores have read the stage then, so no fence is needed before it
  is overwritten.

Where one batch of loads a thread is enough for an operand's part of a stage, it is read before the stage is empty.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any, cast

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, TFloat32, Uint8, Uint16, Uint32, pipeline
from cutlass.experimental import primitives
from cutlass.memory import SmemAllocator

from ...sync.barrier import Barrier, Barriers
from ...sync.named_barrier import NamedBarrier
from ...sync.pipelines import await_empty, drain
from ...sync.wait import await_phase
from ..words import shifted
from .loads import TmaLoad, partition, start
from .pack_rows import VECTOR, WORDS, mask, memory
from .parameters import Order, Source
from .policy import CONSUMERS, K_TILE_BYTES, WARPGROUP, MatmulPolicy
from .schedule import Named
from .scheduler import Tile, Work

if TYPE_CHECKING:
    from .dense import DenseLoad

WARPS = 4
OWN_IN_FLIGHT = 64  # registers of a thread for what it has in flight
WORD, PAIR = 4, 8  # bytes that a lane copies at a time
COPIES_IN_FLIGHT = 73728  # bytes of a block, but a stage or more
COPIES_TOGETHER = 8  # addresses of more, computed beforehand, spill
LOADED = NamedBarrier(Named.LOADED, WARPGROUP)  # the producer's threads have read the lines of a stage (``dense``)
_BITS = {8: Uint8, 16: Uint16, 32: Uint32}


class Spot(namedtuple("Spot", "address outer inner low high")):
    """The part of an operand that belongs to a stage: where it begins, the lines that there are from there on and the
    bytes of a line (Int32, either may be negative), and the ends of the operand's memory."""


class Landed(namedtuple("Landed", "barriers found")):
    """Of dense loads where the barriers of all stages begin, and the two words of each: what ``DenseLoad.bring``
    returned."""


class Piece(namedtuple("Piece", "address bytes")):
    """What a vector of a stage takes from memory: ``bytes`` from ``address`` on; none if it is not positive."""


class OwnLoad:
    """The loads of an operand of ``rows`` a tile in a ``form`` (see the module). A thread has ``batch`` vectors in
    flight, in some ``registers``."""

    def __init__(self, form: str, element, rows: int, k_major: bool, registers: int) -> None:
        self.form, self.rows, self.k_major = form, rows, k_major
        self.size, self.moved = element.width // 8, _BITS[element.width]
        self.rounded = element is TFloat32
        self.k_tile = K_TILE_BYTES // self.size
        self.line = K_TILE_BYTES if k_major else rows * self.size  # bytes
        self.lines = rows if k_major else self.k_tile
        self.swizzle = math.gcd(self.line, K_TILE_BYTES)
        self.vectors = rows * K_TILE_BYTES // (VECTOR * WARPS * 32)  # of a stage for each thread
        self.words = 2 * WORDS if form == "vectors" else VECTOR // self.size  # of 32 bits, or elements
        self.copied = form == "words"
        most = registers // (self.words if form == "vectors" else 8 * self.words)  # elements have addresses, too
        self.batch = max(n for n in range(1, max(most, 1) + 1) if self.vectors % n == 0)
        self.early = self.batch == self.vectors and form in ("vectors", "elements")

    def spot(self, source: Source, tile, k, item) -> Spot:
        """The part of the operand for a tile of rows and a k-tile."""
        row, column = tile * self.rows, k * self.k_tile
        outer, inner = (row, column) if self.k_major else (column, row)
        start = source.pointer.toint()
        address = start + (
            Int64(item) * source.batch_step + Int64(outer) * source.outer_step + Int64(inner) * source.inner_step
        )
        left = cutlass.min(source.inner - inner, self.line // self.size) * self.size
        return Spot(address, source.outer - outer, left, start + source.low, start + source.high)

    def place(self, number, thread):
        """The (line, vector of it) of a thread's vector. Neighbouring lanes read what is side by side."""
        i = thread + number * (WARPS * 32)
        if self.form == "elements":
            return i % self.rows, i // self.rows
        across = self.line // VECTOR
        return i // across, i % across

    def piece(self, source: Source, spot: Spot, number, thread) -> Piece:
        """Where a thread's vector lies in memory."""
        line, vector = self.place(number, thread)
        step = vector * VECTOR if self.form == "vectors" else Int64(vector * (VECTOR // self.size)) * source.inner_step
        found = cutlass.min(spot.inner - vector * VECTOR, Int32(VECTOR))
        inside = Int32(cutlass.select_(line < spot.outer, found, Int32(0)))
        return Piece(spot.address + Int64(line) * source.outer_step + step, inside)

    @cute.jit
    def read(self, source: Source, spot: Spot, number: Int32, thread: Int32):
        """Start the loads of a batch of a thread's vectors, from ``number`` on. Returns the registers, and whether they
        are filled: not where aligned vectors lie outside the operand's memory in part."""
        kind = Uint32 if cutlass.const_expr(self.form == "vectors") else self.moved
        loaded = cute.make_rmem_tensor((self.words, self.batch), kind)
        filled = Boolean(True)
        pieces = [self.piece(source, spot, number + j, thread) for j in range(self.batch)]
        if cutlass.const_expr(self.form == "vectors"):
            for piece in pieces:
                first, last = piece.address & -VECTOR, piece.address + (piece.bytes - 1) & -VECTOR
                filled = filled & ((piece.bytes <= 0) | ((first >= spot.low) & (last + VECTOR <= spot.high)))
            if filled:
                for j in cutlass.range_constexpr(self.batch):
                    first, skew = pieces[j].address & -VECTOR, Int32(pieces[j].address) & (VECTOR - 1)
                    registers = cute.make_tensor(
                        loaded.iterator + j * 2 * WORDS, cute.make_layout((WORDS, 2), stride=(1, WORDS))
                    )
                    if pieces[j].bytes > 0:
                        cute.autovec_copy(memory(Uint32, first, WORDS, VECTOR), registers[None, 0])
                    if skew + pieces[j].bytes > VECTOR:
                        cute.autovec_copy(memory(Uint32, first + VECTOR, WORDS, VECTOR), registers[None, 1])
        else:
            for j in cutlass.range_constexpr(self.batch):
                self.read_elements(source, pieces[j], loaded, j)
        return loaded, filled

    @cute.jit
    def read_elements(self, source: Source, piece: Piece, loaded, column: cutlass.Constexpr):
        """The elements of a vector, into a column of registers; 0 for those that do not exist."""
        for i in cutlass.range_constexpr(VECTOR // self.size):
            loaded[i, column] = self.moved(0)
            if piece.bytes > i * self.size:
                address = piece.address + i * source.inner_step
                loaded[i, column] = memory(self.moved, address, 1, self.size)[0]

    @cute.jit
    def write(self, read: tuple, source: Source, spot: Spot, number: Int32, stage, thread: Int32):
        """Write the batch that ``read`` brought, or that is read by elements now, to the stage at address ``stage``."""
        loaded, filled = read
        if cutlass.const_expr(self.form == "elements"):
            for j in cutlass.range_constexpr(self.batch):
                self.store(self.joined(loaded, j), stage, number + j, thread)
        else:
            if filled:
                for j in cutlass.range_constexpr(self.batch):
                    piece = self.piece(source, spot, number + j, thread)
                    words = [loaded[i, j] for i in range(2 * WORDS)]
                    self.store(cut(words, Int32(piece.address), piece.bytes), stage, number + j, thread)
            else:
                for one in cutlass.range(number, number + self.batch, 1, unroll=1):
                    elements = cute.make_rmem_tensor((VECTOR // self.size, 1), self.moved)
                    self.read_elements(source, self.piece(source, spot, one, thread), elements, 0)
                    self.store(self.joined(elements, 0), stage, one, thread)

    @cute.jit
    def write_all(self, source: Source, spot: Spot, stage, thread: Int32):
        """Read and write all batches."""
        for number in cutlass.range(0, self.vectors, self.batch, unroll=1):
            self.write(self.read(source, spot, number, thread), source, spot, number, stage, thread)

    @cute.jit
    def copy(self, source: Source, spot: Spot, stage, thread: Int32):
        """Start the copies of all words, or pairs of them, to the stage at address ``stage``."""
        if (source.pointer.toint() | source.outer_step | source.batch_step) % PAIR == 0:
            self.copy_by(PAIR, source, spot, stage, thread)
        else:
            self.copy_by(WORD, source, spot, stage, thread)

    @cute.jit
    def copy_by(self, size: cutlass.Constexpr, source: Source, spot: Spot, stage, thread: Int32):
        """A lane copies ``size`` bytes at a time, the same of every line."""
        start = thread % (K_TILE_BYTES // size) * size
        lines = WARPS * 32 * size // K_TILE_BYTES  # at a time
        left = cutlass.max(cutlass.min(spot.inner - start, Int32(size)), Int32(0))
        many = math.gcd(self.lines // lines, COPIES_TOGETHER)
        for number in cutlass.range(0, self.lines // lines, many, unroll=1):
            first = thread // (K_TILE_BYTES // size) + number * lines
            address = spot.address + Int64(first) * source.outer_step + start
            for j in cutlass.range_constexpr(many):
                line = first + j * lines
                place = stage + line * K_TILE_BYTES + (start // VECTOR ^ line % 8) * VECTOR + start % VECTOR
                target = cute.make_ptr(Uint32, place, cute.AddressSpace.smem, assumed_align=size)
                at = address + source.outer_step * (j * lines)
                origin = cute.make_ptr(Uint32, at, cute.AddressSpace.gmem, assumed_align=size)
                count = Int32(cutlass.select_(line < spot.outer, left, Int32(0)))
                primitives.cp_async_shared_global(target, origin, size, "ca", cp_size=count)

    def joined(self, elements, column: int) -> list:
        """The words of a vector, of its elements."""
        words = [Uint32(0) for _ in range(WORDS)]
        for i in range(VECTOR // self.size):
            at = i * self.size
            words[at // 4] = words[at // 4] | (Uint32(elements[i, column]) << at % 4 * 8)
        return words

    def store(self, words: list, stage, number, thread) -> None:
        """Write a vector to its swizzled place."""
        line, vector = self.place(number, thread)
        across = self.swizzle // VECTOR
        offset = vector // across * (self.swizzle * self.lines) + line * self.swizzle + vector % across * VECTOR
        offset = offset ^ (offset >> 3 & (self.swizzle - VECTOR))
        registers = cute.make_rmem_tensor((WORDS,), Uint32)
        for i, word in enumerate(words):
            registers[i] = nearest_tfloat32(word) if self.rounded else word
        target = cute.make_ptr(Uint32, stage + offset, cute.AddressSpace.smem, assumed_align=VECTOR)
        cute.autovec_copy(registers, cute.make_tensor(target, cute.make_layout((WORDS,))))


def cut(words: list, address, count) -> list:
    """Of two aligned vectors, the one that begins at ``address``, zero from byte ``count`` on."""
    return [word & mask(count - 4 * i) for i, word in enumerate(shifted(words, address))]


def nearest_tfloat32(word):
    """The bits of a float32 rounded as TMA rounds to tfloat32: to the nearest, ties to even."""
    nearest = Uint32((word + 0xFFF + (word >> 13 & 1)) & 0xFFFFE000)
    return Uint32(cutlass.select_((word & 0x7FFFFFFF) > 0x7F800000, Uint32(0x7FFFE000), nearest))


class OwnProducer:
    """The producer's role where ``own`` = (of A, of B) has an ``OwnLoad``; None is loaded by TMA."""

    def __init__(self, config: MatmulPolicy, own: tuple[OwnLoad | None, ...]) -> None:
        self.config, self.own = config, own
        self.by_tma = [i for i, load in enumerate(own) if load is None]
        self.tx_bytes = sum(config.tile[i] * K_TILE_BYTES for i in self.by_tma)
        self.arrivals = WARPS * config.own + bool(self.by_tma)
        self.copied = any(load and load.copied for load in own)
        self.dense = {i: cast("DenseLoad", load) for i, load in enumerate(own) if load and load.form == "dense"}
        most = COPIES_IN_FLIGHT // config.stage_bytes()
        # stages that are not published yet: consumers release one when they have the next
        self.behind = max(0, min(config.stages - 2, max(1, most))) if self.copied or self.dense else 0

    def make_landed(self, allocator: SmemAllocator) -> Any:
        """``Landed`` if there are dense loads, else None; as ``Barriers.make``."""
        if not self.dense:
            return None
        barriers = Barriers.make(self.config.stages, 1, name="landed")
        return Landed(barriers.start, allocator.allocate_array(Int32, 2 * self.config.stages))

    def extent_k(self, a: tuple):
        """The elements of K, from what the kernel has of A: a ``Source``, or the atom and the tensor of coordinates."""
        if self.own[0] is None:
            return a[1].shape[1]
        lies = Source(*a)
        return lies.inner if self.own[0].k_major else lies.outer

    @cute.jit
    def produce(self, operands: tuple, stages: tuple, ring, work: Work, of_dense: Any):
        """Four warps: for each k-tile of each tile wait until a stage is empty, and fill it. ``operands`` has a
        ``Source``, or the atom and the tensor of coordinates, of each."""
        thread = cute.arch.thread_idx()[0] - CONSUMERS * WARPGROUP
        loads = self.tma_loads(operands, stages, work)
        copies = [partition(load, 0) for load in loads]
        unit, step, units = work.walk()
        k_tiles = work.k_tiles()
        stage, landed = (
            pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.config.stages) for _ in range(2)
        )
        started = Int32(0)
        place = work.place(unit, work.rank())
        cute.arch.griddepcontrol_wait()
        while unit < units:
            for k in cutlass.range(place.k_slice * k_tiles, (place.k_slice + 1) * k_tiles, 1, unroll=1):
                spots = self.spots(operands, place.tile, k, work.order)
                reads = self.read(operands, spots, thread)
                await_empty(ring, stage)
                full = ring.producer_get_barrier(stage)
                if cutlass.const_expr(len(self.by_tma) > 0):
                    if thread < 32:
                        ring.sync_object_full.arrive(stage.index, None)
                        self.start_tma(loads, copies, (place.tile, k, work.order), stage, full)
                self.write(operands, spots, stages, (reads, stage), thread)
                if cutlass.const_expr(len(self.dense) > 0):
                    if thread < 32:
                        self.bring(operands, spots, stages, stage, of_dense)
                if cutlass.const_expr(self.copied):
                    cute.arch.cp_async_commit_group()
                    cute.arch.cp_async_wait_group(self.behind)
                if started >= self.behind:
                    landed = self.publish(operands, stages, (ring, landed), of_dense, thread)
                started += 1
                stage.advance()
            unit += step
            place = work.place(unit, work.rank())
        for j in cutlass.range_constexpr(self.behind):
            if cutlass.const_expr(self.copied):
                cute.arch.cp_async_wait_group(self.behind - 1 - j)
            if started + j >= self.behind:
                landed = self.publish(operands, stages, (ring, landed), of_dense, thread)
        drain(ring, stage)

    @cute.jit
    def publish(self, operands: tuple, stages: tuple, at: tuple, of_dense: Any, thread: Int32):
        """Tell the consumers that a stage is full, the one that was started ``behind`` stages before the last. ``at``
        is (ring, the stage). Returns the next."""
        ring, landed = at
        if cutlass.const_expr(len(self.dense) > 0):
            await_phase(of_dense.barriers, landed.index, landed.phase ^ 1, "landed")
            places = self.places(stages, landed)
            words = [
                load.take(operands[i], of_dense.found[2 * landed.index + i], places[i], thread)
                for i, load in self.dense.items()
            ]
            LOADED.sync()
            for (i, load), of_operand in zip(self.dense.items(), words):
                load.put(of_operand, places[i], thread)
        self.arrive(ring, landed)
        landed.advance()
        return landed

    def bring(self, operands: tuple, spots: list, stages: tuple, stage, of_dense: Landed) -> None:
        """The first warp: start the copies of dense loads to a stage."""
        barrier, places, lane = of_dense.barriers + stage.index, self.places(stages, stage), cute.arch.lane_idx()
        for i, load in self.dense.items():
            found = load.bring(operands[i], spots[i], places[i], barrier, lane)
            word = cute.make_tensor(of_dense.found + (2 * stage.index + i), cute.make_layout((1,)))
            self.note(word, found, lane)
        Barrier(barrier).arrive_once()

    @cute.jit
    def note(self, words: cute.Tensor, found: Int32, lane: Int32):
        """Leave a word for all threads."""
        if lane == 0:
            words[0] = found

    def arrive(self, ring, landed) -> None:
        """A warp's arrival: the tensor cores may read what its lanes have written."""
        cute.arch.fence_proxy("async.shared", space="cta")
        Barrier(ring.producer_get_barrier(landed)).arrive_once()

    def tma_loads(self, operands: tuple, stages: tuple, work: Work) -> list[TmaLoad]:
        """Those of an operand that TMA loads, or none."""
        tile = self.config.tile
        of = work.order[-2:]
        return [TmaLoad(operands[i][0], operands[i][1], stages[i], tile[i], work.k_tile, of[i]) for i in self.by_tma]

    def start_tma(self, loads: list[TmaLoad], copies: list, at: tuple, stage, full) -> None:
        """Start these loads. ``at`` is (tile, k-tile, order of tiles)."""
        tile, k, order = at
        for i, load, (shared, there) in zip(self.by_tma, loads, copies):
            source = there[None, (tile.m, tile.n)[i], k, tile.item * order[2 + i]]
            start(load, source, shared[None, stage.index], full)

    def spots(self, operands: tuple, tile: Tile, k, order: Order) -> list[Spot | None]:
        """What the threads load of each operand."""
        return [
            None if load is None else load.spot(operands[i], (tile.m, tile.n)[i], k, tile.item * order[2 + i])
            for i, load in enumerate(self.own)
        ]

    def read(self, operands: tuple, spots: list, thread) -> list:
        """Start the loads of operands that take one batch."""
        return [
            load.read(*of, Int32(0), thread) if load and load.early else None
            for load, *of in zip(self.own, operands, spots)
        ]

    def write(self, operands: tuple, spots: list, stages: tuple, at: tuple, thread) -> None:
        """Write all batches to a stage. ``at`` is (what ``read`` returned, the stage)."""
        reads, stage = at
        there = self.places(stages, stage)
        for load, read, source, spot, to in zip(self.own, reads, operands, spots, there):
            if load and load.early:
                load.write(read, source, spot, Int32(0), to, thread)
        for load, source, spot, to in zip(self.own, operands, spots, there):
            if load and load.copied:
                load.copy(source, spot, to, thread)
            elif load and not load.early and load.form != "dense":
                load.write_all(source, spot, to, thread)

    def places(self, stages: tuple, stage) -> list:
        """The addresses of a stage of A and of B."""
        return [x.iterator.toint() + stage.index * (rows * K_TILE_BYTES) for x, rows in zip(stages, self.config.tile)]
