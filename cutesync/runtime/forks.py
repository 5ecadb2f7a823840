"""Locks in forked children. Only the thread that forked exists in the child, so a lock that another thread held would
never be released there.

A fork waits for the locks of work that must not be interrupted: a compilation or an emulated launch. All other locks
are replaced in the child.
"""

from __future__ import annotations

# concurrent.futures and logging register fork handlers of their own. They are imported first: imported while a fork
# waits, they would release locks that they have not acquired.
import concurrent.futures.thread  # noqa: F401 (for its fork handlers)
import logging  # noqa: F401 (for its fork handlers)
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet = weakref.WeakSet()


def lock(kind: Callable = threading.Lock) -> Any:
    """Return a lock that is free in a forked child. It may guard only work that can be interrupted at any point."""
    made = kind()
    _locks.add(made)
    return made


def wait_for(held: Any, mine: Callable[[], bool] = lambda: False) -> None:
    """Make every fork wait for this lock, which is then released in parent and child. ``mine()`` returns whether this
    thread holds it and cannot acquire it again."""
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
        elif not mine():  # Ctrl-C interrupted the wait
            held._at_fork_reinit()

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _renew() -> None:
    for inherited in list(_locks):
        inherited._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
