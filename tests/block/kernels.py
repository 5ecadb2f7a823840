"""User kernels around the block collectives, and ``run``, which takes one to the GPU or to the emulator.

The DSL does not rewrite the kernels: their loops are loops of Python's.
"""

import cutlass.cute as cute
import numpy as np
from cutlass import Int32, Int64

import cutesync as cs
from cutesync import block

from ..cases import SCHEDULES
from ..compiled import check

FORMS = (
    "heads",
    "heads predecessor",
    "tails",
    "tails successor",
    "both",
    "both predecessor",
    "both successor",
    "both predecessor successor",
)
ROWS = 12  # flags of all forms: four forms give one row, four give two


def run(place, host, *arrays: np.ndarray, schedules: int = SCHEDULES) -> list[np.ndarray]:
    """The arrays as ``host`` (an object with a jitted ``__call__`` of pointers and a stream) leaves them. On the
    emulator under ``schedules`` schedules over all policies."""
    if place.name == "emulator":
        arrays = [array.copy() for array in arrays]
        check(host.__call__, *arrays, schedules=schedules)
        return list(arrays)
    on_gpu = [cs.asarray(array) for array in arrays]
    cs.launch(host, *on_gpu)
    return [np.asarray(there) for there in on_gpu]


def vector(pointer, count: int):
    return cute.make_tensor(pointer, cute.make_layout((count,)))


def thread_rank(block_dim):
    x, y, z = cute.arch.thread_idx()
    return x + block_dim[0] * (y + block_dim[1] * z)


def blocked(source, items: int, block_dim, dtype):
    """This thread's items of the block's tile. Written out, so that the tests of Load do not judge themselves."""
    threads = block_dim[0] * block_dim[1] * block_dim[2]
    mine = cute.make_rmem_tensor((items,), dtype)
    first = cute.arch.block_idx()[0] * threads * items + thread_rank(block_dim) * items
    for i in range(items):
        mine[i] = dtype(source[first + i])
    return first, mine


class AllForms:
    """All eight forms, one behind the other on one storage. Row r of ``flags`` is output r; ``ends`` are predecessor
    and successor.

    Between every two a barrier is owed, and given unless ``owed`` is False.
    """

    def __init__(self, dtype, block_dim, items: int, tiles: int = 1, op="ne", flag=Int32, forms=FORMS) -> None:
        self.dtype, self.block_dim, self.items, self.tiles = dtype, (*block_dim, 1, 1)[:3], items, tiles
        self.op, self.flag, self.forms, self.owed = op, flag, forms, True
        self.count = items * tiles * int(np.prod(block_dim))

    @cute.jit
    def __call__(self, x: cute.Pointer, ends: cute.Pointer, flags: cute.Pointer, stream):
        self.kernel(x, ends, flags).launch(grid=(self.tiles, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, ends: cute.Pointer, flags: cute.Pointer):
        collective = block.Discontinuity(self.dtype, self.block_dim)
        first, items = blocked(vector(x, self.count), self.items, self.block_dim, self.dtype)
        scalars = {"tile_predecessor_item": vector(ends, 2)[0], "tile_successor_item": vector(ends, 2)[1]}
        row = 0
        for number, form in enumerate(self.forms):
            if number > 0 and self.owed:
                cute.arch.sync_threads()
            kind, *given = form.split()
            method = {
                "heads": collective.flag_heads,
                "tails": collective.flag_tails,
                "both": collective.flag_heads_and_tails,
            }[kind]
            options = {name: value for name, value in scalars.items() if name.split("_")[1] in given}
            found = method(items, self.op, flag_dtype=self.flag, **options)
            for flag in found if kind == "both" else (found,):
                target = vector(flags + row * self.count, self.count)
                for i in range(self.items):
                    target[first + i] = flag[i]
                row += 1
        for i in range(self.items):  # the items are as they were
            vector(flags + row * self.count, self.count)[first + i] = self.flag(
                items[i] == vector(x, self.count)[first + i]
            )


class Differences:
    """left, left with a predecessor, right, right with a successor, left and right of ``valid`` items: rows 0 to 5 of
    ``out``."""

    def __init__(self, dtype, block_dim, items: int, valid: int, op="sub") -> None:
        self.dtype, self.block_dim, self.items, self.valid, self.op = dtype, (*block_dim, 1, 1)[:3], items, valid, op
        self.count = items * int(np.prod(block_dim))

    @cute.jit
    def __call__(self, x: cute.Pointer, ends: cute.Pointer, out: cute.Pointer, stream):
        self.kernel(x, ends, out).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, ends: cute.Pointer, out: cute.Pointer):
        shared = block.AdjacentDifference.storage(self.dtype, self.block_dim)
        collective = block.AdjacentDifference(self.dtype, self.block_dim, storage=shared)
        first, items = blocked(vector(x, self.count), self.items, self.block_dim, self.dtype)
        predecessor, successor = vector(ends, 2)[0], vector(ends, 2)[1]
        calls = (
            lambda: collective.subtract_left(items, self.op),
            lambda: collective.subtract_left(items, self.op, tile_predecessor_item=predecessor),
            lambda: collective.subtract_right(items, self.op),
            lambda: collective.subtract_right(items, self.op, tile_successor_item=successor),
            lambda: collective.subtract_left(items, self.op, valid_items=self.valid),
            lambda: collective.subtract_right(items, self.op, valid_items=self.valid),
        )
        for row, call in enumerate(calls):
            if row > 0:
                cute.arch.sync_threads()
            found = call()
            target = vector(out + row * self.count, self.count)
            for i in range(self.items):
                target[first + i] = found[i]


