"""Branches on registers, in any Python code: a conditional, ``and``, an ``if`` statement, ``sorted``, a loop that ends.

Python asks a value of a condition for its truth, and a register has none while it is traced. So the callable runs once
for each answer: the first run takes every condition as true, later runs take the last open condition as false. Results
of both answers are joined by a select on the condition. Every run emits its operations in the same block, and equal
operations of several runs become one in the compiler. A callable has no effects and gives the same result each time
(``identity`` requires this), so running it several times is correct.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cutlass._mlir import ir

kinds: Any = ir  # the DSL's bindings have no types
MAX_PATHS = 64


class _Run:
    """One run of a callable. ``answers`` are those of its first conditions; the others are true. ``conditions`` are all
    that were asked for. ``divides`` and ``selects`` say whether it did so; see ``may_divide_by_zero``."""

    def __init__(self, answers: tuple[bool, ...], guarded: bool) -> None:
        self.guarded, self.divides, self.selects = guarded, False, False
        self.answers, self.conditions = list(answers), list[Any]()
        self.block = _block()
        self._known: dict[int, tuple[Any, bool]] = {}  # by the id of the value, which the entry keeps alive

    def answer(self, value: Any, condition: Callable[[], Any]) -> bool:
        if id(value) in self._known:
            return self._known[id(value)][1]
        if _block() != self.block:
            raise TypeError("it branches on a value inside a branch or loop of a function with @cute.jit")
        place = len(self.conditions)
        if place == MAX_PATHS:
            raise _too_many()
        if place == len(self.answers):
            self.answers.append(True)
        self.conditions.append(condition())
        self._known[id(value)] = value, self.answers[place]
        return self.answers[place]


class _Running(threading.local):
    """The runs of this thread, innermost last."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []


_running = _Running()


def truth(value: Any, condition: Callable[[], Any]) -> bool:
    """Return the truth of a register in this run; ``condition`` makes it a Boolean."""
    if not _running.runs:
        raise TypeError("a value has no truth outside of the callable")
    return _running.runs[-1].answer(value, condition)


def may_divide_by_zero() -> bool:
    """Record that a division of integers is emitted. Return whether its result may be thrown away, by a branch or by a
    select: in the first exploration that is not known yet, so if there is one, there is a second exploration."""
    if not _running.runs:
        return False
    _running.runs[-1].divides = True
    return _running.runs[-1].guarded


def selects() -> None:
    """Record that a select is emitted whose operands the callable computed both."""
    if _running.runs:
        _running.runs[-1].selects = True


def merged(call: Callable[[], tuple]) -> tuple:
    """Return the registers that ``call`` returns, joined over all paths through it."""
    found, runs = _explored(call, guarded=False)
    if any(run.divides and (run.selects or run.conditions) for run in runs):
        found, _ = _explored(call, guarded=True)
    return found


def _explored(call: Callable[[], tuple], guarded: bool) -> tuple[tuple, list[_Run]]:
    from ..monoid import choose

    runs: list[_Run] = []

    def below(answers: tuple[bool, ...]) -> tuple:
        """The registers of all paths whose conditions begin with these answers."""
        if len(runs) == MAX_PATHS:
            raise _too_many()
        run = _Run(answers, guarded)
        runs.append(run)
        _running.runs.append(run)
        try:
            found = call()
        finally:
            _running.runs.pop()
        if len(run.conditions) < len(answers):
            raise TypeError("it gives another result each time that it is called")
        for place in reversed(range(len(answers), len(run.conditions))):
            others = below((*run.answers[:place], False))
            found = tuple(choose(run.conditions[place], a, b) for a, b in zip(found, others))
        return found

    return below(()), runs


def _too_many() -> Exception:
    return TypeError(
        f"it has more than {MAX_PATHS} ways through its branches, or a loop whose end depends on a value; choose with "
        "numpy.where, min and max, or put the loop into a function with @cute.jit"
    )


def _block() -> Any:
    """Return the block that operations go to; None outside of a kernel."""
    try:
        return kinds.InsertionPoint.current.block
    except ValueError:
        return None
