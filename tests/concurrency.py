"""Threads, for the tests of calls that run beside other calls."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(work, count: int = 4) -> list:
    """The results of ``work(0)`` to ``work(count - 1)`` in threads that start together, on the backend in force here.
    An error of any is raised here."""
    start = threading.Barrier(count)

    def run(k: int):
        start.wait()
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        tasks = [pool.submit(contextvars.copy_context().run, run, k) for k in range(count)]
    return [task.result() for task in tasks]
