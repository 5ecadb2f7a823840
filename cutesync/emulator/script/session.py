"""One checked run: its options, what it has found, and what a launch does in it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import LaunchError, explain
from .. import rounding
from ..device import DEVICE
from ..host_calls import Launch
from ..report import EmulationError
from ..rewind import Rewind
from ..run import LOCK, run_launch
from ..schedule import POLICIES
from ..settings import Settings
from ..trace import Trace
from .findings import Record

CHECKED_REPEATS = 8  # launches of one kernel with the same arguments: a loop that measures time makes thousands


@dataclass
class Options:
    """What the command line says about the run."""

    schedules: int = len(POLICIES)
    seed: int = 0
    policy: str | None = None
    sms: int = 8
    jobs: int = 1
    max_steps: int | None = None
    initcheck: bool = False
    co_resident: bool = False
    allow: tuple[str, ...] = ()
    trace: str | None = None
    roles: dict[str, list[int]] = field(default_factory=dict)
    events: str | None = None


class Graph:
    """A captured CUDA graph: work in order, and the memory that it keeps."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.kept: list[Any] = []

    def launch(self, session: Session) -> None:
        for each in self.work:
            session.enqueue(each)


@dataclass
class Session:
    """The run in force in this process (``current``). ``capture``: the CUDA graph that is being captured."""

    options: Options
    record: Record = field(init=False)
    settings: Settings = field(init=False)
    seen: Counter[int] = field(init=False, default_factory=Counter)
    capture: Graph | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        o = self.options
        self.record = Record(Path(o.events) if o.events else None, frozenset(o.allow))
        trace = Trace(o.trace) if o.trace else None
        how: dict[str, Any] = {"trace": trace, "max_steps": o.max_steps, "initcheck": o.initcheck}
        how |= {"unseen_launches": False, "jobs": o.jobs, "minimal": True, "roles": o.roles, "allow": o.allow}
        how["co_resident"] = o.co_resident
        self.settings = Settings(o.policy, o.seed, o.schedules, **how)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Do what a stream is given, or leave it to the graph that is being captured."""
        if self.capture is None:
            work()
        else:
            self.capture.work.append(work)

    def launch(self, launch: Launch, **how: Any) -> None:
        """Check a launch under all schedules. What is found is recorded, and the script goes on. ``how``: settings."""
        self.enqueue(partial(self._run, launch, how))

    def _run(self, launch: Launch, how: dict[str, Any]) -> None:
        name, key = launch.program.function.name, hash((launch.program, launch.grid, launch.block, launch.parameters))
        self.record.launched(name, launch.grid, launch.block)
        self.seen[key] += 1
        settings = replace(self.settings, **how)
        if self.seen[key] > CHECKED_REPEATS:
            self.note(f"{name}: launches with the same arguments after the first {CHECKED_REPEATS} run unchecked")
            settings = replace(settings, policy="round_robin", schedules=1, sanitize=False, trace=None)
        with LOCK:
            run_launch(launch, DEVICE, settings, self._rounded(name), lambda error: self.record.found(error.report))
        for report in self.settings.findings:
            self.record.found(report)

    def _rounded(self, name: str) -> Callable[[Rewind], bool]:
        """Whether two schedules of a kernel differ only in the last bits of sums."""

        def close(rewind: Rewind) -> bool:
            same = rounding.only(rewind)
            if same:
                self.note(f"{name}: it adds floats in any order, and results differ in their last bits")
            return same

        return close

    def failed(self, fault: BaseException) -> None:
        """Host code gets an error code for this."""
        if isinstance(fault, EmulationError):
            self.record.found(fault.report)
        else:
            self.record.note(f"host code got an error of CUDA: {type(fault).__name__}: {fault}")

    def note(self, text: str) -> None:
        self.record.note(text)

    def close(self) -> None:
        if self.settings.trace is not None:
            self.settings.trace.write()


def refused(name: str) -> LaunchError:
    """The error for a call that has no answer here."""
    advice = ""
    if "graph" in name.lower() or "capture" in name.lower():
        advice = "of CUDA graphs, captures are emulated, instantiated and launched: not nodes that a script adds itself"
    return LaunchError(explain(name, f"a call of it at {caller()}", "CUDA calls that the emulator answers", advice))


_NOT_THE_SCRIPT = {"cutesync", "torch", "cutlass", "tvm_ffi", "contextlib", "functools", "runpy", "importlib"}


def caller() -> str:
    """The file and line of the script that a call came from."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] not in _NOT_THE_SCRIPT:
            return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
