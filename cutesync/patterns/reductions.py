"""The ladder of sums: within a block, then across blocks, each rung with the synchronization it needs.

    "shared_tree"       one total a block: a tree over cells of shared memory, a block barrier after every level
    "register_tree"     the same, the running value in a register: a cell is written only by a thread that is read next
    "launch_per_level"  one total: the tree over the whole array, a launch a level (the end of a launch is the barrier of all blocks)
    "chained"           one total: totals of blocks, then totals of those, ...: launches of "register_tree" until one is left
    "block_atomic"      one total: each block adds its total to a cleared word by one atomic

A tree over the whole array in one launch, with block barriers only, is a race beyond one block; the emulator refuses it (see the tests).
``cs.reduce`` is what to use; its ``algorithm=`` has the last two at full speed.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass import Int64
from cutlass.memory import SmemAllocator

from ..arguments import choice
from .host import Call
from .kernel import PatternKernel, part

FORMS = ("shared_tree", "register_tree", "launch_per_level", "chained", "block_atomic")
BLOCK = 256  # elements, and threads


class BlockTree(PatternKernel):
    """A block folds ``BLOCK`` elements; what lies beyond ``n`` counts as zero."""

    threads = BLOCK

    def __init__(self, dtype, form: str) -> None:
        self.dtype, self.form = dtype, form
        self.name, self.smem = f"reductions_{form}", BLOCK * dtype.size + 64

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        block = Int64(cute.arch.block_idx()[0])
        kind = self.dtype.cutlass
        cells = cute.make_tensor(SmemAllocator().allocate_array(kind, BLOCK), cute.make_layout(BLOCK))
        value = kind(0)
        if block * BLOCK + thread < n:
            value = kind(part(x, block * BLOCK, BLOCK)[thread])
        if cutlass.const_expr(self.form == "shared_tree"):
            cells[thread] = value
            cute.arch.sync_threads()
            for level in cutlass.range_constexpr(BLOCK.bit_length() - 1):
                stride = 1 << level
                if thread % (2 * stride) == 0:
                    cells[thread] = kind(cells[thread]) + kind(cells[thread + stride])
                cute.arch.sync_threads()
            value = kind(cells[0])
        else:
            for level in cutlass.range_constexpr(BLOCK.bit_length() - 1):
                stride = 1 << level
                if thread % (2 * stride) == stride:  # read in this level, and never again
                    cells[thread] = value
                cute.arch.sync_threads()
                if thread % (2 * stride) == 0:
                    value = value + kind(cells[thread + stride])
        if thread == 0:
            if cutlass.const_expr(self.form == "block_atomic"):
                cute.arch.atomic_add(out, value, sem="relaxed", scope="gpu")
            else:
                part(out, block, 1)[0] = value


class Level(PatternKernel):
    """One level of the tree over the whole array: element ``i * 2m`` becomes the sum of itself and the one ``m`` further on."""

    name, threads = "reductions_level", BLOCK

    def __init__(self, dtype) -> None:
        self.dtype = dtype

    @cute.jit
    def body(self, x, out, state, n, m):
        at = (Int64(cute.arch.block_idx()[0]) * BLOCK + cute.arch.thread_idx()[0]) * (2 * m)
        if at < n:
            value = self.dtype.cutlass(part(x, at, 1)[0])
            if at + m < n:
                value = value + self.dtype.cutlass(part(x, at + m, 1)[0])
            part(out, at, 1)[0] = value


class Clear(PatternKernel):
    """Stores the zero that ``block_atomic`` adds to; the source's listing forgets it."""

    name, threads = "reductions_clear", 32

    def __init__(self, dtype) -> None:
        self.dtype = dtype

    @cute.jit
    def body(self, x, out, state, n, m):
        if cute.arch.thread_idx()[0] == 0:
            part(out, 0, 1)[0] = self.dtype.cutlass(0)


def run(x, form: str = "chained", *, stream=None):
    """Sums of the vector ``x`` (int32, int64, float32, float64): one a block of 256 ("shared_tree", "register_tree"), or of all."""
    call = Call(x, stream, dtypes=("int32", "int64", "float32", "float64"))
    choice(form, "form", FORMS)
    n, dtype = call.size, call.x.dtype
    types = (dtype,) * 3

    def tree(source: int, target: int, count: int, kind: str) -> None:
        call.launch(lambda: BlockTree(dtype, kind), source, target, types=types, n=count, grid=_blocks(count))

    if form in ("shared_tree", "register_tree"):
        totals = call.array((_blocks(n),), dtype)
        if n:
            tree(call.x.ptr, call.pointer(totals), n, form)
        return call.result(totals)
    if form == "block_atomic" or not n:
        total = call.array((), dtype)
        call.launch(lambda: Clear(dtype), call.x.ptr, call.pointer(total), types=types)
        if n:
            tree(call.x.ptr, call.pointer(total), n, "block_atomic")
        return call.result(total)
    if form == "chained":
        source = call.x.ptr
        while True:
            totals = call.array((_blocks(n),) if n > BLOCK else (), dtype)
            tree(source, call.pointer(totals), n, "register_tree")
            if n <= BLOCK:
                return call.result(totals)
            source, n = call.pointer(totals), _blocks(n)
    work, stride, source = call.array((n,), dtype), 1, call.x.ptr
    while stride < n or stride == 1:
        grid = _blocks(-(-n // (2 * stride)))
        call.launch(lambda: Level(dtype), source, call.pointer(work), types=types, n=n, m=stride, grid=grid)
        source, stride = call.pointer(work), 2 * stride
    return call.result(work[:1].reshape(()))


def _blocks(n: int) -> int:
    return -(-n // BLOCK)


def reference(x: np.ndarray, form: str = "chained") -> np.ndarray:
    """The same in NumPy (floats in another order)."""
    if form in ("shared_tree", "register_tree"):
        return np.add.reduceat(x, np.arange(0, len(x), BLOCK), dtype=x.dtype) if len(x) else x
    return np.sum(x, dtype=x.dtype)
