"""What a checked script's run has found, and its record in a file.

The run writes one line of JSON for each event, at once: what it had found stands there even if the script's host code
ends the process.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..report import Report


@dataclass
class Record:
    """Events of one run: launches, findings and notes. Equal findings, as of several schedules, are one."""

    path: Path | None = None
    allowed: frozenset[str] = frozenset()
    launches: int = 0
    findings: list[Report] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _seen: set[Any] = field(default_factory=set)

    @property
    def failures(self) -> list[Report]:
        """The findings that are not allowed."""
        return [r for r in self.findings if r.severity != "note" and r.kind not in self.allowed]

    def begin(self) -> None:
        """Forget what was found: what follows is judged by itself."""
        self.findings.clear()
        self._seen.clear()

    def event(self, kind: str, /, **facts: Any) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"event": kind, **facts}) + "\n")

    def launched(self, kernel: str, grid: tuple, block: tuple) -> None:
        self.launches += 1
        self.event("launch", kernel=kernel, grid=grid, block=block)

    def found(self, report: Report) -> None:
        key = _key(report)
        if key not in self._seen:
            self._seen.add(key)
            self.findings.append(report)
            allowed = report.severity == "note" or report.kind in self.allowed
            self.event("finding", allowed=allowed, text=report.text(), **report.as_dict())

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.event("note", text=text)


def _key(report: Report) -> tuple:
    """What makes findings equal: their source lines, whatever instructions the compiler made of them; notes of all
    kernels."""
    lines = tuple(place.split(" (")[0] for place in report.places)
    if any(re.search(r":0(?!\d)", line) for line in lines):
        return report.key
    kernel = "" if report.severity == "note" else report.kernel
    return report.severity, report.kind, kernel, *(lines or (report.title,))


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a run. A line that was cut off when its process ended is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            events.append(json.loads(line))
        except ValueError:
            break
    return events
