"""Selections: the elements that a mask, bits or a callable choose, in order. Nothing here waits for the host."""

from __future__ import annotations

from .call import compress, flatnonzero, nonzero, select
from .result import Selected

__all__ = ["Selected", "compress", "flatnonzero", "nonzero", "select"]
