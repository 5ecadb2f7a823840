"""What a benchmark family declares: its cases (one array problem each), the bytes they move, and the bars to reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gpu import Array, Gpu

GRAPH_BYTES = 80_000_000  # up to here a case is also timed inside a graph
HOT_BYTES = 30_000_000  # up to here a case is also timed with its data left in the L2
TITLES = {"floor": "the copy-rate floor", "copy": "a copy of the same bytes", "read": "the best read seen"}


@dataclass(frozen=True)
class Bar:
    """``time <= limit x against + plus`` or ``rate >= limit x against``, judged by the medians of one ``measure``.

    ``plus`` is in microseconds. ``against`` is a contestant of the case, "floor" (bytes over the copy rate of the run),
    or "read" (the fastest contestant that read the same bytes, ours and the read-only kernel included).
    """

    against: str
    limit: float
    of: str = "time"
    measure: str = "event"
    plus: float = 0.0

    @property
    def text(self) -> str:
        sign = "<=" if self.of == "time" else ">="
        return f"{self.of} {sign} {self.limit:.2f} x {TITLES.get(self.against, self.against)}" + (
            f" + {self.plus} us" if self.plus else ""
        )

    def judge(self, ours: float, theirs: float) -> tuple[float, bool]:
        """The ratio reached and whether it meets the bar; both times in microseconds."""
        if self.of == "time":
            return ours / theirs, ours <= self.limit * theirs + self.plus
        return theirs / ours, theirs / ours >= self.limit


@dataclass(frozen=True)
class Case:
    """One problem: input and output arrays, the fewest bytes to move, who competes, and what has to be reached."""

    group: str
    name: str
    op: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    bytes: int
    contestants: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    axis: int | None = None
    offset: int = 0  # elements between an aligned address and the inputs
    flops: int = 0
    partial: tuple[str, ...] = ()  # contestants that need not read all bytes: no bar takes them for the best read
    once: bool = False  # only single calls are timed: they wait for the GPU, or take long

    @property
    def dtype(self) -> str:
        return self.inputs[0][1]

    @property
    def size(self) -> int:
        count = 1
        for extent in self.inputs[0][0]:
            count *= extent
        return count

    @property
    def measures(self) -> tuple[str, ...]:
        if self.once:
            return ("event",)
        if self.flops:  # one call, and calls back to back, which feel the power limit
            return ("event", "graph hot")
        cold = ("event", "graph") if self.bytes <= GRAPH_BYTES else ("event",)
        return cold + (("event hot", "graph hot") if self.bytes <= HOT_BYTES else ())


class Slot:
    """One set of buffers of a case. A call that cannot write into an output leaves what it returned in ``result``."""

    def __init__(self, gpu: Gpu, case: Case):
        self.gpu, self.result, self.pointers = gpu, None, []
        self.inputs = [self._array(shape, dtype, case.offset) for shape, dtype in case.inputs]
        self.outputs = [self._array(shape, dtype, 0) for shape, dtype in case.outputs]
        self.copy_bytes = case.bytes // 2  # a copy reads and writes: it moves the bytes of the case in all
        self.copy_source, self.copy_target = (self._allocate(self.copy_bytes) for _ in range(2))

    def _allocate(self, nbytes: int) -> int:
        self.pointers.append(self.gpu.allocate(nbytes))
        return self.pointers[-1]

    def _array(self, shape, dtype, offset: int) -> Array:
        shift = offset * np.dtype(dtype).itemsize
        size = Array(0, shape, dtype).nbytes
        return Array(self._allocate(size + shift) + shift, shape, dtype)

    def fill(self, hosts) -> None:
        """Upload the inputs, and give the plain copy the same data to move."""
        for array, host in zip(self.inputs, hosts, strict=True):
            self.gpu.upload(array.pointer, host)
        source, filled = self.inputs[0], 0
        while filled < self.copy_bytes:
            part = min(source.nbytes, self.copy_bytes - filled)
            self.gpu.copy(self.copy_source + filled, source.pointer, part)
            filled += part

    def fill_like(self, other: Slot) -> None:
        for mine, theirs in zip(self.inputs, other.inputs, strict=True):
            self.gpu.copy(mine.pointer, theirs.pointer, mine.nbytes)
        self.gpu.copy(self.copy_source, other.copy_source, self.copy_bytes)

    def free(self) -> None:
        for pointer in self.pointers:
            self.gpu.free(pointer)
