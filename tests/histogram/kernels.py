"""The kernels made small: some hundred elements make several blocks."""

from __future__ import annotations

from cutesync.kernels.histogram import plan
from cutesync.kernels.histogram.policy import Choice, CountPolicy, StridedPolicy, SumPolicy
from cutesync.runtime import call

KERNELS = {"shared": (64, 1), "parts": (32, 2), "global": (0, 1)}  # counters of a block, and parts of the bins
SLOTS = 8


def force(monkeypatch, name: str = "shared") -> None:
    """Make every count of this test run with two warps a block, and up to three blocks for each part of the bins."""

    def choose(kind: type[CountPolicy], form: str, length: int, size: int, bins: int) -> Choice:
        counters, parts = KERNELS[name]
        shared = counters if bins <= counters * parts else 0
        parts = parts if shared else 1
        slots = SLOTS if kind in (CountPolicy, StridedPolicy) and not shared else 0
        copies = {"copies": 16 if name == "shared" else 1} if kind is SumPolicy else {}
        return Choice(kind(64, 2, shared, 1, parts, slots, **copies), parts * max(1, min(3, length // 500)))

    monkeypatch.setattr(plan, "choose", choose)
    monkeypatch.setattr(call, "_plans", {})
