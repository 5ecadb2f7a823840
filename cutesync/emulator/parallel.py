"""Work on numbers, in forked processes: each child has the memory of this process as it is at the fork."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any


def in_processes(jobs: int, numbers: Iterable[int], work: Callable[[int], Any]) -> dict[int, Any]:
    """Return ``work(number)`` of each number: of some in this process, of the others in ``jobs - 1`` children.

    ``work`` must return what can be pickled. This process does what a child that ended early has left undone.
    """
    numbers = list(numbers)
    jobs = min(jobs, len(numbers)) if hasattr(os, "fork") else 1
    children = [_start(numbers[child::jobs], work) for child in range(1, jobs)]
    results: dict[int, Any] = {}
    try:
        for number in numbers[::jobs] if jobs else ():
            results[number] = work(number)
    finally:
        for process, pipe in children:
            results |= _finish(process, pipe)
    return {number: results[number] if number in results else work(number) for number in numbers}


def _start(numbers: list[int], work: Callable[[int], Any]) -> tuple[int, int]:
    """Fork a child for these numbers. Return its process number and the end of the pipe that it writes to."""
    incoming, outgoing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the child runs nothing that needs them
        process = os.fork()
    if process:
        os.close(outgoing)
        return process, incoming
    try:
        os.close(incoming)
        data = pickle.dumps({number: work(number) for number in numbers})
        with os.fdopen(outgoing, "wb") as pipe:
            pipe.write(data)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _finish(process: int, incoming: int) -> dict[int, Any]:
    with os.fdopen(incoming, "rb") as pipe:
        data = pipe.read()
    os.waitpid(process, 0)
    return pickle.loads(data) if data else {}
