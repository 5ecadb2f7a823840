"""When a launch that goes on counts as one that never ends.

Its warps run in steps: the code between two branches or synchronizations. A launch is given up when 2 million steps, and 100,000 more for
each resident warp, have not ended one thread; or when nothing that others can see (a store, an arrival, a copy) has happened for 10 seconds
of processor time. A bound that the user gives, ``max_steps`` of ``emulate`` and ``check`` or CUTESYNC_MAX_STEPS, is the number of steps of
both. What else may run on: a launch of many blocks, each of which ends.
"""

from __future__ import annotations

from time import thread_time

import numpy as np

from .report import actor

_STEPS, _STEPS_OF_WARP = 2_000_000, 100_000
_QUIET_SECONDS = 10.0
_EVERY = 4096                    # steps between two looks
_MOST_SHOWN = 8
_ADVICE = "if it is long and not endless, raise the bound: max_steps= of emulate or check, or CUTESYNC_MAX_STEPS"


class Patience:
    """Looks at a launch (``machine``) now and then. ``most``: the user's bound, or None."""

    def __init__(self, machine, most: int | None):
        self.machine, self.most = machine, most
        self.every = _EVERY if most is None else min(_EVERY, most // 4 + 1)
        self.effects = self.effects_at = 0
        self.exits = self.exits_at = 0
        self.quiet_since = thread_time()

    def look(self, f) -> int:
        """Report a launch without end, whose fragment ``f`` has just run. Returns the step to look at again."""
        machine = self.machine
        if machine.effects != self.effects:
            self.effects, self.effects_at, self.quiet_since = machine.effects, machine.steps, thread_time()
        if machine.exits != self.exits:
            self.exits, self.exits_at = machine.exits, machine.steps
        silent, busy = machine.steps - self.effects_at, machine.steps - self.exits_at
        patience = (thread_time() - self.quiet_since) / _QUIET_SECONDS if self.most is None else silent / self.most
        machine.quiet = patience > 0.5
        if patience > 1:
            self.give_up(f, f"has run {silent} steps in which nothing visible changed")
        if busy > self.bound():
            self.give_up(f, f"goes on after {busy} steps in which no thread has ended")
        return machine.steps + self.every

    def bound(self) -> int:
        if self.most is not None:
            return self.most
        return _STEPS + _STEPS_OF_WARP * sum(block.warp_count for block in self.machine.resident.values())

    def give_up(self, f, what: str) -> None:
        running = [f] * (f in f.warp.fragments) + [other for other in self.machine.schedule.queue if other is not f] or [f]
        lines = [f"{actor(one.warp, np.flatnonzero(one.mask))} is at {one.where().where()}" for one in running[:_MOST_SHOWN]]
        if len(running) > _MOST_SHOWN:
            lines.append(f"... and {len(running) - _MOST_SHOWN} more that can run")
        self.machine.fail("livelock", f"{actor(running[0].warp, np.flatnonzero(running[0].mask))} {what}", None, (), None, [*lines, _ADVICE])
