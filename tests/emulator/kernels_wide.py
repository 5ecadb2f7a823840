"""A chained scan whose descriptors are 16 bytes: state and sum in one 128-bit word, or (``fault``) in two of 64."""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint64, Uint128

from .hosts import host


def vector(pointer, n):
    return cute.make_tensor(pointer, cute.make_layout(n))


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
    """Inclusive int64 scan, one warp a tile of 32. Descriptor: low word 1 once the high word holds the sum up to the
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
