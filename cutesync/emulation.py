"""``cs.emulate``: runs the calls inside on the emulator, with its checks."""

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
    devices: int = 1,
) -> Any:
    """Run the calls inside, of this thread or asynchronous task, on the CPU emulator, whether or not there is a GPU.

    ``policy`` is one of ``cutesync.emulator.POLICIES`` (default: random, or all in turn with several schedules); a
    policy and a ``seed`` replay a run exactly. ``schedules=N`` runs each launch N times from the same memory and
    reports different results. ``sanitize=False`` runs faster, without checks. ``trace`` is a path for a Chrome trace of
    the schedule. A launch that never ends is reported; ``max_steps`` is its bound (see ``emulator.watchdog``). Arrays
    are NumPy arrays or DeviceArrays made inside. Raises ``emulator.EmulationError`` on the first race, deadlock or
    misuse. ``devices`` is how many devices ``Group.local()`` finds, up to 8. Yields the settings, whose ``steps`` and
    ``launches`` count what ran.
    """
    from . import emulator

    with (
        device.forced("emulator"),
        emulator.emulate(policy, seed, schedules, sanitize, trace, max_steps=max_steps, devices=devices) as settings,
    ):
        yield settings
