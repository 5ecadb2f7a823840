"""The watchdog: reports a launch that seems to run for ever (kind "livelock").

Warps run in steps: the code between two branches or synchronizations. A launch is reported when no thread has exited
for a million steps, and 50,000 more for each resident warp, that took at least 20 seconds of processor time; or when
nothing that other threads can see (a store, an arrival, a copy) has happened for 8 seconds. A bound of the user's,
``max_steps`` of ``emulate`` and ``check`` or CUTESYNC_MAX_STEPS, replaces both: that many steps, whatever time they
take. A launch of many blocks, each of which ends, is never reported.
"""

from __future__ import annotations

from time import thread_time

import numpy as np

from .report import actor

_STEPS, _STEPS_OF_WARP, _SECONDS = 1_000_000, 50_000, 20.0
_QUIET_STEPS, _QUIET_SECONDS = 20_000, 8.0
_EVERY = 4096  # steps between two looks
_MAX_SHOWN = 8
_ADVICE = "if it is long and not endless, raise the bound: max_steps= of emulate or check, or CUTESYNC_MAX_STEPS"


class Watchdog:
    """Looks at a launch (``machine``) every few thousand steps. ``max_steps``: the user's bound, or None."""

    def __init__(self, machine, max_steps: int | None):
        self.machine, self.max_steps = machine, max_steps
        self.every = _EVERY if max_steps is None else min(_EVERY, max_steps // 4 + 1)
        self.effects = self.exits = -1
        self.effect_at = self.exit_at = (0, 0.0)  # steps and seconds at the last look that found something new

    def look(self, f) -> int:
        """Report a launch without end; ``f`` is the fragment that has just run. Returns the step of the next look."""
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
        if self.max_steps is not None:
            return (now[0] - since[0]) / self.max_steps
        return min((now[0] - since[0]) / steps, (now[1] - since[1]) / seconds)

    def give_up(self, f, what: str) -> None:
        others = [other for other in self.machine.schedule.queue if other is not f]
        running = [f, *others] if f in f.warp.fragments else others or [f]
        who = [actor(one.warp, np.flatnonzero(one.mask), one.where().loc) for one in running[:_MAX_SHOWN]]
        lines = [f"{name} is at {one.where().where()}" for name, one in zip(who, running)]
        if len(running) > _MAX_SHOWN:
            lines.append(f"... and {len(running) - _MAX_SHOWN} more that can run")
        self.machine.fail("livelock", f"{who[0]} {what}", None, (), None, [*lines, _ADVICE])
