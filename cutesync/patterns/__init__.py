"""Small kernels to read, copy and change: one a file, each with the picture of who waits for whom.

A pattern is a module. ``run(...)`` launches it on any array; ``reference(...)`` is the same in NumPy (``round_trip``
only measures):

    cs.patterns.producer_consumer.run(x, lambda v: 2 * v)

The ladder, from the easiest:

    divergence          no communication: what a branch within a warp costs
    reductions          block barriers; launches as the barrier of the grid; one atomic a block
    phases              an mbarrier again and again: tokens, parity
    early_exit          threads that leave: arrive_and_drop
    completion          the last to arrive runs a function
    warp_entanglement   arrivals of a diverged warp
    round_trip          what each kind of barrier costs
    transactions        phases that end when bytes have arrived
    two_buffers         a producer warp and consumer warps, two barriers a buffer
    streaming           the same with N stages and bulk copies, at the speed of memory
    producer_consumer   chooses between these two
    ping_pong           two warpgroups take turns by named barriers
    tiered_scan         a scan by launches
    output_list         a list by atomics or by a scan (channel.py, channel_kernels.py, compaction.py)
    primes              the same with candidates that are computed
    relay               many producers and many consumers at once

``Channel`` is the host side of ``cutesync.sync.Queue``. Each file imports by full names, so a copy of it runs anywhere
and is compiled anew when it is changed. README.md says what to break in each, and what the checker then reports.
"""

from __future__ import annotations

import importlib

NAMES = (
    "divergence",
    "reductions",
    "phases",
    "early_exit",
    "completion",
    "warp_entanglement",
    "round_trip",
    "transactions",
    "two_buffers",
    "streaming",
    "producer_consumer",
    "ping_pong",
    "tiered_scan",
    "output_list",
    "primes",
    "relay",
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
