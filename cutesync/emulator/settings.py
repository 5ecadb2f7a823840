"""How launches run. Settings belong to the thread or asynchronous task (and its children) that entered ``emulate``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from .. import env
from ..arguments import choice, flag, integer
from ..errors import ArgumentValueError, explain
from .report import KINDS, Findings, Report
from .roles import given
from .schedule import POLICIES, Schedule
from .trace import Trace

MAX_DEVICES = 8


@dataclass(eq=False)
class Settings:
    """Policy, seed, schedules a launch, whether the sanitizer checks, the trace, the bound on a launch without end.

    ``steps`` and ``launches`` count what ran, and ``findings`` are its warnings and notes, in nested blocks as well.
    """

    policy: str | None = None
    seed: int = 0
    schedules: int = 1
    sanitize: bool = True
    resident: int = 16
    trace: Trace | None = None
    max_steps: int | None = None
    initcheck: bool = True
    unseen_launches: bool = True
    devices: int = 1
    jobs: int = 1
    minimal: bool = False
    roles: Mapping[str, Iterable[int]] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    co_resident: bool = False  # blocks of every grid that fits on the device run at the same time
    copies: bool = False  # threads also hold copies of what other threads of their block load and store, as in Triton
    findings: Findings = field(default_factory=Findings)
    steps: int = 0
    launches: int = 0
    outer: tuple[Settings, ...] = ()
    entered: bool = field(default=True, init=False)
    role_of: dict[int, str] = field(init=False)  # ``roles`` by the number of a warp

    def __post_init__(self):
        if self.policy is not None:
            choice(self.policy, "policy", POLICIES)
        integer(self.seed, "seed", -(1 << 63), (1 << 63) - 1)
        integer(self.schedules, "schedules", 1, 1 << 31)
        integer(self.resident, "resident", 1, 1 << 31)
        integer(self.devices, "devices", 1, MAX_DEVICES)
        integer(self.jobs, "jobs", 1, 1 << 10)
        if self.max_steps is not None:
            integer(self.max_steps, "max_steps", 1, (1 << 63) - 1)
        for kind in self.allow:
            choice(kind, "allow", KINDS)
        self.role_of = given(self.roles)
        for name in ("sanitize", "initcheck", "unseen_launches", "minimal"):
            flag(getattr(self, name), name, numbers=True)

    def schedule(self, number: int) -> Schedule:
        """The schedule of the n-th run of a launch: the policy asked for, or each in turn; seeds count up."""
        names = list(POLICIES)
        policy = self.policy or ("random" if self.schedules == 1 else names[number % len(names)])
        return Schedule(policy, self.seed + (number if self.policy else number // len(names)), self.resident)

    def step_limit(self) -> int | None:
        """The steps after which a launch counts as endless, if the user has said."""
        return env.max_steps() if self.max_steps is None else self.max_steps

    def count(self, steps: int) -> None:
        """A launch has run under one schedule."""
        for counted in (self, *self.outer):
            counted.steps += steps
            counted.launches += 1

    def note(self, report: Report) -> None:
        """A warning or a note."""
        for noting in (self, *self.outer):
            noting.findings.add(replace(report))


_DEFAULT = Settings()
_ENTERED: ContextVar[tuple[Settings, ...]] = ContextVar("cutesync_emulate", default=())


def _in_force() -> tuple[Settings, ...]:
    """The blocks entered here and not left; a task may outlive the block that it was started in."""
    return tuple(s for s in _ENTERED.get() if s.entered)


def settings() -> Settings:
    """The settings in force here: those of the innermost ``emulate`` block."""
    return next(reversed(_in_force()), _DEFAULT)


@contextlib.contextmanager
def emulate(
    policy: str | None = None,
    seed: int = 0,
    schedules: int = 1,
    sanitize: bool = True,
    trace=None,
    resident: int = 16,
    max_steps: int | None = None,
    initcheck: bool = True,
    unseen_launches: bool = True,
    devices: int = 1,
    jobs: int = 1,
    minimal: bool = False,
    roles: Mapping[str, Iterable[int]] | None = None,
    allow: Iterable[str] = (),
):
    """Within the block launches on the emulator run under these settings. Yields them; ``steps`` and ``launches`` count
    what ran, ``findings`` are the warnings and notes.

    ``schedules=N`` runs each launch N times from the same memory and refuses different results; without a ``policy``
    all take turns. ``trace`` is a path: the first schedule of each launch is written there as a Chrome trace, blocks
    inside included. ``resident`` bounds the blocks in flight. ``max_steps`` is the bound on a launch without end (see
    ``watchdog``).

    ``initcheck``: to read shared memory that nobody has written is an error. Without it, a note: each schedule finds
    other bits there, and it is an error if they change what the launch leaves behind. ``unseen_launches``: launches
    that this run does not see may precede each programmatic launch, which must wait for them before it touches global
    memory at all. Without it, only for those that are seen to use the same bytes. ``devices``: how many there are for
    groups of devices (``cutesync.dist``).

    ``jobs``: the processes in which the schedules of a launch run. ``minimal``: a report says what the shortest change
    of order is that still shows the fault; the search takes a few seconds. ``roles`` names warps in reports and traces,
    by their numbers in the block: ``{"load": [0], "mma": range(4, 12)}``; all others have the names of the source.

    ``allow``: kinds of errors that do not end a run which can go on after them (races, missing fences, registers of
    ``wgmma``, what is left at exit): ``findings`` has them. What such a run computes may be wrong.
    """
    outer = _in_force()
    traced = next((s.trace for s in reversed(outer) if s.trace is not None), None)
    if trace is not None and traced is not None:
        raise ArgumentValueError(explain("trace", f"{trace} in a block traced to {traced.path}", "one trace at a time"))
    own = None if trace is None else Trace(trace)
    how = (own or traced, max_steps, initcheck, unseen_launches, devices, jobs, minimal, {} if roles is None else roles)
    made = Settings(policy, seed, schedules, sanitize, resident, *how, tuple(allow), outer=outer)
    _ENTERED.set((*outer, made))
    try:
        yield made
    finally:
        made.entered = False
        _ENTERED.set(_in_force())
        if own is not None:
            own.write()
