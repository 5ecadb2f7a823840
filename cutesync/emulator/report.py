"""Reports. ``EmulationError`` is what a failed run raises; its text is the report. ``Findings`` are what a run goes on
after: warnings and notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ..errors import CutesyncError

KINDS = (
    *("race", "proxy", "proxy-read", "deadlock", "livelock", "out-of-bounds", "uninitialised", "misaligned"),
    *("barrier", "convergence", "trap", "mismatch", "transaction", "registers", "launch", "unsupported"),
)
_LINES, _NAME = 30, 100  # of a report and of a kernel's name that the text shows


class EmulationError(CutesyncError, RuntimeError):
    """A kernel did something wrong. ``kind`` is one word for it; the text says who, where, why, and the replay."""

    def __init__(self, report: Report):
        super().__init__(report.text())
        self.report = report
        self.kind = report.kind

    def __str__(self) -> str:
        return self.report.text()


@dataclass
class Report:
    """One finding. ``kind``: one of ``KINDS``.

    "proxy": no fence.proxy.async between an ordinary store and an asynchronous operation on the same bytes;
    "proxy-read": none between an ordinary load and the asynchronous write that overwrites them.

    ``severity``: an "error" ends the run. A "warning" is undefined by PTX, though it does no harm here (two threads
    that write the same value); a "note" is allowed, and worth a look. ``places``: the instructions at fault, one or
    two, by which findings are merged; ``count``: how many are.
    """

    kind: str
    title: str
    kernel: str = "?"
    lines: list[str] = field(default_factory=list)
    replay: str = ""
    severity: str = "error"
    places: tuple[str, ...] = ()
    count: int = 1

    @property
    def key(self) -> tuple:
        return self.severity, self.kind, self.kernel, *(self.places or (self.title,))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = ("severity", "kind", "title", "kernel", "places", "lines", "replay", "count")
        return {name: list(v) if isinstance(v := getattr(self, name), (list, tuple)) else v for name in names}

    def text(self) -> str:
        head = (
            f"{self.kind}: {self.title}" if self.severity == "error" else f"{self.severity}: {self.kind}: {self.title}"
        )
        if self.count > 1:
            head += f" ({self.count} times)"
        kernel = self.kernel if len(self.kernel) <= _NAME else f"{self.kernel[:_NAME]}..."
        body = [head, f"  kernel {kernel}", *(f"  {line}" for line in self.lines[:_LINES])]
        if len(self.lines) > _LINES:
            body.append(f"  ... and {len(self.lines) - _LINES} more lines (--json has all)")
        text = "\n".join(body + ([f"  replay with {self.replay}"] if self.replay else []))
        return text.replace(f" {os.getcwd()}{os.sep}", " ")


class Findings:
    """The warnings and notes of launches, one for each pair of instructions."""

    def __init__(self) -> None:
        self._found: dict[tuple, Report] = {}

    def add(self, report: Report) -> None:
        known = self._found.setdefault(report.key, report)
        if known is not report:
            known.count += report.count

    def __iter__(self) -> Iterator[Report]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return "\n".join(report.text() for report in self)


def lane_list(lanes) -> str:
    """``lanes 0-3, 7`` from lane numbers."""
    numbers = sorted(int(x) for x in lanes)
    if len(numbers) == 32:
        return "all lanes"
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    joined = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"lane{'s' if len(numbers) > 1 else ''} {joined}"


def actor(warp, lanes, loc=None) -> str:
    """``block (1, 0, 0) warp 2 (mma) lanes 0-3``, with the role that the warp has at a line (``syntax.Loc``). Among
    several devices, that of the block comes first."""
    machine, block = warp.machine, f"block {warp.block.coordinates}"
    return f"{where(machine.device)}{block} {warp_name(machine, warp.index, loc)} {lane_list(lanes)}"


def warp_name(machine, index: int, loc=None) -> str:
    """``warp 2 (mma)``: the role is that which the user gives, or else that of the line."""
    role = machine.how.role_of.get(index) or (loc.role if loc is not None else "")
    return f"warp {index}" + (f" ({role})" if role else "")


def where(device: int | None) -> str:
    return "" if device is None else f"device {device} "
