"""What the kernels for strided arrays share: their parameters, and how a thread finds its part of the arrays.

A thread has a number. It is split into digits, one for each axis: the first digit counts tiles along the axis on which
neighbouring threads lie. A tile is one element long along most axes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import cutlass
from cutlass import Int64, Uint32, cute

from ...sync.overlap import let_next_start
from ..coordinates import quotient
from .compare import Compare

# The arguments of a launch: the arrays; ``n`` in memory, or else as a number; the threads that have work, the extent of
# the flagged axis, the period (tile); the predecessor and the successor (``ends``). For each digit: how many values it
# has, and the numbers that divide by it (see ``split``); the extent of its axis; and for each array the stride there.
Arguments = namedtuple("Arguments", "x outs count n work length period ends counts factors shifts extents steps")


class StridedKernel(Compare):
    """A compiled kernel. A subclass defines ``mark(a, number)``: what the thread of a number does."""

    mark: Any

    def __init__(self, marking, policy) -> None:
        super().__init__(marking, policy.threads)
        self.digits, self.wide, self.counted = policy.digits, policy.wide, policy.counted
        self.periodic = policy.periodic

    def limit_registers(self, resident: int) -> None:
        """Let so many threads fit on a multiprocessor at once; of a callable, which may need any registers, a block."""
        self.blocks_per_sm = 1 if self.called else resident // self.threads

    def arguments(self, arrays: tuple, numbers: tuple, values: tuple, axes: tuple) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        let_next_start()
        (x, *others, count), (n, work, length, period) = arrays, numbers
        outputs, k = self.marking.outputs, self.digits
        counts, factors, shifts, extents, *steps = (axes[i * k : (i + 1) * k] for i in range(5 + outputs))
        ends = self.bind(values)
        outs = tuple(others[:outputs])
        a = Arguments(x, outs, count, n, work, length, period, ends, counts, factors, shifts, extents, steps)
        return a._replace(n=self.known(a))

    @cute.jit
    def body(self, a: Arguments):
        """What a thread does; no thread waits for another."""
        number = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if number < a.work:
            self.mark(a, number)

    @cute.jit
    def known(self, a: Arguments):
        """How many elements along the flagged axis count."""
        n = a.length
        if self.counted:
            n = a.n
            if a.count.toint() != 0:
                n = cute.make_tensor(a.count, cute.make_layout((1,)))[0]
            n = cute.arch.inline_ptx(
                "{ .reg .s64 m; max.s64 m, {$r0}, 0; min.s64 {$w0}, m, {$r1}; }",
                write_only_types=[Int64],
                read_only_args=[n, a.length],
            )
        return n

    def split(self, a: Arguments, number) -> list:
        """The digits of a number, as Int64."""
        found = []
        if not self.wide:
            number = Uint32(number)
        for count, factor, shift in zip(a.counts[:-1], a.factors, a.shifts):
            rest = quotient(number, count, factor, shift)
            found.append(Int64(number - rest * type(number)(count)))
            number = rest
        return [*found, Int64(number)]

    @staticmethod
    def offset(coordinates, steps):
        """The offset of the element at these coordinates; of its word in an array of words."""
        return sum((c * step for c, step in zip(coordinates, steps)), Int64(0))

    @cute.jit
    def store_run(self, target, step, values, left, vector: cutlass.Constexpr):
        """Store the first ``left`` of the values, ``step`` elements apart, or as one ``vector``."""
        if cutlass.const_expr(vector):
            if left >= len(values):
                self.store_vector(target, values)
            else:
                for i in cutlass.range_constexpr(len(values)):
                    if i < left:
                        self.put(target, step * i, values[i])
        else:
            for i in cutlass.range_constexpr(len(values)):
                if i < left:
                    self.put(target, step * i, values[i])

    def store_vector(self, target, values, kind=None) -> None:
        """Store values of the results' type, or of ``kind``, as one vector."""
        kind, shape = kind or self.marking.result.cutlass, cute.make_layout((len(values),))
        results = cute.make_rmem_tensor(shape, kind)
        for i, value in enumerate(values):
            results[i] = value
        width = len(values) * kind.width // 8
        at = cute.make_ptr(kind, target.toint(), cute.AddressSpace.gmem, assumed_align=min(width, 16))
        cute.autovec_copy(results, cute.make_tensor(at, shape))
