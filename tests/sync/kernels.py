"""Kernels that use every building block of ``cutesync.sync``; host functions take NumPy arrays (``emulator.check``)."""

from enum import IntEnum

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from cutesync.sync import Barrier, Barriers, CompletionBarrier, GridBarrier, NamedBarrier, Ring, Role, Roles

from ..emulator.hosts import host

THREADS = 96


def vector(pointer, count=1 << 20):
    return cute.make_tensor(pointer, cute.make_layout(count))


def shared(count, dtype=Int32):
    return cute.make_tensor(SmemAllocator().allocate_array(dtype, count, byte_alignment=128), cute.make_layout(count))


@host(block=THREADS)
@cute.kernel
def turns(x: cute.Pointer, out: cute.Pointer, rounds: Int32, how: cutlass.Constexpr):
    """Every round each thread reads what its mirror image wrote; two barriers in turn keep the rounds apart."""
    t = cute.arch.thread_idx()[0]
    cells = shared(2 * THREADS)
    bars = Barriers.make(2, THREADS, name="turn")
    cute.arch.sync_threads()
    for i in cutlass.range(rounds, unroll=1):
        half = i % 2
        cells[half * THREADS + t] = vector(x)[i * THREADS + t]
        if cutlass.const_expr(how == "token"):
            bars[half].wait(bars[half].arrive())
        elif cutlass.const_expr(how == "warp"):
            bars[half].wait(bars[half].arrive_warp())
        elif cutlass.const_expr(how == "parity"):
            bars[half].arrive()
            bars[half].wait_parity(i // 2 & 1)
        elif cutlass.const_expr(how == "both"):
            bars[half].arrive_and_wait()
        else:
            token = bars[half].arrive()
            over = bars[half].test_wait(token)
            while cutlass.not_(over):
                over = bars[half].test_wait(token)
        vector(out)[i * THREADS + t] = cells[half * THREADS + THREADS - 1 - t]


@host(block=THREADS)
@cute.kernel
def lifecycle(out: cute.Pointer):
    """Uses one place of shared memory as a barrier of 96, gives it back, and uses it as a barrier of 64."""
    t = cute.arch.thread_idx()[0]
    bar = Barrier.make(THREADS)
    cute.arch.sync_threads()
    bar.arrive_and_wait()
    cute.arch.sync_threads()
    if t == 0:
        bar.invalidate()
        cute.arch.mbarrier_init(bar.pointer, 64)
    cute.arch.sync_threads()
    if t < 64:
        bar.arrive_and_wait()
    vector(out)[t] = t


@host(block=THREADS)
@cute.kernel
def counted_bytes(x: cute.Pointer, out: cute.Pointer, by_hand: cutlass.Constexpr):
    """A phase of one arrival and 256 bytes: brought by a copy, or by hand in two parts after which a thread arrives for
    itself."""
    t = cute.arch.thread_idx()[0]
    cells = shared(64)
    bar = Barrier.make(2 if by_hand else 1)
    cute.arch.sync_threads()
    if cutlass.const_expr(by_hand):
        if t == 0:
            bar.arrive_tx(1, 256)
        if t == 32:
            for i in cutlass.range(64, unroll=1):
                cells[i] = vector(x)[i]
            bar.complete_tx(128)
            bar.complete_tx(128)
            bar.arrive()
    elif t == 0:
        bar.expect_tx(256)
        from cutlass.experimental import primitives

        primitives.cp_async_bulk_shared_cluster_global(cells.iterator, x, bar.pointer, 256)
        bar.arrive()
    bar.wait_parity(0)
    if t < 64:
        vector(out)[t] = cells[63 - t]


@host(block=THREADS)
@cute.kernel
def leaving(out: cute.Pointer, completes: cutlass.Constexpr):
    """Thread t takes part in t // 32 + 1 rounds, then drops; whoever stays counts the rounds it saw complete."""
    t = cute.arch.thread_idx()[0]
    total = shared(1)
    if cutlass.const_expr(completes):
        bar = CompletionBarrier.make(THREADS, lambda: add_one(total))
    else:
        bar = Barrier.make(THREADS)
    if t == 0:
        total[0] = 0
    cute.arch.sync_threads()
    rounds = t // 32 + 1
    for i in cutlass.range(rounds, unroll=1):
        if i == rounds - 1:
            bar.arrive_and_drop()
        else:
            bar.wait(bar.arrive())
    if cutlass.const_expr(completes):
        cute.arch.sync_threads()
        vector(out)[t] = total[0]
    else:
        vector(out)[t] = rounds


def add_one(total):
    total[0] = total[0] + 1


@host(block=THREADS)
@cute.kernel
def running(x: cute.Pointer, out: cute.Pointer, rounds: Int32):
    """Every round the completion function sums what the threads wrote, and all of them read the sum."""
    t = cute.arch.thread_idx()[0]
    cells, total = shared(THREADS), shared(1)
    bar = CompletionBarrier.make(THREADS, lambda: sum_up(cells, total))
    cute.arch.sync_threads()
    if t == 0:
        total[0] = 0
    for i in cutlass.range(rounds, unroll=1):
        cells[t] = vector(x)[i * THREADS + t]
        bar.arrive_and_wait()
        vector(out)[i * THREADS + t] = total[0]


@cute.jit
def sum_up(cells, total):
    together = Int32(0)
    for j in cutlass.range(THREADS, unroll=1):
        together += cells[j]
    total[0] = total[0] + together


@host(block=32, grid=2, cluster=(2, 1, 1))
@cute.kernel
def peers(out: cute.Pointer, rounds: Int32):
    """Two blocks of a cluster: each writes into the other's shared memory and arrives there, at cluster scope."""
    t = cute.arch.thread_idx()[0]
    rank = cute.arch.block_idx_in_cluster()
    cells = shared(2 * 32)
    bar = Barrier.make(32, scope="cluster", name="mail")
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    for i in cutlass.range(rounds, unroll=1):
        place = cute.arch.map_dsmem_ptr(cells.iterator + (i % 2) * 32 + t, Int32(rank ^ 1))
        cute.arch.inline_ptx(
            "st.shared::cluster.u32 [{$r0}], {$r1};", read_only_args=[place.toint(), Int32(100 * i + 10 * rank + t)]
        )
        bar.arrive_remote(Int32(rank ^ 1))
        bar.wait_parity(i & 1)
        vector(out)[(i * 2 + rank) * 32 + t] = cells[(i % 2) * 32 + 31 - t]
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


class Turn(IntEnum):
    FIRST = 1
    SECOND = 2


@host(block=64)
@cute.kernel
def named(out: cute.Pointer, rounds: Int32):
    """Two warps hand a cell to and fro: one syncs where the other arrives."""
    t = cute.arch.thread_idx()[0]
    cell = shared(1)
    first, second = NamedBarrier(Turn.FIRST, 64), NamedBarrier(Turn.SECOND, 64)
    if t == 0:
        cell[0] = 0  # seen by the other warp after the first hand-over
    if t < 32:
        for _ in cutlass.range(rounds, unroll=1):
            if t == 0:
                cell[0] = cell[0] + 3
            first.arrive()
            second.sync()
        if t == 0:
            vector(out)[0] = cell[0]
    else:
        for _ in cutlass.range(rounds, unroll=1):
            first.sync()
            if t == 32:
                cell[0] = cell[0] * 2
            second.arrive()


LENGTH = 128  # elements of a stage
ROWS = 4  # of a tensor copy's box of 32 columns


@cute.kernel
def ring_kernel(
    x: cute.Pointer,
    out: cute.Pointer,
    fills: Int32,
    how: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    producers: cutlass.Constexpr,
    consumers: cutlass.Constexpr,
    atom: cute.CopyAtom,
    source: cute.Tensor,
):
    """``out = x + 1``, fill by fill through a ring, in every way a ring can be filled."""
    t = cute.arch.thread_idx()[0]
    kind = how if how in ("threads", "cp_async") else "copies"
    ring = Ring.make(stages, producer=kind, producers=producers, consumers=consumers)
    cells = SmemAllocator().allocate_tensor(Int32, cute.make_layout((LENGTH, stages)), byte_alignment=128)
    cute.arch.sync_threads()
    block = Roles(Role("producer", producers), Role("consumer", consumers))
    block.run(
        producer=lambda _: produce(ring, cells, x, fills, t, how, producers, (atom, source)),
        consumer=lambda _: consume(ring, cells, out, fills, t - 32 * producers, 32 * consumers),
    )


@cute.jit
def produce(
    ring: cutlass.Constexpr,
    cells,
    x,
    fills: Int32,
    t: Int32,
    how: cutlass.Constexpr,
    producers: cutlass.Constexpr,
    tensor,  # the atom and the tensor of tensor copies
):
    atom, source = tensor
    for k in cutlass.range(fills, unroll=1):
        ring.acquire(k)
        stage = ring.stage(k)
        if cutlass.const_expr(how == "bulk"):
            ring.load(k, cells.iterator + stage * LENGTH, x + k * LENGTH, 4 * LENGTH)
        elif cutlass.const_expr(how == "tensor"):
            tiles = cute.group_modes(cute.local_tile(source, (ROWS, 32), (None, 0)), 0, 2)
            box = cute.make_tensor(cells.iterator, cute.make_layout((ROWS, 32, ring.stages), stride=(32, 1, LENGTH)))
            into, tiled = cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(box, 0, 2), tiles)
            if t == 0:
                ring.expect(k, 4 * LENGTH)
            cute.copy(atom, tiled[None, k], into[None, stage], tma_bar_ptr=ring.signal(k))
        else:
            for j in cutlass.range(t, LENGTH, 32 * producers, unroll=1):
                if cutlass.const_expr(how == "threads"):
                    cells[j, stage] = vector(x)[k * LENGTH + j]
                else:
                    cp_async(cells.iterator + stage * LENGTH + j, x + k * LENGTH + j)
            ring.publish(k)


