"""Whether a report leads to the line of a planted fault. An instruction that is missing has no line: then the report
must name lines between which it belongs."""

from __future__ import annotations

import re
from itertools import pairwise

NEAR = 5  # lines
_PLACE = re.compile(r"([\w.]*):(\d+)(?= \(| in |$|,)")
_STEPS = re.compile(r"(?:came from|went on to) (.*)")
Line = tuple[str, int]


def lines_in(text: str) -> list[Line]:
    """The lines that a text names; one without a file is of the file before it."""
    found: list[Line] = []
    for file, number in _PLACE.findall(text):
        found.append((file or (found[-1][0] if found else "?"), int(number)))
    return found


def routes(report: str) -> list[list[Line]]:
    """The lines that a warp came by, the line of its access, and those by which it went on."""
    found: list[list[Line]] = []
    for line in report.splitlines():
        steps = _STEPS.search(line)
        if not steps:
            found.append(lines_in(line)[:1] if line.lstrip().startswith("at ") else [])
        elif "went on to" in line:
            found[-1:] = [(found[-1:] or [[]])[0] + lines_in(steps[1])]
        else:
            found[-1:] = [lines_in(steps[1]) + (found[-1:] or [[]])[0]]
    return found


def leads_to(report: str, wanted: list[str]) -> str:
    """How a report leads to one of the lines ``file.py:12``: "near", at most ``NEAR`` lines from one that it names,
    "between" two successive lines of a warp's route, or not at all ("")."""
    places = {(file, int(number)) for file, _, number in (line.rpartition(":") for line in wanted)}
    named = [place for line in report.splitlines() for place in lines_in(line)]
    if any(file == f and abs(number - n) <= NEAR for file, number in named for f, n in places):
        return "near"
    steps = [step for route in routes(report) for step in pairwise(route)]
    for (first, a), (second, b) in steps:
        if first == second and any(f == first and min(a, b) <= n <= max(a, b) for f, n in places):
            return "between"
    return ""
