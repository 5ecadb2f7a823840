"""A list in global memory that many threads add to, and later take from (ProCon), safe to reuse.

Giving and taking never overlap in time: a launch, or a grid barrier, lies between them. A place comes from an atomic on
the number of items held. Atomics on one word are served one after the other, so whole warps and whole blocks share one:

    lanes with an item --ballot--> their ranks and number --one atomic--> places --> each lane stores its own
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.memory import SmemAllocator

from ..warp import LANES
from .wait import block_thread

HELD, LOST, STATE_WORDS = 0, 1, 2  # 64-bit words of a Queue's state


@dataclass(frozen=True)
class Queue:
    """A list of at most ``capacity`` (Int64) ``items``; ``state`` points to two Int64: how many it holds, and how many
    it had no room for.

    What is given beyond the capacity is counted as lost and never written; a take from an empty queue changes nothing:
    after either the queue can be used on. The order of items is that of the atomics. All methods are called by whole
    warps, or blocks.
    """

    items: cute.Pointer
    state: cute.Pointer
    capacity: object

    def give_each(self, value, valid) -> None:
        """Lanes with ``valid`` (Boolean) give ``value``, one atomic each: what the other two are measured against.

        An H200 serves 1.35 of them a nanosecond on one word, however many threads ask."""
        _give_each(self, value, valid)

    def give(self, value, valid) -> None:
        """Lanes with ``valid`` give ``value``: one atomic a warp. All 32 lanes call."""
        ballots, total = ballots_of([valid])
        place = _reserve_by_lane_0(self, total)
        store_marked(self.items, self.capacity, place, [value], ballots)

    def give_block(self, values, valid, scratch) -> None:
        """Every thread gives those of its ``values`` (a list of registers) whose ``valid`` is set: one atomic a block.
        All its threads call.

        ``scratch`` is from ``Queue.scratch(warps)``; another call with it needs ``cute.arch.sync_threads()`` before.
        """
        ballots, total = ballots_of(valid)
        place = _share_out(self, total, scratch)
        store_marked(self.items, self.capacity, place, values, ballots)

    @staticmethod
    def scratch(warps: int):
        """Shared memory for ``give_block`` in blocks of ``warps`` warps: 8 bytes a warp."""
        return cute.make_tensor(SmemAllocator().allocate_array(Int64, warps), cute.make_layout(warps))

    def take(self, wanted, dtype):
        """Lanes with ``wanted`` take one item each, as long as there are any: ``(got, value)``. The last given is the
        first taken."""
        return _take(self, wanted, dtype)


@cute.jit
def _give_each(queue: cutlass.Constexpr, value, valid: Boolean):
    if valid:
        place = Int64(cute.arch.atomic_add(queue.state + HELD, _one(), sem="relaxed", scope="gpu"))
        if place < queue.capacity:
            cell(queue.items, place)[0] = value
        else:
            _return(queue, place, Int32(1))


def _one():
    """1, hidden from the compiler: it would make lanes that all add a constant share one atomic (14 times faster)."""
    return cute.arch.inline_ptx(
        "{ .reg .b32 one; shr.u32 one, {$r0}, 5; add.u32 one, one, 1; cvt.u64.u32 {$w0}, one; }",
        write_only_types=[Int64],
        read_only_args=[Int32(cute.arch.lane_idx())],
    )


def cell(pointer, place):
    return cute.make_tensor(pointer + place, cute.make_layout(1))


def ballots_of(valid):
    """One ballot a value, and how many are set in all."""
    ballots = [Int32(cute.arch.vote_ballot_sync(flag)) for flag in valid]
    total = Int32(0)
    for ballot in ballots:
        total = total + Int32(cute.arch.popc(ballot))
    return ballots, total


@cute.jit
def _reserve_by_lane_0(queue: cutlass.Constexpr, count: Int32):
    place = Int64(0)
    if cute.arch.lane_idx() == 0:
        place = _reserve(queue, count)
    return _from_lane(place, 0)


@cute.jit
def _reserve(queue: cutlass.Constexpr, count: Int32):
    """The first of ``count`` places; what does not fit is given back at once and counted as lost."""
    place = Int64(0)
    if count > 0:
        place = Int64(cute.arch.atomic_add(queue.state + HELD, Int64(count), sem="relaxed", scope="gpu"))
        if place + count > queue.capacity:
            _return(queue, place, count)
    return place


@cute.jit
def _return(queue: cutlass.Constexpr, place: Int64, count: Int32):
    # once full, the queue stays full until the phase ends, so nobody can be given a place that comes back here
    over = cutlass.min(place + count - queue.capacity, Int64(count))
    cute.arch.atomic_add(queue.state + HELD, -over, sem="relaxed", scope="gpu")
    cute.arch.atomic_add(queue.state + LOST, over, sem="relaxed", scope="gpu")


@cute.jit
def store_marked(
    items: cute.Pointer, capacity: Int64, place: Int64, values: cutlass.Constexpr, ballots: cutlass.Constexpr
):
    """Value after value, the lanes in its ballot store theirs to consecutive places from ``place`` on, below
    ``capacity``."""
    target = cute.make_tensor(items + place, cute.make_layout(len(values) * LANES))
    room = Int32(cutlass.max(cutlass.min(capacity - place, Int64(len(values) * LANES)), Int64(0)))
    lane, before = cute.arch.lane_idx(), Int32(cute.arch.lanemask_lt())
    done = Int32(0)
    for value, ballot in zip(values, ballots):
        mine = done + Int32(cute.arch.popc(ballot & before))
        if (((ballot >> lane) & 1) != 0) & (mine < room):
            target[mine] = value
        done += Int32(cute.arch.popc(ballot))


@cute.jit
def _share_out(queue: cutlass.Constexpr, total: Int32, scratch):
    """The first place of each warp's items: warp 0 adds the warps' totals up and reserves for all."""
    lane, warp = cute.arch.lane_idx(), block_thread() // LANES
    warps = cute.size(scratch)
    if lane == 0:
        scratch[warp] = Int64(total)
    cute.arch.sync_threads()
    if warp == 0:
        own = Int32(0)
        if lane < warps:
            own = Int32(scratch[lane])
        upto = own
        for step in cutlass.range_constexpr(5):
            lower = Int32(cute.arch.shuffle_sync_up(upto, 1 << step, mask_and_clamp=0))
            if lane >= (1 << step):
                upto += lower
        place = Int64(0)
        if lane == LANES - 1:
            place = _reserve(queue, upto)
        place = _from_lane(place, LANES - 1) + (upto - own)
        if lane < warps:
            scratch[lane] = place
    cute.arch.sync_threads()
    return Int64(scratch[warp])


def _from_lane(value, lane: int):
    low = cute.arch.shuffle_sync(Int32(value & 0xFFFFFFFF), lane)
    high = cute.arch.shuffle_sync(Int32(value >> 32), lane)
    return (Int64(high) << 32) | (Int64(low) & 0xFFFFFFFF)


@cute.jit
def _take(queue: cutlass.Constexpr, wanted: Boolean, dtype: cutlass.Constexpr):
    ballot = Int32(cute.arch.vote_ballot_sync(wanted))
    count = Int32(cute.arch.popc(ballot))
    held = Int64(0)
    if cute.arch.lane_idx() == 0:
        if count > 0:
            held = Int64(cute.arch.atomic_add(queue.state + HELD, -Int64(count), sem="relaxed", scope="gpu"))
            if held < count:  # as in _return: once empty it stays empty, so what is added back is nobody's
                cute.arch.atomic_add(
                    queue.state + HELD, count - cutlass.max(held, Int64(0)), sem="relaxed", scope="gpu"
                )
    held = _from_lane(held, 0)
    place = held - 1 - Int32(cute.arch.popc(ballot & Int32(cute.arch.lanemask_lt())))
    got = wanted & (place >= 0)
    value = dtype(0)
    if got:
        value = dtype(cell(queue.items, place)[0])
    return got, value
