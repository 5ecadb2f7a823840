"""Time and clock of calls that follow one another for so long that power limits the clock.

The clock is counted: a small kernel reads ``%clock64`` and ``%globaltimer`` of every multiprocessor at two points of
the stream.
"""

from __future__ import annotations

import ctypes
import math
import time

from cuda.bindings import driver
from gpu import Array, Event, Gpu, Graph, Probe, check

HALF_US, GRAPH_US, MOST_CALLS = 400_000, 20_000, 1000
MOST_PROCESSORS = 1024
STAMP = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry stamp(.param .u64 out) {
    .reg .b32 %sm;
    .reg .b64 %out, %offset, %clocks, %time;
    ld.param.u64 %out, [out];
    mov.u32 %sm, %smid;
    mul.wide.u32 %offset, %sm, 16;
    add.u64 %out, %out, %offset;
    mov.u64 %clocks, %clock64;
    mov.u64 %time, %globaltimer;
    st.global.v2.b64 [%out], {%clocks, %time};
    ret;
}
\0"""


class Clock:
    """Microseconds and clocks that pass on the multiprocessors between ``mark(0)`` and ``mark(1)`` on the stream."""

    def __init__(self, gpu: Gpu):
        self.gpu, shape = gpu, (MOST_PROCESSORS, 2)
        self.marks = [Array(gpu.allocate(16 * MOST_PROCESSORS), shape, "int64") for _ in range(2)]
        for marks in self.marks:
            check(driver.cuMemsetD8(marks.pointer, 0, marks.nbytes))
        self.stamp = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(STAMP)), b"stamp"))

    def mark(self, which: int) -> None:
        self.gpu.launch(self.stamp, 4 * self.gpu.processors, 1, (self.marks[which].pointer,), (ctypes.c_uint64,))

    def read(self) -> tuple[float, float]:
        """Microseconds between the marks, and the mean clock in GHz."""
        self.gpu.stream.synchronize()
        before, after = (self.gpu.download(marks) for marks in self.marks)
        clocks, nanoseconds = (after - before)[(before[:, 1] > 0) & (after[:, 1] > before[:, 1])].T
        return float(nanoseconds.mean()) / 1000, float((clocks / nanoseconds).mean())


def sustained(gpu: Gpu, clock: Clock, call) -> dict:
    """Microseconds of a call and the clock over the second half of 0.8 s of calls, and what nvidia-smi says then."""
    start, end = Event(), Event()
    call()
    start.record(gpu.stream)
    call()
    end.record(gpu.stream)
    gpu.stream.synchronize()
    once = end.microseconds_since(start)
    count = max(1, min(MOST_CALLS, int(GRAPH_US / once)))
    graph, launches = Graph(gpu.stream, [call] * count), math.ceil(HALF_US / (count * once))
    for half in range(2):
        for _ in range(launches):
            graph.launch()
        clock.mark(half)
    time.sleep(HALF_US / 1e6)
    probe = Probe(gpu)
    microseconds, ghz = clock.read()
    graph.free()
    return {"us": microseconds / (launches * count), "ghz": ghz, "sampled": probe.read()}
