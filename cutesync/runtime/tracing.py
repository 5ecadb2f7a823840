"""Faster tracing: without source locations that no compilation needs.

The DSL looks up the Python line of every wrapper that it puts around a value, which takes a quarter of a compilation's
time. Only the lines of operations reach the PTX: code compiled without these look-ups is the same to the byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def quick_tracing() -> Iterator[None]:
    """Skip these look-ups inside. A DSL that makes its wrappers in another way is left unchanged."""
    from cutlass._mlir_helpers import arith

    values: Any = arith.ArithValue
    traced = values.__init__
    plain = getattr(traced, "__wrapped__", None)
    if plain is None:
        yield
        return
    values.__init__ = lambda self, *arguments, loc=None, **options: plain(self, *arguments, loc=loc, **options)
    try:
        yield
    finally:
        values.__init__ = traced
