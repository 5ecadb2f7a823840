"""Several GPUs: the time of the host for a call, without the driver.

    python perf/dist_host.py [--devices 2] [--calls 2000]

The driver is replaced by functions that do nothing, so this runs on any machine, and what it measures is Python. What
the driver adds (a launch takes some 2.8 us on an H200's host) is in ``perf/dist.py``, which needs the GPUs. Kernels are
compiled, not run. Times are microseconds a call, the least of several rounds: of the thread's CPU time.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import script

import cutesync as cs
from cutesync.runtime import device, gpu
from cutesync.runtime.device_array import DeviceArray

ROUNDS = 7
COUNT = 4096  # elements a GPU


class Driver:
    """Stands for ``cuda.bindings.driver``: every function succeeds and does nothing."""

    CUfunction_attribute = CUstreamCaptureMode = CUstream_flags = MagicMock()
    CUmemAccessDesc = CUmemAccess_flags = CUmemLocationType = MagicMock()

    def __init__(self) -> None:
        self.context = 1000  # of device 0
        self.memory = itertools.count(1 << 40, 1 << 24)

    def __getattr__(self, name: str) -> Callable:
        return lambda *arguments: (0, 1)

    def cuCtxGetCurrent(self) -> tuple:
        return 0, self.context

    def cuCtxSetCurrent(self, context: int) -> tuple:
        self.context = int(context)
        return (0,)

    def cuCtxGetDevice(self) -> tuple:
        return 0, self.context - 1000

    def current_context(self) -> int:
        device._function("cuCtxGetCurrent")(device._answer.place, None)
        return self.context

    def make_current(self, context: int) -> None:
        device._function("cuCtxSetCurrent")(context, None)
        self.context = context

    def cuDevicePrimaryCtxRetain(self, number: int) -> tuple:
        return 0, 1000 + number

    def cuCtxEnablePeerAccess(self, *arguments: Any) -> tuple:
        return (0,)

    def cuMemAlloc(self, size: int) -> tuple:
        return 0, next(self.memory)


class Memory:
    """Stands for a memory resource of ``cuda.core``."""

    def __init__(self, ordinal: int) -> None:
        self.next = itertools.count((2 + ordinal) << 40, 1 << 12)

    def allocate(self, size: int, stream: Any) -> Any:
        self.handle = next(self.next)
        return self


def without_driver(devices: int) -> None:
    """Replace what calls the driver. One function of the C library stands for all that ctypes calls: it compares its
    first two arguments and returns 0, as they differ."""
    driver, nothing = Driver(), ctypes.CDLL(None).pthread_equal
    memories = [(Memory(ordinal), None, int) for ordinal in range(devices)]
    device.driver = lambda: driver
    device.count = lambda: devices
    device.require_hopper = lambda ordinal: None
    device._function = lambda name: nothing
    device.current_context, device.make_current = driver.current_context, driver.make_current
    gpu._entry = lambda: nothing
    gpu._memory = lambda ordinal: memories[ordinal]


def parts(group: Any, count: int) -> list:
    """float32 arrays at addresses that nobody reads."""
    from cutesync.dtypes import FLOAT32

    return [DeviceArray((64 + rank) << 40, (count,), FLOAT32, rank, None) for rank in range(group.size)]


def calls(group: Any) -> dict[str, Callable[[], Any]]:
    sharded = cs.dist.Sharded(group, parts(group, COUNT), 0)
    streams, given = [64 + rank for rank in range(group.size)], sharded.parts
    return {
        "all_reduce": lambda: group.all_reduce(given),
        "all_reduce, stream=": lambda: group.all_reduce(given, stream=streams),
        "sum": lambda: cs.sum(sharded),
        "sum, stream=": lambda: cs.sum(sharded, stream=streams),
        "argmax": lambda: cs.argmax(sharded),
        "cumsum": lambda: cs.cumsum(sharded),
        "flag_heads": lambda: cs.flag_heads(sharded),
        "select": lambda: cs.select(sharded, lambda v: v > 0),
        "sum of one part": lambda: cs.sum(given[0]),
    }


def cost(call: Callable, count: int) -> float:
    """Return the microseconds of a call."""
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(count):
            call()
        best = min(best, time.thread_time() - start)
    return best * 1e6 / count


def main() -> None:
    parser = script.parser(__doc__)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--calls", type=int, default=2000, help="in a round")
    given = parser.parse_args()
    without_driver(given.devices)
    with device.forced("gpu"):
        group = cs.dist.Group.local()
        print(f"| call on {given.devices} devices | us |\n|---|---|", flush=True)
        for name, call in calls(group).items():
            print(f"| {name} | {cost(call, given.calls):.1f} |", flush=True)


if __name__ == "__main__":
    script.run(main)
