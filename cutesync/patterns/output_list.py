"""The elements that pass a test, as a list: through an atomic index, or through flags and a scan.

    "each" "warp" "block"   keep(x[i])? --> a place from one atomic an item, a warp, a block --> out[place]
    "scan"                  flags --> places by a scan --> out[place]

The atomics (channel.py) need room for nothing but the result, and one pass; the list is in any order. The scan
(compaction.py) gives index order, and the same list in every run. A list that is longer than ``capacity`` is an error
that says by how much.
"""

from __future__ import annotations

import numpy as np

from cutesync.arguments import choice, flag, integer
from cutesync.dtypes import BY_NAME, INT64
from cutesync.errors import ArgumentValueError, explain
from cutesync.patterns.channel import THREADS, shares
from cutesync.patterns.host import Call, traceable

METHODS = ("block", "warp", "each", "scan")


def run(x, keep, *, method: str | None = None, ordered: bool = False, capacity: int | None = None, stream=None):
    """The elements of the vector ``x`` for which ``keep`` is true, as an array of the library of ``x``.

    ``keep`` is a traced callable of one value. ``method`` defaults to "scan" if the list is to be ``ordered`` by index,
    else to "block". ``capacity`` (default: the length of x) is the room that the list gets. The call waits for the GPU,
    because the length is known only then.
    """
    call, keep = Call(x, stream), traceable(keep, "keep")
    dtype = call.x.dtype
    items, vector = shares(dtype, call.x.ptr)

    def kernels(method: str):
        from cutesync.patterns.channel_kernels import Give
        from cutesync.patterns.compaction import Flag, Scatter

        if method in ("scan", "scatter"):
            return {"scan": Flag, "scatter": Scatter}[method](keep, dtype, method, items, THREADS)
        return Give(keep, dtype, method, items, THREADS, vector)

    return listed(call, call.size, dtype, kernels, method, ordered, capacity, items * THREADS)


def listed(call: Call, n: int, dtype, kernels, method: str | None, ordered: bool, capacity: int | None, tile: int):
    """The list of the kept among ``n`` candidates; ``kernels(method)`` makes the kernel of a method."""
    method = ("scan" if flag(ordered, "ordered") else "block") if method is None else method
    choice(method, "method", METHODS)
    if ordered and method != "scan":
        raise ArgumentValueError(
            explain("method", f"{method!r} for an ordered list", "'scan': atomics give places in no order")
        )
    capacity = n if capacity is None else integer(capacity, "capacity", 0, (1 << 40) - 1)
    if not n:
        return call.result(call.array((0,), dtype))
    list_of = _by_scan if method == "scan" else _by_atomics
    out, total = list_of(call, n, dtype, kernels, method, capacity, -(-n // tile))
    if total > capacity:
        raise ArgumentValueError(
            explain(
                "capacity",
                f"{capacity} places for {total} items: {total - capacity} too few",
                "room for all of them",
                f"capacity={total}",
            )
        )
    return call.result(out[:total])


def _by_atomics(call: Call, n: int, dtype, kernels, method: str, capacity: int, grid: int):
    out, state = call.array((max(capacity, 1),), dtype), call.zeros(2)
    call.launch(
        lambda: kernels(method),
        (call.x.ptr, call.pointer(out), state.ptr),
        (call.x.dtype, dtype, INT64),
        n=n,
        m=capacity,
        grid=grid,
    )
    held, lost = call.read(state).tolist()
    return out, held + lost


def _by_scan(call: Call, n: int, dtype, kernels, method: str, capacity: int, grid: int):
    from cutesync.patterns.compaction import ScanCounts

    flags, counts, places = call.array((n,), BY_NAME["uint8"]), call.zeros(grid), call.zeros(grid + 1)
    source, types = call.x.ptr, (call.x.dtype, BY_NAME["uint8"], INT64)
    call.launch(lambda: kernels("scan"), (source, call.pointer(flags), counts.ptr), types, n=n, grid=grid)
    call.launch(ScanCounts, (counts.ptr, places.ptr), (INT64,) * 3, n=grid)
    total = int(call.read(places)[-1])
    out = call.array((max(total, 1),), dtype)
    if total <= capacity:
        pointers, types = (source, call.pointer(out), places.ptr), (call.x.dtype, dtype, INT64)
        call.launch(lambda: kernels("scatter"), pointers, types, n=n, m=call.pointer(flags), grid=grid)
    return out, total


def reference(x: np.ndarray, keep) -> np.ndarray:
    """The same in NumPy, in index order."""
    return x[np.asarray(keep(x), bool)]
