"""Kernels of the queue that refuses instead of waiting, and of tickets; see kernels.py for how they are called."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from cutesync.sync import ConcurrentQueue, Tickets

from ..emulator.hosts import host
from .kernels import vector

THREADS = 6  # of a block that take part


@host(block=32)
@cute.kernel
def in_turn(
    items: cute.Pointer,
    turns: cute.Pointer,
    state: cute.Pointer,
    out: cute.Pointer,
    log: cutlass.Constexpr,
    laps: cutlass.Constexpr,
):
    """One thread: gives until the queue is full and once more, takes until it is empty and once more; again and
    again."""
    queue = ConcurrentQueue(items, turns, state, Int64(log))
    if cute.arch.thread_idx()[0] == 0:
        for lap in cutlass.range(laps, unroll=1):
            for i in cutlass.range_constexpr((1 << log) + 1):
                vector(out)[lap * 99 + i] = Int32(queue.try_give(lap * 10 + i))
            for i in cutlass.range_constexpr((1 << log) + 1):
                got, value = queue.try_take(Int32)
                vector(out)[lap * 99 + 20 + i] = Int32(got)
                vector(out)[lap * 99 + 40 + i] = value


@host(block=32, grid=None)
@cute.kernel
def at_once(items: cute.Pointer, turns: cute.Pointer, state: cute.Pointer, out: cute.Pointer, log: cutlass.Constexpr):
    """Every thread gives its number and takes one, trying again until both have worked; ``out`` counts who was taken
    how often."""
    queue = ConcurrentQueue(items, turns, state, Int64(log))
    number = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    idle = cute.arch.thread_idx()[0] >= THREADS
    given, taken, value = idle, idle, Int32(0)
    while cutlass.not_(given & taken):
        if cutlass.not_(given):
            given = queue.try_give(number)
        if cutlass.not_(taken):
            taken, value = queue.try_take(Int32)
    if cutlass.not_(idle):
        cute.arch.atomic_add(out + value, Int32(1), sem="relaxed", scope="gpu")


@host(block=32, grid=None)
@cute.kernel
def dealt(word: cute.Pointer, out: cute.Pointer, count: Int32):
    """Every block draws until there are no more; ``out`` counts how often each number was dealt."""
    tickets = Tickets(word, count, cute.arch.grid_dim()[0])
    if cute.arch.thread_idx()[0] == 0:
        number = tickets.draw()
        while number < count:
            cute.arch.atomic_add(out + number, Int32(1), sem="relaxed", scope="gpu")
            number = tickets.draw()
