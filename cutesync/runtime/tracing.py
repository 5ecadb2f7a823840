"""Faster tracing: without source locations that no compilation needs. And valid names of kernels.

The DSL looks up the Python line of every wrapper that it puts around a value, which takes a quarter of a compilation's
time. Only the lines of operations reach the PTX: code compiled without these look-ups is the same to the byte. The line
of a place in the code is looked up once, not for each operation traced there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any


@contextlib.contextmanager
def quick_tracing() -> Iterator[None]:
    """Skip these look-ups inside. A DSL that makes its wrappers in another way is left unchanged."""
    from cutlass._mlir_helpers import arith, op

    values: Any = arith.ArithValue
    plain = getattr(values.__init__, "__wrapped__", None)
    changes: list[tuple[Any, str, Any]] = []
    if plain is not None:
        changes.append(
            (values, "__init__", lambda self, *given, loc=None, **rest: plain(self, *given, loc=loc, **rest))
        )
    for name, remembered in (("_fast_frameinfo", _by_place), ("_is_framework_module", lru_cache(None))):
        if hasattr(op, name):
            changes.append((op, name, remembered(getattr(op, name))))
    before = [getattr(owner, name) for owner, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(changes, before):
            setattr(owner, name, value)


@contextlib.contextmanager
def valid_names() -> Iterator[None]:
    """Make the names of kernels identifiers inside. The DSL makes them of the texts of constants, and leaves some
    characters (the "+" of 1e+38) that its compiler refuses. A DSL that makes names in another way is left unchanged."""
    from cutlass.base_dsl import dsl

    owner: Any = dsl.BaseDSL
    made = getattr(owner, "mangle_name", None)
    if made is None:
        yield
        return
    owner.mangle_name = lambda *given, **rest: re.sub(r"[^a-zA-Z0-9_$]", "_", made(*given, **rest))
    try:
        yield
    finally:
        owner.mangle_name = made


def _by_place(look_up: Callable[[FrameType], Any]) -> Callable[[FrameType], Any]:
    """``look_up``, called once for each place in the code at which a frame is."""
    known: dict[tuple[int, int], tuple[CodeType, Any]] = {}  # the code is kept, so that its id stays its own

    def place(frame: FrameType) -> Any:
        key = id(frame.f_code), frame.f_lasti
        found = known.get(key)
        if found is None:
            found = known[key] = frame.f_code, look_up(frame)
        return found[1]

    return place