def cp_async(target, source) -> None:
    cute.arch.inline_ptx("cp.async.ca.shared.global [{$r0}], [{$r1}], 4;", read_only_args=[target, source])


@cute.jit
def consume(ring: cutlass.Constexpr, cells, out, fills: Int32, t: Int32, threads: cutlass.Constexpr):
    for k in cutlass.range(fills, unroll=1):
        ring.wait(k)
        for j in cutlass.range(t, LENGTH, threads, unroll=1):
            vector(out)[k * LENGTH + j] = cells[j, ring.stage(k)] + 1
        ring.release(k)


@cute.jit
def ring(
    x: cute.Pointer,
    out: cute.Pointer,
    fills: Int32,
    how: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    producers: cutlass.Constexpr,
    consumers: cutlass.Constexpr,
):
    rows = cute.make_tensor(x, cute.make_layout((fills * ROWS, 32), stride=(32, 1)))
    box = cute.make_layout((ROWS, 32), stride=(32, 1))
    atom, mapped = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), rows, box, (ROWS, 32))
    ring_kernel(x, out, fills, how, stages, producers, consumers, atom, mapped).launch(
        grid=(1, 1, 1), block=(32 * (producers + consumers), 1, 1)
    )


@host(block=256, min_blocks_per_mp=1)
@cute.kernel
def budgets(out: cute.Pointer):
    """Two roles of a warpgroup each, with register budgets."""
    t = cute.arch.thread_idx()[0]
    block = Roles(Role("few", 4, registers=40), Role("many", 4, registers=232))
    block.run(few=lambda warp: store(out, t, 100 + warp), many=lambda warp: store(out, t, 200 + warp))


def store(out, at, value) -> None:
    vector(out)[at] = value


@host(block=64, grid=None, cooperative=True)
@cute.kernel
def grid(cells: cute.Pointer, out: cute.Pointer, word: cute.Pointer, rounds: Int32):
    """Every round a block reads what its neighbour wrote in the round before."""
    t = cute.arch.thread_idx()[0]
    block, blocks = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
    barrier = GridBarrier(word)
    value = Int32(block * 64 + t)
    for i in cutlass.range(rounds, unroll=1):
        vector(cells)[(i * blocks + block) * 64 + t] = value
        barrier.sync()
        value = Int32(vector(cells)[(i * blocks + (block + 1) % blocks) * 64 + 63 - t]) + 1
    vector(out)[block * 64 + t] = value


@host(block=64)
@cute.kernel
def hang(out: cute.Pointer):
    """A planted hang: the barrier expects one arrival more than there are threads."""
    bar = Barriers.make(3, 65, name="planted")
    cute.arch.sync_threads()
    token = bar[2].arrive()
    bar[2].wait(token)
    vector(out)[cute.arch.thread_idx()[0]] = 1
