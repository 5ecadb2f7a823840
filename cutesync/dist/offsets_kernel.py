"""Kernels that read the offsets of segments for one part of an array: no thread waits for another."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int64, cute

from ..kernels.gather import Stepped
from ..kernels.plain import PlainKernel
from ..kernels.segments.offsets import offset
from ..kernels.tiled import positions
from ..sync.overlap import let_next_start


class OffsetsKernel(PlainKernel):
    """A kernel with a thread for each offset, or each element. With ``ends`` the array has where segments end, and the
    first one begins at 0; with ``counted`` the number of segments is in memory."""

    threads = 256

    def __init__(self, ends: bool, counted: bool) -> None:
        self.ends, self.counted = ends, counted

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple):
        let_next_start()
        offsets, n, out = arrays
        most, before, length, step = numbers
        segments = positions(most, n) if cutlass.const_expr(self.counted) else most
        at = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        self.body((offsets, step, most, segments), out, (before, length), at)

    def offset(self, given: tuple, k) -> Any:
        """Where segment ``k`` begins in the whole array; from the number of segments on, where the last one ends."""
        offsets, step, _, segments = given
        k = cutlass.min(k, segments)
        return offset(Stepped(offsets, step), k, self.ends)


class Clear(OffsetsKernel):
    """No element begins a segment."""

    name = "clear_heads"

    @cute.jit
    def body(self, given: tuple, out, part: tuple, at: Int64):
        if at < part[1]:
            put(out, at, 0)


class Mark(OffsetsKernel):
    """The thread of the last of equal offsets flags an element."""

    name = "mark_heads"

    @cute.jit
    def body(self, given: tuple, out, part: tuple, at: Int64):
        segments, (before, length) = given[3], part
        if at <= segments:
            place = self.offset(given, at) - before
            last = at == segments
            if at < segments:
                last = self.offset(given, at + 1) - before != place
            if last & (place >= 0) & (place < length):
                put(out, place, 1)


class Local(OffsetsKernel):
    """Offsets are counted from the first element of the part."""

    name = "local_offsets"

    @cute.jit
    def body(self, given: tuple, out, part: tuple, at: Int64):
        before, length = part
        if at <= given[2]:
            place = cutlass.min(cutlass.max(self.offset(given, at) - before, Int64(0)), length)
            put(out, at, place)


def put(out, at, value) -> None:
    target = cute.make_tensor(out + at, cute.make_layout((1,)))
    target[0] = target.element_type(value)


KERNELS = {"clear": Clear, "mark": Mark, "local": Local}
