"""Several GPUs, or one: the time of the host for a call, without the driver.

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
from cutesync.dtypes import BY_NAME
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
        self.next = itertools.count((2 + ordinal) << 40, 1 << 20)

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
    return [DeviceArray((64 + rank) << 40, (count,), BY_NAME["float32"], rank, None) for rank in range(group.size)]


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


def calls_alone() -> dict[str, Callable[[], Any]]:
    """Calls on one device, the second of each with ``out=``, which makes no array."""
    addresses = itertools.count(64 << 40, 1 << 24)

    def new(dtype: str, *shape: int) -> Any:
        return DeviceArray(next(addresses), shape, BY_NAME[dtype], 0, None)

    x, keys, mask, lengths = (new(t, COUNT) for t in ("float32", "int32", "bool", "int64"))
    offsets, kept, kept_keys, count = new("int64", 101), new("float32", COUNT), new("int32", COUNT), new("int64")
    sums, total, decoded, counts = new("float32", 100), new("float32"), new("float32", 8 * COUNT), new("int64", COUNT)
    return {
        "sum": lambda: cs.sum(x),
        "sum, out=": lambda: cs.sum(x, out=total),
        "cumsum": lambda: cs.cumsum(x),
        "cumsum, out=": lambda: cs.cumsum(x, out=kept),
        "select by a mask": lambda: cs.select(x, mask),
        "select by a mask, out=": lambda: cs.select(x, mask, out=(kept, count)),
        "select by a callable": lambda: cs.select(x, lambda v, limit: v > limit, args=(0.5,)),
        "unique_consecutive": lambda: cs.unique_consecutive(keys),
        "unique_consecutive, out=": lambda: cs.unique_consecutive(keys, out=(kept_keys, count)),
        "run_length_encode": lambda: cs.run_length_encode(keys),
        "run_length_encode, out=": lambda: cs.run_length_encode(keys, out=(kept_keys, counts, count)),
        "run_length_decode": lambda: cs.run_length_decode(x, lengths, size=8 * COUNT),
        "run_length_decode, out=": lambda: cs.run_length_decode(x, lengths, out=decoded),
        "reduce_by_key": lambda: cs.reduce_by_key(keys, x),
        "reduce_by_key, out=": lambda: cs.reduce_by_key(keys, x, out=(kept_keys, kept, count)),
        "scan_by_key": lambda: cs.scan_by_key(keys, x),
        "scan_by_key, out=": lambda: cs.scan_by_key(keys, x, out=kept),
        "segmented_reduce by offsets": lambda: cs.segmented_reduce(x, offsets=offsets),
        "segmented_reduce by offsets, out=": lambda: cs.segmented_reduce(x, offsets=offsets, out=sums),
        "topk": lambda: cs.topk(x, 8),
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
        made = calls_alone() if given.devices == 1 else calls(cs.dist.Group.local())
        print(f"| call on {given.devices} device{'s' * (given.devices > 1)} | us |\n|---|---|", flush=True)
        for name, call in made.items():
            print(f"| {name} | {cost(call, given.calls):.1f} |", flush=True)


if __name__ == "__main__":
    script.run(main)
