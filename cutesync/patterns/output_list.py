"""The elements that pass a test, as a list: through an atomic index, or through flags and a scan.

    "each" "warp" "block"   keep(x[i])? --> a place from one atomic an item, a warp, a block --> out[place]
    "scan"                  flags --> places by a scan --> out[place]

The atomics (channel.py) need room for nothing but the result, and one pass; the list is in any order. The scan
(compaction.py) gives index order, and the same list in every run. A list that is longer than ``capacity`` is an error
that says by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cutesync.arguments import choice, flag, integer
from cutesync.dtypes import BY_NAME, DType
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.channel import THREADS, shares
from cutesync.patterns.host import Step, Task, call, placed, traceable, vector, zeros
from cutesync.runtime import arrays, device_array
from cutesync.sizes import ceil_div

METHODS = ("block", "warp", "each", "scan")


def run(x, keep, *, method: str | None = None, ordered: bool = False, capacity: int | None = None, stream=None):
    """The elements of the vector ``x`` for which ``keep`` is true, as an array of the library of ``x``.

    ``keep`` is a traced callable of one value. ``method`` defaults to "scan" if the list is to be ``ordered`` by index,
    else to "block". ``capacity`` (default: the length of x) is the room that the list gets. The call waits for the GPU,
    because the length is known only then.
    """
    keep, method, (array, stream) = traceable(keep, "keep"), chosen(method, ordered), placed(x, stream)
    view = vector(arrays.checked(array, "x"))
    items, per_load = shares(view.dtype, view.ptr)

    def kernels(method: str, dtype):
        from cutesync.patterns.channel_kernels import Give
        from cutesync.patterns.compaction import Flag, Scatter

        if method in ("scan", "scatter"):
            return {"scan": Flag, "scatter": Scatter}[method](keep, dtype, method, items, THREADS)
        return Give(keep, dtype, method, items, THREADS, per_load)

    found = listed(array, view.size, view.dtype, kernels, items * THREADS, method, capacity, stream)
    return found if array is x else device_array.to_numpy(found, stream)


def chosen(method: str | None, ordered: bool) -> str:
    """The method, checked."""
    method = ("scan" if flag(ordered, "ordered") else "block") if method is None else method
    if choice(method, "method", METHODS) != "scan" and ordered:
        came = f"{method!r} for an ordered list"
        raise ArgumentValueError(explain("method", came, "'scan': atomics give places in no order"))
    return method


def listed(
    x, n: int, dtype: DType, kernels: Callable, tile: int, method: str, capacity: int | None, stream: int
) -> Any:
    """The list of those of ``n`` candidates that are kept, in the library of ``x``. ``kernels(method, dtype of x)``
    makes the kernel of a method; a block has ``tile`` candidates."""
    capacity = n if capacity is None else integer(capacity, "capacity", 0, (1 << 40) - 1)

    def room(count: int, dtype: DType) -> Any:
        return arrays.adapter(x).allocator((max(count, 1),), dtype, arrays.checked(x, "x").device)(stream, True)

    def launch(method: str, out, *others, m: int = 0) -> None:
        def task(x, out):
            return Task(x, Step(partial(kernels, method), tile, n, m), shape=out.shape, dtype=out.dtype)

        call(task, x, out, stream, *others)

    if method == "scan":
        from cutesync.patterns.compaction import ScanCounts

        blocks = ceil_div(n, tile)
        flags, counts, places = room(n, BY_NAME["uint8"]), zeros(blocks, x, stream), zeros(blocks + 1, x, stream)
        launch("scan", flags, counts)
        call(lambda x, out: Task(x, Step(ScanCounts), shape=out.shape), counts, places, stream)
        total = int(device_array.to_numpy(places, stream)[-1])
        out = room(total, dtype)
        if total <= capacity:
            launch("scatter", out, places, flags)
    else:
        out, state = room(capacity, dtype), zeros(2, x, stream)
        launch(method, out, state, m=capacity)
        total = sum(device_array.to_numpy(state, stream).tolist())  # held and lost
    if total > capacity:
        came = f"{capacity} places for {total} items: {total - capacity} too few"
        raise ArgumentValueError(explain("capacity", came, "room for all of them", f"capacity={total}"))
    return out[:total]


def reference(x: np.ndarray, keep) -> np.ndarray:
    """The same in NumPy, in index order."""
    return x[np.asarray(keep(x), bool)]
