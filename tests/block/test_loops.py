"""Collectives that a kernel makes at its top, and uses in a loop and a branch that run on the device."""

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass import Int32

import cutesync as cs
from cutesync import block

BLOCK, ITEMS = (8, 4, 2), 2


@cute.kernel
def _rows(x: cute.Tensor, found: cute.Tensor):
    a, b, c = cute.arch.thread_idx()
    t = a + 8 * (b + 4 * c)
    load, store = block.Load(BLOCK, ITEMS, "striped"), block.Store(BLOCK, ITEMS)
    scan, total, last = block.Scan(Int32, BLOCK), block.Reduce((Int32, Int32), BLOCK), block.Reduce(Int32, BLOCK)
    exchange, steps = block.Exchange(Int32, BLOCK, ITEMS), block.AdjacentDifference(Int32, BLOCK)
    flags = block.Discontinuity(Int32, BLOCK)
    for row in range(x.shape[0]):
        items = exchange.striped_to_blocked(load(x[row, None], Int32(0)))
        scanned, _ = scan.inclusive(items)
        store(found[row, 0, None], Int32(0), scanned)
        heads = flags.flag_heads(items, "ne", flag_dtype=Int32)
        store(found[row, 1, None], Int32(0), heads)
        if row > 0:
            store(found[row, 2, None], Int32(0), steps.subtract_left(items))
        largest, number = total.all_reduce((items[0], Int32(1)), lambda p, q: (cutlass.max(p[0], q[0]), p[1] + q[1]))
        behind = last(items[1], lambda p, q: q)
        if t == 0:
            found[row, 3, 0], found[row, 3, 1], found[row, 3, 2] = largest, number, behind
        cute.arch.sync_threads()


@cute.jit
def _launch(x: cute.Tensor, found: cute.Tensor):
    _rows(x, found).launch(grid=(1, 1, 1), block=BLOCK)


def test_loops_and_branches(on_emulator):
    x = np.random.default_rng(0).integers(0, 3, (3, 128)).astype(np.int32)
    found = np.zeros((3, 4, 128), np.int32)
    cs.emulator.check(_launch, x, found, schedules=2)
    assert np.array_equal(found[:, 0], np.cumsum(x, 1))
    assert np.array_equal(found[:, 1, 1:], x[:, 1:] != x[:, :-1])
    assert np.array_equal(found[1:, 2, 1:], np.diff(x[1:], axis=1)) and not found[0, 2].any()
    assert found[:, 3, :3].tolist() == [[row[::2].max(), 64, row[-1]] for row in x]
