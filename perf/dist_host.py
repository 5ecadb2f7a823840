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
from cutesync.runtime import device, gpu, tensor_map
from cutesync.runtime.device_array import DeviceArray

ROUNDS = 7
COUNT = 4096  # elements a GPU


class Driver:
    """Stands for ``cuda.bindings.driver``: every function succeeds and does nothing."""

    CUfunction_attribute = CUstreamCaptureMode = CUstream_flags = MagicMock()
    CUmemAccessDesc = CUmemAccess_flags = CUmemLocationType = CUdevice_attribute = MagicMock()

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
        device._function("cuCtxGetCurrent", 1)(device._answer.place, None)
        return self.context

    def make_current(self, context: int) -> None:
        device._function("cuCtxSetCurrent", 1)(context, None)
        self.context = context

    def cuDevicePrimaryCtxRetain(self, number: int) -> tuple:
        return 0, 1000 + number

    def cuCtxEnablePeerAccess(self, *arguments: Any) -> tuple:
        return (0,)

    def cuDeviceGetAttribute(self, attribute: Any, number: int) -> tuple:
        return 0, 132  # multiprocessors; nothing else is asked for

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
    device._function = lambda name, count: nothing
    device.current_context, device.make_current = driver.current_context, driver.make_current
    gpu._entry = lambda: nothing
    tensor_map._driver = lambda: (lambda *arguments: 0, lambda place, address: 0)
    gpu._memory = lambda ordinal: memories[ordinal]


def calls(group: Any) -> dict[str, Callable[[], Any]]:
    addresses, streams = itertools.count(64 << 40, 1 << 24), [64 + rank for rank in range(group.size)]

    def new(dtype: str, *shape: int, axis: int | None = 0) -> Any:
        """Parts at addresses that nobody reads."""
        parts = [DeviceArray(next(addresses), shape, BY_NAME[dtype], rank, None) for rank in range(group.size)]
        return cs.dist.Sharded(group, parts, axis)

    x, y, keys, mask, n = *(new(t, COUNT) for t in ("float32", "float32", "int32", "bool")), new("int64", axis=None)
    rows, offsets, total = new("float32", 64, 256), new("int64", 101, axis=None), new("float32", axis=None)
    a, b = new("bfloat16", 512, 1024), new("bfloat16", 1024, 1024, axis=None)
    return {
        "all_reduce": lambda: group.all_reduce(x.parts),
        "all_reduce, stream=": lambda: group.all_reduce(x.parts, stream=streams),
        "reduce_scatter": lambda: group.reduce_scatter(x.parts),
        "reshard": lambda: rows.reshard(1),
        "gather": lambda: x.gather(),
        "sum": lambda: cs.sum(x),
        "sum, stream=": lambda: cs.sum(x, stream=streams),
        "sum, out=": lambda: cs.sum(x, out=total),
        "sum, n= on the devices": lambda: cs.sum(x, n=n),
        "sum of rows": lambda: cs.sum(rows, axis=1),
        "sum of columns": lambda: cs.sum(rows, axis=0),
        "var": lambda: cs.var(x),
        "argmax": lambda: cs.argmax(x),
        "cumsum": lambda: cs.cumsum(x),
        "cumsum, stream=": lambda: cs.cumsum(x, stream=streams),
        "cumsum, out=": lambda: cs.cumsum(x, out=y),
        "cumsum, then its sum": lambda: cs.sum(cs.cumsum(x)),
        "flag_heads": lambda: cs.flag_heads(x),
        "select by a mask": lambda: cs.select(x, mask),
        "select by a callable": lambda: cs.select(x, lambda v, limit: v > limit, args=(0.5,)),
        "select, indices=True": lambda: cs.select(x, mask, indices=True),
        "unique_consecutive": lambda: cs.unique_consecutive(keys),
        "run_length_encode": lambda: cs.run_length_encode(keys),
        "reduce_by_key": lambda: cs.reduce_by_key(keys, x),
        "scan_by_key": lambda: cs.scan_by_key(keys, x),
        "segmented_reduce by offsets": lambda: cs.segmented_reduce(x, offsets=offsets),
        "bincount": lambda: cs.bincount(keys, length=64),
        "topk": lambda: cs.topk(x, 8),
        "matmul, rows of A": lambda: cs.matmul(a, b),
        "sum of one part": lambda: cs.sum(x.parts[0]),
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
