"""When a launch that goes on counts as one that never ends.

Its warps run in steps: the code between two branches or synchronizations. A launch is given up when no thread has ended
for a million steps, and 50,000 more for each resident warp, that took 20 seconds of processor time or longer; or when
nothing that others can see (a store, an arrival, a copy) has happened for 8 seconds. A bound that the user gives,
``max_steps`` of ``emulate`` and ``check`` or CUTESYNC_MAX_STEPS, is the number of steps of both, whatever they take. A
launch of many blocks, each of which ends, is never given up.
"""

from __future__ import annotations

from time import thread_time

import numpy as np

from .report import actor

_STEPS, _STEPS_OF_WARP, _SECONDS = 1_000_000, 50_000, 20.0
_QUIET_STEPS, _QUIET_SECONDS = 20_000, 8.0
_EVERY = 4096  # steps between two looks
_MOST_SHOWN = 8
_ADVICE = "if it is long and not endless, raise the bound: max_steps= of emulate or check, or CUTESYNC_MAX_STEPS"


class Patience:
    """Looks at a launch (``machine``) now and then. ``most``: the user's bound, or None."""

    def __init__(self, machine, most: int | None):
        self.machine, self.most = machine, most
        self.every = _EVERY if most is None else min(_EVERY, most // 4 + 1)
        self.effects = self.exits = -1
        self.effect_at = self.exit_at = (0, 0.0)  # steps and seconds at the last look that found something new

    def look(self, f) -> int:
        """Report a launch without end, whose fragment ``f`` has just run. Returns the step to look at again."""
        machine = self.machine
        now = machine.steps, thread_time()
        if machine.effects != self.effects:
            self.effects, self.effect_at = machine.effects, now
        if machine.exits != self.exits:
            self.exits, self.exit_at = machine.exits, now
        warps = sum(block.warp_count for block in machine.resident.values())
        silence = self.spent(self.effect_at, now, _QUIET_STEPS, _QUIET_SECONDS)
        machine.quiet = silence > 0.5
        if silence > 1:
            self.give_up(f, f"has run {now[0] - self.effect_at[0]} steps in which nothing visible changed")
        if self.spent(self.exit_at, now, _STEPS + _STEPS_OF_WARP * warps, _SECONDS) > 1:
            self.give_up(f, f"goes on after {now[0] - self.exit_at[0]} steps in which no thread has ended")
        return now[0] + self.every

    def spent(self, since: tuple, now: tuple, steps: int, seconds: float) -> float:
        """The part of a bound that is used up."""
        if self.most is not None:
            return (now[0] - since[0]) / self.most
        return min((now[0] - since[0]) / steps, (now[1] - since[1]) / seconds)

    def give_up(self, f, what: str) -> None:
        others = [other for other in self.machine.schedule.queue if other is not f]
        running = [f, *others] if f in f.warp.fragments else others or [f]
        who = [actor(one.warp, np.flatnonzero(one.mask)) for one in running[:_MOST_SHOWN]]
        lines = [f"{name} is at {one.where().where()}" for name, one in zip(who, running)]
        if len(running) > _MOST_SHOWN:
            lines.append(f"... and {len(running) - _MOST_SHOWN} more that can run")
        self.machine.fail("livelock", f"{who[0]} {what}", None, (), None, [*lines, _ADVICE])
