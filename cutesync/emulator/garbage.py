"""The garbage collector while launches run."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator

_collected = 0.0, 0.0  # when garbage was looked for last, and how long that took


@contextlib.contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """Inside, the garbage collector passes over the objects that there were before. As these then count as old, it
    would not look for garbage among them for long; so that is done here, in at most a fiftieth of the time."""
    global _collected
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        ended, took = _collected
        start = time.perf_counter()
        if gc.isenabled() and start - ended > 50 * took:
            gc.collect()
            now = time.perf_counter()
            _collected = now, now - start


def leave() -> None:
    """In a process that was forked: garbage of its parent (MLIR's, say) must not be finalized here."""
    global _collected
    _collected = math.inf, 0.0
