"""The report of a deadlock: who waits for what, alike warps in one line, and the history of each barrier."""

from __future__ import annotations

import re

import numpy as np

from . import hints, route
from .barriers import MBarrier, NamedBarrier
from .fragment import CONVERGE, POLL, Fragment, mask_of
from .report import actor, lane_list

_MAX_BARRIERS, _MAX_GROUPS = 4, 12
_ANY_BLOCK = re.compile(r"block \([\d, ]+\)")  # alike barriers of several blocks are told once


def waiting(f: Fragment) -> str:
    if f.state is CONVERGE:
        missing = np.flatnonzero(mask_of(f.waits_on & f.warp.live & ~f.bits))
        return f"waits at an instruction that needs all of its warp; {lane_list(missing)} are elsewhere"
    if isinstance(f.waits_on, NamedBarrier):
        return f"waits at {f.waits_on.name}: {f.waits_on.arrived} of {f.waits_on.expected} threads have arrived"
    if isinstance(f.waits_on, MBarrier):
        return f"{f.waits} of {f.waits_on.name}"
    if f.state is POLL:
        return f.waits or f"polls {getattr(f.waits_on, 'name', 'memory')}, which nobody changes any more"
    return f.waits or str(f.state)


def groups(fragments: list[Fragment]) -> list[str]:
    """Two lines for all fragments of a device that wait for the same at the same place (in whatever block)."""
    alike: dict[tuple, list[Fragment]] = {}
    for f in fragments:
        what = waiting(f).replace(f"block {f.warp.block.coordinates}", "its block")
        alike.setdefault((what, f.where().where(), f.warp.machine.device), []).append(f)
    lines = []
    for (_, place, _), members in list(alike.items())[:_MAX_GROUPS]:
        first = members[0]
        more = f" (and {len(members) - 1} more like it: {others(members)})" if len(members) > 1 else ""
        who = actor(first.warp, np.flatnonzero(first.mask), first.where().loc)
        lines += [f"{who}{more} {waiting(first)}", f"  at {place}", *came(first)]
    if len(alike) > _MAX_GROUPS:
        lines.append(f"... and {len(alike) - _MAX_GROUPS} more places")
    return lines


def came(f: Fragment) -> list[str]:
    """By which steps a fragment has come to where it waits."""
    return route.before(f.warp, f.warp.machine.program.site(f.where()))


def others(members: list[Fragment]) -> str:
    blocks = {f.warp.block.coordinates for f in members}
    warps = lane_list({f.warp.index for f in members}).replace("lane", "warp").replace("all warps", "warps 0-31")
    return warps + (f" of {len(blocks)} blocks" if len(blocks) > 1 else "")


def not_started(machine) -> list[str]:
    """What to say of blocks that could only start when others have ended."""
    left = machine.schedule.clusters_left
    if not left:
        return []
    return [
        f"hint: {left} blocks or clusters have not started, since those that wait hold their places: only those of a "
        "cooperative launch all run at the same time (for check SCRIPT.py also those of grids that fit, with "
        "--co-resident). Others may wait for those that a ticket says have started"
    ]


def report(machine) -> None:
    """Fail with what the fragments wait for."""
    fragments = machine.fragments()
    things = list({id(f.waits_on): f.waits_on for f in fragments}.values())
    for barrier in things:
        if isinstance(barrier, MBarrier):
            barrier.blame_bytes()
    lines = groups(fragments)
    advice = {_ANY_BLOCK.sub("", line): line for f in reversed(fragments) for line in reversed(hints.of_waiting(f))}
    lines += [f"hint: {line}" for line in reversed(advice.values())]
    lines += not_started(machine)
    told = {_ANY_BLOCK.sub("", t.name): t for t in reversed(things) if hasattr(t, "history_lines")}
    for thing in list(reversed(told.values()))[:_MAX_BARRIERS]:
        lines += thing.history_lines()
    kind, title = "deadlock", "every thread left waits for something that cannot happen any more"
    if all(f.state is CONVERGE for f in fragments):
        kind, title = "convergence", "lanes of one warp wait for each other at different instructions"
    machine.fail(kind, title, None, (), None, lines)
