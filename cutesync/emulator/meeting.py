"""Launches of the ranks of a group. Ranks that are threads of this process bring theirs to a ``Meeting``, where all run
together. Ranks that are processes run their own, beside ``Others``, which write to memory that they share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentValueError, LaunchError, explain
from ..runtime import forks
from .settings import settings

PATIENCE = 60.0  # s


Run = Callable[[list, float], None]
"""Runs launches, whose threads may wait for others than those for so many seconds."""


class Meeting:
    """Where ``size`` threads bring launches. What runs them raises the same error in all threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.brought: list[tuple[int, Any]] = []
        self.error: BaseException | None = None
        self.lock = forks.lock()

    def run(self, launches: Sequence[tuple[int, Any]], run: Run) -> None:
        """Wait for the launches of the other threads. The last thread calls ``run`` with those of all."""
        with self.lock:
            self.brought += launches
        last = self.wait(PATIENCE) == 0
        if last:
            self.error = None
            brought, self.brought = self.brought, []
            try:
                if brought:
                    run(sorted(brought, key=lambda one: one[0]), 0.0)
            except BaseException as error:
                self.error = error
        self.wait(None)  # launches may take long
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """Let no thread wait any more: one has failed."""
        self.barrier.abort()

    def wait(self, patience: float | None) -> int:
        try:
            return self.barrier.wait(patience)
        except threading.BrokenBarrierError as error:
            came, allowed = "a rank that has failed, or makes fewer calls than this one", "the same calls of all ranks"
            raise LaunchError(explain("launch", came, allowed)) from error


_meetings: weakref.WeakValueDictionary[str, Meeting] = weakref.WeakValueDictionary()
_lock = forks.lock()


class Alone:
    """No other rank."""

    def run(self, launches: Sequence[tuple[int, Any]], run: Run) -> None:
        if launches:
            run(list(launches), 0.0)


ALONE = Alone()


class Others:
    """Other processes."""

    def run(self, launches: Sequence[tuple[int, Any]], run: Run) -> None:
        if settings().schedules > 1:
            came, advice = f"{settings().schedules}, for ranks that are processes", "cs.dist.in_threads"
            raise ArgumentValueError(explain("schedules", came, "1", advice))
        if launches:
            run(list(launches), PATIENCE)


def meeting(name: str | None, size: int) -> Meeting | Others:
    """Return the meeting of the ranks of a group of threads, or without a name what stands for other processes."""
    if name is None:
        return Others()
    with _lock:
        found = _meetings.get(name)
        if found is None:
            found = _meetings[name] = Meeting(size)
        return found
