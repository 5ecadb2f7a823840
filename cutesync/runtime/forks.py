"""What a forked child inherits: only the thread that forked lives on in it, so a lock that another one held would never
be released.

A fork waits for the locks of what cannot be left half way, a compilation or an emulated launch; all other locks are new
in the child.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 (it and logging hook forks too: imported while a fork waits, they
import logging  # noqa: F401 (would release locks that they have not taken)
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet = weakref.WeakSet()


def lock(kind: Callable = threading.Lock) -> Any:
    """A lock that a forked child finds free. For what can be left half way."""
    made = kind()
    _locks.add(made)
    return made


def wait_for(held: Any, mine: Callable[[], bool] = lambda: False) -> None:
    """Let every fork wait for this lock and release it on both sides. ``mine()``: this thread holds it and cannot take
    it again."""
    taken: list[bool] = []

    def before() -> None:
        if not mine():
            held.acquire()
            taken.append(True)

    def in_parent() -> None:
        if taken:
            taken.pop()
            held.release()

    def in_child() -> None:
        if taken:
            in_parent()
        elif not mine():  # Ctrl-C has ended the wait
            held._at_fork_reinit()

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _renew() -> None:
    for inherited in list(_locks):
        inherited._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
