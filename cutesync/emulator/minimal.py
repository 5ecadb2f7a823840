"""The shortest change of order that still shows a fault (delta debugging, Zeller and Hildebrandt, 2002).

In the *plain order* each warp runs until it waits, the first that can run goes on then, and copies land when nothing
else can. A schedule that shows a fault is recorded as changes of that order: after so many steps of one warp another
one runs, a copy lands, or a lane falls behind. Of these changes as many as possible are left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from .report import Report, actor, warp_name
from .schedule import Schedule

SECONDS, LONGEST = 3.0, 4000  # of the search; the most changes that it starts from
PLAIN = "the plain order shows it: each warp runs until it waits, and copies land when nothing else can run"

KINDS = {"race", "proxy", "proxy-read", "deadlock", "barrier", "transaction", "mismatch", "registers", "out-of-bounds"}

Who = tuple[int, int]  # block and warp


class Change(NamedTuple):
    """After ``steps`` steps of a warp (None at the start): ``what`` happens to ``who``, lane or copy ``number``."""

    last: Who | None
    steps: int
    what: str
    who: Who
    number: int


class _Counted(Schedule):
    """Counts the steps of each warp and the copies that it starts."""

    def __init__(self, policy: str, seed: int, resident: int):
        super().__init__(policy, seed, resident)
        self.last: Any = None  # the fragment that has run
        self.steps_before = 0
        self.steps: Counter[Who] = Counter()
        self.copies: Counter[Who] = Counter()
        self.numbers: dict[int, tuple[Who, int]] = {}  # of copies under way, by identity

    @staticmethod
    def of(warp) -> Who:
        return warp.block.number, warp.index

    def count(self) -> tuple[Who | None, int]:
        """The warp that has run and its steps so far."""
        if self.last is None:
            return None, 0
        who = self.of(self.last.warp)
        self.steps[who] += self.machine.steps - self.steps_before
        self.steps_before = self.machine.steps
        return who, self.steps[who]

    def started(self, operation) -> None:
        who = self.of(operation.warp)
        self.numbers[id(operation)] = who, self.copies[who]
        self.copies[who] += 1
        super().started(operation)


class Recorder(_Counted):
    """A schedule that notes where it leaves the plain order."""

    def __init__(self, policy: str, seed: int, resident: int):
        super().__init__(policy, seed, resident)
        self.changes: list[Change] = []

    def next(self):
        point, usual, chosen = self.count(), plain(self.queue, self.last), super().next()
        if chosen is None:
            return None
        if chosen is not usual:
            lane = (chosen.bits & -chosen.bits).bit_length() - 1
            self.changes.append(Change(*point, "runs", self.of(chosen.warp), lane))
        self.last = chosen
        return chosen

    def complete_something(self) -> None:
        if self.queue:
            pending = self.machine.pending
            operation = pending[self.random.randrange(len(pending))]
            self.changes.append(Change(*self.count(), "lands", *self.numbers[id(operation)]))
            operation.step(self.random.randrange(len(operation.pieces)))
        else:
            super().complete_something()

    def _lag(self, fragment):
        other = super()._lag(fragment)
        lane = other.bits.bit_length() - 1
        self.changes.append(Change(*self.count(), "falls behind", self.of(fragment.warp), lane))
        return other


class Replayed(_Counted):
    """The plain order with some changes; ``told`` says what they did."""

    def __init__(self, policy: str, seed: int, resident: int, changes: list[Change]):
        super().__init__(policy, seed, resident)
        self.changes: dict[tuple, list[Change]] = {}
        for change in changes:
            self.changes.setdefault((change.last, change.steps), []).append(change)
        self.told: list[str] = []

    def next(self):
        before, chosen, point = self.last, None, self.count()
        if not self.queue:
            return None
        for change in self.changes.pop(point, ()):
            if change.what == "lands":
                self.land(change)
            else:
                chosen = self.apply(change) or chosen
        self.last = chosen if chosen in self.queue else plain(self.queue, before)
        if chosen is not None and chosen is self.last and before is not None and chosen.warp is not before.warp:
            self.told.append(f"{name(chosen)} runs when {name(before)} has made {point[1]} steps")
            self.told.append(f"  and is at {before.where().where()}")
        return self.last

    def apply(self, change: Change) -> Any:
        """The fragment that a change lets run; a lane that falls behind is split off."""
        own = [f for f in self.queue if self.of(f.warp) == change.who]
        fragment = next((f for f in own if f.bits >> change.number & 1), own[0] if own else None)
        if change.what == "runs" or fragment is None:
            return fragment
        if fragment.count > 1 and fragment.bits >> change.number & 1:
            other = type(fragment)(fragment.warp, fragment.pc, 1 << change.number)
            other.lagging = self.lags = True
            fragment.set_lanes(fragment.bits & ~(1 << change.number))
            fragment.warp.add(other)
            place = fragment.where().loc.told()
            self.told.append(f"lane {change.number} of {name(fragment)} falls behind at {place}")
        return None

    def land(self, change: Change) -> None:
        wanted = change.who, change.number
        found = next((o for o in self.machine.pending if self.numbers[id(o)] == wanted), None)
        if found is not None:
            loc = self.machine.program.sites[found.site - 1].loc
            self.told.append(f"the {found.name} at {loc.told()} of {actor(found.warp, [found.lane], loc)} lands early")
            while not found.done:
                found.step(0)

    def quantum(self) -> int:
        return 1

    def complete_something(self) -> None:
        self.machine.pending[0].step(0)

    def woken(self, fragment) -> None:
        """No lane falls behind by itself."""

    def tears(self) -> bool:
        return False

    def started(self, operation) -> None:
        policy, self.policy = self.policy, ""  # copies land when they must
        super().started(operation)
        self.policy = policy


def plain(queue: list, last: Any) -> Any:
    """The fragment that runs in the plain order."""
    if last in queue:
        return last
    return min(queue, key=lambda f: (f.lagging, f.warp.block.number, f.warp.index, f.bits & -f.bits), default=None)


def name(fragment) -> str:
    warp = fragment.warp
    return f"block {warp.block.coordinates} {warp_name(warp.machine, warp.index, fragment.where().loc)}"


def same(found: Report, wanted: Report) -> bool:
    """Whether two reports are of one fault: the same kind at the same lines, whichever comes first."""
    lines = [{place.split(" (")[0] for place in report.places} for report in (found, wanted)]
    return found.kind == wanted.kind and lines[0] == lines[1] and bool(lines[0] or found.title == wanted.title)


def told(schedule: Schedule, fails: Callable[[Schedule], bool]) -> list[str]:
    """Lines of a report: the shortest change of order with which ``fails(schedule)``; none if there is no shorter."""
    made = schedule.policy, schedule.seed, schedule.resident
    recorder = Recorder(*made)
    if not fails(recorder):
        return []
    found = shortest(recorder.changes, lambda changes: fails(Replayed(*made, changes)))
    if not found:
        return [] if found is None else [PLAIN]
    final = Replayed(*made, found)
    fails(final)
    head = f"shortest order that shows it: {len(found)} of the {len(recorder.changes)} changes of the plain order in"
    return [f"{head} {schedule.describe()}", *(f"  {line}" for line in final.told)]


def shortest(changes: list[Change], fails: Callable[[list[Change]], bool]) -> list[Change] | None:
    """As few of the changes as the time allows, with which the launch still fails; None if not even all do it."""
    if fails([]):
        return []
    if len(changes) > LONGEST or not fails(changes):
        return None
    stop, pieces = time.process_time() + SECONDS, 2
    while len(changes) > 1 and time.process_time() < stop:
        size = -(-len(changes) // pieces)
        parts = [changes[i : i + size] for i in range(0, len(changes), size)]
        for i, part in enumerate(parts):
            rest = [change for j, other in enumerate(parts) if j != i for change in other]
            if fails(part):
                changes, pieces = part, 2
                break
            if len(parts) > 2 and fails(rest):
                changes, pieces = rest, max(pieces - 1, 2)
                break
            if time.process_time() > stop:
                return changes
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(changes))
    return changes
