"""What all reduction kernels share; what those of contiguous arrays share: their arguments, and one way to store a
result; and the kernel that only stores results."""

from __future__ import annotations

import math
from collections import namedtuple

import cutlass
from cutlass import Int64, cute

from ..arrays import pointers_of, together
from ..plain import PlainKernel

# A launch's arguments.
#
# The array ``x`` is seen as (outer, length, inner): ``length`` elements are reduced for each of outer * inner results
# in ``out`` (``Arrays`` if there are several inputs or outputs). ``init`` has register values, read only with
# ``has_init``; in the kernel's parameters the run-time arguments of callables follow them. ``slots`` and ``counters``
# are the workspace (see ``sync.gather``); ``splits`` blocks share a result, and ``tiles`` tiles cover ``inner``.
Arguments = namedtuple("Arguments", "x out init slots counters outer length inner splits tiles")


def store_vector(place, dtype, values, align: int) -> None:
    """Store ``values`` of a type from a pointer on, which lies on a boundary of ``align`` bytes."""
    registers = cute.make_rmem_tensor((len(values),), dtype.cutlass)
    for i, value in enumerate(values):
        registers[i] = value
    start = cute.make_ptr(dtype.cutlass, place.toint(), cute.AddressSpace.gmem, assumed_align=align)
    cute.autovec_copy(registers, cute.make_tensor(start, cute.make_layout((len(values),))))


class ReduceKernel(PlainKernel):
    """A compiled reduction."""

    name = "reduce"

    def __init__(self, monoid, has_init: bool, threads: int, smem: int, blocks_per_sm: int = 1) -> None:
        super().__init__(threads, smem, blocks_per_sm)
        self.monoid, self.has_init = monoid, has_init


class ContiguousKernel(ReduceKernel):
    """A reduction of contiguous arrays. A subclass defines ``body``, which gets the ``Arguments``."""

    def arguments(self, x: tuple, out: tuple, init: tuple, memory: tuple, shape: tuple, blocks: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        own = len(init) - self.monoid.arg_count
        self.monoid.bind(init[own:])
        (slots, counters), (outer, length, inner), (splits, tiles) = memory, shape, blocks
        x, out, init = together(x), together(out), init[:own]
        return Arguments(x, out, init, slots, counters, outer, length, inner, splits, tiles)

    def results(self, init, state) -> tuple:
        """The element to store for an aggregate in each output."""
        return self.monoid.results_of(self.monoid.combine(init, state) if self.has_init else state)

    def store_results(self, a: Arguments, place, states, aligned: bool) -> None:
        """Store consecutive results from number ``place`` on, a multiple of their number; with ``aligned``, outputs lie
        on 16-byte boundaries."""
        count, rows = len(states), [self.results(a.init, state) for state in states]
        for k, (out, dtype) in enumerate(zip(pointers_of(a.out), self.monoid.results)):
            align = math.gcd(count * dtype.size, 16) if aligned else dtype.size
            store_vector(out + place, dtype, [row[k] for row in rows], align)

    def store_result(self, a: Arguments, place, state) -> None:
        """Store the result number ``place``."""
        for out, result in zip(pointers_of(a.out), self.results(a.init, state)):
            cute.make_tensor(out + place, cute.make_layout((1,)))[0] = result


class FillReduce(ContiguousKernel):
    """The result of reducing nothing: ``init`` is stored in ``outer`` results, ``each`` of a thread."""

    def __init__(self, monoid, has_init: bool, policy) -> None:
        super().__init__(monoid, False, 256, 0, 1)  # ``init`` is the result: it is not combined with another
        self.each = policy.each

    @cute.jit
    def body(self, a: Arguments):
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        place = Int64(block) * (self.each * 256) + thread
        for _ in cutlass.range_constexpr(self.each):
            if place < a.outer:
                self.store_result(a, place, a.init)
            place += 256
