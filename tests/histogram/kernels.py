"""The kernels made small: some hundred elements make several blocks."""

from __future__ import annotations

from dataclasses import replace

from cutesync.kernels.histogram import plan, policy
from cutesync.kernels.histogram.policy import Choice, CountPolicy, SumPolicy, queued, window
from cutesync.kernels.histogram.spec import CountSpec
from cutesync.runtime import call

# Counters of a block, and parts of the bins; sums of weights that are queued have those of "parts".
KERNELS = {"shared": (64, 1), "parts": (32, 2), "global": (0, 1), "queued": (32, 2)}
SLOTS = 8


def force(monkeypatch, name: str = "shared") -> None:
    """Make every count of this test run with two warps a block, and up to three blocks for each part of the bins."""

    def choose(kind: type[CountPolicy], spec: CountSpec) -> Choice:
        counters, parts = KERNELS[name]
        shared = counters if spec.bins <= counters * parts else 0
        parts = parts if shared else 1
        slots = 0 if shared else SLOTS
        copies = {"copies": 16 if name == "shared" and shared else 1} if kind is SumPolicy else {}
        made = kind(64, 2, shared, 1, parts, slots, **copies)
        if name == "queued" and kind is SumPolicy and shared:
            made = replace(queued(spec.counting, spec.bins), threads=64, unroll=2, shared=shared + 1, parts=parts)
        return Choice(made, parts * max(1, min(3, spec.length // 500)))

    monkeypatch.setattr(plan, "choose", choose)
    if name != "shared":
        monkeypatch.setattr(policy, "LIMITED_LENGTH", 0)
    if name == "queued":  # as if there were very many
        monkeypatch.setattr(plan, "window", lambda weights, length: window(weights, 1 << 25))
    monkeypatch.setattr(call, "_plans", {})
