"""The route of a warp: the instructions by which it has lately synchronized. What is missing has no line of its own, so
a report says between which of these it belongs: after the first of two accesses, before the second, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .clocks import ACTORS, LANES, TENSOR
from .shadow import ACTOR_AT, ACTOR_MASK, BLOCK_AT, TIME_AT, TIME_MASK

_LONGEST, _SHOWN = 128, 4  # steps that a warp remembers, and that a line of a report shows
_KINDS = ("bar", "barrier", "fence", "membar", "griddepcontrol", "mbarrier")
_WAITS = {"try_wait", "test_wait", "wait", "wait_group", "wait_all", "acquire"}
_ENDS = _WAITS | {"arrive", "arrive_drop", "sync", "red", "release", "acq_rel"}


class Step(NamedTuple):
    """One instruction, and how many events of its warp came before: releases, products, other asynchronous work."""

    site: int
    time: int
    products: int
    operations: int


Route = deque[Step]


def empty() -> Route:
    return deque(maxlen=_LONGEST)


def synchronizes(instr) -> bool:
    """Whether an instruction is a step of a route: what makes or takes an order between threads, or waits."""
    return _is_step(instr.parts)


@lru_cache(maxsize=4096)
def _is_step(parts: tuple[str, ...]) -> bool:
    first, words = parts[0], set(parts)
    if first == "mbarrier":
        return bool(words & {"arrive", "arrive_drop", "try_wait", "test_wait"})
    return first in _KINDS or bool(words & {"wait_group", "wait_all", "acquire", "release", "acq_rel"})


def passed(site: int, f, lanes) -> None:
    """A fragment is about to run such an instruction. One that it repeats, as it polls, is one step."""
    route, clock = f.warp.route, f.warp.clock
    if route and route[-1].site == site:
        route.pop()
    route.append(Step(site, clock.time, clock.products, clock.async_operations))


def _told(program: Any, steps: Iterable[Step]) -> str:
    """The first lines of source that these steps are of: ``file.py:12 (bar.sync), :17 (mbarrier.arrive)``."""
    return _joined(list(dict.fromkeys(_place(program, step) for step in steps))[:_SHOWN])


def _place(program: Any, step: Step) -> tuple[str, str]:
    """The file, and the line and kind of an instruction."""
    instr = program.sites[step.site - 1]
    end = 2 if instr.parts[0] == "fence" else next((i for i, word in enumerate(instr.parts) if word in _ENDS), 0)
    file, _, line = str(instr.loc).rpartition(":")
    return Path(file).name, f":{line} ({'.'.join(instr.parts[: end + 1])})"


def _joined(places: list[tuple[str, str]]) -> str:
    files = ["", *(file for file, _ in places)]
    return ", ".join(("" if file == last else file) + line for last, (file, line) in zip(files, places))


def before(warp, site: int) -> list[str]:
    """A line that says by which steps a warp has come to an instruction, the last ones."""
    steps = list(warp.route)
    while steps and steps[-1].site == site:
        steps.pop()
    places = list(dict.fromkeys(_place(warp.machine.program, step) for step in reversed(steps)))[:_SHOWN]
    return [f"  came from {_joined(places[::-1])}"] if steps else []


def since_access(machine, key: int) -> list[str]:
    """A line that says by which steps a warp has gone on since an access that shadow memory remembers."""
    warp, actor = divmod(key >> ACTOR_AT & int(ACTOR_MASK), ACTORS)
    time, warp = key >> TIME_AT & int(TIME_MASK), warp_of(machine, (key >> BLOCK_AT) - 1, warp)
    if actor < LANES:
        return since_time(warp, time)
    return _since(warp, lambda step: (step.products if actor == TENSOR else step.operations) >= time)


def since_time(warp, time: int, waits: bool = False) -> list[str]:
    """The same for an event of one of its threads: it lies before the first release that counts it. ``waits``: it is
    a wait itself, and may be the first step."""
    return _since(warp, lambda step: step.time >= time and (waits or not _WAITS & set(_parts(warp, step))))


def _since(warp, reached: Callable[[Step], bool]) -> list[str]:
    steps = list(warp.route) if warp is not None else []
    start = next((i for i, step in enumerate(steps) if reached(step)), len(steps))
    forgotten = start == 0 and len(steps) == _LONGEST  # what came right after it, perhaps
    if start == len(steps) or forgotten:
        return []
    return [f"  went on to {_told(warp.machine.program, steps[start:])}"]


def warp_of(machine, block: int, number: int) -> Any:
    """A warp of a block that has not ended, or None."""
    here = machine.resident.get(block)
    return here.warps[number] if here is not None else None


def _parts(warp, step: Step) -> tuple[str, ...]:
    return warp.machine.program.sites[step.site - 1].parts
