"""``cs.emulate``: everything inside runs on the emulator, checked."""

from __future__ import annotations

import contextlib
from typing import Any

from .runtime import device


@contextlib.contextmanager
def emulate(
    policy: str | None = None,
    seed: int = 0,
    schedules: int = 1,
    sanitize: bool = True,
    trace: Any = None,
    max_steps: int | None = None,
) -> Any:
    """Run every cutesync call inside on the CPU emulator, whether or not there is a GPU: those of this thread or
    asynchronous task.

    ``policy`` is one of ``cutesync.emulator.POLICIES`` (default: random, or all in turn with several schedules); a
    policy and a ``seed`` replay a run exactly. ``schedules=N`` runs each launch N times from the same memory and
    refuses different results. ``sanitize=False`` runs unchecked and faster. ``trace`` is a path for a Chrome trace of
    the schedule. A launch that never ends is reported; ``max_steps`` is its bound (see ``emulator.watchdog``). Arrays
    are NumPy arrays or DeviceArrays made inside. Raises ``emulator.EmulationError`` on the first race, deadlock or
    misuse. Yields the settings, whose ``steps`` and ``launches`` count what ran.
    """
    from . import emulator

    with (
        device.forced("emulator"),
        emulator.emulate(policy, seed, schedules, sanitize, trace, max_steps=max_steps) as settings,
    ):
        yield settings
