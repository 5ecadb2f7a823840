"""``python -m cutesync check``: runs every kernel of the demo on the emulator under many schedules, and checks for
races and deadlocks.

Each launch runs once per schedule, from the same memory. A case fails if its result differs from NumPy's or between
schedules, or if the sanitizer reports an error. A verdict covers only the schedules that ran: more schedules find more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

import cutesync as cs

from ..emulation import emulate
from ..emulator import POLICIES, EmulationError
from ..emulator.run import Settings
from .demo import chosen, compare, drawn

_HEADER = f"{'operation':<30} {'dtype':<9} {'size':<14} {'launches':>8} {'steps':>9} {'seconds':>8}  verdict"


def run(families: Sequence[str] = (), *, schedules: int | None = None, policy: str | None = None, seed: int = 0) -> int:
    """Print the table. Return 0 if every case passed, else 1. ``schedules`` defaults to one of each policy, or 5 of the
    given one."""
    names = chosen(families)
    schedules = schedules or (5 if policy else len(POLICIES))
    Settings(policy, seed, schedules)  # raises for invalid settings
    print(f"Each launch under {schedules} schedules ({policy or 'all policies in turn'}), seed {seed}.")
    print(_HEADER)
    passed = [_line(case, schedules, policy, seed, generator) for case, generator in drawn(names, "emulator", seed)]
    failures = passed.count(False)
    print(
        f"{len(passed)} cases: "
        + (f"{failures} FAILED" if failures else "no race, deadlock or misuse, and all agree with NumPy")
        + "."
    )
    return 1 if failures else 0


def _line(case, schedules: int, policy: str | None, seed: int, generator: np.random.Generator) -> bool:
    """Run one case and print its line, with the emulator's report if there is one. Return whether it passed."""
    inputs = case.make(generator)
    expected = np.asarray(case.expected(*inputs))
    print(f"{case.operation:<30} {case.dtype:<9} {case.size:<14}", end=" ", flush=True)
    before = time.perf_counter()
    with emulate(policy, seed, schedules) as settings:
        try:
            wrong, words = compare(np.asarray(case.call(*[cs.asarray(x) for x in inputs])), expected, case.tolerance)
        except EmulationError as error:
            wrong, words = True, f"\n{error}"
    seconds = time.perf_counter() - before
    verdict = f"FAILED {words}" if wrong else "clean"
    print(f"{settings.launches:>8} {settings.steps:>9} {seconds:>8.1f}  {verdict}", flush=True)
    return not wrong
