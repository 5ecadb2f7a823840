"""The kernels made small: some hundred elements make several blocks."""

from __future__ import annotations

from cutesync.kernels.histogram import plan
from cutesync.kernels.histogram.policy import Choice, CountPolicy
from cutesync.runtime import call

KERNELS = {"shared": 64, "global": 0}  # counters of a block


def force(monkeypatch, name: str = "shared") -> None:
    """Make every count of this test run with two warps a block, and up to three blocks."""

    def choose(kind: type[CountPolicy], length: int, size: int, bins: int) -> Choice:
        shared = KERNELS[name] if bins <= KERNELS[name] else 0
        return Choice(kind(64, 2, shared, 1), max(1, min(3, length // 500)))

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})
