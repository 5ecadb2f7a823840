"""The ladder of the source documents: one small kernel a file, each with the picture of who waits for whom.

A pattern is a module. Its ``run(...)`` launches it on any array, its ``reference(...)`` is the same in NumPy (``round_trip`` only measures):

    cs.patterns.producer_consumer.run(x, lambda v: 2 * v)

``Channel`` is the host side of ``cutesync.sync.Queue``.
"""

from __future__ import annotations

import importlib

NAMES = (
    "producer_consumer",
    "divergence",
    "reductions",
    "tiered_scan",
    "early_exit",
    "completion",
    "transactions",
    "phases",
    "warp_entanglement",
    "ping_pong",
    "relay",
    "output_list",
    "primes",
    "round_trip",
)
__all__ = [*NAMES, "Channel"]


def __getattr__(name: str):
    if name == "Channel":
        return importlib.import_module(".channel", __name__).Channel
    if name not in NAMES:
        raise AttributeError(f"module 'cutesync.patterns' has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
