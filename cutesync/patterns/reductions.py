"""Five ways to sum: within a block, then across blocks, each with the synchronization that it needs.

    "shared_tree"       one total a block: a tree over cells of shared memory, a block barrier after every level
    "register_tree"     the same with the value in a register: a thread writes its cell once, before another reads it
    "launch_per_level"  one total: the tree over the whole array, one launch a level
    "chained"           one total: totals of blocks, then totals of those, ...: launches of "register_tree"
    "block_atomic"      one total: each block adds its total to a cleared word by one atomic

The end of a launch is the barrier of all blocks. A tree over the whole array in one launch with block barriers only has
a race as soon as there are two blocks; the emulator reports it. In your own code use ``cs.reduce``; its ``algorithm=``
has the last two at full speed.
"""

from __future__ import annotations

import cutlass
import numpy as np
from cutlass import Int64, cute

from cutesync.arguments import choice
from cutesync.patterns.host import Step, Task, call
from cutesync.patterns.kernel import PatternKernel, part, shared
from cutesync.sizes import ceil_div

FORMS = ("shared_tree", "register_tree", "launch_per_level", "chained", "block_atomic")
BLOCK = 256  # elements, and threads


class BlockTree(PatternKernel):
    """A block sums ``BLOCK`` elements; those beyond ``n`` count as zero."""

    threads = BLOCK

    def __init__(self, dtype, form: str) -> None:
        self.dtype, self.form = dtype, form
        self.name, self.smem = f"reductions_{form}", BLOCK * dtype.size + 64

    @cute.jit
    def body(self, x, out, state, n, m):
        thread, _, _ = cute.arch.thread_idx()
        block = Int64(cute.arch.block_idx()[0])
        kind = self.dtype.cutlass
        cells = shared(kind, BLOCK)
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
                cute.arch.sync_threads()  # the cells of this level are written
                if thread % (2 * stride) == 0:
                    value = value + kind(cells[thread + stride])
        if thread == 0:
            if cutlass.const_expr(self.form == "block_atomic"):
                cute.arch.atomic_add(out, value, sem="relaxed", scope="gpu")
            else:
                part(out, block, 1)[0] = value


class Level(PatternKernel):
    """One level of the tree over the whole array: element ``i * 2m`` becomes its sum with element ``i * 2m + m``."""

    name, threads = "reductions_level", BLOCK

    @cute.jit
    def body(self, x, out, state, n, m):
        at = (Int64(cute.arch.block_idx()[0]) * BLOCK + cute.arch.thread_idx()[0]) * (2 * m)
        if at < n:
            value = self.dtype.cutlass(part(x, at, 1)[0])
            if at + m < n:
                value = value + self.dtype.cutlass(part(x, at + m, 1)[0])
            part(out, at, 1)[0] = value


class Clear(PatternKernel):
    """Stores the zero that ``block_atomic`` adds to."""

    name, threads = "reductions_clear", 32

    @cute.jit
    def body(self, x, out, state, n, m):
        if cute.arch.thread_idx()[0] == 0:
            part(out, 0, 1)[0] = self.dtype.cutlass(0)


def run(x, form: str = "chained", *, stream=None):
    """Sums of the vector ``x`` (int32, int64, float32, float64).

    "shared_tree" and "register_tree" give one sum for each block of 256 elements, the other forms the sum of all.
    """
    choice(form, "form", FORMS)
    return call(lambda x, _: sums(x, form), x, None, stream, dtypes=("int32", "int64", "float32", "float64"))


def sums(x, form: str) -> Task:
    """The launches of a form. Of several, each but the first reads what the one before has stored."""
    n, blocks = x.size, ceil_div(x.size, BLOCK)
    if form in ("shared_tree", "register_tree"):
        return Task(x, Step(lambda dtype: BlockTree(dtype, form), BLOCK), shape=(blocks,))
    if form == "block_atomic" or not n:
        return Task(x, Step(Clear), Step(lambda dtype: BlockTree(dtype, "block_atomic"), BLOCK), shape=())
    if form == "chained":
        counts = [n]
        while counts[-1] > BLOCK:
            counts.append(ceil_div(counts[-1], BLOCK))
        steps = [Step(lambda dtype: BlockTree(dtype, "register_tree"), BLOCK, count) for count in counts]
        places, room = [0, *range(2, len(counts) + 1), 1], counts[1:]
    else:
        strides = [1 << level for level in range(max(1, (n - 1).bit_length()))]
        steps = [Step(Level, 2 * stride * BLOCK, m=stride) for stride in strides]
        places, room = [0, *(2 for _ in strides[1:]), 1], [n]
    steps = [step._replace(arrays=pair) for step, pair in zip(steps, zip(places, places[1:]))]
    return Task(x, *steps, shape=(), temporaries=[count * x.dtype.size for count in room])


def reference(x: np.ndarray, form: str = "chained") -> np.ndarray:
    """The same in NumPy (floats in another order)."""
    if form in ("shared_tree", "register_tree"):
        return np.add.reduceat(x, np.arange(0, len(x), BLOCK), dtype=x.dtype) if len(x) else x
    return np.sum(x, dtype=x.dtype)
