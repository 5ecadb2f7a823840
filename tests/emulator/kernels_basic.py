"""Small CuTe kernels that the emulator's tests run: test_faults.py plants faults in those that are correct."""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint64, Uint128
from cutlass.memory import SmemAllocator

from .hosts import host

THREADS = 128


def vector(pointer, n):
    return cute.make_tensor(pointer, cute.make_layout(n))


@host(block=THREADS, grid=lambda n, **_: (n + THREADS - 1) // THREADS)
@cute.kernel
def add(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, n: Int32):
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if i < n:
        vector(c, n)[i] = vector(a, n)[i] + vector(b, n)[i]


@host(block=THREADS, grid=lambda n, **_: (n + THREADS - 1) // THREADS)
@cute.kernel
def unguarded(a: cute.Pointer, c: cute.Pointer, n: Int32):
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    vector(c, n + THREADS)[i] = vector(a, n + THREADS)[i]


@host(block=THREADS, grid=None)
@cute.kernel
def reduce(x: cute.Pointer, out: cute.Pointer, n: Int32):
    """One float sum a block."""
    t = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    blocks = cute.arch.grid_dim()[0]
    source = vector(x, n)
    partial = SmemAllocator().allocate_tensor(Float32, cute.make_layout(THREADS // 32), byte_alignment=16)
    total = Float32(0.0)
    i = block * THREADS + t
    while i < n:
        total = total + source[i]
        i = i + blocks * THREADS
    for step in cutlass.range_constexpr(5):
        total = total + cute.arch.shuffle_sync_bfly(total, 1 << step)
    if t % 32 == 0:
        partial[t // 32] = total
    cute.arch.barrier()
    if t == 0:
        result = Float32(0.0)
        for w in cutlass.range_constexpr(THREADS // 32):
            result = result + partial[w]
        vector(out, blocks)[block] = result


@host(block=32, grid=None)
@cute.kernel
def last_block(
    x: cute.Pointer,
    partials: cute.Pointer,
    ticket: cute.Pointer,
    out: cute.Pointer,
    n: Int32,
    sem: cutlass.Constexpr,
    scope: cutlass.Constexpr,
):
    """A single-launch sum: the block that takes the last ticket folds the partial sums."""
    t = cute.arch.thread_idx()[0]
    block = cute.arch.block_idx()[0]
    blocks = cute.arch.grid_dim()[0]
    total = Int32(0)
    i = block * 32 + t
    while i < n:
        total = total + vector(x, n)[i]
        i = i + blocks * 32
    for step in cutlass.range_constexpr(5):
        total = total + cute.arch.shuffle_sync_bfly(total, 1 << step)
    if t == 0:
        vector(partials, blocks)[block] = total
        rank = cute.arch.atomic_add(ticket, Int32(1), sem=sem, scope=scope)
        if rank == blocks - 1:
            result = Int32(0)
            j = Int32(0)
            while j < blocks:
                result = result + vector(partials, blocks)[j]
                j = j + 1
            vector(out, 1)[0] = result
            vector(ticket, 1)[0] = Int32(0)


@host(block=32, grid=lambda n, **_: (n + 31) // 32)
@cute.kernel
def look_back(
    x: cute.Pointer,
    out: cute.Pointer,
    flags: cute.Pointer,
    sums: cute.Pointer,
    ticket: cute.Pointer,
    n: Int32,
    ticketed: cutlass.Constexpr,
    acquire: cutlass.Constexpr,
    release: cutlass.Constexpr,
    scope: cutlass.Constexpr,
):
    """Inclusive int32 scan, one warp a tile of 32, chained through a flag and a separate payload per tile."""
    lane = cute.arch.thread_idx()[0]
    tiles = cute.arch.grid_dim()[0]
    tile = cute.arch.block_idx()[0]
    if cutlass.const_expr(ticketed):
        if lane == 0:
            tile = cute.arch.atomic_add(ticket, Int32(1), sem="relaxed", scope="gpu")
        tile = cute.arch.shuffle_sync(tile, 0)
    i = tile * 32 + lane
    value = Int32(0)
    if i < n:
        value = vector(x, n)[i]
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_up(value, 1 << step, mask_and_clamp=0)
        if lane >= 1 << step:
            value = value + other
    before = Int32(0)
    if lane == 31:
        if tile > 0:
            seen = Int32(0)
            while seen == 0:
                seen = cute.arch.load(flags + (tile - 1), Int32, sem=acquire, scope=scope)
            before = vector(sums, tiles)[tile - 1]
        vector(sums, tiles)[tile] = before + value
        cute.arch.store(flags + tile, Int32(1), sem=release, scope=scope)
    before = cute.arch.shuffle_sync(before, 31)
    if i < n:
        vector(out, n)[i] = value + before


@host(block=64)
@cute.kernel
def named(
    out: cute.Pointer,
    consumer: cutlass.Constexpr,
    first: cutlass.Constexpr,
    second: cutlass.Constexpr,
    count: cutlass.Constexpr,
):
    """Warp 0 fills shared memory for warp 1 four times; named barriers ``first`` (full) and ``second`` (empty)."""
    t = cute.arch.thread_idx()[0]
    cell = SmemAllocator().allocate_tensor(Int32, cute.make_layout(32), byte_alignment=16)
    lane = t % 32
    total = Int32(0)
    for i in cutlass.range(4, unroll=1):
        if t < 32:
            cell[lane] = Int32(i * 100) + lane
            cute.arch.barrier_arrive(barrier_id=first, number_of_threads=count)
            cute.arch.barrier(barrier_id=second, number_of_threads=64)
        else:
            cute.arch.barrier(barrier_id=consumer, number_of_threads=64)
            total = total + cell[lane ^ 1]
            cute.arch.barrier_arrive(barrier_id=second, number_of_threads=64)
    if t >= 32:
        vector(out, 32)[lane] = total


@host(block=32)
@cute.kernel
def exchange(out: cute.Pointer):
    """Lanes of one warp swap values through shared memory."""
    lane = cute.arch.thread_idx()[0]
    cell = SmemAllocator().allocate_tensor(Int32, cute.make_layout(32), byte_alignment=16)
    cell[lane] = lane
    cute.arch.sync_warp()
    vector(out, 32)[lane] = cell[31 - lane]


@host(block=32)
@cute.kernel
def uninitialised(out: cute.Pointer):
    lane = cute.arch.thread_idx()[0]
    cell = SmemAllocator().allocate_tensor(Int32, cute.make_layout(64), byte_alignment=16)
    cell[lane] = lane
    cute.arch.sync_warp()
    vector(out, 32)[lane] = cell[lane + 1]


@cute.kernel
def add_tensors_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    row, column = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    c[row, column] = a[row, column] + b[row, column]


@cute.jit
def add_tensors(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """Two launches: c = a + b, then c = c + b."""
    add_tensors_kernel(a, b, c).launch(grid=(a.shape[0], 1, 1), block=(64, 1, 1))
    add_tensors_kernel(c, b, c).launch(grid=(a.shape[0], 1, 1), block=(64, 1, 1))


@host(block=32, grid=lambda n, **_: (n + 31) // 32)
@cute.kernel
def descriptors(
    x: cute.Pointer,
    out: cute.Pointer,
    words: cute.Pointer,
    ticket: cute.Pointer,
    n: Int32,
    fault: cutlass.Constexpr,
):
    """Inclusive int64 scan, one warp a tile of 32, with descriptors of 16 bytes: state and sum in one 128-bit word, or
    (``fault``) in two of 64. Descriptor: low word 1 once the high word holds the sum up to the
    tile.
    """
    lane = cute.arch.thread_idx()[0]
    tile = Int32(0)
    if lane == 0:
        tile = cute.arch.atomic_add(ticket, Int32(1), sem="relaxed", scope="gpu")
    tile = cute.arch.shuffle_sync(tile, 0)
    i = tile * 32 + lane
    value = Int64(0)
    if i < n:
        value = vector(x, n)[i]
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_up(value, 1 << step, mask_and_clamp=0)
        if lane >= 1 << step:
            value = value + other
    before = Int64(0)
    if lane == 31:
        mine = words + 2 * tile
        if tile > 0:
            waiting = Boolean(True)
            while waiting:
                if cutlass.const_expr(fault == "two words"):
                    waiting = cute.arch.load(mine - 2, Uint64, sem="relaxed", scope="gpu") == Uint64(0)
                    before = Int64(cute.arch.load(mine - 1, Uint64, sem="relaxed", scope="gpu"))
                else:
                    word = cute.arch.load(mine - 2, Uint128, sem="relaxed", scope="gpu")
                    waiting = Uint64(word) == Uint64(0)
                    before = Int64(word >> Uint128(Uint64(64)))
        if cutlass.const_expr(fault == "two words"):
            cute.arch.store(mine, Uint64(1), sem="relaxed", scope="gpu")
            cute.arch.store(mine + 1, Uint64(before + value), sem="relaxed", scope="gpu")
        else:
            cute.arch.store(
                mine,
                (Uint128(Uint64(before + value)) << Uint128(Uint64(64))) | Uint128(Uint64(1)),
                sem="relaxed",
                scope="gpu",
            )
    before = cute.arch.shuffle_sync(before, 31)
    if i < n:
        vector(out, n)[i] = value + before


@host(block=32)
@cute.kernel
def apply(x: cute.Pointer, y: cute.Pointer, op: cutlass.Constexpr):
    """``y = op(x)`` for every element, ``op`` an expression of the DSL."""
    i = cute.arch.thread_idx()[0]
    cute.make_tensor(y, cute.make_layout(32))[i] = op(cute.make_tensor(x, cute.make_layout(32))[i])


@host(block=32)
@cute.kernel
def print_and_assert(x: cute.Pointer):
    i = cute.arch.thread_idx()[0]
    value = cute.make_tensor(x, cute.make_layout(32))[i]
    if i < 2:
        cute.printf("lane %d has %f", i, value)
    cute.testing.assert_(value < 31.0, "too large")
