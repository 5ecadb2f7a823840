"""Which segments the full form of a segment runs through.

No other warp needs a turn between two segments that do not synchronize, so one function runs a *stretch* of them: it
falls through labels, and a branch over segments that only fall through (``if (inside) x = p[i];``) becomes an ``if``
around them. A stretch ends where lanes may diverge for longer, around every instruction that synchronizes, and before
the head of a loop. Stretches start at such ends only; a warp that comes together elsewhere runs single segments until
the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from .syntax import Instr

ENDS = ("bra", "brx", "ret", "exit", "trap")
_MOST = 400  # instructions of a stretch: how much is compiled for what is not run


class Shape(NamedTuple):
    """``skips``: by segment that ends with a branch over segments that follow, the segment that it goes to.
    ``starts``: the segments at which stretches start, and how many steps a warp would take without them.
    ``breaks``: those that no stretch runs into."""

    skips: dict[int, int]
    starts: dict[int, int]
    breaks: frozenset[int]


NONE = Shape({}, {}, frozenset())


def shape(
    code: Sequence[Instr], segments: Sequence[tuple[int, int]], joints: Set[int], apart: Set[int], target: Callable
) -> Shape:
    """The shape of a kernel: its code, the first instruction and the end of each segment, those that start at joints,
    those that synchronization sets ``apart``, and ``target(instr)``, the segments that a branch goes to."""
    last = [code[end - 1] for _, end in segments]
    goes = {k: target(instr) for k, instr in enumerate(last) if instr.parts[0] in ("bra", "brx")}
    loops = {t for k, targets in goes.items() for t in targets if t <= k}
    breaks = loops | {k for k, (start, _) in enumerate(segments) if start in apart}
    skips: dict[int, int] = {}
    for k in sorted(goes, reverse=True):
        (t, *others) = goes[k]
        inner = range(k + 1, t)
        plain = not others and last[k].parts[0] == "bra" and last[k].pred is not None and k + 1 < t < len(segments)
        if plain and all(j not in breaks and _falls(last[j], skips.get(j), t) for j in inner):
            skips[k] = t
    return Shape(skips, _starts(segments, last, goes, joints, breaks, skips), frozenset(breaks))


def _falls(instr: Instr, skip: int | None, end: int) -> bool:
    """Whether a segment with this last instruction goes on at the next one, or further on, up to ``end``."""
    return instr.parts[0] not in ENDS or (skip is not None and skip <= end)


def _starts(segments, last, goes, joints, breaks, skips) -> dict[int, int]:
    starts: dict[int, int] = {}
    found = {0, *breaks}
    while found:
        at = found.pop()
        if at >= len(segments) or at in starts:
            continue
        first, k = segments[at][0], at
        while True:
            ends = last[k].parts[0] in ENDS and k not in skips
            following = skips.get(k, k + 1)
            if ends or following in breaks or (segments[k][1] - first > _MOST and segments[k][1] not in joints):
                found |= {*goes.get(k, ()), k + 1} if ends else {following}
                break
            k = following
            if k >= len(segments):
                break
        starts[at] = sum(start not in joints for start, _ in segments[at : k + 1])
    return starts
