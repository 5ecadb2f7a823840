"""Synchronization for your own CuTe kernels: device code, traced by the DSL. Nothing here needs a host or a driver.

``Barrier`` ``Barriers``   mbarriers with tokens, parity, drops and bytes
``CompletionBarrier``      the last to arrive runs a function before anybody leaves
``NamedBarrier``           the block's hardware barriers, numbered by an IntEnum
``Ring`` ``TileRing``        N stages between a producer and consumers: threads, cp.async, bulk and tensor copies
``Role`` ``Roles``         warp specialisation with register budgets
``Queue`` ``ConcurrentQueue``   lists that many threads add to and take from, in phases or at once
``Tickets``                tiles dealt to blocks as they ask
``GridBarrier``            all blocks of a resident grid
``lookback``               a module: tile states of a single-pass scan, published and combined in order

With ``CUTESYNC_DEBUG=1`` every wait that PTX can bound is: it reports block, warp, role, barrier, stage and phase, and
traps (see ``wait``).
"""

from __future__ import annotations

import importlib

_HOMES = {
    "Barrier": "barrier",
    "Barriers": "barrier",
    "CompletionBarrier": "completion",
    "NamedBarrier": "named_barrier",
    "Ring": "ring",
    "Role": "roles",
    "Roles": "roles",
    "Queue": "queue",
    "ConcurrentQueue": "concurrent_queue",
    "GridBarrier": "grid_barrier",
    "Tickets": "tickets",
    "TileRing": "tiles",
}
__all__ = [*_HOMES, "lookback"]


def __getattr__(name: str):
    if name == "lookback":
        return importlib.import_module(".lookback", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'cutesync.sync' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
