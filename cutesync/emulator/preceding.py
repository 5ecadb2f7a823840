"""What a launch may not touch before the launches that precede it have ended.

Programmatic launches (``machine.programmatic``) may start before the launch before them has ended. Such a launch may
access global memory that launches before it use (``overlap``) only where the thread's clock knows
``griddepcontrol.wait``: its own, or that of a thread with which it has synchronized since. (The wait makes memory
visible to the grid. On an H200 a thread that does not wait reads old values; one behind a barrier, which another thread
of its block or cluster has reached after waiting, reads the new ones.)
"""

from __future__ import annotations

import numpy as np

from .block import Warp
from .clocks import LANES, PRECEDING, preceding
from .fragment import Fragment
from .memory import SHARED_START, Region
from .overlap import SEEN


class Preceding:
    """Checks the accesses of one launch."""

    def __init__(self, machine):
        self.machine, self.programmatic = machine, machine.programmatic

    def wait_for_preceding(self, f: Fragment, lanes) -> None:
        """``griddepcontrol.wait`` by these lanes."""
        if self.programmatic:
            f.warp.learn(lanes, preceding())

    def check_preceding(
        self, warp: Warp, lanes, region: Region, site: int, rows: np.ndarray, size: int, write: bool
    ) -> None:
        """These lanes (None: all 32) access these units of a region, themselves or by an operation that they start."""
        if not self.programmatic or region.base <= SHARED_START or not region.writable:
            return
        if PRECEDING in warp.clock.common.known:  # so each lane knows it, too
            return
        for clock, positions in warp.clock.groups(lanes):
            if PRECEDING not in clock.known:
                numbers = np.arange(LANES) if lanes is None else np.asarray(lanes)
                self.early(warp, numbers if positions is None else numbers[positions], region, site, rows, size, write)

    def early(
        self, warp: Warp, lanes: np.ndarray, region: Region, site: int, rows: np.ndarray, size: int, write: bool
    ) -> None:
        """These lanes have not waited for the launches before."""
        unseen, conflict = self.machine.how.unseen_launches, SEEN.conflict(region, rows, size, write)
        if not unseen and not conflict and SEEN.earlier:
            return
        title, who = "global memory touched before griddepcontrol.wait", (warp, lanes, site)
        advice = (
            "the launch is programmatic: a thread must pass griddepcontrol.wait, or synchronize with one that has, "
            "before it touches global memory"
        )
        if unseen or conflict:
            other = conflict or "the launch before it in the stream may still read or write these bytes"
            self.machine.found("race", title, *who, [f"it accesses {region.name}: {other}", advice])
        else:
            lines = [f"it accesses {region.name}: right only if no launch before it uses these bytes"]
            self.machine.note("note", "race", title, who, lines)
