"""The ladder of the source documents: one small kernel a file, each with the picture of who waits for whom.

A pattern is a module. Its ``run(...)`` launches it on any array, its ``reference(...)`` is the same in NumPy:

    cs.patterns.producer_consumer.run(x, lambda v: 2 * v)
"""

from __future__ import annotations

import importlib

NAMES = ("producer_consumer",)
__all__ = list(NAMES)


def __getattr__(name: str):
    if name not in NAMES:
        raise AttributeError(f"module 'cutesync.patterns' has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
