"""The DSL's contexts of MLIR after a compilation.

The DSL remembers types by the context in which it made them (``lru_cache_ir``). A finished compilation never asks for
them again, but they keep its whole context, one to ten megabytes, until 128 others have taken their places. So a
process that compiles many kernels would grow by hundreds of contexts. What cycles of objects keep waits for Python's
collector, which large processes call rarely, and what is freed lies in pieces, which glibc keeps: test processes grew
to 18 GB. So both are asked for when a process has grown; in one with millions of objects this takes seconds.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

_known: tuple[int, list[Callable[[], None]]] = 0, []  # modules that were loaded, and the caches found in them
_size = 0  # bytes of this process after memory was returned, or after its first compilation
MOST_GROWTH = 256 << 20  # bytes, until memory is returned


def forget() -> None:
    """Empty these caches, and return freed memory to the system if this process has grown. Nothing may be compiled
    meanwhile."""
    global _known, _size
    if _known[0] != len(sys.modules):
        _known = len(sys.modules), list(_caches())
    for clear in _known[1]:
        clear()
    size = _resident()
    if not _size:
        _size = size
    elif size > _size + MOST_GROWTH:
        _return_memory()
        _size = _resident()


def _resident() -> int:
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _return_memory() -> None:
    """Free what only cycles keep, and return freed memory to the system if the C library is one that keeps it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _caches() -> Iterator[Callable[[], None]]:
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "cutlass":
            for value in list(vars(module).values()):
                yield from _clear(value)
                if isinstance(value, type) and value.__module__ == name:
                    for member in vars(value).values():
                        yield from _clear(member.fget if isinstance(member, property) else member)


def _clear(function: Any) -> Iterator[Callable[[], None]]:
    """Its ``cache_clear``, if it is a function with such a cache, under whatever decorators."""
    clear = getattr(function, "cache_clear", None)
    cache = getattr(clear, "__self__", None)
    if clear is not None and getattr(cache, "__qualname__", "").startswith("lru_cache_ir."):
        yield clear