class Rearranged:
    """Row 0: the items of each thread as ``blocked_to_striped`` leaves them, in thread order; row 1: back again, by
    Store, ``length`` of them."""

    def __init__(self, dtype, block_dim, items: int, length: int) -> None:
        self.dtype, self.block_dim, self.items, self.length = dtype, (*block_dim, 1, 1)[:3], items, length
        self.count = items * int(np.prod(block_dim))

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, stream):
        self.kernel(x, out).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, out: cute.Pointer):
        exchange = block.Exchange(self.dtype, self.block_dim, self.items)
        items = block.Load(self.block_dim, self.items)(vector(x, self.length), 0, 7)
        striped = exchange.blocked_to_striped(items)
        first = thread_rank(self.block_dim) * self.items
        for i in range(self.items):
            vector(out, self.count)[first + i] = striped[i]
        cute.arch.sync_threads()
        back = exchange.striped_to_blocked(striped)
        block.Store(self.block_dim, self.items)(vector(out + self.count, self.length), 0, back)
        cute.arch.sync_threads()
        straight = block.Load(self.block_dim, self.items, "striped")(vector(x, self.length), 0, 7)
        block.Store(self.block_dim, self.items, "striped")(vector(out + 2 * self.count, self.length), 0, straight)


class Counted:
    """Heads and tails by an operator that counts its calls in ``calls[0]`` and sums the indexes it sees in
    ``calls[1]``."""

    def __init__(self, block_dim, items: int, form: str) -> None:
        self.block_dim, self.items, self.form = (*block_dim, 1, 1)[:3], items, form
        self.count = items * int(np.prod(block_dim))

    @cute.jit
    def __call__(self, x: cute.Pointer, calls: cute.Pointer, flags: cute.Pointer, stream):
        self.kernel(x, calls, flags).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, calls: cute.Pointer, flags: cute.Pointer):
        collective = block.Discontinuity(Int32, self.block_dim)
        first, items = blocked(vector(x, self.count), self.items, self.block_dim, Int32)

        def op(a, b, index):
            cute.arch.atomic_add(calls, Int64(1), sem="relaxed", scope="gpu")
            cute.arch.atomic_add(calls + 1, Int64(index) * index, sem="relaxed", scope="gpu")
            return a != b

        method = collective.flag_heads if self.form == "heads" else collective.flag_tails
        flag = method(items, op)
        for i in range(self.items):
            vector(flags, self.count)[first + i] = flag[i]
