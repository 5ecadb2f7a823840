"""Reports of what went wrong. ``EmulationError`` is what a failed run raises; its text is the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from ..errors import CutesyncError


class EmulationError(CutesyncError, RuntimeError):
    """A kernel did something wrong. ``kind`` is one word for it; the text says who, where, why, and the replay."""

    def __init__(self, report: Report):
        super().__init__(report.text())
        self.report = report
        self.kind = report.kind


@dataclass
class Report:
    """One finding. ``kind``: race, proxy, proxy-read, deadlock, livelock, out-of-bounds, uninitialised, misaligned,
    barrier, convergence, trap, mismatch, transaction, registers, launch, unsupported.

    "proxy": no fence.proxy.async between an ordinary store and an asynchronous operation on the same bytes;
    "proxy-read": none between an ordinary load and the asynchronous write that overwrites them.
    """

    kind: str
    title: str
    kernel: str = "?"
    lines: list[str] = field(default_factory=list)
    replay: str = ""

    def text(self) -> str:
        body = [f"{self.kind}: {self.title}", f"  kernel {self.kernel}", *(f"  {line}" for line in self.lines)]
        return "\n".join(body + ([f"  replay with {self.replay}"] if self.replay else []))


def lane_list(lanes) -> str:
    """``lanes 0-3, 7`` from lane numbers."""
    numbers = sorted(int(x) for x in lanes)
    if len(numbers) == 32:
        return "all lanes"
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    joined = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"lane{'s' if len(numbers) > 1 else ''} {joined}"


def actor(warp, lanes) -> str:
    """``block (1, 0, 0) warp 2 lanes 0-3``"""
    return f"block {warp.block.coordinates} warp {warp.index} {lane_list(lanes)}"
